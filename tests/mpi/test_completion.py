"""The ends of requests: arrays of every kind of request, each function that ends some; requests that are freed or cancelled,
messages that are too long, to oneself, with large counts, and to ranks that are in other calls."""

import re

import pytest

from conftest import WHEELS, compile_program, headroom_run

MIB = 1 << 20


def completion(mpi, ranks: int, tmp_path, pressure: int, rounds: int, **settings):
    program = compile_program(mpi, "completion.c")
    run = headroom_run(
        [program, pressure, rounds, tmp_path],
        tmp_path,
        before=mpi.command(ranks),
        direct="on",
        may_pass={"communicator"},  # the one between groups
        **settings,
    )
    assert run.status == 0, run.errors
    sent, between = map(int, re.fullmatch(r"ok (\d+) (\d+)\n", run.output).groups())
    assert run.total("messages_direct") == sent
    assert run.total("passed_for_communicator") == between == ranks * rounds * 9
    return run


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("ranks", [2, 8])
def test_every_way_to_end_requests(mpi, ranks, tmp_path):
    run = completion(mpi, ranks, tmp_path, 1, 3, memory="1G")
    assert not run.short_of_memory
    assert run.total("messages_fetched") > 0 and run.total("messages_aside") > 0
    assert run.total("helped_while_away") > 0


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
def test_every_way_to_end_requests_while_memory_is_short(mpi, engine, tmp_path):
    run = completion(mpi, 4, tmp_path, 40, 1, memory="96M", engine=engine)
    assert run.engines() == {engine}
    run.assert_paged(4 * 40 * MIB, 96 * MIB)
