"""What memory beyond the budget is to reach, and whether one run of `headroom bench paging --json FILE` reached it.
Run by `make bench`: paging_goals.py FILE

For each goal the worst row counts. Ratios above 1 mean that Headroom is faster.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

Row = dict


class Goal(NamedTuple):
    text: str
    groups: tuple[str, ...]
    phases: tuple[str, ...]  # beginnings of their names
    least: float
    measure: Callable[[Row], float | None]


def beside(side: str) -> Callable[[Row], float | None]:
    return lambda row: row["seconds"][side] / row["seconds"]["headroom"] if side in row["seconds"] else None


def plain_again(row: Row) -> float:
    return row["seconds"]["plain"] / row["seconds"]["again"]


def enough(row: Row) -> float | None:
    """Headroom with memory enough, beside plain."""
    return row["seconds"]["plain"] / row["seconds"]["enough"] if "enough" in row["seconds"] else None


def of_bound(row: Row) -> float | None:
    return row["bound"] / row["seconds"]["headroom"] if row["bound"] else None


def of_what_is_read(row: Row) -> float | None:
    """How much of it had to be read."""
    return row["needed"] / row["read"]["headroom"] if row["needed"] and row["read"]["headroom"] else None


def beside_first_engine(engine: str) -> Callable[[Row], float | None]:
    return lambda row: row["seconds"]["headroom"] / row["seconds"][engine] if engine in row["seconds"] else None


SWEEPS = ("touch", "read", "write", "update", "backward", "strided")
USER = "userfaultfd-user"
APPLICATIONS = ("pagerank", "pagerank of 16", "coarsen", "mttkrp")
WORK = ("pagerank", "coarsen", "mttkrp")  # not how they are built
GOALS = [
    Goal("in memory", ("memory",), SWEEPS, 0.99, beside("plain")),
    Goal("the same, plain against itself", ("memory",), SWEEPS, 0.99, plain_again),
    Goal("applications with memory enough, filling it", APPLICATIONS, ("build",), 0.99, enough),
    Goal("the same, their work", APPLICATIONS, WORK, 0.99, enough),
    Goal("small objects", ("objects",), ("objects",), 0.97, beside("plain")),
    Goal("first pass, of the bound: read", ("sweeps", "rounds"), ("read, first",), 0.9, of_bound),
    Goal("first pass, of the bound: update", ("sweeps", "rounds"), ("update, first",), 0.9, of_bound),
    Goal("later passes, needed of read", ("sweeps", "rounds"), ("read, later", "update, later"), 1 / 1.15, of_what_is_read),
    Goal("backward, needed of read", ("sweeps", "rounds"), ("backward",), 1 / 1.15, of_what_is_read),
    Goal("arrays in step, needed of read", ("patterns",), ("in-step",), 1 / 1.15, of_what_is_read),
    Goal("sweeps, of swap", ("sweeps",), ("touch", "read", "write", "update", "backward"), 4, beside("swap")),
    Goal("sweeps of four ranks, of swap", ("rounds",), ("touch", "read", "write", "update", "backward"), 4, beside("swap")),
    Goal("words at random, one rank, of swap", ("random",), ("random",), 1, beside("swap")),
    Goal("the same, bound to a core", ("random bound",), ("random",), 1, beside("swap")),
    Goal("words at random, eight ranks, of swap", ("random of 8",), ("random",), 1, beside("swap")),
    Goal(
        "hot pages and cold, later passes, of swap",
        ("hot and cold",),
        ("random-hot-read, later", "random-hot-update, later"),
        1,
        beside("swap"),
    ),
    Goal("applications, of the bound", APPLICATIONS, WORK, 0.8, of_bound),
    Goal("userfaultfd-user beside userfaultfd", ("sweeps", "rounds", *APPLICATIONS), ("",), 0.95, beside_first_engine(USER)),
    Goal(
        "sigsegv beside userfaultfd", ("sweeps", "rounds", "random", *APPLICATIONS), ("",), 0.8, beside_first_engine("sigsegv")
    ),
    Goal("applications, of swap", APPLICATIONS, WORK, 4, beside("swap")),
]


def show_goals(rows: list[Row]) -> None:
    print(f"{'':<44} {'goal':>5} {'worst':>6} {'median':>7}  met  worst row")
    for goal in GOALS:
        reached = []
        for row in rows:
            if row["group"] in goal.groups and row["phase"].startswith(goal.phases) and "headroom" in row["seconds"]:
                ratio = goal.measure(row)
                if ratio is not None:
                    reached.append((ratio, f"{row['what']}: {row['phase']}"))
        if reached:
            reached.sort()
            worst, where = reached[0]
            median = reached[len(reached) // 2][0]
            met = "yes" if worst >= goal.least else "no"
            print(f"{goal.text:<44} {goal.least:>5.2f} {worst:>6.2f} {median:>7.2f}  {met:<4} {where}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="what `headroom bench paging --json FILE` wrote")
    show_goals(json.loads(parser.parse_args().file.read_text()))


if __name__ == "__main__":
    main()
