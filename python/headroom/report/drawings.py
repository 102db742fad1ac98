"""The drawings of a report, as SVG to be put into a page: for a light and a dark background, each with its own colours."""

import io
from itertools import groupby

import matplotlib

matplotlib.use("svg")
from matplotlib import colormaps
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, MaxNLocator

from headroom.report import messages
from headroom.report.trace import COMPUTES, READY, Node, Process

MIB = 1 << 20
LIGHT = {"ink": "#1f2328", "faint": "#d0d7de", "paper": "none"}
DARK = {"ink": "#e6edf3", "faint": "#3d444d", "paper": "none"}
# Told apart by people who do not see all colours, too.
READS, WRITES, LIMIT = "#0072b2", "#d55e00", "#999999"
RUNS, WAITS_FOR_TURN, BUDGET = "#009e73", "#e69f00", "#cc3311"
WAYS = {
    "in one record": "#56b4e9",
    "fetched": "#0072b2",
    "attached": "#cc79a7",
    "copied aside": "#d55e00",
    "streamed": "#e69f00",
    "between nodes": "#f0e442",
    "one-sided": "#009e73",
    "the MPI library's": LIMIT,
}
MOST_STACKED = 16  # processes; beyond, all in one
BINS = 200
COLUMNS = 1200
POINTS_PER_INCH = 72
LINE_HEIGHT = 1.4  # of the font's size


