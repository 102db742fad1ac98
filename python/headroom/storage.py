"""`headroom storage add`: gives a running job a further storage directory, which it uses when its own are full.

A job whose storage is full pauses (--storage-wait) rather than end; src/pager/store_room.h says how it goes on.
"""

from __future__ import annotations

import os
import subprocess

import click

from headroom.errors import Refused
from headroom.rank import check_storage, library_path
from headroom.top import jobs, programs, read


@click.group(short_help="Give a running job more storage.")
def storage() -> None:
    """The storage of jobs that run under Headroom on this node."""


def _program_of(process: int) -> str:
    now = read(process, {})
    return programs(now["members"]) if now else "it has ended"


def choose_job(process: int | None) -> int:
    """A process of the job that is meant."""
    if process is not None:
        return process
    running = list(jobs().values())
    if not running:
        raise Refused("no job of yours runs under Headroom here; run this on the node whose storage is full")
    if len(running) > 1:
        choices = " or ".join(f"--process {each} ({_program_of(each)})" for each in running)
        raise Refused(f"{len(running)} jobs run here; name a process of the one you mean: {choices}")
    return running[0]


@storage.command(short_help="Add a directory to a job whose storage is full.")
@click.argument("directory")
@click.option("--process", type=int, help="a process of the job (`headroom top` shows one), if several run here")
def add(directory: str, process: int | None) -> None:
    """Let the memory of a running job go to DIRECTORY, too, when its own storage is full."""
    path = check_storage(directory, option="DIRECTORY ")
    command = [os.path.join(os.path.dirname(library_path()), "headroom-ledger"), str(choose_job(process)), "add", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(done.stderr.strip().removeprefix("headroom-ledger: "))
    click.echo(f"{path} {done.stdout.strip()}")
