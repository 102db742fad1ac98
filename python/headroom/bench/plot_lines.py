"""Drawings of what changes with something: `headroom bench io` with the memory that is left, `headroom bench rpipe` with
the size of a message. A panel for each pattern or kind, a line for each side."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from headroom.report.drawings import LIGHT, as_svg, style

# Told apart by people who do not see all colours, too, and by their marks.
OURS = ("#0072b2", "o")
OTHERS = [("#d55e00", "s"), ("#009e73", "^"), ("#e69f00", "v"), ("#cc79a7", "D"), ("#56b4e9", "P"), ("#555555", "x")]


class Panel(NamedTuple):
    title: str
    down: str  # what the vertical axis has
    across: list[str]  # names of places on the other one
    lines: dict[str, list[float | None]]  # None: there is no such figure


def _draw(axes, panel: Panel, ours: tuple[str, ...]) -> None:
    marks = iter(OTHERS * len(panel.lines))
    for side, values in panel.lines.items():
        colour, mark = OURS if side in ours else next(marks)
        there = [(at, value) for at, value in enumerate(values) if value]
        axes.plot(*zip(*there) if there else ([], []), color=colour, marker=mark, markersize=5, label=side)
    axes.set_xticks(range(len(panel.across)), panel.across, rotation=45 if len(panel.across) > 6 else 0)
    axes.set_xlim(-0.4, len(panel.across) - 0.6)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(panel.title, loc="left", fontsize=11)
    axes.set_ylabel(panel.down)
    axes.grid(axis="y", linewidth=0.6)
    axes.set_axisbelow(True)


def _as_picture(panels: list[Panel], columns: int, across: str, ours: tuple[str, ...]) -> str:
    panels = [panel for panel in panels if any(value for values in panel.lines.values() for value in values)]
    lines = max(-(-len(panels) // columns), 1)
    with plt.rc_context({**style(LIGHT), "figure.facecolor": "white", "savefig.facecolor": "white"}):
        figure, axes = plt.subplots(
            lines, columns, figsize=(4 + 3.5 * columns, 3.4 * lines + 0.6), squeeze=False, layout="constrained"
        )
        for number, area in enumerate(axes.flat):
            if number < len(panels):
                _draw(area, panels[number], ours)
            else:
                area.set_axis_off()
        for area in axes[-1]:
            area.set_xlabel(across)
        labelled = max(axes.flat, key=lambda area: len(area.get_legend_handles_labels()[1]))
        figure.legend(*labelled.get_legend_handles_labels(), loc="outside upper left", ncols=6)
        return as_svg(figure)


def _parts(rows: list[dict], *keys: str):
    """The rows that agree in these, one group after another."""
    return groupby(sorted(rows, key=lambda row: [row[key] for key in keys]), key=lambda row: tuple(row[key] for key in keys))


def draw_io(rows: list[dict]) -> str:
    """How fast files are written and read, and by how much a rank grows, with the memory that nodes have left."""
    panels = []
    for (mpi, pattern), members in _parts(rows, "mpi", "pattern"):
        taken = list(members)
        places = list(dict.fromkeys(tuple(row["left"]) for row in taken))
        sides = list(dict.fromkeys(row["side"] for row in taken))
        found = {(row["side"], tuple(row["left"])): row for row in taken}

        def lines(value, sides=sides, places=places, found=found):
            return {side: [value(found[side, place]) for place in places] for side in sides}

        def speed(row: dict, what: str):
            return row["mebibytes"] / row[what] if row[what] else None

        names = ["/".join(map(str, place)) or "enough" for place in places]
        panels += [
            Panel(
                f"{mpi}, {pattern}: written and synchronized", "MiB/s", names, lines(lambda row: speed(row, "write_and_sync"))
            ),
            Panel(f"{mpi}, {pattern}: read", "MiB/s", names, lines(lambda row: speed(row, "read"))),
            Panel(f"{mpi}, {pattern}: a rank grows by", "MiB", names, lines(lambda row: row["growth"])),
        ]
    return _as_picture(panels, 3, "MiB left on each node", ("Headroom",))


def draw_pipes(rows: list[dict], size_name) -> str:
    """Times of handing a message over, with its size."""
    panels = []
    for (mpi, under, what), members in _parts(rows, "mpi", "under", "what"):
        taken = sorted(members, key=lambda row: row["bytes"])
        ways = list(dict.fromkeys(way for row in taken for way in row["others"]))
        lines = {"pipe": [row["rpipe"] for row in taken], "bare": [row["bare"] for row in taken]}
        lines |= {way: [row["others"].get(way) for row in taken] for way in ways}
        title = f"{mpi}, {'plain' if under == 'plain' else 'under Headroom'}: {what}"
        panels.append(Panel(title, "microseconds", [size_name(row["bytes"]) for row in taken], lines))
    return _as_picture(panels, 2, "bytes of a message", ("pipe",))
