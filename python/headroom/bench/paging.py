"""`headroom bench paging`: what memory beyond the budget costs, with Headroom and with the kernel's swap.

The program paging.c goes through the same phases, and applications.c through its applications: in memory (twice, for the
noise), under Headroom, with the kernel's swap, and under other systems of this kind that the user has (--peer), all but the
first inside the same hard limit where one can be set. Where there are more ranks than cores, all sides but Headroom's have the
MPI library's setting that is fastest in memory. The sides alternate, in both directions, each after memory was used for a
moment (warm); a figure is the median of the rounds.

The lower bound of a phase is what must move (footprint less budget, read; for updates written as well; of applications, the
least that could be read by one who knows what comes, least_reads.h) over what this disk moves past the page cache, measured in
the same run; for applications it is the time in memory if that is longer: plain's, or Headroom's with memory enough if that is
shorter (where ranks share cores, the library may lose more in its waiting than memory costs).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import shlex
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import click

from headroom import hard_limit, machine, options
from headroom.bench.paging_groups import GIB, GROUPS, MIB, SWAP_BYTES, Group
from headroom.bench.programs import (
    CROWDED,
    FOLDER,
    OUTPUT,
    check_outputs,
    compile_program,
    default_prefix,
    ended_in_order,
    launcher_of,
    output_of,
    write_figures,
)
from headroom.errors import Refused
from headroom.launcher import own_command
from headroom.rank import check_latency

PHASES = Path(__file__).parent / "paging.c"
APPLICATIONS = Path(__file__).parent / "applications.c"
IN_MEMORY = ("plain", "enough")


class Phase(NamedTuple):
    """What one run says of one phase, or the median of several."""

    seconds: float
    bytes: float
    read: float  # MiB, under Headroom
    written: float
    must_read: float = 0.0  # MiB, as an application says
    must_write: float = 0.0


class Row(NamedTuple):
    group: str
    what: str  # the group's ranks and memory
    phase: str
    bytes: float
    seconds: dict[str, float]  # by side, of those that did not fail
    read: dict[str, float]  # MiB, by side under Headroom
    written: dict[str, float]
    bound: float | None  # seconds
    needed: float | None  # MiB that must be read
    setting: dict[str, str]  # the MPI library's, of all sides but Headroom's


def name_phases(lines: list[list[str]]) -> dict[str, list[Phase]]:
    """Phases by name; of several passes of a kind the first is told from the later ones."""
    found: dict[str, list[Phase]] = {}
    names = [line[0].split(":")[0] for line in lines]
    for name, line in zip(names, lines):
        phase = Phase(*(float(word) for word in line[1:]))
        if names.count(name) > 1:
            name += ", later passes" if f"{name}, first pass" in found else ", first pass"
        found.setdefault(name, []).append(phase)
    return found


def median_of(phases: list[Phase]) -> Phase:
    return Phase(*(statistics.median(values) for values in zip(*phases)))


def disk_speeds(program: Path, folder: str, environment: dict[str, str]) -> dict[str, float]:
    """MiB/s of a disk: `first` writing of a file, `write` again, `read`, `mixed` (half and half), and `pages`, reads of 4 KiB,
    by as many threads of 2 to 16 as are fastest."""
    text = output_of([program, "disk", folder, "1024"], environment)
    return {name: float(value) for name, value in (line.split("\t") for line in text.splitlines())}


def is_counted(phase: str) -> bool:
    """Whether the phase is a number of accesses, and not a pass over all of the array."""
    return phase.startswith(("random", "objects", "hash", "tree")) and phase != "tree-build"


def bound_of(group: Group, phase: str, disk: dict[str, float]) -> tuple[float | None, float | None]:
    """Seconds that the disk needs, and MiB that must be read, if each pass finds all of the budget in memory."""
    missing = group.ranks * group.mib - group.budget
    kind = phase.split(",")[0]
    if missing <= 0 or is_counted(kind) or kind in ("strided", "columns"):
        return None, None
    if kind in ("touch", "tree-build"):
        return missing / disk["first"], 0
    if kind == "read" and "first" not in phase:
        return missing / disk["read"], missing
    if kind in ("backward", "in-step"):
        return missing / disk["read"], missing
    # The first pass that reads finds what the pass before has left dirty, and the pass that writes reads nothing it must.
    if kind == "write":
        return missing / disk["write"], 0
    return 2 * missing / disk["mixed"], missing


def bound_of_application(median: Phase, in_memory: float, disk: dict[str, float]) -> tuple[float | None, float | None]:
    """The same by what the application says must move; no faster than in memory, which takes `in_memory` seconds."""
    both = min(median.must_read, median.must_write)
    moving = 2 * both / disk["mixed"] + (median.must_read - both) / disk["read"] + (median.must_write - both) / disk["first"]
    return max(moving, in_memory), median.must_read or None


class Side(NamedTuple):
    name: str
    before: list[str]  # put before the program
    limited: bool
    swap: bool
    enough: bool = False  # memory, under Headroom

    @property
    def is_headroom(self) -> bool:
        return "headroom.start" in self.before


def sides_of(swap: bool, limits: bool, peers: list[str], engines: list[str], storage: str, latency: str) -> list[Side]:
    command = [*own_command(), "run", "--summary", "off", "--storage", storage, "--latency", latency, "--engine"]
    run = [*command, engines[0]]
    sides = [Side("plain", [], False, False), Side("again", [], False, False)]
    sides.append(Side("enough", run, False, False, enough=True))
    sides.append(Side("headroom", run, limits, False))
    sides += [Side(engine, [*command, engine], limits, False) for engine in engines[1:]]
    if swap:
        sides.append(Side("swap", [], True, True))
    for peer in peers:
        named = re.fullmatch(r"([\w.+-]+)=(.+)", peer)
        command = shlex.split(named[2] if named else peer)
        sides.append(Side(named[1] if named else Path(command[0]).name, command, limits, False))
    return sides


def command_of(side: Side, group: Group, program: Path, inside: tuple[str, ...] = ()) -> list:
    """`inside`: put before each rank. A limit is the ranks' alone: some launchers take as much as all that is left to it."""
    found = launcher_of(program)
    before = [word.replace("{budget}", str(group.budget)).replace("{ranks}", str(group.ranks)) for word in side.before]
    if side.is_headroom:
        before += ["--memory", f"{4 * group.ranks * group.mib if side.enough else group.budget}M"]
    arguments = [group.phases[0], group.mib, group.budget] if group.is_application else [group.mib, *group.phases]
    binding = ["--bind-to" if found.kind == "openmpi" else "-bind-to", "core"] if group.bound else []
    return [*found.command, "-n", group.ranks, *binding, *inside, *before, program, *arguments]


