"""A message while memory is enough makes no system call: what decides whether its memory may move is a look at a word."""

import pytest

from conditions import need
from conftest import compile_program, headroom_run

MARK = "sched_getparam("


@pytest.mark.parametrize("size", [8, 256, 1 << 10, 4 << 10, 16 << 10])
def test_a_message_makes_no_system_call(mpi, size, tmp_path):
    """Waiting may make some where another process has the core, so the batch with the fewest counts."""
    need("traced processes")
    program = compile_program(mpi, "quiet_messages.c")
    traced = [*mpi.command(2), "strace", "-ff", "-e", "signal=none", "-o", tmp_path / "calls"]
    run = headroom_run([program, size, 100, 10], tmp_path, before=traced, memory="1G", direct="on")
    assert run.status == 0 and run.output == "right 1\n", run.errors
    assert run.total("messages_direct") >= 2 * 100 * 10
    batches = [calls for file in tmp_path.glob("calls.*") for calls in calls_between_marks(file.read_text())]
    assert len(batches) == 99
    fewest = min(batches, key=len)
    assert len(fewest) == 0, fewest


def calls_between_marks(trace: str) -> list[list[str]]:
    batches: list[list[str]] = [[]]
    for line in trace.splitlines():
        if line.startswith(MARK):
            batches.append([])
        else:
            batches[-1].append(line)
    return batches[1:-1]
