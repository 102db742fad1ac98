"""`headroom top`: the jobs of this node that run under Headroom, live: who computes or waits, what is resident, what moves.

Messages are those that bypass the MPI library, of collectives too, and one-sided calls, counted by who sends, puts or gets.
"""

import contextlib
import json
import subprocess
import time
from pathlib import Path

import click
import psutil

from headroom.run import library_path

MIB = 1 << 20
MOVING = ("read", "written", "faults", "waited_ns", "messages", "message_bytes")
STATES = ["computes", "waits in MPI", "waits for its turn"]
FULL = "storage is full"
BAR = 12


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
    command = [library_path().parent / "headroom-ledger", str(pid), "0", "1"]
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


def lines(pid: int, now: dict, before: dict | None) -> list[str]:
    used = now["budget"] - now["free"]
    memory = "short" if now["short"] else "enough"
    head = (
        f"job of process {pid}, {now['at_s']:.0f} s: {used / MIB:.0f} of {now['budget'] / MIB:.0f} MiB used, memory is {memory}"
    )
    if now["short"]:
        head += f", {now['held']} of {now['slots']} slots held"
    shown = [
        head,
        f"  {'rank':>5} {'':<18} {'':<{BAR}} {'resident':>12} {'read':>12} {'written':>12} {'faults':>9} {'waits':>6} "
        f"{'messages':>11} {'content':>12}",
    ]
    rates = _rates(now, before)
    for member in sorted(now["members"], key=lambda each: (each["rank"] < 0, each["rank"])):
        rate = rates[member["pid"]]
        state = FULL if member["storage_full"] else STATES[member["state"]]
        filled = round(BAR * min(max(member["resident"] / max(now["budget"], 1), 0), 1))
        shown.append(
            f"  {member['rank'] if member['rank'] >= 0 else '-':>5} {state:<18} {'█' * filled:<{BAR}} "
            f"{member['resident'] / MIB:>8.0f} MiB {rate['read'] / MIB:>6.0f} MiB/s {rate['written'] / MIB:>6.0f} MiB/s "
            f"{rate['faults']:>7.0f}/s {rate['waited_ns'] / 1e9:>6.0%} {rate['messages']:>9.0f}/s "
            f"{rate['message_bytes'] / MIB:>6.0f} MiB/s"
        )
    if any(member["storage_full"] for member in now["members"]):
        shown.append("  storage is full: free room there, or give the job another directory with `headroom storage add`")
    return shown


@click.command()
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
            click.echo(f"headroom: a job is left out: {why}", err=True)
        looks += 1
        if as_json:
            for pid, now in seen.values():
                click.echo(json.dumps({"process": pid, **now}))
        elif not once or looks == 2 or not seen:
            text = [line for ledger, (pid, now) in seen.items() for line in [*lines(pid, now, before.get(ledger)), ""]]
            if not once:
                click.clear()
            none = "no job that can be shown" if unread else "no job of yours runs under Headroom here"
            click.echo("\n".join(text) if text else none)
        if not seen or (once and (looks == 2 or as_json)):
            return
        before = {ledger: now for ledger, (_, now) in seen.items()}
        time.sleep(interval)