def warm(size: int) -> None:
    """Uses so much memory for a moment. A virtual machine may have given what is free to its host, and whoever touches that
    first pays for it: up to 4 ms for 2 MiB, twenty times as much as otherwise. So it is not a side of ours."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1


def run_side(side: Side, group: Group, program: Path, setting: dict[str, str], latency: str) -> dict[str, list[Phase]]:
    environment = launcher_of(program).environment | ({} if side.is_headroom else setting)
    warm(group.ranks * group.mib * MIB)
    with contextlib.ExitStack() as stack:
        if latency == "low" and not side.is_headroom:  # which has it by its own setting
            stack.enter_context(machine.fast_wakeups())
        limit = stack.enter_context(hard_limit.HardLimit(group.limit, side.swap)) if side.limited else None
        words = command_of(side, group, program, tuple(limit.wrap([])) if limit else ())
        text = output_of([str(word) for word in words], environment)
    return name_phases([line.split("\t") for line in text.splitlines() if line.count("\t") in (4, 6)])


def best_setting(plain: Side, group: Group, program: Path, latency: str) -> dict[str, str]:
    """The MPI library's that is fastest in memory: where ranks share cores, those that wait may better give them away."""
    settings = CROWDED[launcher_of(program).kind] if group.ranks > len(os.sched_getaffinity(0)) else [{}]
    if len(settings) == 1:
        return settings[0]

    def seconds(setting: dict[str, str]) -> float:
        return sum(phase.seconds for passes in run_side(plain, group, program, setting, latency).values() for phase in passes)

    return min(settings, key=seconds)


