"""Collectives made of direct messages: content, by every call, size, root and with gaps; that they went that way is asserted
from the counters."""

import re

import pytest

from conftest import DEBIAN, STANDARD_ABI, WHEELS, compile_program, headroom_run
from variants import only_in_suites

MIB = 1 << 20


def collectives(mpi, ranks: int, tmp_path, reductions: str, *rounds, **settings):
    """Runs the program; the collectives it made that do not depend on the order of folding, and those that do."""
    program = compile_program(mpi, "collectives.c")
    run = headroom_run(
        [program, reductions, *rounds],
        tmp_path,
        before=mpi.command(ranks),
        direct="on",
        reductions=reductions,
        timeout=200,
        collectives_may_pass={"operation"} if reductions == "library" else set(),
        **settings,
    )
    assert run.status == 0, run.errors
    served, ordered = re.fullmatch(r"collectives ok (\d+) (\d+)\n", run.output).groups()
    return run, ranks * int(served), ranks * int(ordered)


# Debian's MPICH 4.0.2 crashes by itself in MPI_Reduce with an operation that does not commute.
@pytest.mark.parametrize(
    ("mpi", "ranks", "reductions"),
    [
        *((mpi, 3, "direct") for mpi in (*WHEELS, STANDARD_ABI, *DEBIAN)),
        *((mpi, ranks, "library") for mpi in (*WHEELS, STANDARD_ABI) for ranks in (2, 3)),
        *((mpi, ranks, "direct") for mpi in WHEELS for ranks in (2, 9)),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_collective(mpi, ranks, reductions, tmp_path):
    run, served, ordered = collectives(mpi, ranks, tmp_path, reductions, memory="2G")
    assert run.total("collectives_direct") == served + (ordered if reductions == "direct" else 0)
    assert run.total("collectives_passed_for_operation") == (ordered if reductions == "library" else 0)
    assert run.total("messages_direct") == 0
    assert run.total("messages_collective") > served // 2
    assert (run.total("collectives_by_tally") > 0) == (ranks > run.report["cores"])
    assert not run.short_of_memory


def every_collective_while_memory_is_short(mpi, ranks: int, engine: str, tmp_path):
    run, served, ordered = collectives(mpi, ranks, tmp_path, "direct", memory=f"{6 * ranks}M", engine=engine)
    assert run.total("collectives_direct") == served + ordered
    assert run.engines() == {engine}
    assert run.total("blocks_evicted") > 0 and run.total("bytes_read") > 0


def test_every_collective_while_memory_is_short(mpi, engine, tmp_path):
    every_collective_while_memory_is_short(mpi, 4, engine, tmp_path)


@pytest.mark.parametrize("engine", ["userfaultfd"], indirect=True)
def test_every_collective_of_more_ranks_than_cores_while_memory_is_short(engine, tmp_path):
    every_collective_while_memory_is_short(WHEELS[0], 8, engine, tmp_path)


def nonblocking(mpi, ranks: int, tmp_path, *arguments, **settings):
    program = compile_program(mpi, "nonblocking_collectives.c")
    run = headroom_run(
        [program, *arguments],
        tmp_path,
        before=mpi.command(ranks),
        direct="on",
        timeout=200,
        collectives_may_pass={"operation"},  # long and the program's own reductions, and MPI_Ialltoall in place
        **settings,
    )
    assert run.status == 0, run.errors
    started, neighborhoods = re.fullmatch(r"nonblocking ok (\d+) (\d+)\n", run.output).groups()
    assert run.total("collectives_started") == ranks * int(started)
    # The others: agreements on directed graphs, and an MPI_Allreduce in each round.
    assert run.total("collectives_direct") >= ranks * (int(started) + int(neighborhoods))
    return run


@pytest.mark.parametrize(
    ("mpi", "ranks"),
    [*((mpi, ranks) for mpi in WHEELS for ranks in (2, 3, 9)), *((mpi, 3) for mpi in (STANDARD_ABI, *DEBIAN))],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_collective_that_does_not_wait_and_every_neighborhood(mpi, ranks, tmp_path):
    run = nonblocking(mpi, ranks, tmp_path, 10 if ranks < 9 else 9, memory="4G")
    assert run.total("messages_direct") > 0 and run.total("messages_fetched") > 0
    assert not run.short_of_memory


def collectives_that_do_not_wait_while_memory_is_short(mpi, ranks: int, engine: str, tmp_path):
    # What each has is held for messages most of the time: who asks for room hears so, and asks whoever has most (not in every
    # run).
    in_need = 0
    for _ in range(5):
        run = nonblocking(mpi, ranks, tmp_path, 9, memory=f"{6 * ranks}M", engine=engine)
        assert run.engines() == {engine}
        assert run.total("blocks_evicted") > 0 and run.total("bytes_read") > 0
        assert run.total("room_requests_refused") > 0
        in_need += run.total("room_requests_in_need")
        if in_need > 0:
            break
    assert in_need > 0


def test_collectives_that_do_not_wait_while_memory_is_short(mpi, engine, tmp_path):
    collectives_that_do_not_wait_while_memory_is_short(mpi, 4, engine, tmp_path)


@only_in_suites
@pytest.mark.parametrize("engine", ["userfaultfd"], indirect=True)
def test_collectives_that_do_not_wait_of_more_ranks_than_cores_while_memory_is_short(engine, tmp_path):
    collectives_that_do_not_wait_while_memory_is_short(WHEELS[1], 8, engine, tmp_path)


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
@pytest.mark.parametrize(("source", "kinds", "calls", "ahead"), [("several", 2, 3000, 512), ("one", 3, 9000, 4096)])
def test_ranks_that_only_send_do_not_run_ahead_without_end(mpi, source, kinds, calls, ahead, tmp_path):
    ranks = 4
    program = compile_program(mpi, "one_way.c")
    run = headroom_run([program, calls, source], tmp_path, before=mpi.command(ranks), memory="1G", direct="on")
    assert run.status == 0 and run.output == "ok\n", run.errors
    assert run.total("collectives_direct") == ranks * (kinds * calls + kinds + 1)
    # Else all calls of three ranks may wait for one that receives.
    peak = max(rank["messages_unexpected_peak"] for rank in run.report["ranks"])
    assert peak <= (ranks - 1) * (ahead + 1)
    assert peak > 0 or source == "one"


@pytest.mark.parametrize("mode", ["auto", "turns"])
def test_barriers_and_short_sums_of_ranks_that_share_processors(mpi, mode, tmp_path):
    ranks = 7
    program = compile_program(mpi, "tallies.c")
    run = headroom_run([program, 100], tmp_path, before=mpi.command(ranks), memory="1G", direct="on", mode=mode)
    assert run.status == 0, run.errors
    made = int(re.fullmatch(r"ok (\d+)\n", run.output)[1])
    assert run.total("collectives_direct") >= ranks * made
    first = 1 + 100  # on each communicator: it finds out, which takes a barrier along a tree
    assert run.total("collectives_by_tally") == (ranks * (made - first) if ranks > run.report["cores"] else 0)


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("ranks", [2, 5])
def test_every_operation_that_is_exact(mpi, ranks, tmp_path):
    program = compile_program(mpi, "exact_operations.c")
    run = headroom_run([program], tmp_path, before=mpi.command(ranks), memory="1G", direct="on")
    assert run.status == 0, run.errors
    made = int(re.fullmatch(r"ok (\d+)\n", run.output)[1])
    assert run.total("collectives_direct") == ranks * made
    # MPI_Iallreduce, of each operation and type
    assert run.total("collectives_started") == ranks * (13 * 10 + 2 * 4 + 4 * 2 + (4 * 2 + 2 if ranks == 2 else 0))
