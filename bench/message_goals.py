"""What messages inside a node are to reach against the MPI libraries' best settings, and whether one run of
`headroom bench messages --json FILE` reached it. Run by `make bench`: message_goals.py FILE

For each goal and library the worst row counts.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

KIB, MIB = 1 << 10, 1 << 20
Row = dict


class Goal(NamedTuple):
    text: str
    groups: tuple[str, ...]
    belongs: Callable[[Row], bool]
    least: dict[str, float]  # by library; the library's time over Headroom's
    measure: Callable[[Row, list[Row]], float] = lambda row, _: row["ratio"]


def one_way(smallest: int, largest: int) -> Callable[[Row], bool]:
    return lambda row: row["what"].startswith("one way") and smallest <= row["bytes"] <= largest


def named(*beginnings: str, smallest: int = 0) -> Callable[[Row], bool]:
    return lambda row: row["what"].startswith(beginnings) and row["bytes"] >= smallest


def beside_contiguous(row: Row, rows: list[Row]) -> float:
    """How much of the speed of a contiguous message it has."""
    same = [other for other in rows if other["group"] == row["group"] and other["mpi"] == row["mpi"]]
    straight = next(other for other in same if other["bytes"] == row["bytes"] and other["what"].startswith("contiguous"))
    return straight["headroom"] / row["headroom"]


def beside_ideal(row: Row, _: list[Row]) -> float:
    return row["others"]["ideal"] / row["headroom"]


def turns_beside_others(row: Row, _: list[Row]) -> float:
    return row["headroom"] / row["others"]["turns"]


def direct_sums(row: Row, _: list[Row]) -> float:
    return row["library"] / row["others"]["direct sums"]


def both(least: float) -> dict[str, float]:
    return {"mpich": least, "openmpi": least}


MOVES = ("MPI_Bcast", "MPI_Allgather", "MPI_Alltoall", "MPI_Allreduce")
OF_TWO = ("pairs", "strided", "collectives", "nonblocking", "one-sided", "threads")
COLLECTIVES = ("collectives", "collectives of 4")
GOALS = [
    Goal("one way, 8 B", ("pairs",), one_way(8, 8), {"mpich": 1.8, "openmpi": 1.0}),
    Goal("256 B to 1 KiB", ("pairs",), one_way(256, KIB), {"mpich": 2.2, "openmpi": 1.5}),
    Goal("4 to 16 KiB", ("pairs",), one_way(4 * KIB, 16 * KIB), both(3.5)),
    Goal("64 KiB", ("pairs",), one_way(64 * KIB, 64 * KIB), both(2.2)),
    Goal("256 KiB to 4 MiB", ("pairs",), one_way(256 * KIB, 4 * MIB), both(2.0)),
    Goal("16 MiB", ("pairs",), one_way(16 * MIB, 16 * MIB), both(3.0)),
    Goal("both ways, to 16 KiB", ("pairs",), named("both ways"), both(1.0)),
    Goal("window of 64, 2 and 8 ranks", ("pairs", "crowd"), named("window"), {"mpich": 2.0, "openmpi": 1.2}),
    Goal("strided, both sides", ("strided",), named("runs"), both(3.0)),
    Goal("strided beside contiguous", ("strided",), named("runs of 256", "runs of 2048"), both(0.5), beside_contiguous),
    Goal("transposition by datatypes", ("transposition",), named("transposition"), both(2.0)),
    Goal("collectives from 64 KiB", COLLECTIVES, named(*MOVES, smallest=64 * KIB), both(1.5)),
    Goal("collectives at any size", COLLECTIVES, named(*MOVES), both(0.97)),
    Goal("2 ranks, everything", OF_TWO, named(""), both(0.98)),
    Goal("8 ranks on 2 cores", ("crowd",), named("one way", "ring", "halo", "MPI_Barrier"), both(1.0)),
    Goal("messages to other nodes", ("other nodes",), named("one way"), both(0.97)),
    Goal("1 ms of work between calls", ("work",), named("1 ms"), {"mpich": 1.0, "openmpi": 0.97}),
    Goal("0.3 ms of work between calls", ("work",), named("0.3 ms"), both(0.97)),
    Goal("the same, sums direct", ("work",), named("MPI_Allreduce"), {"mpich": 5.0, "openmpi": 0.97}, direct_sums),
    Goal("work beside the ideal", ("work",), named(""), both(1 / 1.4), beside_ideal),
    Goal("work in turns beside others", ("work",), named(""), both(1 / 1.5), turns_beside_others),
]


def size_name(row: Row) -> str:
    size = row["bytes"]
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="what `headroom bench messages --json FILE` wrote")
    rows = json.loads(parser.parse_args().file.read_text())
    print(f"{'':<34} {'library':<9} {'goal':>5} {'worst':>6} {'median':>7}  met  worst row")
    for goal in GOALS:
        for library, least in goal.least.items():
            mine = [row for row in rows if row["mpi"] == library and row["group"] in goal.groups and goal.belongs(row)]
            if not mine:
                continue
            reached = sorted(
                (goal.measure(row, rows), f"{row['what']}, {size_name(row)}, {row['ranks']} ranks") for row in mine
            )
            worst, where = reached[0]
            median = reached[len(reached) // 2][0]
            met = "yes" if worst >= least else "no"
            print(f"{goal.text:<34} {library:<9} {least:>5.2f} {worst:>6.2f} {median:>7.2f}  {met:<4} {where}")


if __name__ == "__main__":
    main()
