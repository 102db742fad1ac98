"""`headroom top` sees a job that runs, with what its processes have and do, and none when there is none."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
import time

from conftest import HEADROOM, ROOT, compile_program, environment
from headroom.top import WIDE, lines, screen

MIB = 1 << 20


def top(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [HEADROOM, "top", *arguments], capture_output=True, text=True, timeout=60, env=environment(), check=False
    )


def test_a_job_is_seen_while_it_runs(mpi, tmp_path):
    program = compile_program(mpi, "rounds.c", f"-I{ROOT}/include")
    command = [*mpi.command(2), HEADROOM, "run", "--memory", "64M", program, "64", "90"]
    job = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment()
    )
    try:
        deadline = time.monotonic() + 60
        seen = {}
        while time.monotonic() < deadline and job.poll() is None:
            lines = [json.loads(line) for line in top("--json", "--once").stdout.splitlines() if line.startswith("{")]
            seen = lines[0] if lines else {}
            if seen.get("short") and all(member["read"] > 0 for member in seen["members"]):
                break
            time.sleep(0.1)
        assert seen.get("short") and seen["budget"] == 64 * MIB
        assert sorted(member["rank"] for member in seen["members"]) == [0, 1]
        assert all(member["allocated"] >= 64 * MIB and member["faults"] > 0 for member in seen["members"])
        assert sum(member["resident"] for member in seen["members"]) <= 96 * MIB
        shown = top("--once", "--interval", "0.2").stdout
        assert "of 64 MiB used, memory is short" in shown and "MiB/s" in shown
    finally:
        job.terminate()
        job.communicate(timeout=60)
    assert "no job of yours" in top("--once").stdout


def test_messages_are_seen_while_they_are_sent(mpi):
    program = compile_program(mpi, "known_messages.c")
    command = [*mpi.command(2), HEADROOM, "run", "--memory", "1G", program, "short", "2000000000"]
    job = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    try:
        deadline = time.monotonic() + 60
        seen = []
        while time.monotonic() < deadline and len(seen) < 2:
            now = [json.loads(line) for line in top("--json", "--once").stdout.splitlines() if line.startswith("{")]
            members = {member["rank"]: member for member in now[0]["members"]} if now else {}
            if members.get(0, {}).get("messages", 0) > (seen[0]["messages"] if seen else 500_000):
                assert members[1]["messages"] == 0  # who sends counts
                seen.append(members[0])
        assert len(seen) == 2
        # One is read after the other, while messages go on.
        assert all(0.5 < one["message_bytes"] / (8 * one["messages"]) < 2 for one in seen), seen
    finally:
        job.terminate()
        job.communicate(timeout=60)


def look(at: float, ranks: int = 1, resident: int = 0, short: bool = False, **other) -> dict:
    """A ledger of a job that computes."""
    moving = dict.fromkeys(("read", "written", "faults", "waited_ns", "messages", "message_bytes"), 0)
    members = [
        {"program": "sweep", "rank": rank, "pid": 5 + rank, "storage_full": False, "state": 0, "resident": resident, **moving}
        | other
        for rank in range(ranks)
    ]
    sizes = {"budget": 512 * MIB, "free": 12 * MIB, "slots": 2, "held": 2}
    return {"at_s": at, "watched": short, "short": short, "turns": short, "members": members, **sizes}


def test_rates_are_those_between_two_looks():
    before = look(10.0, messages=1000, message_bytes=1 * MIB)
    now = look(12.0, messages=9000, message_bytes=81 * MIB)
    *_, header, units, rank = lines(5, now, before)
    assert header.split()[-2:] == ["messages", "content"] and units.split()[-2:] == ["/s", "MiB/s"]
    assert rank.split()[-2:] == ["4000", "40"]
    assert lines(5, now, None)[-1].split()[-2:] == ["0", "0"]
    assert len(header) == len(units) == len(rank)


def test_what_is_shown_fits_the_terminal():
    for short in (False, True):
        for jobs, ranks in ((1, 16), (1, 256), (3, 16), (9, 4)):
            seen = [(job, look(9.0, ranks, 9 * MIB, short), None) for job in range(jobs)]
            shown = screen(seen, 80, 23)
            assert len(shown) <= 23 and max(map(len, shown)) <= 80
            assert "sweep: job of process 0" in shown[0]
            assert any("more" in line for line in shown) == (jobs > 1 or ranks > 16)
            whole = screen(seen, WIDE, None)
            assert len(whole) == jobs * (ranks + 5) and not any("more" in line for line in whole)
    assert screen([(1, look(9.0, 256), None)], 80, 23)[-2] == f"  … {256 - 17} more"
    wanted = {True: ("resident", "read", "written", "waits"), False: ("allocated", "messages", "content")}
    for short, names in wanted.items():
        header = lines(1, look(9.0, 16, short=short), None, 80)[2]
        assert all(name in header for name in names)


def test_the_bar_is_of_a_share():
    def bars(resident: int) -> tuple[str, str, int]:
        _, _, header, units, rank, *_ = lines(1, look(9.0, 16, resident), None)
        return header, units, rank.count("█")

    header, units, length = bars(16 * MIB)
    assert "bar: 32 MiB =" in header and "equal share" in units and 6 <= length <= 7
    header, units, length = bars(64 * MIB)
    assert "bar: 64 MiB =" in header and "largest rank" in units and length == 14


def test_states_are_known_in_turns_alone():
    assert "waits in MPI" in lines(1, look(9.0, short=True, state=1), None)[-1]
    assert " runs " in lines(1, look(9.0, state=1), None)[-1]


def test_a_small_terminal(mpi):
    """Of a job that runs, in a terminal of 60 columns and 9 lines."""
    program = compile_program(mpi, "known_messages.c")
    command = [*mpi.command(4), HEADROOM, "run", "--memory", "1G", program, "short", "2000000000"]
    job = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 9, 60, 0, 0))
    variables = {name: value for name, value in environment().items() if name not in ("COLUMNS", "LINES")}
    watcher = None
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and '"rank": 3' not in top("--json", "--once").stdout:
            time.sleep(0.2)
        watcher = subprocess.Popen(
            [HEADROOM, "top", "--interval", "0.2"], stdout=theirs, stderr=subprocess.DEVNULL, env=variables | {"TERM": "xterm"}
        )
        text = b""
        while text.count(b"more") < 3 and time.monotonic() < deadline:
            text += os.read(ours, 65536)
        shown = text.decode().split("\x1b[2J")[1].removeprefix("\x1b[1;1H").split("\r\n")
        assert len(shown) <= 9 and max(map(len, shown)) <= 60
        assert shown[0].startswith("known_messages") and "4 processes" in shown[0] and shown[-3] == "  … 2 more"
    finally:
        for process in (watcher, job):
            if process is not None:
                process.terminate()
                process.wait(timeout=60)
        os.close(ours)
        os.close(theirs)


def test_a_process_without_a_ledger_is_named():
    reader = next((HEADROOM.parent.parent / "lib").glob("python3*/site-packages/headroom/lib/headroom-ledger"))
    done = subprocess.run([reader, "1", "0", "1"], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and ("has no ledger" in done.stderr or "/proc/1/fd" in done.stderr)
