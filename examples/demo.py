"""The main job: an MPI PageRank, unmodified, on a graph bigger than its memory. Run by `make demo`.

1. the dependency graph of this machine's Debian packages, in memory, with and without Headroom: same result
2. a Graph500 Kronecker graph that needs more than three times the budget, inside a hard memory limit where that can be set:
   plain in full memory, under Headroom, and, where swap can be set up, with the kernel's swap instead
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headroom import hard_limit
from headroom.bench.programs import ended_in_order

ROOT = Path(__file__).resolve().parent.parent
HEADROOM = ROOT / "build/venv/bin/headroom"
PROGRAM = ROOT / "build/examples/pagerank-mpich"
MPIEXEC = ROOT / "build/mpi/mpich/bin/mpiexec"
RANKS = 4
BUDGET = 192 << 20
LIMIT = BUDGET + BUDGET // 4
KRONECKER = ["--kronecker", "21", "--per-vertex", "32", "--tolerance", "1e-12", "--top", "3"]


def say(text: str = "") -> None:
    print(text, flush=True)


def run(command: list, quiet: bool = False) -> tuple[float, str, int]:
    started = time.monotonic()
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
    if not quiet:
        say("".join(f"    {line}\n" for line in done.stdout.splitlines()).rstrip())
    return time.monotonic() - started, done.stdout, done.returncode


def checksum(output: str) -> str:
    found = re.search(r"checksum: (\w+)", output)
    return found[1] if found else "none"


def packages(folder: str) -> bool | None:
    """Part 1. True if both runs agree; None if there are no package lists to make the graph from."""
    edges, names = Path(folder) / "edges", Path(folder) / "names"
    made = subprocess.run([sys.executable, ROOT / "examples/debian_graph.py", edges, names], capture_output=True, text=True)
    if made.returncode != 0:
        say(f"  left out: {(made.stderr.strip().splitlines() or ['no package lists'])[-1]}")
        return None
    say(f"  {made.stdout.strip()}")
    _, plain, _ = run([MPIEXEC, "-n", RANKS, PROGRAM, edges], quiet=True)
    _, under, _ = run([HEADROOM, "run", "-n", RANKS, PROGRAM, edges], quiet=True)
    name_of = names.read_text().splitlines()
    for place, vertex, rank in re.findall(r"top (\d+): vertex (\d+) rank (\S+)", under):
        say(f"    {place}. {name_of[int(vertex)]:<24} {float(rank):.5f}")
    same = checksum(plain) == checksum(under) != "none"
    say(f"  checksum without and with Headroom: {checksum(plain)}, {checksum(under)}: {'the same' if same else 'DIFFERENT'}")
    return same


def limited(command: list, swap: bool, limit: int = LIMIT) -> tuple[float, str, int]:
    with hard_limit.HardLimit(limit, swap) as cgroup:
        return run(cgroup.wrap([str(word) for word in command]))


def with_swap(command: list) -> tuple[float, int] | None:
    """The same job with the kernel's swap instead: seconds, and the limit it survived; None if there is no such run."""
    try:
        with hard_limit.SwapFile(4 << 30):
            for limit in (LIMIT, 2 * LIMIT):
                say(f"  with the kernel's swap instead, inside a limit of {limit >> 20} MiB:")
                seconds, _, status = limited(command, swap=True, limit=limit)
                if status == 0:
                    return seconds, limit
                say(f"    ended after {seconds:.0f} s by the kernel, out of memory, although swap was free")
    except OSError as error:
        say(f"    cannot be set up here: {error}")
    return None


def main() -> int:
    with ended_in_order(), tempfile.TemporaryDirectory() as folder:
        say("1. PageRank of this machine's Debian packages")
        good = packages(folder) is not False

        say(f"\n2. PageRank of a Kronecker graph, {RANKS} ranks, {' '.join(KRONECKER)}")
        why_not = hard_limit.available() if os.geteuid() == 0 else "setting a hard limit needs root"
        plain_command = [MPIEXEC, "-n", RANKS, PROGRAM, *KRONECKER]
        say("  plain, in as much memory as it wants:")
        plain_seconds, plain, _ = run(plain_command)

        json_file = Path(folder) / "run.json"
        command = [HEADROOM, "run", "-n", RANKS, "--memory", f"{BUDGET >> 20}M", "--json", json_file, PROGRAM, *KRONECKER]
        if why_not is None:
            say(f"  under Headroom with {BUDGET >> 20} MiB, inside a hard limit of {LIMIT >> 20} MiB, swap off:")
            seconds, under, status = limited(command, swap=False)
        else:
            say(f"  under Headroom with {BUDGET >> 20} MiB ({why_not}):")
            seconds, under, status = run(command)
        good = good and status == 0 and checksum(plain) == checksum(under) != "none"

        swapped = with_swap(plain_command) if why_not is None else None

        report = {}
        with contextlib.suppress(OSError, ValueError):
            report = json.loads(json_file.read_text())
        parts = ("touched_bytes_peak", "other_bytes_peak")
        needed = sum(report.get("total", {}).get(part, 0) for part in parts)  # as the summary counts it
        say("\nResult")
        say(f"  memory needed      {needed / 2**20:8.0f} MiB = {needed / BUDGET:.1f} times the budget of {BUDGET >> 20} MiB")
        say(f"  plain, in memory   {plain_seconds:8.1f} s")
        say(f"  Headroom           {seconds:8.1f} s")
        if swapped is not None:
            swap_seconds, limit = swapped
            more = f", in {limit / LIMIT:.0f} times the memory" if limit > LIMIT else ""
            say(f"  kernel's swap      {swap_seconds:8.1f} s = {swap_seconds / seconds:.1f} times Headroom's time{more}")
        say(f"  results            {'the same, bit for bit' if good else 'DIFFERENT: something is wrong'}")
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
