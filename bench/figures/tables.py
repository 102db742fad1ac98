"""Tables in Markdown from what `headroom bench ... --json` wrote."""

from __future__ import annotations

from itertools import chain, groupby

from headroom.bench.paging import is_counted

Row = dict
KIB, MIB = 1 << 10, 1 << 20
NAMES = {"openmpi": "Open MPI", "mpich": "MPICH"}
ENGINES = ("userfaultfd-user", "sigsegv")
WINDOWS = ("fence", "pscw", "lock", "flush")


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


def size_name(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B" if size else ""


def short(value: float | None) -> str:
    """Three digits that count."""
    return "" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(value: float | None) -> str:
    """A ratio; where Headroom is slower it is bold."""
    return "" if value is None else f"{value:.2f}" if value >= 1 else f"**{value:.2f}**"


# ---- memory ----


def speed(row: Row, side: str) -> str:
    if side not in row["seconds"]:
        return ""
    seconds = row["seconds"][side]
    if row["phase"].startswith("objects"):
        return f"{row['bytes'] / 8e6 / seconds:.0f} M/s"
    per, unit = (8000, " k/s") if is_counted(row["phase"]) else (MIB, "")
    return f"{row['bytes'] / per / seconds:.0f}{unit}"


def beside(row: Row, side: str) -> float | None:
    seconds = row["seconds"]
    return seconds[side] / seconds["headroom"] if side in seconds and "headroom" in seconds else None


def paging(rows: list[Row]) -> list[str]:
    sides = ["plain", "again", "enough", "headroom", "swap"]
    heads = ["", "plain", "plain again", "memory enough", "Headroom", "swap", "times swap", "of bound", "read, of needed"]
    shown = []
    for (what, group), members in groupby(rows, key=lambda row: (row["what"], row["group"])):
        shown.append([f"**{what}, {group}**", *[""] * (len(heads) - 1)])
        for row in members:
            bound = row["bound"] / row["seconds"]["headroom"] if row["bound"] and "headroom" in row["seconds"] else None
            read = row["read"].get("headroom")
            needed = read / row["needed"] if row["needed"] and read else None
            cells = [row["phase"], *(speed(row, side) for side in sides), times(beside(row, "swap"))]
            shown.append([*cells, short(bound), short(needed)])
    return table(heads, shown)


def engines(rows: list[Row]) -> list[str]:
    def part(row: Row, engine: str) -> str:
        seconds = row["seconds"]
        return f"{seconds['headroom'] / seconds[engine]:.2f}" if engine in seconds and "headroom" in seconds else "failed"

    shown = [[f"{row['what']}: {row['phase']}", *(part(row, engine) for engine in ENGINES)] for row in rows]
    return table(["", *(f"`{engine}`" for engine in ENGINES)], shown)


# ---- messages ----


def messages(*of_libraries: list[Row]) -> list[str]:
    """A table for each group, with a part for each library."""
    rows = [row for of_library in of_libraries for row in of_library]
    lines = []
    for group in dict.fromkeys(row["group"] for row in rows):
        members = [row for row in rows if row["group"] == group]
        libraries = list(dict.fromkeys(row["mpi"] for row in members))
        figures = {(row["mpi"], row["what"], row["bytes"]): row for row in members}
        heads = ["", "size"]
        for library in libraries:
            heads += [NAMES[library], "Headroom", "times"]
        shown = []
        for what, size in dict.fromkeys((row["what"], row["bytes"]) for row in members):
            cells = [what, size_name(size)]
            for library in libraries:
                row = figures.get((library, what, size))
                cells += [short(row["library"]), short(row["headroom"]), times(row["ratio"])] if row else ["", "", ""]
            shown.append(cells)
        ranks = members[0]["ranks"]
        lines += [*([""] if lines else []), f"**{group}**, {ranks} ranks", "", *table(heads, shown)]
    return lines


def pipes(rows: list[Row]) -> list[str]:
    """Without Headroom: the pipe and what is bare of the first library's run, and the ways of each library."""
    plain = [row for row in rows if row["under"] == "plain"]
    libraries = list(dict.fromkeys(row["mpi"] for row in plain))
    figures = {(row["mpi"], row["what"], row["bytes"]): row for row in plain}
    heads = ["", "", "pipe", "bare"]
    for library in libraries:
        heads += [f"{NAMES[library]}: messages", "its best window"]
    shown = []
    for what, size in dict.fromkeys((row["what"], row["bytes"]) for row in plain):
        first = figures[libraries[0], what, size]
        cells = [what, size_name(size), short(first["rpipe"]), short(first["bare"])]
        for library in libraries:
            others = figures[library, what, size]["others"]
            windows = [others[way] for way in WINDOWS if way in others]
            cells += [short(others.get("send/recv")), short(min(windows) if windows else None)]
        shown.append(cells)
    return table(heads, shown)


def pipes_between_nodes(rows: list[Row]) -> list[str]:
    """The pipe of each library's run beside its ways."""
    libraries = list(dict.fromkeys(row["mpi"] for row in rows))
    figures = {(row["mpi"], row["what"], row["bytes"]): row for row in rows if row["under"] == "plain"}
    heads = ["", ""]
    for library in libraries:
        heads += [f"{NAMES[library]}: pipe", "messages", "best window"]
    shown = []
    for what, size in dict.fromkeys((what, size) for _, what, size in figures):
        cells = [what, size_name(size)]
        for library in libraries:
            row = figures[library, what, size]
            windows = [row["others"][way] for way in WINDOWS if way in row["others"]]
            cells += [short(row["rpipe"]), short(row["others"].get("send/recv")), short(min(windows) if windows else None)]
        shown.append(cells)
    return table(heads, shown)


def pipes_of_many(rows: list[Row]) -> list[str]:
    heads = ["", "", "ranks", "size", "unread at most", "pipe", "least", "growth"]
    shown = []
    for row in rows:
        bound = str(row["bound"]) if row.get("bound") else ""
        cells = [row["group"], NAMES[row["mpi"]], str(row["ranks"]), size_name(row["bytes"]), bound]
        shown.append([*cells, short(row["rpipe"]), short(row["least"]), short(row.get("growth"))])
    return table(heads, shown)


# ---- files ----


def files(rows: list[Row]) -> list[str]:
    heads = ["", "", "write", "write and sync", "read", "growth, MiB"]
    shown = []
    for row in rows:
        library = NAMES[row["mpi"]]
        side = "Headroom" if row["side"] == "Headroom" else row["side"].replace("library", "alone")
        cells = [library, side]
        if row["write"] is None:
            shown.append([*cells, "killed", "", "", ""])
        else:
            shown.append([*cells, *(short(row[what]) for what in ("write", "write_and_sync", "read", "growth"))])
    return table(heads, shown)


# ---- README ----


def summary(memory: list[Row], *of_libraries: list[Row]) -> list[str]:
    """Some rows of the others, which stand for them."""

    def of_memory(text: str, group: str, phase: str, unit: str) -> list[str]:
        row = next(row for row in memory if row["group"] == group and row["phase"] == phase)
        return [text, speed(row, "plain"), speed(row, "swap"), f"{speed(row, 'headroom')} {unit}".strip()]

    def of_message(text: str, size: int) -> list[str]:
        found = {
            row["mpi"]: row
            for row in chain(*of_libraries)
            if row["group"] == "pairs" and row["what"] == "one way" and row["bytes"] == size
        }
        libraries = " / ".join(short(found[mpi]["library"]) for mpi in ("mpich", "openmpi"))
        return [text, libraries, "", " / ".join(short(found[mpi]["headroom"]) for mpi in ("mpich", "openmpi")) + " us"]

    rows = [
        of_memory("read 1 GiB again and again in 512 MiB", "sweeps", "read, later passes", "MiB/s"),
        of_memory("update it", "sweeps", "update, later passes", "MiB/s"),
        of_memory("PageRank, 4 ranks, 1 GiB of edges in 384 MiB", "pagerank", "pagerank", "MiB/s"),
        of_memory("words at random, 1 rank, 768 MiB in 256 MiB, read", "random", "random-read", ""),
        of_memory("memory enough: updating 512 MiB", "memory", "update, later passes", "MiB/s"),
        of_message("message of 8 bytes, one way (MPICH / Open MPI)", 8),
        of_message("message of 1 MiB, one way (MPICH / Open MPI)", MIB),
    ]
    return table(["", "in memory", "swap", "Headroom"], rows)
