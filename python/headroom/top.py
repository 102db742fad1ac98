"""`headroom top`: the jobs of this node that run under Headroom, live: who computes or waits, what is resident, what moves.

Messages are those that bypass the MPI library, of collectives too, and one-sided calls, counted by who sends, puts or gets.
What a terminal has no room for is left out: the columns that say least, and the last ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import psutil

from headroom.errors import warn
from headroom.rank import library_path

MIB = 1 << 20
MOVING = ("read", "written", "faults", "waited_ns", "messages", "message_bytes")
STATES = ["computes", "waits in MPI", "waits for its turn"]
NOT_IN_TURNS = "runs"  # computes or waits: the ledger is not told which
FULL = "storage is full"
BAR = 14
FIRST = "  {:>4} {:<18} {:<14}"  # rank, state, bar
FIRST_WIDTH = len(FIRST.format("", "", ""))
LEAST_RANKS = 3
WIDE = 1000  # where nobody says how much room there is


@dataclass(frozen=True)
class Column:
    name: str
    unit: str
    width: int
    value: Callable[[dict, dict], str]  # of a member and its rates

    def shown(self, text: str) -> str:
        return f" {text:>{self.width}}"


HELD = Column("", "MiB", 9, lambda member, rate: f"{member['resident'] / MIB:.0f}")
READ = Column("read", "MiB/s", 7, lambda member, rate: f"{rate['read'] / MIB:.0f}")
WRITTEN = Column("written", "MiB/s", 7, lambda member, rate: f"{rate['written'] / MIB:.0f}")
WAITS = Column("waits", "", 5, lambda member, rate: f"{rate['waited_ns'] / 1e9:.0%}")
FAULTS = Column("faults", "/s", 7, lambda member, rate: f"{rate['faults']:.0f}")
MESSAGES = Column("messages", "/s", 8, lambda member, rate: f"{rate['messages']:.0f}")
CONTENT = Column("content", "MiB/s", 7, lambda member, rate: f"{rate['message_bytes'] / MIB:.0f}")
COLUMNS = (HELD, READ, WRITTEN, WAITS, FAULTS, MESSAGES, CONTENT)
# What says most comes first: memory that is enough is neither read nor written.
IN_SHORT_MEMORY = (HELD, READ, WRITTEN, WAITS, MESSAGES, CONTENT, FAULTS)
IN_ENOUGH_MEMORY = (HELD, MESSAGES, CONTENT, READ, WRITTEN, WAITS, FAULTS)


def jobs() -> dict[str, int]:
    """A process of each job of the user's (or of everybody's, for root), by what tells its ledger from others."""
    found: dict[str, int] = {}
    for process in psutil.process_iter():
        try:
            maps = Path(f"/proc/{process.pid}/maps").read_text()
        except OSError:
            continue  # another user's, or it has ended
        for line in maps.splitlines():
            if "memfd:headroom-ledger" in line:
                found.setdefault(line.split()[4], process.pid)
                break
    return found


def read(pid: int, unread: dict[int, str]) -> dict | None:
    """The job's ledger now; None if it has ended, or if it cannot be read: `unread` says why."""
    command = [os.path.join(os.path.dirname(library_path()), "headroom-ledger"), str(pid), "0", "1"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout:
        return json.loads(done.stdout)
    if done.stderr and psutil.pid_exists(pid):
        unread[pid] = done.stderr.strip()
    return None


def _rates(now: dict, before: dict | None) -> dict[int, dict]:
    """What each process did a second, since it was looked at before."""
    earlier = {member["pid"]: member for member in before["members"]} if before else {}
    passed = max(now["at_s"] - before["at_s"], 1e-3) if before else 1.0
    rates = {}
    for member in now["members"]:
        last = earlier.get(member["pid"], member)
        rates[member["pid"]] = {name: (member[name] - last[name]) / passed for name in MOVING}
    return rates


def _columns(is_short: bool, width: int) -> list[Column]:
    """As many as fit, of those that say most."""
    kept, left = [], width - FIRST_WIDTH
    for column in IN_SHORT_MEMORY if is_short else IN_ENOUGH_MEMORY:
        left -= column.width + 1
        if left < 0:
            break
        kept.append(column)
    return [column for column in COLUMNS if column in kept]


def programs(members: list[dict]) -> str:
    return ", ".join(dict.fromkeys(member["program"] for member in members))


def _size(count: float) -> str:
    """In few letters."""
    if count < 1000 * MIB:
        return f"{count / MIB:.0f} MiB"
    return f"{count / (1 << 30):.{1 if count < 100 << 30 else 0}f} GiB"


def _head(pid: int, now: dict, members: list[dict]) -> list[str]:
    used = now["budget"] - now["free"]
    memory = f"memory is {'short' if now['short'] else 'enough'}"
    if now["turns"]:
        memory += f", {now['held']} of {now['slots']} slots held"
    return [
        f"{programs(members)}: job of process {pid}, {len(members)} processes, {now['at_s']:.0f} s",
        f"  {used / MIB:.0f} of {now['budget'] / MIB:.0f} MiB used, {memory}",
    ]


def _row(member: dict, rate: dict, in_turns: bool, full_bar: float, columns: list[Column]) -> str:
    rank = member["rank"] if member["rank"] >= 0 else "-"
    state = FULL if member["storage_full"] else STATES[member["state"]] if in_turns else NOT_IN_TURNS
    bar = "█" * round(BAR * max(member["resident"], 0) / full_bar)
    return FIRST.format(rank, state, bar) + "".join(column.shown(column.value(member, rate)) for column in columns)


def lines(pid: int, now: dict, before: dict | None, width: int = WIDE, height: int | None = None) -> list[str]:
    """What is shown of a job, in at most so many columns and lines, if these are enough for a few ranks."""
    members = sorted(now["members"], key=lambda each: (each["rank"] < 0, each["rank"]))
    share = now["budget"] / max(len(members), 1)
    most = max((member["resident"] for member in members), default=0)
    columns = _columns(now["watched"], width)
    held = "resident" if now["watched"] else "allocated"
    shown = [
        *_head(pid, now, members),
        FIRST.format("rank", "", f"bar: {_size(max(share, most))} =")
        + "".join(column.shown(held if column is HELD else column.name) for column in columns),
        FIRST.format("", "", "equal share" if share >= most else "largest rank")
        + "".join(column.shown(column.unit) for column in columns),
    ]
    said = []
    if any(member["storage_full"] for member in members):
        said = ["  storage is full: free room there, or use `headroom storage add`"]
    rates = _rates(now, before)
    rows = [_row(member, rates[member["pid"]], now["turns"], max(share, most), columns) for member in members]
    room = len(rows) if height is None else max(height - len(shown) - len(said), LEAST_RANKS)
    if len(rows) > room:
        rows = [*rows[: room - 1], f"  … {len(rows) - room + 1} more"]
    return [line[:width].rstrip() for line in [*shown, *rows, *said]]


def screen(seen: list[tuple[int, dict, dict | None]], width: int, height: int | None) -> list[str]:
    """All jobs (a process, the ledger now and before), in at most so many lines: each has an equal part of what is left."""
    text: list[str] = []
    for index, job in enumerate(seen):
        part = None if height is None else (height - len(text)) // (len(seen) - index) - 1
        text += [*lines(*job, width, part), ""]
    if height is not None and len(text) > height:
        text = [*text[: height - 1], f"… {len(text) - height + 1} more lines"]
    return text


@click.command(short_help="Show the jobs of this node, live.")
@click.option("--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="seconds between two looks")
@click.option("--once", is_flag=True, help="look once (twice, an interval apart, for the rates) and end")
@click.option("--json", "as_json", is_flag=True, help="one line of JSON a look and job, for machines")
def top(interval: float, once: bool, as_json: bool) -> None:
    """Show the jobs on this node that run under Headroom, until they end or Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        watch(interval, once, as_json)


def watch(interval: float, once: bool, as_json: bool) -> None:
    before: dict[str, dict] = {}
    looks = 0
    while True:
        unread: dict[int, str] = {}
        seen = {ledger: (pid, now) for ledger, pid in jobs().items() if (now := read(pid, unread)) is not None}
        for why in unread.values() if looks == 0 else ():
            warn(f"a job is left out: {why}")
        looks += 1
        if as_json:
            for pid, now in seen.values():
                click.echo(json.dumps({"process": pid, **now}))
        elif not once or looks == 2 or not seen:
            size = shutil.get_terminal_size((WIDE, WIDE))
            cut = sys.stdout.isatty() and not once
            known = [(pid, now, before.get(ledger)) for ledger, (pid, now) in seen.items()]
            text = screen(known, size.columns, size.lines - 1 if cut else None)
            if not once:
                click.clear()
            none = "no job that can be shown" if unread else "no job of yours runs under Headroom here"
            click.echo("\n".join(text) if text else none)
        if not seen or (once and (looks == 2 or as_json)):
            return
        before = {ledger: now for ledger, (_, now) in seen.items()}
        time.sleep(interval)
