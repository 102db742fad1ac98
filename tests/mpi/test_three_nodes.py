"""The programs of the other tests on three emulated nodes, memory enough and short: the next rank but two is on the same node.
What stays on a node is direct by the counters, the rest is the library's, and all of it is right."""

import re

import pytest

from conftest import WHEELS, compile_program, headroom_run, on_nodes
from variants import any_of, only_in_suites

MIB = 1 << 20
RANKS, NODES = 6, 3
OTHER_NODES = {"other_nodes"}
SHORT = "48M"

pytestmark = [
    any_of("mpi"),
    pytest.mark.parametrize("memory", ["1G", pytest.param(SHORT, marks=only_in_suites)]),
]


def on_three_nodes(mpi, source: str, memory: str, tmp_path, *arguments, **settings):
    run = headroom_run(
        [compile_program(mpi, source), *arguments],
        tmp_path,
        before=[*mpi.command(RANKS), *on_nodes(NODES)],
        memory=memory,
        direct="on",
        **settings,
    )
    assert run.status == 0, run.errors
    assert len(run.reports) == NODES
    return run


def pressure(memory: str) -> int:
    return 40 if memory == SHORT else 1


def assert_short(run, memory: str) -> None:
    assert run.short_of_memory == (memory == SHORT)
    if memory == SHORT:
        run.assert_paged(2 * 40 * MIB, 48 * MIB)


def messages(mpi, what: str, memory: str, tmp_path, *arguments, **settings):
    run = on_three_nodes(mpi, "messages.c", memory, tmp_path, what, pressure(memory), *arguments, **settings)
    assert_short(run, memory)
    return run, int(re.fullmatch(r"ok (\d+)\n", run.output)[1])


@pytest.mark.parametrize("distance", [3, 1])
def test_calls_that_programs_seldom_use(mpi, memory, distance, tmp_path):
    passes = OTHER_NODES if distance == 1 else set()
    settings = {"may_pass": passes, "collectives_may_pass": OTHER_NODES}
    run, count = messages(mpi, "rare", memory, tmp_path, 0, 0, distance, **settings)
    assert run.total("messages_direct") == (0 if passes else count)
    passed = run.total("passed_for_other_nodes")
    assert count <= passed <= count + RANKS if passes else passed == 0
    assert (run.total("passed_for_other_nodes_bytes") > 0) == bool(passes)


def test_every_call(mpi, memory, tmp_path):
    run, count = messages(mpi, "calls", memory, tmp_path, 0, 17, 3, collectives_may_pass=OTHER_NODES)
    assert run.total("messages_direct") == count > 0
    assert run.total("receives_on_both_ways") > 0


@pytest.mark.parametrize("what", ["order", "errors", "communicators"])
def test_order_errors_and_communicators(mpi, memory, what, tmp_path):
    passes = {"arguments", "other_nodes"} if what == "errors" else OTHER_NODES
    settings = {"may_pass": passes, "collectives_may_pass": OTHER_NODES}
    run, count = messages(mpi, what, memory, tmp_path, 0, 1000, 3, **settings)
    here = {"order": 1 * 2 * 1000, "errors": count, "communicators": 0}[what]  # every second rank is on another node
    assert run.total("messages_direct") == here
    wrong = 4 * 3 if what == "errors" else 0  # that ranks of other nodes send to the first one
    assert run.total("passed_for_other_nodes") == count - here + wrong


def test_every_way_to_end_requests(mpi, memory, tmp_path):
    passes = {"may_pass": {"communicator"}, "collectives_may_pass": OTHER_NODES}
    run = on_three_nodes(mpi, "completion.c", memory, tmp_path, pressure(memory), 1, tmp_path, NODES, **passes)
    assert_short(run, memory)
    sent, between = map(int, re.fullmatch(r"ok (\d+) (\d+)\n", run.output).groups())
    assert run.total("messages_direct") == sent > 0
    assert run.total("passed_for_communicator") == between > 0


@only_in_suites  # MPICH's six ranks on two cores take minutes
def test_every_collective(mpi, memory, tmp_path):
    budget = "16M" if memory == SHORT else "2G"
    run = on_three_nodes(mpi, "collectives.c", budget, tmp_path, "passed", collectives_may_pass=OTHER_NODES)
    assert all((node["total"]["blocks_evicted"] > 0) == (memory == SHORT) for node in run.reports)
    served, ordered = re.fullmatch(r"collectives ok (\d+) (\d+)\n", run.output).groups()
    assert run.total("messages_direct") == 0
    staged, passed = run.total("collectives_staged"), run.total("collectives_passed_for_other_nodes")
    assert staged > 0 and passed > 0
    assert staged + passed >= RANKS * (int(served) + int(ordered))


@pytest.mark.parametrize("mpi", WHEELS[:1], ids=lambda mpi: mpi.name)  # without Headroom, too, Open MPI 5.0 crashes with it
def test_every_collective_that_does_not_wait(mpi, memory, tmp_path):
    budget = "16M" if memory == SHORT else "4G"
    passes = {"may_pass": OTHER_NODES, "collectives_may_pass": OTHER_NODES}
    run = on_three_nodes(mpi, "nonblocking_collectives.c", budget, tmp_path, 9, **passes)
    assert all((node["total"]["blocks_evicted"] > 0) == (memory == SHORT) for node in run.reports)
    assert re.fullmatch(r"nonblocking ok (\d+) (\d+)\n", run.output)
    assert run.total("collectives_started") == 0
    assert run.total("collectives_passed_for_other_nodes") > 0


@pytest.mark.parametrize("mpi", WHEELS[:1], ids=lambda mpi: mpi.name)  # Open MPI 5.0 has none of these calls
def test_every_collective_with_large_counts(mpi, memory, tmp_path):
    settings = {"reductions": "direct", "collectives_may_pass": OTHER_NODES}
    run = on_three_nodes(mpi, "large_counts.c", memory, tmp_path, pressure(memory), **settings)
    assert_short(run, memory)
    assert re.fullmatch(r"large counts ok (\d+) (\d+) (\d+)\n", run.output)
    assert run.total("collectives_started") == 0
