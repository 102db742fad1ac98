"""Hours of random work on memory against a model of it (programs/stress.c). Run by `make soak`, or with options of its own.

Each run draws an engine, an MPI, a policy, a budget, ranks, threads and a seed; the first that goes wrong ends the soak and
says the command that repeats it.
"""

import argparse
import random
import subprocess
import sys
import time

from conditions import lack
from conftest import ENGINES, HEADROOM, ROOT, WHEELS, compile_program, environment, leftovers

MIB = 1 << 20


def draw(chance: random.Random, operations: int) -> tuple[list[str], str]:
    """A command, and what it is in short."""
    engines = [engine for engine in ENGINES if engine == "sigsegv" or lack(f"the engine {engine}") is None]
    stores = ["threads"] if lack("io_uring") else ["io_uring", "io_uring", "threads"]
    mpi, engine = chance.choice(WHEELS), chance.choice(engines)
    policy, store = chance.choice(["auto", "lazy", "aggressive"]), chance.choice(stores)
    ranks, threads, each = chance.choice([1, 2, 4]), chance.choice([1, 2, 5]), chance.choice([4, 16, 40])
    budget = max(16, ranks * 8, int(ranks * threads * each * chance.choice([0.2, 0.4, 0.8])))
    seed = chance.randrange(1 << 30)
    program = compile_program(mpi, "stress.c", f"-I{ROOT}/include")
    settings = ["--memory", f"{budget}M", "--engine", engine, "--evict", policy, "--store", store, "--summary", "off"]
    command = [*mpi.command(ranks), HEADROOM, "run", *settings, program, threads, each, operations, seed]
    what = f"{mpi.name} x {ranks}, {threads} threads x {each} MiB in {budget} MiB, {engine}, {policy}, {store}, seed {seed}"
    return [str(word) for word in command], what


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=2, help="how long (default: %(default)s)")
    parser.add_argument("--operations", type=int, default=6000, help="of each thread in a run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="draws the same runs again")
    chosen = parser.parse_args()
    chance, ends = random.Random(chosen.seed), time.monotonic() + chosen.hours * 3600
    print(f"seed {chosen.seed}", flush=True)
    runs = 0
    while time.monotonic() < ends:
        command, what = draw(chance, chosen.operations)
        started = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment(), check=False)
            failed = done.returncode != 0 or not done.stdout.startswith("wrong 0\n")
            said = done.stdout + done.stderr
        except subprocess.TimeoutExpired as hang:
            failed, said = True, f"still running after 900 s\n{hang.stderr or ''}"
        runs += 1
        print(f"{runs:5}  {time.monotonic() - started:6.1f} s  {'FAILED' if failed else 'good'}  {what}", flush=True)
        if failed or leftovers():
            print(f"{said}\nleft behind: {leftovers()}\nto repeat:\n  {' '.join(command)}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