def measure(name: str, sides: list[Side], programs: tuple[Path, Path], rounds: int, storage: str, latency: str) -> list[Row]:
    group = GROUPS[name]
    program = programs[1 if group.is_application else 0]
    if group.fits:
        sides = [side for side in sides if not side.swap]
    if not group.is_application:
        sides = [side for side in sides if not side.enough]
    setting = best_setting(sides[0], group, program, latency)
    runs: dict[str, dict[str, list[Phase]]] = {side.name: {} for side in sides}
    speeds: list[dict[str, float]] = []
    environment = launcher_of(program).environment
    label = f"measuring {name}"
    with click.progressbar(length=rounds * (len(sides) + 1), label=label, file=sys.stderr) as bar:
        for turn in range(rounds):
            # Who comes first pays for what the system has put off, and nobody always follows the same one.
            order = sides[turn % len(sides) :] + sides[: turn % len(sides)]
            for side in order if turn % 2 == 0 else reversed(order):
                try:
                    found = run_side(side, group, program, setting, latency)
                except click.ClickException as error:  # the kernel may end it for lack of memory, although swap is free
                    if side.name == "plain":
                        raise
                    click.echo(f"\n{name}, {side.name}: {error.message}", err=True)
                    found = {}
                for phase, passes in found.items():
                    runs[side.name].setdefault(phase, []).extend(passes)
                bar.update(1)
            speeds.append(disk_speeds(programs[0], storage, environment))
            bar.update(1)
    disk = {what: statistics.median(speed[what] for speed in speeds) for what in speeds[0]}
    rows = []
    for phase in runs["plain"]:
        medians = {side: median_of(phases[phase]) for side, phases in runs.items() if phase in phases}
        ours = {
            side.name: medians[side.name] for side in sides if side.is_headroom and not side.enough and side.name in medians
        }
        rows.append(
            Row(
                name,
                f"{group.ranks} x {group.mib} MiB" + ("" if group.fits else f" in {group.budget} MiB"),
                phase,
                medians["plain"].bytes,
                {side: median.seconds for side, median in medians.items()},
                {side: median.read for side, median in ours.items()},
                {side: median.written for side, median in ours.items()},
                *(
                    bound_of_application(
                        medians["plain"], min(medians[side].seconds for side in IN_MEMORY if side in medians), disk
                    )
                    if group.is_application
                    else bound_of(group, phase, disk)
                ),
                setting,
            )
        )
    click.echo(f"\n{name}: {group.ranks} x {group.mib} MiB with {group.budget} MiB ({group.what})")
    for side in sides:
        words = " ".join(str(word) for word in command_of(side, group, program))
        if not side.is_headroom:
            words = " ".join([*(f"{name}={value}" for name, value in setting.items()), words])
        click.echo(
            f"  {side.name}: {words}{' (hard limit)' if side.limited else ''}{f' ({side.name})' if side.swap else ''}", err=True
        )
    click.echo("disk, MiB/s: " + ", ".join(f"{what} {speed:.0f}" for what, speed in disk.items()))
    show(rows)
    return rows


def speed_of(row: Row, side: str) -> str:
    """MiB/s, or thousands of accesses, or millions of operations on objects, a second."""
    if side not in row.seconds:
        return "failed"
    seconds = row.seconds[side]
    if row.phase.startswith("objects"):
        return f"{row.bytes / 8e6 / seconds:.1f} M/s"
    return f"{row.bytes / 8000 / seconds:.1f} k/s" if is_counted(row.phase) else f"{row.bytes / MIB / seconds:.0f} MiB/s"


def show(rows: list[Row]) -> None:
    sides = list(dict.fromkeys(side for row in rows for side in row.seconds))
    head = "".join(f" {side:>12}" for side in sides)
    against = "swap" if "swap" in sides else "plain"
    click.echo(f"{'':<22}{head} {'/' + against:>8} {'of bound':>9} {'read/needed':>12}")
    for row in rows:
        speeds = "".join(f" {speed_of(row, side):>12}" for side in sides)
        seconds = row.seconds.get("headroom")
        times = f"{row.seconds[against] / seconds:.2f}" if seconds and against in row.seconds else ""
        bound = f"{row.bound / seconds:.2f}" if row.bound and seconds else ""
        needed = f"{row.read['headroom'] / row.needed:.2f}" if row.needed and seconds else ""
        click.echo(f"{row.phase:<22}{speeds} {times:>8} {bound:>9} {needed:>12}")


