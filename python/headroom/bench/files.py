"""`headroom bench io`: collective access to files, the MPI library's and Headroom's.

The program files.c is compiled with the MPI that is measured. Within one run the sides take turns, so that whatever disturbs
the machine disturbs all of them: the library with its defaults, the library with each buffer size and with several aggregators
(what a user can set), and Headroom. A figure is the median of the rounds. Nodes are emulated on one machine: ranks are told
apart by Headroom alone, and with --left each node has a memory cgroup of its own.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import click

from headroom import hard_limit
from headroom.bench.programs import (
    FOLDER,
    OUTPUT,
    check_outputs,
    compile_program,
    default_prefix,
    ended_in_order,
    launcher_of,
    write_figures,
)
from headroom.errors import Refused
from headroom.launcher import own_command

SOURCE = Path(__file__).parent / "files.c"
PATTERNS = {
    "interleaved": "pieces of 16 bytes, of all ranks in turn",
    "random": "pieces of 16 bytes, each somebody's",
    "blocks": "blocks of a three-dimensional array",
    "segments": "each rank's in one piece",
    "short": "4 KiB a rank, 100 calls",
}
BUFFERS = (1 << 20, 4 << 20, 16 << 20)  # of the library's aggregators, besides its default
SECONDS = 600
MIB = 1 << 20
# Rank r is on node r % NODES, in that node's cgroup if there is one.
ON_NODES = """
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} size=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE} nodes=$1
node=$((rank % nodes)) here=$(((size - rank % nodes + nodes - 1) / nodes))
export HEADROOM_JOB=$2-$node MPI_LOCALNRANKS=$here OMPI_COMM_WORLD_LOCAL_SIZE=$here
[ -z "$3" ] || echo $$ > $3-$node/cgroup.procs
shift 3
exec "$@"
"""


class Row(NamedTuple):
    mpi: str
    pattern: str
    left: list[int]  # MiB on each node; empty: as much as there is
    mebibytes: int  # of all ranks
    side: str
    write: float | None  # seconds; None: it did not survive
    write_and_sync: float | None
    read: float | None
    growth: float | None  # MiB, of the rank that grew most


class Sides(NamedTuple):
    command: list  # up to the program
    hints: list[str]


def sides_of(start: list, emulate: list, nodes: int) -> dict[str, Sides]:
    plain = [*start, *emulate]
    under = [*plain, *own_command(), "run", "--summary", "off"]
    several = [f"cb_nodes={nodes}", "cb_config_list=*:*"]
    sides = {"library": Sides(plain, [])}
    for buffer in BUFFERS:
        sides[f"library, {buffer // MIB}M"] = Sides(plain, [f"cb_buffer_size={buffer}", *several])
    return sides | {"Headroom": Sides(under, [])}


@contextlib.contextmanager
def cgroups(left: list[int]):
    """A memory cgroup for each node; the beginning of their names."""
    if not left:
        yield ""
        return
    if why := hard_limit.available():
        raise Refused(f"--left: {why}")
    version1 = (hard_limit.V1 / "memory.limit_in_bytes").exists()
    base = (hard_limit.V1 if version1 else hard_limit.V2) / f"headroom-io-{os.getpid()}"
    folders = [base.with_name(f"{base.name}-{node}") for node in range(len(left))]
    try:
        for folder in folders:
            folder.mkdir()
            (folder / ("memory.swappiness" if version1 else "memory.swap.max")).write_text("0")
        yield str(base)
    finally:
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


def run_side(command: list, environment: dict[str, str]) -> dict[str, float] | None:
    """None if it was killed, or did not end."""
    words = [str(word) for word in command]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment, start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return None
    if process.returncode != 0:
        if "what was read is not what was written" in errors:
            raise click.ClickException(f"{words[-1]}: {errors}")
        return None
    return {what: float(number) for what, number in (line.split("\t") for line in output.splitlines() if "\t" in line)}


def measure(prefix: Path, program: Path, pattern: str, path: Path, ranks: int, nodes: int, size: int, left: list, rounds: int):
    found = launcher_of(program)
    with cgroups(left) as base:
        emulate = ["sh", "-c", ON_NODES, "sh", nodes, f"bench-io-{os.getpid()}", base]
        sides = sides_of([*found.command, "-n", ranks], emulate, nodes)
        limits = [word for node, room in enumerate(left) for word in (f"{base}-{node}", room * MIB)]
        runs: dict[str, list] = {side: [] for side in sides}
        label = f"measuring {prefix.name}, {pattern}"
        with click.progressbar(length=rounds * len(sides), label=label, file=sys.stderr) as bar:
            for _ in range(rounds):
                for side, (start, hints) in sides.items():
                    arguments = [program, pattern, path, size, nodes, *limits, "--", *hints]
                    runs[side].append(run_side([*start, *arguments], found.environment))
                    bar.update(1)
    rows = []
    for side, taken in runs.items():
        ended = [run for run in taken if run is not None]
        figures = {what: statistics.median(run[what] for run in ended) for what in ended[0]} if len(ended) == len(taken) else {}
        growth = figures.get("growth")
        rows.append(
            Row(
                prefix.name,
                pattern,
                left,
                0 if pattern == "short" else ranks * size,
                side,
                figures.get("write"),
                figures.get("write and sync"),
                figures.get("read"),
                growth / 1024 if growth is not None else None,
            )
        )
    return rows


def ratio(row: Row, ours: Row, what: str) -> str:
    theirs, mine = getattr(row, what), getattr(ours, what)
    return f"{theirs / mine:>6.2f}" if theirs and mine else f"{'':>6}"


def show(rows: list[Row], ranks: int, nodes: int) -> None:
    ours = rows[-1]
    left = f", {'/'.join(map(str, ours.left))} MiB left" if ours.left else ""
    click.echo(f"\n{ours.mpi}, {PATTERNS[ours.pattern]}; {ranks} ranks on {nodes} emulated nodes{left}")
    click.echo(f"{'':<14} {'write':>18} {'with sync':>18} {'read':>18} {'growth':>10}")
    for row in rows:
        if row.write is None:
            click.echo(f"{row.side:<14} did not survive")
            continue
        times = "".join(
            f" {getattr(row, what):>9.4f} s {ratio(row, ours, what)}" for what in ("write", "write_and_sync", "read")
        )
        click.echo(f"{row.side:<14}{times} {row.growth:>6.1f} MiB")


def rooms_of(left: str, nodes: int) -> list[int]:
    rooms = [int(room) for room in left.split(",") if room.isdigit()]
    if len(rooms) != nodes or len(rooms) != left.count(",") + 1:
        raise Refused(f"--left {left}: name the MiB left on each of --nodes {nodes}, with commas between them")
    return rooms


@click.command("io", short_help="Collective access to files: Headroom and the MPI library.")
@click.option("--mpi", "prefixes", multiple=True, type=FOLDER, help="an MPI's folder with bin/mpicc (default: that in PATH)")
@click.option("--pattern", "patterns", multiple=True, type=click.Choice(list(PATTERNS)), help="what is accessed (default: all)")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="how often each side runs")
@click.option("--ranks", default=8, show_default=True, type=click.IntRange(min=2), help="how many take part")
@click.option("--nodes", default=4, show_default=True, type=click.IntRange(min=1), help="how many nodes are emulated")
@click.option("--size", type=click.IntRange(1, 1024), help="MiB a rank (default: 64 of blocks and segments, else 8)")
@click.option(
    "--left", "lefts", multiple=True, help="MiB of memory left on each node when the call begins (16,32,96,512); needs root"
)
@click.option("--folder", default="/var/tmp", show_default=True, type=FOLDER, help="where the file lies")
@click.option("--json", "json_file", type=OUTPUT, help="file that takes all figures")
@click.option("--plot", "plot_file", type=OUTPUT, help="file that takes a drawing, SVG")
def io(prefixes, patterns, rounds, ranks, nodes, size, lefts, folder, json_file, plot_file) -> None:
    """Collective reads and writes of one file (docs/user/files.md): the MPI library's, and Headroom's.

    Times are medians; beside each is how many times Headroom's it is. "library": with its defaults; "library, 4M": with that
    buffer, and an aggregator on each node. "growth": by how much the rank grew that grew most; of Headroom that counts a
    neighbour's memory, too, which it has only mapped. "did not survive": killed for memory, or it did not end, in some round.
    Several --left are measured one after another, and stand beside each other in the drawing.
    """
    rooms = [rooms_of(left, nodes) for left in lefts] or [[]]
    rows: list[Row] = []
    check_outputs(json_file, plot_file)
    with ended_in_order(), tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory(dir=folder) as data:
        for prefix in prefixes or [default_prefix()]:
            program = compile_program(prefix.absolute(), SOURCE, Path(place))
            for pattern in patterns or PATTERNS:
                each = size or (64 if pattern in ("blocks", "segments") else 8)
                path = Path(data) / "file"
                for left in rooms:
                    found = measure(prefix.absolute(), program, pattern, path, ranks, nodes, each, left, rounds)
                    show(found, ranks, nodes)
                    rows += found
                    if json_file:
                        write_figures(json_file, rows)
    if plot_file:
        from headroom.bench import plot_lines  # matplotlib is wanted for nothing else here

        plot_file.write_text(plot_lines.draw_io([row._asdict() for row in rows]))
