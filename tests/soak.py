"""Hours of random work on memory against a model of it (programs/stress.c). Run by `make soak`, or with options of its own.

Each run draws an engine, an MPI, a store and its directories, ranks, threads, a budget that is less than what they
have, and a seed; the first that goes wrong, or moves nothing, ends the soak and says the command that repeats it.
"""

import argparse
import json
import random
import subprocess
import sys
import time

from conditions import lack
from conftest import BUILD, ENGINES, HEADROOM, ROOT, WHEELS, compile_program, environment, leftovers

FOLDER = BUILD / "soak"
REPORT = FOLDER / "report.json"


def draw_settings(chance: random.Random) -> dict[str, str]:
    engines = [engine for engine in ENGINES if engine == "sigsegv" or lack(f"the engine {engine}") is None]
    stores = ["threads"] if lack("io_uring") else ["io_uring", "io_uring", "threads"]
    return {
        "engine": chance.choice(engines),
        "store": chance.choice(stores),
        "store-direct": chance.choice(["auto", "auto", "off"]),
        "storage": chance.choice(["/var/tmp", f"/var/tmp:{FOLDER}"]),
        "checksums": chance.choice(["off", "on"]),
        "huge-pages": chance.choice(["auto", "never"]),
    }


def draw(chance: random.Random, operations: int) -> tuple[list[str], str, str]:
    """A command, what it is in short, and its engine."""
    mpi, settings = chance.choice(WHEELS), draw_settings(chance)
    ranks, threads, each = chance.choice([1, 2, 4]), chance.choice([1, 2, 5]), chance.choice([4, 16, 40])
    least = max(16, ranks * 8)
    each = max(each, -(-2 * least // (ranks * threads)))
    budget = max(least, int(ranks * threads * each * chance.choice([0.2, 0.4, 0.8])))
    seed = chance.randrange(1 << 30)
    program = compile_program(mpi, "stress.c", f"-I{ROOT}/include")
    options = [word for name, value in settings.items() for word in (f"--{name}", value)]
    options += ["--memory", f"{budget}M", "--summary", "off", "--json", REPORT]
    command = [*mpi.command(ranks), HEADROOM, "run", *options, program, threads, each, operations, seed]
    what = f"{mpi.name} x {ranks}, {threads} threads x {each} MiB in {budget} MiB, {', '.join(settings.values())}, seed {seed}"
    return [str(word) for word in command], what, settings["engine"]


def what_is_wrong(command: list[str], engine: str) -> str | None:
    REPORT.unlink(missing_ok=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment(), check=False)
    except subprocess.TimeoutExpired as hang:
        return f"still running after 900 s\n{hang.stderr or ''}"
    if done.returncode != 0 or not done.stdout.startswith("wrong 0\n"):
        return done.stdout + done.stderr
    report = json.loads(REPORT.read_text())
    engines = {rank["engine"] for rank in report["ranks"]}
    if engines != {engine}:
        return f"the engines were {engines}"
    if report["total"]["blocks_evicted"] == 0 or report["total"]["bytes_written"] == 0:
        return "nothing left memory"
    return f"left behind: {leftovers()}" if leftovers() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=2, help="how long (default: %(default)s)")
    parser.add_argument("--operations", type=int, default=6000, help="of each thread in a run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="draws the same runs again")
    chosen = parser.parse_args()
    chance, ends = random.Random(chosen.seed), time.monotonic() + chosen.hours * 3600
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"seed {chosen.seed}", flush=True)
    runs = 0
    while time.monotonic() < ends:
        command, what, engine = draw(chance, chosen.operations)
        started = time.monotonic()
        wrong = what_is_wrong(command, engine)
        runs += 1
        print(f"{runs:5}  {time.monotonic() - started:6.1f} s  {'FAILED' if wrong else 'good'}  {what}", flush=True)
        if wrong:
            print(f"{wrong}\nto repeat:\n  {' '.join(command)}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