def style(theme: dict) -> dict:
    """What to draw with, for a theme."""
    ink, faint = theme["ink"], theme["faint"]
    return {
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": faint,
        "xtick.color": ink,
        "ytick.color": ink,
        "grid.color": faint,
        "axes.facecolor": theme["paper"],
        "figure.facecolor": theme["paper"],
        "savefig.facecolor": theme["paper"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 10,
        "svg.fonttype": "none",
        "legend.frameon": False,
    }


def as_svg(figure) -> str:
    """The figure as an SVG element; it is closed."""
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight")
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def _axes(node: Node, height: float, label: str):
    figure, axes = plt.subplots(figsize=(10, height))
    axes.set_xlim(0, node.end or 1)
    axes.set_xlabel("seconds")
    axes.set_ylabel(label)
    axes.grid(axis="y", linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _legend(axes, handles=None, columns: int = 6) -> None:
    shown = {"handles": handles} if handles else {}
    axes.legend(**shown, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, borderaxespad=0.2, handlelength=1.4)


def _value_at(process: Process, times: list[float], what: str) -> list[float]:
    """The last sample's value at each time; 0 before the first and after the process has ended."""
    values, index = [], -1
    samples = process.samples
    for time in times:
        while index + 1 < len(samples) and samples[index + 1].at <= time:
            index += 1
        ended = samples and time > process.end + 0.05
        values.append(0 if index < 0 or ended else getattr(samples[index], what))
    return values


def memory(node: Node) -> str:
    figure, axes = _axes(node, 3.4, "MiB allocated" if node.armed is None else "MiB")
    step = (node.end or 1) / (2 * BINS)
    times = [index * step for index in range(2 * BINS + 1)]
    layers = [[value / MIB for value in _value_at(each, times, "resident")] for each in node.processes]
    names = [process.name for process in node.processes]
    if len(layers) > MOST_STACKED:
        layers, names = [[sum(values) for values in zip(*layers)]], [f"{len(names)} processes"]
    colours = colormaps["viridis"]([0.15 + 0.75 * index / max(len(layers) - 1, 1) for index in range(len(layers))])
    axes.stackplot(times, layers, labels=names, colors=colours, linewidth=0)
    budget = node.processes[0].budget / MIB
    axes.axhline(budget, color=BUDGET, linewidth=1.4, linestyle="--", label="budget")
    if node.armed is not None:
        axes.axvline(node.armed, color=plt.rcParams["text.color"], linewidth=1.2, linestyle=":", label="resident from here")
    axes.set_ylim(0, max(budget * 1.08, max(map(sum, zip(*layers)), default=0) * 1.05))
    _legend(axes)
    return as_svg(figure)


def _bars(process: Process, end: float) -> dict[int, list[tuple[float, float]]]:
    """(begin, length) by state, no finer than can be seen: each column of the drawing has the state that took most of it."""
    step = (end or 1) / COLUMNS
    spent = [[0.0, 0.0, 0.0] for _ in range(COLUMNS + 1)]
    since, state = process.began, COMPUTES
    for at, after in [*process.states, (process.end, -1)]:
        for column in range(int(since / step), min(int(at / step), COLUMNS) + 1):
            spent[column][state] += max(min(at, (column + 1) * step) - max(since, column * step), 0.0)
        since, state = at, after
    bars: dict[int, list[tuple[float, float]]] = {COMPUTES: [], READY: []}
    most = [times.index(max(times)) if any(times) else -1 for times in spent]
    for kind, columns in groupby(range(COLUMNS + 1), key=lambda column: most[column]):
        shown = list(columns)
        if kind in bars:
            bars[kind].append((shown[0] * step, min(len(shown) * step, end - shown[0] * step)))
    return bars


def _name_rows(axes, names: list[str]) -> None:
    """Names each row, or every second, fourth ..., so that names do not overlap."""
    height = axes.get_position().height * axes.figure.get_figheight() * POINTS_PER_INCH
    room = height / (LINE_HEIGHT * plt.rcParams["font.size"])
    step = 1
    while len(names) > step * room:
        step *= 2
    axes.set_yticks(range(0, len(names), step), names[::step])


def turns(node: Node) -> str:
    height = 0.9 + 0.32 * len(node.processes)
    figure, axes = _axes(node, min(height, 12), "")
    axes.grid(visible=False)
    for row, process in enumerate(node.processes):
        bars = _bars(process, node.end)
        for kind, colour in ((COMPUTES, RUNS), (READY, WAITS_FOR_TURN)):
            axes.broken_barh(bars[kind], (row - 0.38, 0.76), facecolors=colour, linewidth=0)
    _name_rows(axes, [process.name for process in node.processes])
    axes.set_ylim(len(node.processes) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    patches = [
        plt.Rectangle((0, 0), 1, 1, color=RUNS, label="computes"),
        plt.Rectangle((0, 0), 1, 1, color=WAITS_FOR_TURN, label="waits for its turn"),
        plt.Rectangle((0, 0), 1, 1, facecolor="none", edgecolor=LIMIT, label="waits in MPI"),
    ]
    _legend(axes, patches)
    return as_svg(figure)


def storage(node: Node, limit: dict[str, float]) -> str:
    figure, axes = _axes(node, 3.0, "MiB/s")
    step = (node.end or 1) / BINS
    times = [index * step for index in range(BINS + 1)]
    for what, colour, sign, name in (("read", READS, 1, "read"), ("written", WRITES, -1, "written")):
        rates = [0.0] * BINS
        for process in node.processes:
            values, last = [], 0
            for value in _value_at(process, times, what):
                last = max(last, value)  # a process that has ended has read what it has read
                values.append(last)
            for index in range(BINS):
                rates[index] += (values[index + 1] - values[index]) / MIB / step
        axes.stairs([sign * rate for rate in rates], times, fill=True, color=colour, label=name)
        if limit:
            bound = sign * limit["read" if sign > 0 else "write"]
            axes.axhline(bound, color=LIMIT, linestyle=":", linewidth=1.4, label="what the storage can" if sign > 0 else None)
    axes.axhline(0, color=LIMIT, linewidth=0.8)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{abs(value):.0f}"))
    _legend(axes)
    return as_svg(figure)


def _in_units(most: float, units: tuple[str, ...], step: int) -> tuple[str, int]:
    """The unit in which `most` has few digits, and how many of the first one it is."""
    factor, chosen = 1, units[0]
    for unit in units[1:]:
        if most < 2 * factor * step:
            break
        factor, chosen = factor * step, unit
    return chosen, factor


def _draw_ways(axes, lengths: dict[str, list[int]], units: tuple[str, ...], step: int) -> None:
    """A bar for each rank, its parts one behind the other."""
    unit, factor = _in_units(max(map(sum, zip(*lengths.values()))), units, step)
    begins = [0.0] * len(next(iter(lengths.values())))
    for way, counted in lengths.items():
        scaled = [length / factor for length in counted]
        axes.barh(range(len(begins)), scaled, 0.76, left=begins, color=WAYS[way], label=way)
        begins = [begin + length for begin, length in zip(begins, scaled)]
    axes.set_xlabel(unit)
    axes.set_xlim(0, max(begins) * 1.03 or 1)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=factor == 1))
    axes.grid(axis="x", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)


def message_ways(node: Node) -> str:
    """How many messages went which way, and how much content, rank by rank; beyond MOST_STACKED, all in one."""
    ranks = messages.ranks_of(node)
    rows = [(f"rank {rank['rank']}", messages.ways(rank)) for rank in ranks]
    if len(rows) > MOST_STACKED:
        rows = [(f"{len(ranks)} ranks", messages.ways(node.figures["total"]))]
    used = messages.ways_used(node)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 1.1 + 0.32 * len(rows)), sharey=True, layout="constrained")
    figure.get_layout_engine().set(wspace=0.07)
    numbers = {way: [shown[way][0] for _, shown in rows] for way in used}
    contents = {way: [shown[way][1] for _, shown in rows] for way in used}
    _draw_ways(left, numbers, ("messages", "thousand messages", "million messages"), 1000)
    _draw_ways(right, contents, ("bytes", "KiB", "MiB", "GiB"), 1024)
    left.set_yticks(range(len(rows)), [name for name, _ in rows])
    left.set_ylim(len(rows) - 0.4, -0.6)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=7, handlelength=1.4, columnspacing=1.4)
    return as_svg(figure)


def in_both_themes(draw, *arguments) -> dict[str, str]:
    drawn = {}
    for name, theme in (("light", LIGHT), ("dark", DARK)):
        with plt.rc_context(style(theme)):
            drawn[name] = draw(*arguments)
    return drawn
