"""The drawing of `headroom bench paging`: how fast each side is, as a part of in memory, and what the disk allows."""

import math
from itertools import groupby

from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from headroom.report.drawings import LIGHT, as_svg, style

# Told apart by people who do not see all colours, too.
COLOURS = {"headroom": "#0072b2", "swap": "#d55e00"}
OTHERS = ["#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#999999"]
IN_MEMORY = ("plain", "again", "enough")
BAR = 0.8


def _draw_group(axes, name: str, rows: list[dict]) -> None:
    sides = [side for side in dict.fromkeys(side for row in rows for side in row["seconds"]) if side not in IN_MEMORY]
    height = BAR / len(sides)
    others = iter(OTHERS * len(sides))
    for number, side in enumerate(sides):
        at = [index - BAR / 2 + (number + 0.5) * height for index in range(len(rows))]
        speeds = [row["seconds"]["plain"] / row["seconds"].get(side, math.inf) for row in rows]  # 0: it failed
        axes.barh(at, speeds, height * 0.9, color=COLOURS.get(side) or next(others), label=side)
    for index, row in enumerate(rows):
        if row["bound"]:
            most = min(row["seconds"]["plain"] / row["bound"], 1)
            axes.plot([most, most], [index - 0.5, index + 0.5], color=LIGHT["ink"], linewidth=1.4)
    axes.set_yticks(range(len(rows)), [row["phase"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.axvline(1, color=LIGHT["faint"], linewidth=1)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title(name, loc="left", fontsize=11)
    axes.grid(axis="x", linewidth=0.6)
    axes.set_axisbelow(True)


def draw(rows: list[dict]) -> str:
    """An SVG of all groups, one below the other; the black line is what the disk allows."""
    groups = [(name, list(members)) for name, members in groupby(rows, key=lambda row: row["group"])]
    with plt.rc_context({**style(LIGHT), "figure.facecolor": "white", "savefig.facecolor": "white"}):
        heights = [0.7 + 0.55 * len(members) for _, members in groups]
        figure, axes = plt.subplots(
            len(groups), 1, figsize=(9, sum(heights) + 0.8), squeeze=False, height_ratios=heights, layout="constrained"
        )
        for (name, members), area in zip(groups, axes[:, 0]):
            _draw_group(area, name, members)
        axes[-1, 0].set_xlabel("speed; in memory, without Headroom = 1; black: what the disk allows")
        labelled = max(axes[:, 0], key=lambda area: len(area.get_legend_handles_labels()[1]))
        figure.legend(*labelled.get_legend_handles_labels(), loc="outside upper left", ncols=6)
        return as_svg(figure)
