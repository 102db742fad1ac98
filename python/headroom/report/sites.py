"""From return addresses to function, file and line, by addr2line (binutils) where it is installed."""

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

from headroom.report.trace import Node, Site

# What calls malloc on the program's behalf; the program's own frame is further out.
NOT_THE_PROGRAM = re.compile(
    r"lib(headroom|c|stdc\+\+|gfortran|gcc_s|pthread|m|dl|mpi\w*|open-\w+|pmix|fabric|uc[pst])(-[\d.]+)?\.so|ld-"
)


def program_frames(site: Site) -> list[tuple[str, int]]:
    return [frame for frame in site.frames if not NOT_THE_PROGRAM.match(Path(frame[0]).name)]


def resolve(nodes: list[Node]) -> dict[tuple[str, int], str]:
    """What to call each frame of the program's."""
    wanted: dict[str, set[int]] = defaultdict(set)
    for node in nodes:
        for process in node.processes:
            for site in process.sites:
                for module, offset in program_frames(site)[:2]:
                    wanted[module].add(offset)
    names = {(module, offset): f"{Path(module).name}+{offset:#x}" for module, offsets in wanted.items() for offset in offsets}
    tool = shutil.which("addr2line")
    for module, offsets in wanted.items() if tool else ():
        ordered = sorted(offsets)
        # The call is before the address that it returns to.
        command = [tool, "-f", "-C", "-e", module, *(hex(offset - 1) for offset in ordered)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        if done.returncode != 0 or len(lines) != 2 * len(ordered):
            continue
        for offset, function, place in zip(ordered, lines[::2], lines[1::2]):
            where = re.sub(r" \(discriminator \d+\)", "", place)
            file, _, line = where.rpartition(":")
            shown = f"{Path(file).name}:{line}" if not where.startswith("?") else Path(module).name
            if function != "??":
                names[module, offset] = f"{function}, {shown}"
    return names


def by_site(node: Node, names: dict[tuple[str, int], str]) -> list[tuple[str, int, float, int]]:
    """(where, faults from storage, seconds waited, bytes allocated) over all processes of the node, most waited for first."""
    sums: dict[str, list] = {}
    for process in node.processes:
        for site in process.sites:
            frames = program_frames(site)
            if frames:
                where = " ← ".join(name for name in (names[frame] for frame in frames[:2]) if not name.startswith("_start"))
            else:
                where = "static data" if not site.frames else "small objects, and libraries"
            entry = sums.setdefault(where, [0, 0.0, 0])
            entry[0] += site.faults
            entry[1] += site.waited
            entry[2] += site.bytes
    rows = [(where, *entry) for where, entry in sums.items() if any(entry)]
    return sorted(rows, key=lambda row: (-row[2], -row[1], -row[3]))
