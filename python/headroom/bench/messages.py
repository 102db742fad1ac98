"""`headroom bench messages`: what messages inside a node cost, with Headroom and with the MPI library's own ways.

The program messages.c is compiled with the MPI that is measured, and run by turns: once for each setting that the library
offers for the purpose, once more with the first of them (what differs between the two is noise), and under Headroom. Each
figure is the median of the rounds; a ratio compares Headroom with the best setting for that very figure.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import click

from headroom.bench.programs import (
    CROWDED,
    FOLDER,
    OUTPUT,
    compile_program,
    default_prefix,
    launcher_of,
    output_of,
    write_figures,
)
from headroom.errors import Refused
from headroom.launcher import own_command
from headroom.rank import check_output

SOURCE = Path(__file__).parent / "messages.c"
# Group of measurements: ranks, and what the program is asked for.
GROUPS = {"pairs": 2, "strided": 2, "collectives": 2, "collectives of 4": 4, "nonblocking": 2, "nonblocking of 4": 4}
GROUPS |= {"transposition": 4, "crowd": 8, "work": 8, "one-sided": 2, "threads": 2, "other nodes": 2}
# Sums among more than two ranks are the library's, unless --reductions says otherwise: with that, in a column of their own.
WITH_SUMS = ("collectives of 4", "nonblocking of 4", "crowd", "work")
# The libraries' settings: one copy by the kernel.
SINGLE_COPY = {"mpich": [{}, {"MPIR_CVAR_CH4_CMA_ENABLE": "1"}], "openmpi": [{}]}
# Each rank on a node of its own, as far as Headroom knows, and with a transport that would reach another one.
NETWORK = {
    "mpich": [{"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"}],
    "openmpi": [{"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"}],
}
# Intel MPI's, which has no compiler of its own in its wheel and runs MPICH's program; the second allocates from shared memory.
INTEL = [{}, {"I_MPI_SHM_HEAP": "1"}]
ON_NODE_OF_ITS_OWN = """
export HEADROOM_JOB=$0-${OMPI_COMM_WORLD_RANK:-$PMI_RANK} MPI_LOCALNRANKS=1 OMPI_COMM_WORLD_LOCAL_SIZE=1
exec "$@"
"""
Figures = dict[tuple[str, int], float]


class Row(NamedTuple):
    mpi: str
    group: str
    ranks: int
    what: str
    bytes: int
    library: float  # microseconds, with the best setting
    headroom: float
    ratio: float
    noise: float  # the first setting against itself
    others: dict[
        str, float
    ]  # "direct sums", of --compare; with work between the calls "turns", and all of the work by the cores


def size_name(count: int) -> str:
    for unit, letter in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count // unit} {letter}"
    return f"{count} B"


def run_program(command: list, setting: dict[str, str]) -> Figures:
    figures = {}
    for line in output_of(command, setting).splitlines():
        fields = line.split("\t")
        if len(fields) == 3:
            figures[fields[0], int(fields[1])] = float(fields[2])
    return figures


def medians(runs: list[Figures]) -> Figures:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def compared_sides(other: Path, ranks: int, words: list) -> list[tuple[list, dict[str, str]]]:
    """The same program with another MPI library, in each of its settings."""
    command = [other / "bin/mpiexec", "-n", ranks, *words]
    finds_itself = {"LD_LIBRARY_PATH": str(other / "lib")}
    if not (other / "bin/impi_info").exists():
        return [(command, finds_itself)]
    return [(command, finds_itself | {"I_MPI_ROOT": str(other)} | setting) for setting in INTEL]


def measure(prefix: Path, group: str, program: Path, rounds: int, compare: list[Path]) -> list[Row]:
    ranks = GROUPS[group]
    found = launcher_of(program)
    cores = len(os.sched_getaffinity(0))
    crowded = ranks > cores
    elsewhere = group == "other nodes"
    settings = (NETWORK if elsewhere else CROWDED if crowded else SINGLE_COPY)[found.kind]
    start, what = [*found.command, "-n", ranks], group.split()[0]
    under = [*start, *(["sh", "-c", ON_NODE_OF_ITS_OWN, f"bench-{os.getpid()}"] if elsewhere else [])]
    under += [*own_command(), "run", "--summary", "off", "--direct", "on"]
    sides = [([*start, program, what], setting) for setting in (*settings, settings[0])]
    sides.append(([*under, program, what], settings[0] if elsewhere else {}))
    more = {"turns": ["--mode", "turns"]} if group == "work" else {}
    more |= {"direct sums": ["--reductions", "direct"]} if group in WITH_SUMS else {}
    sides += [([*under, *options, program, what], {}) for options in more.values()]
    compared = {other.name: compared_sides(other, ranks, [program, what]) for other in compare}
    sides += [side for several in compared.values() for side in several]
    runs: list[list[Figures]] = [[] for _ in sides]
    label = f"measuring {prefix.name}, {group}"
    with click.progressbar(length=rounds * len(sides), label=label, file=sys.stderr) as bar:
        for _ in range(rounds):
            for taken, (command, setting) in zip(runs, sides):
                taken.append(run_program(command, found.environment | setting))
                bar.update(1)
    figures = [medians(taken) for taken in runs]
    plain, again, direct = figures[: len(settings)], figures[len(settings)], figures[len(settings) + 1]
    rows = []
    for key, under_headroom in direct.items():
        best = min(side[key] for side in plain)
        names = [*more, *(name for name, several in compared.items() for _ in several)]
        others: dict[str, float] = {}
        for name, side in zip(names, figures[len(settings) + 2 :]):
            others[name] = min(side[key], others.get(name, side[key]))
        if group == "work":
            milliseconds = float(key[0].split()[0])  # "1 ms of work, ..."
            others["ideal"] = 1000.0 * milliseconds * ranks / min(ranks, cores)
        noise = again[key] / plain[0][key]
        rows.append(Row(prefix.name, group, ranks, *key, best, under_headroom, best / under_headroom, noise, others))
    return rows


def show(rows: list[Row]) -> None:
    head = f"{'':<30} {'size':>9} {'library':>12} {'Headroom':>12} {'ratio':>7} {'noise':>7}"
    names = list(rows[0].others)
    click.echo(f"\n{rows[0].mpi}, {rows[0].ranks} ranks on {len(os.sched_getaffinity(0))} cores")
    click.echo(head + "".join(f" {name[:12]:>12}" for name in names))
    for row in rows:
        size = size_name(row.bytes) if row.bytes else ""
        others = "".join(f" {row.others[name]:>9.2f} us" for name in names)
        times = f"{row.library:>9.2f} us {row.headroom:>9.2f} us"
        click.echo(f"{row.what:<30} {size:>9} {times} {row.ratio:>7.2f} {row.noise:>7.2f}{others}")


@click.command(short_help="Messages inside a node: Headroom and the MPI library.")
@click.option("--mpi", "prefixes", multiple=True, type=FOLDER, help="an MPI's folder with bin/mpicc (default: that in PATH)")
@click.option("--compare", multiple=True, type=FOLDER, help="an MPI that runs the same program, in its best setting: a column")
@click.option("--group", "groups", multiple=True, type=click.Choice(list(GROUPS)), help="what to measure (default: all)")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="how often each side runs")
@click.option("--json", "json_file", type=OUTPUT, help="file that takes all figures")
def messages(prefixes, compare, groups, rounds, json_file) -> None:
    """Messages and collectives inside a node: the MPI library's best setting against Headroom.

    Times are medians in microseconds an operation; a ratio above 1 means that Headroom is faster; "noise" is the library
    against itself. "turns" is Headroom with --mode turns, as if memory were short, and "ideal" the work divided by the cores.
    "direct sums" is Headroom with --reductions direct, where the order of numbers in a sum may be another than the library's.
    "other nodes": over TCP, each rank on a node of its own.
    """
    rows: list[Row] = []
    if json_file:
        check_output(json_file, "--json")
    for other in compare:
        if not (other / "bin/mpiexec").exists():
            raise Refused(f"--compare {other}: there is no bin/mpiexec; name the folder of an installed MPI")
    with tempfile.TemporaryDirectory() as folder:
        for prefix in prefixes or [default_prefix()]:
            program = compile_program(prefix.absolute(), SOURCE, Path(folder))
            for group in groups or GROUPS:
                found = measure(prefix.absolute(), group, program, rounds, list(compare))
                show(found)
                rows += found
                if json_file:
                    write_figures(json_file, rows)
