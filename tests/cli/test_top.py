"""`headroom top` sees a job that runs, with what its processes have and do, and none when there is none."""

import json
import subprocess
import time

from conftest import HEADROOM, ROOT, compile_program, environment
from headroom.top import lines

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


def test_rates_are_those_between_two_looks():
    looks = []
    for at, messages, content in ((10.0, 1000, 1 * MIB), (12.0, 9000, 81 * MIB)):
        still = dict.fromkeys(("read", "written", "faults", "waited_ns", "state", "resident"), 0)
        members = [{"rank": 0, "pid": 5, "storage_full": False, "messages": messages, "message_bytes": content, **still}]
        looks.append({"at_s": at, "budget": MIB, "free": MIB, "short": False, "slots": 2, "held": 0, "members": members})
    before, now = looks
    _, header, rank = lines(5, now, before)
    assert header.split()[-2:] == ["messages", "content"]
    assert rank.split()[-3:] == ["4000/s", "40", "MiB/s"]
    assert lines(5, now, None)[2].split()[-3:] == ["0/s", "0", "MiB/s"]
    assert len(header) == len(rank)


def test_a_process_without_a_ledger_is_named():
    reader = next((HEADROOM.parent.parent / "lib").glob("python3*/site-packages/headroom/lib/headroom-ledger"))
    done = subprocess.run([reader, "1", "0", "1"], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and ("has no ledger" in done.stderr or "/proc/1/fd" in done.stderr)
