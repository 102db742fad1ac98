"""`headroom bench rpipe`: what handing a message over by a pipe costs, and by the ways of MPI.

The program rpipe.c is compiled with the MPI that is measured and linked with librpipe. Within one run the ways take
turns, so that whatever disturbs the machine disturbs all of them; a figure is the median of the batches, and of the
rounds. It runs plain, where send/recv and the windows are the library's own, and under Headroom, where they are
Headroom's.
"""

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import click

from headroom.bench import rpipe_many
from headroom.bench.messages import NETWORK, Figures, medians, size_name
from headroom.bench.programs import (
    FOLDER,
    OUTPUT,
    check_outputs,
    compile_program,
    default_prefix,
    launcher_of,
    output_of,
    write_figures,
)
from headroom.launcher import own_command
from headroom.rank import library_path

SOURCE = Path(__file__).parent / "rpipe.c"
WINDOWS = ("fence", "pscw", "lock", "flush")
MOST_BYTES = 64 << 20
GROUPS = ("handing", "random", "one-core")
BACKENDS = {"memory": 1, "mpi": 2, "ofi": 3}  # RPIPE_NODE and so on


class Row(NamedTuple):
    mpi: str
    under: str  # "plain" or "Headroom"
    what: str
    bytes: int
    rpipe: float  # microseconds
    bare: float
    others: dict[str, float]


def link_options() -> list[str]:
    folder = Path(library_path()).parent
    return [f"-L{folder}", "-l:librpipe.so.1", f"-Wl,-rpath,{folder}"]


def run_once(command: list, environment: dict[str, str]) -> Figures:
    figures: Figures = {}
    for line in output_of(command, environment).splitlines():
        fields = line.split("\t")
        if len(fields) == 4:
            figures[f"{fields[0]}\t{fields[1]}", int(fields[2])] = float(fields[3])
    return figures


def rows_of(mpi: str, under: str, figures: Figures) -> list[Row]:
    ways: dict[tuple[str, int], dict[str, float]] = {}
    for (name, size), time in figures.items():
        what, way = name.split("\t")
        ways.setdefault((what, size), {})[way] = time
    return [Row(mpi, under, *key, times.pop("rpipe"), times.pop("bare"), times) for key, times in ways.items()]


def measure(prefix: Path, program: Path, rounds: int, words: list, backend: str) -> list[Row]:
    found = launcher_of(program)
    environment = found.environment
    if backend != "memory":  # nobody is on the node, as far as the library knows
        environment = {**environment, **NETWORK[found.kind][0], "RPIPE_BETWEEN": backend}
    words = [*words, BACKENDS[backend]]
    plain = [*found.command, "-n", 2]
    under = [*plain, *own_command(), "run", "--summary", "off"]
    sides = {"plain": plain, "Headroom": under} if backend == "memory" else {"plain": plain}
    runs: dict[str, list[Figures]] = {side: [] for side in sides}
    label = f"measuring {prefix.name}"
    with click.progressbar(length=rounds * len(sides), label=label, file=sys.stderr) as bar:
        for _ in range(rounds):
            for side, start in sides.items():
                runs[side].append(run_once([*start, program, *words], environment))
                bar.update(1)
    return [row for side, taken in runs.items() for row in rows_of(prefix.name, side, medians(taken))]


def show(rows: list[Row]) -> None:
    for under in dict.fromkeys(row.under for row in rows):
        where = "plain" if under == "plain" else "under Headroom"
        click.echo(f"\n{rows[0].mpi}, 2 ranks, {where}; times one way, and how many times the pipe's")
        click.echo(
            f"{'':<14} {'size':>8} {'rpipe':>13} {'bare':>13} {'':>6} {'send/recv':>13} {'':>6} {'best window':>13} {'':>6}"
        )
        for row in (row for row in rows if row.under == under):
            columns = [row.bare]
            if row.others:
                columns += [row.others["send/recv"], min(row.others[way] for way in WINDOWS)]
            times = "".join(f" {time:>10.2f} us {time / row.rpipe:>6.2f}" for time in columns)
            click.echo(f"{row.what:<14} {size_name(row.bytes):>8} {row.rpipe:>10.2f} us{times}")


@click.command(short_help="Pipes between ranks, and the ways of MPI.")
@click.option("--mpi", "prefixes", multiple=True, type=FOLDER, help="an MPI's folder with bin/mpicc (default: that in PATH)")
@click.option("--group", "groups", multiple=True, type=click.Choice(GROUPS), help="what is measured (default: handing)")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1), help="how often each side runs")
@click.option("--largest", default=MOST_BYTES, show_default=True, type=click.IntRange(1, MOST_BYTES), help="bytes of a message")
@click.option("--seconds", default=0.2, show_default=True, type=click.FloatRange(min=0.001), help="for each figure of a run")
@click.option("--writes", default=200000, show_default=True, type=click.IntRange(min=8), help="of each rank, at random")
@click.option("--backend", default="memory", show_default=True, type=click.Choice(list(BACKENDS)), help="of handing")
@click.option("--json", "json_file", type=OUTPUT, help="file that takes all figures")
@click.option("--plot", "plot_file", type=OUTPUT, help="file that takes a drawing of handing, SVG")
def rpipe(prefixes, groups, rounds, largest, seconds, writes, backend, json_file, plot_file) -> None:
    """Handing a message over by a pipe (docs/user/pipes.md), by messages and by windows of MPI, between two ranks of a node.

    --backend mpi|ofi: as to another node, by messages of MPI or of libfabric over TCP, beside MPI's own over TCP, without
    Headroom.

    "bare" is a copy to one place that both have, and a flag: the least that the machine takes. "copied in": the content is
    elsewhere. "handed over": it was built in place before. "filled, read": it is built, handed over, and read.

    The group "random": 2 to 16 ranks that write to each other at random; "growth": how much longer a write takes with more
    ranks, as a multiple of what it does through places in memory. "one-core": two ranks on one processor.
    """
    rows: list = []
    check_outputs(json_file, plot_file)
    with tempfile.TemporaryDirectory() as folder:
        for prefix in prefixes or [default_prefix()]:
            for group in groups or GROUPS[:1]:
                source = SOURCE if group == "handing" else rpipe_many.SOURCE
                program = compile_program(prefix.absolute(), source, Path(folder), link_options())
                if group == "handing":
                    found = measure(prefix.absolute(), program, rounds, [largest, seconds], backend)
                    show(found)
                elif group == "random":
                    found = rpipe_many.measure_random(prefix.absolute(), program, rounds, writes)
                    rpipe_many.show(found)
                else:
                    found = rpipe_many.measure_one_core(prefix.absolute(), program, rounds)
                    rpipe_many.show(found)
                rows += found
                if json_file:
                    write_figures(json_file, rows)
    handed = [row._asdict() for row in rows if isinstance(row, Row)]
    if plot_file and handed:
        from headroom.bench import plot_lines  # matplotlib is wanted for nothing else here

        plot_file.write_text(plot_lines.draw_pipes(handed, size_name))
