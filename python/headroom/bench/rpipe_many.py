"""`headroom bench rpipe --group random` and `one-core`: many ranks that write to each other at random, and two ranks on one
processor, by pipes and by the least that the machine takes (rpipe_many.c)."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import click

from headroom.bench.messages import size_name
from headroom.bench.programs import launcher_of, output_of

SOURCE = Path(__file__).parent / "rpipe_many.c"
RANKS = (2, 4, 8, 16)
CASES = ((8, 0), (64, 0), (1024, 0), (8192, 0), (8, 64), (8, 4096))  # bytes, and messages on their way to one rank at most


class ManyRow(NamedTuple):
    mpi: str
    group: str
    ranks: int
    bytes: int
    bound: int  # 0: none
    rpipe: float  # microseconds a write of one rank
    least: float  # by places in memory that all have; on one processor by a futex
    growth: float | None  # how many times as much longer it takes than with the fewest ranks, than that does


def run_once(program: Path, ranks: int, words: list) -> tuple[float, float]:
    found = launcher_of(program)
    lines = output_of([*found.command, "-n", ranks, program, *words], found.environment).splitlines()
    times = dict(line.split("\t") for line in lines if line.count("\t") == 1)
    return float(times["rpipe"]), float(times["futex" if words[0] == "one-core" else "memory"])


def medians(program: Path, rounds: int, ranks: int, words: list) -> tuple[float, float]:
    taken = [run_once(program, ranks, words) for _ in range(rounds)]
    return statistics.median(pair[0] for pair in taken), statistics.median(pair[1] for pair in taken)


def measure_random(prefix: Path, program: Path, rounds: int, writes: int) -> list[ManyRow]:
    rows = []
    with click.progressbar(length=len(RANKS) * len(CASES), label=f"measuring {prefix.name}", file=sys.stderr) as bar:
        for size, bound in CASES:
            first: tuple[float, float] | None = None
            for ranks in RANKS:
                times = medians(program, rounds, ranks, ["random", size, writes, bound])
                growth = None if first is None else (times[0] / first[0]) / (times[1] / first[1])
                first = first or times
                rows.append(ManyRow(prefix.name, "random", ranks, size, bound, *times, growth))
                bar.update(1)
    return rows


def measure_one_core(prefix: Path, program: Path, rounds: int) -> list[ManyRow]:
    return [ManyRow(prefix.name, "one-core", 2, 8, 0, *medians(program, rounds, 2, ["one-core"]), None)]


def show(rows: list[ManyRow]) -> None:
    random = [row for row in rows if row.group == "random"]
    if random:
        click.echo(f"\n{random[0].mpi}, writes to ranks at random; times of one write of each rank")
        click.echo(f"{'size':>8} {'bound':>6} {'ranks':>6} {'rpipe':>13} {'memory':>13} {'times':>6} {'growth':>7}")
    for row in random:
        growth = "" if row.growth is None else f"{row.growth:.2f}"
        click.echo(
            f"{size_name(row.bytes):>8} {row.bound or '':>6} {row.ranks:>6} {row.rpipe:>10.3f} us {row.least:>10.3f} us "
            f"{row.rpipe / row.least:>6.2f} {growth:>7}"
        )
    for row in rows:
        if row.group == "one-core":
            click.echo(f"\n{row.mpi}, 2 ranks on one processor, 8 bytes one way")
            click.echo(f"rpipe {row.rpipe:.2f} us, futex {row.least:.2f} us: {row.rpipe / row.least:.2f} times")
