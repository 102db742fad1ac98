"""Every figure of README.md and docs/results: measures them on this machine, and writes them into these pages.

usage: python bench/figures [NAME...]      measures all, or those that are named (RUNS, below), and writes the pages
       python bench/figures --pages        writes the pages from what was measured last

What was measured lies in build/figures, a JSON file each and beside it how and where it was. A page has text, and between

    <!-- figures: NAME -->
    <!-- end -->

a table that is made anew. Run by `make figures`; takes about an hour, on a machine that does nothing else.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import tables

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build/figures"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/results").glob("*.md"))]
MARK = re.compile(r"<!-- figures: (?P<name>[\w-]+) -->\n.*?<!-- end -->", re.S)
MPIS = ("openmpi", "mpich")


class Run(NamedTuple):
    words: str  # of `headroom bench`; {file} takes the figures
    mpis: tuple[str, ...]


TWO_RANKS = ("pairs", "strided", "collectives", "nonblocking", "one-sided", "threads", "'other nodes'")
OF_TWO_RANKS = " ".join(f"--group {group}" for group in TWO_RANKS)
RUNS = {
    "paging": Run("paging --rounds 1 --json {file}", ("mpich",)),
    "engines": Run(
        "paging --rounds 1 --group sweeps --group rounds --group random --group pagerank --engine auto"
        " --engine userfaultfd-user --engine sigsegv --json {file}",
        ("mpich",),
    ),
    "messages": Run("messages --rounds 1 --json {file}", ("openmpi",)),
    # MPICH's ranks spin: with more of them than cores a round takes an hour and more.
    "messages-mpich": Run(f"messages --rounds 1 {OF_TWO_RANKS} --json {{file}}", ("mpich",)),
    "pipes": Run("rpipe --rounds 1 --json {file}", MPIS),
    "pipes-mpi": Run("rpipe --rounds 1 --backend mpi --largest 1048576 --json {file}", MPIS),
    "pipes-ofi": Run("rpipe --rounds 1 --backend ofi --largest 1048576 --json {file}", MPIS),
    "pipes-many": Run("rpipe --rounds 1 --group random --group one-core --json {file}", MPIS),
    "files": Run("io --rounds 3 --pattern interleaved --json {file}", MPIS),
    "files-left": Run("io --rounds 3 --pattern blocks --left 16,32,96,512 --json {file}", MPIS),
}
TABLES: dict[str, tuple[tuple[str, ...], Callable[..., list[str]]]] = {
    "paging": (("paging",), tables.paging),
    "engines": (("engines",), tables.engines),
    "messages": (("messages", "messages-mpich"), tables.messages),
    "pipes": (("pipes",), tables.pipes),
    "pipes-mpi": (("pipes-mpi",), tables.pipes_between_nodes),
    "pipes-ofi": (("pipes-ofi",), tables.pipes_between_nodes),
    "pipes-many": (("pipes-many",), tables.pipes_of_many),
    "files": (("files",), tables.files),
    "files-left": (("files-left",), tables.files),
    "summary": (("paging", "messages", "messages-mpich"), tables.summary),
}


def machine() -> str:
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return f"{len(os.sched_getaffinity(0))} cores of {model[1] if model else platform.machine()}, Linux {platform.release()}"


def version() -> str:
    """The version, and the commit that it was built from."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    number = re.search(r"headroom VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    return f"Headroom {number[1] if number else '?'} ({described.stdout.strip() or 'no repository'})"


def measure(name: str, run: Run, built: str) -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    (PLACE / f"{name}.about").unlink(missing_ok=True)
    file = PLACE / f"{name}.json"
    chosen = [word for mpi in run.mpis for word in ("--mpi", f"build/mpi/{mpi}")]
    words = ["headroom", "bench", *shlex.split(run.words.format(file=file)), *chosen]
    print(f"{name}: {shlex.join(words)}", flush=True)
    began = time.monotonic()
    subprocess.run([ROOT / "build/venv/bin/headroom", *words[1:]], check=True, cwd=ROOT)
    shown = shlex.join(["headroom", "bench", *shlex.split(run.words.replace(" --json {file}", "")), *chosen])
    about = {"command": shown, "machine": machine(), "version": built, "date": time.strftime("%Y-%m-%d")}
    (PLACE / f"{name}.about").write_text(json.dumps(about))
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def text_of(name: str) -> str | None:
    """What stands between the marks; None if it was not measured here."""
    sources, table = TABLES[name]
    if not all((PLACE / f"{source}.about").exists() for source in sources):
        return None
    rows = [json.loads((PLACE / f"{source}.json").read_text()) for source in sources]
    about = [json.loads((PLACE / f"{source}.about").read_text()) for source in sources]
    commands = "; ".join(f"`{each['command']}`" for each in about)
    lines = [*table(*rows), "", f"{commands}. {about[0]['machine']}; {about[0]['version']}, {about[0]['date']}."]
    return "\n".join(lines) + "\n"


def write_pages() -> None:
    for page in PAGES:
        before = page.read_text()

        def renewed(mark: re.Match) -> str:
            text = text_of(mark["name"])
            return mark[0] if text is None else f"<!-- figures: {mark['name']} -->\n{text}<!-- end -->"

        after = MARK.sub(renewed, before)
        if after != before:
            page.write_text(after)
            print(f"wrote {page.relative_to(ROOT)}")


def main() -> None:
    names = sys.argv[1:]
    if unknown := [name for name in names if name not in (*RUNS, "--pages")]:
        sys.exit(f"figures: there is no {unknown[0]}; there are {', '.join(RUNS)}")
    if names != ["--pages"]:
        built = version()
        for name in names or RUNS:
            measure(name, RUNS[name], built)
    write_pages()


if __name__ == "__main__":
    main()