def prepare_swap(stack: contextlib.ExitStack, tuned: bool, storage: Path) -> tuple[bool, bool]:
    """Whether hard limits can be set, and whether swap is there; says why not."""
    why_not = hard_limit.available() if os.geteuid() == 0 else "hard limits need root"
    if why_not is not None:
        click.echo(f"without hard limits and without the kernel's swap: {why_not}", err=True)
        return False, False
    try:
        stack.enter_context(hard_limit.without_zswap())
        stack.enter_context(hard_limit.SwapFile(SWAP_BYTES, storage))
        if tuned:
            stack.enter_context(hard_limit.swap_cluster(7))
    except OSError as error:
        click.echo(f"without the kernel's swap: {error}", err=True)
        return True, False
    return True, True


@click.command(short_help="Memory beyond the budget: Headroom and swap (25 min.).")
@click.option("--mpi", "prefix", type=FOLDER, help="an MPI's folder with bin/mpicc (default: that in PATH)")
@click.option(
    "--group", "groups", multiple=True, type=click.Choice(list(GROUPS)), help="what to measure (default: all but quick ones)"
)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1), help="how often each side runs")
@click.option(
    "--storage", default="/var/tmp", show_default=True, type=FOLDER, help="where memory goes, and whose disk is measured"
)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    default=["auto"],
    show_default=True,
    type=options.choice_of("engine"),
    help="the fault engine, as of `headroom run`; further ones get a column each",
)
@click.option(
    "--latency",
    default="system",
    show_default=True,
    type=options.choice_of("latency"),
    help="as of `headroom run`; low: of all sides, those in memory and swap, too",
)
@click.option("--tuned-swap", is_flag=True, help="let swap read 128 pages at once (vm.page-cluster=7) meanwhile")
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="[NAME=]COMMAND",
    help="another system: put before the program, with {budget} in MiB and {ranks} filled in",
)
@click.option("--json", "json_file", type=OUTPUT, help="file that takes all figures")
@click.option("--plot", "plot_file", type=OUTPUT, help="file that takes a drawing, SVG")
def paging(prefix, groups, rounds, storage, engines, latency, tuned_swap, peers, json_file, plot_file) -> None:
    """Memory beyond the budget: in memory, under Headroom, and with the kernel's swap.

    Three rounds of all groups take about 25 minutes; --group names one, --rounds 1 is quicker.

    "enough" is Headroom with memory enough.
    "/swap" (or "/plain") above 1 means that Headroom is faster; "of bound" is the time the disk needs for
    what must move, over the time taken; "read/needed" what was read over what must be.

    Root's comparison with the kernel's swap makes a swap file of 4 GiB in
    --storage, sets memory limits, and switches zswap off for the whole machine meanwhile; all is undone at the end.
    """
    check_outputs(json_file, plot_file)
    check_latency(latency)
    chosen = groups or [name for name in GROUPS if not name.startswith("quick")]
    needed = max(GROUPS[name].needed_bytes(os.geteuid() == 0) for name in chosen)
    if shutil.disk_usage(storage).free < needed:
        raise Refused(f"{storage} has less than {needed / GIB:.1f} GiB free; choose another --storage")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, ended_in_order(), contextlib.ExitStack() as stack:
        programs = tuple(
            compile_program((prefix or default_prefix()).absolute(), source, Path(folder)) for source in (PHASES, APPLICATIONS)
        )
        launcher_of(programs[0])  # say at once, before anything is set up for everybody, what is wrong
        limits, swap = prepare_swap(stack, tuned_swap, storage)
        sides = sides_of(swap, limits, list(peers), list(engines), str(storage), latency)
        for name in chosen:
            rows += measure(name, sides, programs, rounds, str(storage), latency)
            if json_file:
                write_figures(json_file, rows)
    if plot_file:
        from headroom.bench import plot  # matplotlib is wanted for nothing else here

        plot_file.write_text(plot.draw([row._asdict() for row in rows]))
