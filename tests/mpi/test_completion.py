"""The ends of requests: arrays of every kind of request, each function that ends some or looks at some; requests that are freed
or cancelled, messages that are too long, to oneself, with large counts, and to ranks that are in other calls. And the MPI
library's own communicators and requests beside those whose messages are direct."""

import re

import pytest

from conftest import STANDARD_ABI, WHEELS, compile_program, headroom_run, on_nodes

MIB = 1 << 20


def completion(mpi, ranks: int, tmp_path, pressure: int, rounds: int, nodes: int = 1, **settings):
    program = compile_program(mpi, "completion.c")
    run = headroom_run(
        [program, pressure, rounds, tmp_path, nodes],
        tmp_path,
        before=[*mpi.command(ranks), *([] if nodes == 1 else on_nodes(nodes))],
        direct="on",
        may_pass={"communicator"},  # the one between groups
        collectives_may_pass={"operation"} if nodes == 1 else {"other_nodes"},  # sums
        **settings,
    )
    assert run.status == 0, run.errors
    sent, between = map(int, re.fullmatch(r"ok (\d+) (\d+)\n", run.output).groups())
    assert run.total("messages_direct") == sent
    # In each array that is ended, each that is looked at (MPI 4.1), and each way to poll.
    assert run.total("passed_for_communicator") == between == ranks * (rounds * 9 + (7 if mpi.is_open_mpi else 3 + 10))
    return run


@pytest.mark.parametrize(
    ("mpi", "ranks"),
    [*((mpi, ranks) for mpi in WHEELS for ranks in (2, 8)), (STANDARD_ABI, 4)],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_way_to_end_requests(mpi, ranks, tmp_path):
    run = completion(mpi, ranks, tmp_path, 1, 3, memory="1G")
    assert not run.short_of_memory
    assert run.total("messages_fetched") > 0 and run.total("messages_aside") > 0
    assert run.total("helped_while_away") > 0


def test_every_way_to_end_requests_on_two_nodes(mpi, tmp_path):
    """Emulated, where the next rank but one is on the same node."""
    run = completion(mpi, 6, tmp_path, 1, 3, nodes=2, memory="1G")
    assert len(run.reports) == 2
    assert run.total("receives_on_both_ways") > 0


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
def test_every_way_to_end_requests_while_memory_is_short(mpi, short, tmp_path):
    run = completion(mpi, short.ranks, tmp_path, short.each, 1, **short.settings)
    short.assert_paged(run)


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("handler", ["fatal", "abort"])
@pytest.mark.parametrize("size", [100, 1 * MIB])
def test_a_message_that_is_too_long_ends_the_job(mpi, handler, size, tmp_path):
    """Where the communicator's error handler says so; completion.c has those that return, and the program's own."""
    program = compile_program(mpi, "truncated_abort.c")
    run = headroom_run([program, handler, size], tmp_path, before=mpi.command(2), memory="1G", direct="on")
    assert run.status != 0
    assert "came back" not in run.output
    assert "essage truncated" in run.errors


def on_library_communicators(mpi, ranks: int, pressure: int, tmp_path, *how, may_pass, **settings):
    run = headroom_run(
        [compile_program(mpi, "library_communicators.c"), pressure, *how],
        tmp_path,
        before=mpi.command(ranks),
        direct="on",
        may_pass=may_pass,
        collectives_may_pass=set() if how else {"communicator"} | ({"operation"} if ranks > 2 else set()),  # sums
        **settings,
    )
    assert run.status == 0, run.errors
    direct, passed, partitioned = map(int, re.search(r"^ok (\d+) (\d+) (\d+)$", run.output, re.M).groups())
    assert run.total("messages_direct") == direct > 0
    assert run.total("passed_for_communicator") == passed > 0
    assert run.total("passed_for_partitions") == partitioned
    return run


def passes(mpi) -> set[str]:
    return {"communicator"} if mpi.is_open_mpi else {"communicator", "partitions"}  # Open MPI 5.0: of MPI 3.1


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("ranks", [2, 6])
def test_communicators_of_the_library(mpi, ranks, tmp_path):
    on_library_communicators(mpi, ranks, 1, tmp_path, may_pass=passes(mpi), memory="1G")


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
def test_communicators_of_the_library_while_memory_is_short(mpi, short, tmp_path):
    run = on_library_communicators(mpi, short.ranks, short.each, tmp_path, may_pass=passes(mpi), **short.settings)
    short.assert_paged(run)
    assert run.total("turns_overdue") == 0  # a rank that looks again and again (MPI_Parrived) does not keep its turn


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
def test_spawned_processes(mpi, tmp_path):
    run = on_library_communicators(mpi, 2, 1, tmp_path, "spawn", may_pass={"communicator"}, memory="1G")
    assert run.output.count("children ok") == 1
