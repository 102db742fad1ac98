"""`headroom run`: starts a program with the preloaded library, under a launcher or by starting one.

Under a launcher (mpiexec -n 4 headroom run ./app) this process becomes the program (rank.py). With -n it starts the
launcher that belongs to the program's MPI, which starts `headroom run` once a rank; it then passes signals on and returns the
launcher's exit status.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import click

from headroom import launcher, options, settings
from headroom.errors import Refused, warn
from headroom.rank import (
    become,
    check_page_size,
    check_share,
    check_sizes,
    choose_memory,
    choose_storage,
    find_program,
    library_path,
    with_checked_files,
)


def in_foreground() -> bool:
    """Whether Ctrl-C at the terminal reaches us and our children all at once."""
    try:
        with open("/dev/tty") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def refuse_under_a_launcher(ranks: int) -> None:
    started = launcher.started_ranks(os.environ)
    if started > 1:
        raise Refused(
            f"-n {ranks} under a launcher, which has started {started} processes: each of them would start {ranks} ranks of "
            f"its own; leave out -n (mpiexec -n {started} headroom run PROGRAM), or the launcher (headroom run -n {ranks} "
            "PROGRAM)"
        )


def launch(ranks: int, program: list[str], values: dict) -> int:
    """Starts the launcher, passes signals on, returns its exit status."""
    refuse_under_a_launcher(ranks)
    path = find_program(program[0])
    check_page_size()
    library_path()  # say at once, and once, what is wrong
    memory = choose_memory(values["memory"])
    if not launcher.may_have_other_nodes(os.environ):
        check_share(memory, ranks)
    storage = choose_storage(values["storage"])
    values = with_checked_files(values) | ({"storage": storage} if values["storage"] is not None else {})
    try:
        found = launcher.find(path, values["mpi"] or "auto")
    except launcher.NotFound as error:
        raise Refused(str(error)) from None
    if found.is_guessed:
        warn(
            f"{program[0]} names no MPI library; started with {found.command[0]} ({launcher.NAMES[found.kind]}), the one in "
            "PATH; --mpi or PATH choose another"
        )
    environment = dict(os.environ) | found.environment
    environment.pop("HEADROOM_JOB", None)
    # As options, not in the environment, which Open MPI does not take to other nodes. What was not chosen each node chooses.
    inner = [*launcher.own_command(), "run", *settings.to_options(values), "--", *program]
    child = None
    received = []  # before there was anybody to tell

    def pass_on(number, _frame):
        if number in (signal.SIGTERM, signal.SIGHUP):
            text = f"headroom: warning: told to stop by signal {number} ({signal.strsignal(number)}); the ranks are told too\n"
            os.write(2, text.encode())
        if number == signal.SIGINT and in_foreground():
            return  # the terminal has told the launcher already; told twice, it would end the job without asking the ranks
        if child is None:
            received.append(number)
        else:
            child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, pass_on)
    child = subprocess.Popen([*found.command, "-n", str(ranks), *inner], env=environment)
    for number in received:
        child.send_signal(number)
    status = child.wait()
    return 128 - status if status < 0 else status


@click.command(
    cls=options.Command,
    short_help="Start a program, or its ranks, under Headroom.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("-n", "-np", "--ranks", type=click.IntRange(min=1), help="start this many ranks with the program's own launcher")
@options.options
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="PROGRAM [ARGS]...")
def run(ranks: int | None, program: tuple[str, ...], **values) -> None:
    """Run PROGRAM so that its ranks may use more memory than the node has.

    \b
    mpiexec -n 4 headroom run --memory 512M ./app args     under any launcher
    headroom run -n 4 --memory 512M ./app args             starts the launcher that belongs to the program's MPI

    --memory is per node, for all ranks together. A SIZE is 512M or 1.5G, say (powers of 1024). Every option is
    also an environment variable (HEADROOM_MEMORY, ...).

    The exit status is the program's, or the launcher's; 2 if Headroom refuses to start it, or ends it by an error of its own;
    127 if there is no such program, 126 if it cannot be started.
    """
    check_sizes(values)
    if ranks is None:
        become(list(program), values)
    else:
        sys.exit(launch(ranks, list(program), values))
