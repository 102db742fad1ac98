"""Part 1: an MPI PageRank, unmodified, on a Graph500 Kronecker graph that needs more than four times the budget. Plain in full
memory, under Headroom, and with the kernel's swap instead, the last two inside a hard memory limit where that can be set."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from headroom import hard_limit
from headroom.report.drawings import in_both_themes, memory
from headroom.report.trace import read_run
from steps import EXAMPLES, HEADROOM, MPIEXEC, Part, checksum, run, say

RANKS = 4
BUDGET = 192 << 20
LIMIT = BUDGET + BUDGET // 4
GRAPH = ["--kronecker", "21", "--per-vertex", "32", "--tolerance", "1e-12", "--top", "3"]
PROGRAM = EXAMPLES / "pagerank-mpich"


def limited(command: list, swap: bool, limit: int = LIMIT) -> tuple[float, str, str, int]:
    with hard_limit.HardLimit(limit, swap) as cgroup:
        return run(cgroup.wrap([str(word) for word in command]))


def with_swap(command: list) -> tuple[float, int] | None:
    """The same job with the kernel's swap: seconds, and the limit that it survived; None if there is no such run."""
    try:
        with hard_limit.SwapFile(4 << 30):
            for limit in (LIMIT, 2 * LIMIT):
                say(f"  with the kernel's swap instead, inside a limit of {limit >> 20} MiB:")
                seconds, _, _, status = limited(command, swap=True, limit=limit)
                if status == 0:
                    return seconds, limit
                say(f"    the kernel ended it after {seconds:.0f} s, out of memory, although swap was free")
    except OSError as error:
        say(f"    cannot be set up here: {error}")
    return None


def show(folder: Path) -> Part:
    say(f"1. More memory than there is: PageRank, {RANKS} ranks, {' '.join(GRAPH)}")
    why_not = hard_limit.available() if os.geteuid() == 0 else "setting a hard limit needs root"
    plain_command = [MPIEXEC, "-n", RANKS, PROGRAM, *GRAPH]
    say("  plain, in as much memory as it wants:")
    plain_seconds, plain, _, _ = run(plain_command)

    trace = folder / "pagerank"
    command = [HEADROOM, "run", "-n", RANKS, "--memory", f"{BUDGET >> 20}M", "--trace", trace, PROGRAM, *GRAPH]
    if why_not is None:
        say(f"  under Headroom with {BUDGET >> 20} MiB, inside a hard limit of {LIMIT >> 20} MiB, swap off:")
        seconds, under, _, status = limited(command, swap=False)
    else:
        say(f"  under Headroom with {BUDGET >> 20} MiB ({why_not}):")
        seconds, under, _, status = run(command)
    same = status == 0 and checksum(plain) == checksum(under) != "none"
    swapped = with_swap(plain_command) if why_not is None else None

    figures = {}
    with contextlib.suppress(OSError, ValueError):
        figures = json.loads((trace / "run.json").read_text())
    total = figures.get("total", {})
    needed = total.get("touched_bytes_peak", 0) + total.get("other_bytes_peak", 0)
    bars = [("in memory, plain", plain_seconds), ("Headroom", seconds)]
    say("Result")
    say(f"  memory needed      {needed / 2**20:8.0f} MiB = {needed / BUDGET:.1f} times the budget of {BUDGET >> 20} MiB")
    say(f"  plain, in memory   {plain_seconds:8.1f} s")
    say(f"  Headroom           {seconds:8.1f} s")
    if swapped is not None:
        swap_seconds, limit = swapped
        more = f", in {limit / LIMIT:.0f} times the memory" if limit > LIMIT else ""
        say(f"  kernel's swap      {swap_seconds:8.1f} s = {swap_seconds / seconds:.1f} times Headroom's time{more}")
        bars.append((f"the kernel's swap{more}", swap_seconds))
    say(f"  results            {'the same, bit for bit' if same else 'DIFFERENT: something is wrong'}")

    run([HEADROOM, "report", trace], quiet=True)
    text = (
        f"The program needs {needed / 2**20:.0f} MiB and has {BUDGET >> 20}. Below, what each rank had in memory over time; the"
        " dashed line is the budget. The result is the same, bit for bit."
    )
    pictures = in_both_themes(memory, read_run(trace)[0]) if same else {}
    return Part("More memory than there is", text, "s", bars, pictures, "pagerank/report.html", same)
