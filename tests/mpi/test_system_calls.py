"""A message or a collective call while memory is enough makes no system call, and neither does an allocation of memory that was
used before: what decides whether memory may move is a look at a word."""

from pathlib import Path

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
    assert fewest_calls(tmp_path, 99) == []


@pytest.mark.parametrize("count", [2, 500, 16 << 10])
@pytest.mark.parametrize("kind", ["bcast", "reduce", "allreduce", "allgather", "alltoall"])
def test_a_collective_call_makes_no_system_call(mpi, kind, count, engine, tmp_path):
    need("traced processes")
    program = compile_program(mpi, "quiet_collectives.c")
    traced = [*mpi.command(2), "strace", "-ff", "-e", "signal=none", "-o", tmp_path / "calls"]
    settings = {"memory": "1G", "direct": "on", "engine": engine}
    run = headroom_run([program, kind, count, 60, 10], tmp_path, before=traced, **settings)
    assert run.status == 0 and run.output == "right 1\n", run.errors
    assert run.total("collectives_direct") >= 60 * 10
    assert fewest_calls(tmp_path, 59, 2) == []


@pytest.mark.parametrize("size", [300 << 10, 1 << 20, 8 << 20])
def test_an_allocation_of_memory_that_was_used_before_makes_no_system_call(size, tmp_path):
    need("traced processes")
    program = compile_program(WHEELS[0], "quiet_allocations.c")
    traced = ["strace", "-ff", "-e", "signal=none", "-o", tmp_path / "calls"]
    run = headroom_run([program, size, 20, 5], tmp_path, before=traced, memory="1G", large="64K")
    assert run.status == 0 and run.output == "right 1\n", run.errors
    assert run.total("allocations") >= 2 * 20 * 5
    assert fewest_calls(tmp_path, 19) == []


def fewest_calls(folder: Path, batches: int, processes: int = 1) -> list[str]:
    """The calls of the batches that made the fewest, of each process that marks its batches. What a rank does while it waits
    for a traced one is not counted: it yields, and lets the MPI library look at its descriptors."""
    marked = [calls for file in folder.glob("calls.*") if (calls := calls_between_marks(file.read_text()))]
    assert [len(calls) for calls in marked] == [batches] * processes
    waits = ("sched_yield(", "epoll_wait(", "poll(")
    quiet = [[[call for call in batch if not call.startswith(waits)] for batch in calls] for calls in marked]
    return [call for calls in quiet for call in min(calls, key=len)]


def calls_between_marks(trace: str) -> list[list[str]]:
    batches: list[list[str]] = [[]]
    for line in trace.splitlines():
        if line.startswith(MARK):
            batches.append([])
        else:
            batches[-1].append(line)
    return batches[1:-1]
