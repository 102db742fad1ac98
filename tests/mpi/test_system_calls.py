"""A message while memory is enough makes no system call, and neither does an allocation of memory that was used before: what
decides whether memory may move is a look at a word."""

import pytest

from conditions import need
from conftest import WHEELS, compile_program, headroom_run

MARK = "sched_getparam("


@pytest.mark.parametrize("size", [8, 256, 1 << 10, 4 << 10, 16 << 10])
def test_a_message_makes_no_system_call(mpi, size, tmp_path):
    """Waiting may make some where another process has the core, so the batch with the fewest counts; and who waits long yields,
    which makes the other, traced as it is, wait long, too."""
    need("traced processes")
    program = compile_program(mpi, "quiet_messages.c")
    traced = [*mpi.command(2), "strace", "-ff", "-e", "signal=none", "-o", tmp_path / "calls"]
    run = headroom_run([program, size, 100, 10], tmp_path, before=traced, memory="1G", direct="on")
    assert run.status == 0 and run.output == "right 1\n", run.errors
    assert run.total("messages_direct") >= 2 * 100 * 10
    batches = [calls for file in tmp_path.glob("calls.*") for calls in calls_between_marks(file.read_text())]
    assert len(batches) == 99
    fewest = min(([call for call in calls if not call.startswith("sched_yield(")] for calls in batches), key=len)
    assert len(fewest) == 0, fewest


@pytest.mark.parametrize("size", [300 << 10, 1 << 20, 8 << 20])
def test_an_allocation_of_memory_that_was_used_before_makes_no_system_call(size, tmp_path):
    need("traced processes")
    program = compile_program(WHEELS[0], "quiet_allocations.c")
    traced = ["strace", "-ff", "-e", "signal=none", "-o", tmp_path / "calls"]
    run = headroom_run([program, size, 20, 5], tmp_path, before=traced, memory="1G", large="64K")
    assert run.status == 0 and run.output == "right 1\n", run.errors
    assert run.total("allocations") >= 2 * 20 * 5
    batches = [calls for file in tmp_path.glob("calls.*") for calls in calls_between_marks(file.read_text())]
    assert len(batches) == 19
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
