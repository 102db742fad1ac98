"""Messages between nodes that Headroom matches (`--between own`), on emulated nodes: every call, any order, memory enough and
short. What the card reads is tested in a virtual machine (make check-vm)."""

import re

import pytest

from conftest import WHEELS, compile_program, headroom_run, on_nodes
from variants import only_in_suites

MIB = 1 << 20


def between(mpi, ranks: int, nodes: int, source: str, arguments: list, tmp_path, **settings):
    run = headroom_run(
        [compile_program(mpi, source), *arguments],
        tmp_path,
        before=[*mpi.command(ranks), *on_nodes(nodes)],
        between="own",
        **{"direct": "on", "collectives_may_pass": {"other_nodes"}} | settings,
    )
    assert run.status == 0, run.errors
    assert len(run.reports) == nodes
    assert run.total("passed_for_other_nodes") == run.total("receives_on_both_ways") == 0
    assert run.total("rdma_messages") == run.total("rdma_messages_bytes") == 0  # no card here
    return run


@pytest.mark.parametrize(("ranks", "nodes"), [(4, 2), (7, 3)])
def test_messages_of_all_kinds(mpi, ranks, nodes, tmp_path):
    run = between(mpi, ranks, nodes, "spanning.c", [nodes, 8, ranks, 1], tmp_path, memory="1G")
    sent, here = map(int, re.fullmatch(r"ok (\d+) (\d+)\n", run.output).groups())
    assert run.total("messages_direct") == here > 0
    assert run.total("messages_between") == sent - here > 0
    assert run.total("messages_between_long") > 0


def test_messages_of_all_kinds_while_memory_is_short(mpi, engine, tmp_path):
    run = between(mpi, 4, 2, "spanning.c", [2, 3, 4, 60], tmp_path, memory="96M", engine=engine)
    assert run.total("between_pieces") >= run.total("messages_between_long") > 0
    run.assert_paged(2 * 60 * MIB, 96 * MIB)
    for node in run.reports:
        assert {rank["engine"] for rank in node["ranks"]} == {engine}


@pytest.mark.parametrize("what", ["rare", "calls", "order", "errors", "communicators"])
def test_every_call_and_any_order(mpi, what, tmp_path):
    """Partitioned and wrong calls stay the library's. 5000 messages that nobody receives yet wait where they were sent."""
    arguments = {"rare": [1, 0, 0, 1], "calls": [1, 0, 17, 1], "order": [1, 0, 1000, 1]}.get(what, [1, 0, 1000, 1])
    passes = {"errors": {"arguments"}}.get(what, set())
    run = between(mpi, 6, 3, "messages.c", [what, *arguments], tmp_path, memory="1G", may_pass=passes)
    received = int(re.fullmatch(r"ok (\d+)\n", run.output)[1])
    assert run.total("messages_between") + run.total("messages_direct") >= received
    assert run.total("messages_between") > 0 or what == "communicators"
    assert (run.total("between_records_queued") > 0) == (what == "order")


def moved(run) -> int:
    messages, size = map(int, re.fullmatch(r"ok (\d+) (\d+)\n", run.output).groups())
    assert run.total("messages_between") >= messages > 0
    return size


@pytest.mark.parametrize("how", ["aligned", "anywhere", "short"])
def test_long_messages_are_right_whatever_lies_beside_them(mpi, how, tmp_path):
    run = between(mpi, 4, 4, "long_messages.c", [40, 30, how], tmp_path, memory="1G")
    size = moved(run)
    assert run.total("between_pieces") > size // MIB or how == "short"
    assert run.total("between_pieces_copied") == 0


def test_long_messages_while_memory_is_short(mpi, engine, tmp_path):
    """On each of two nodes two ranks have 160 MiB."""
    run = between(mpi, 4, 2, "long_messages.c", [40, 20], tmp_path, memory="96M", engine=engine)
    assert moved(run) > 100 * MIB
    run.assert_paged(2 * 2 * 40 * MIB, 96 * MIB)


@pytest.mark.parametrize("mpi", [WHEELS[0], pytest.param(WHEELS[1], marks=only_in_suites)], ids=lambda mpi: mpi.name)
def test_a_message_four_times_the_budget(mpi, tmp_path):
    run = between(mpi, 2, 2, "long_messages.c", [200, 2, "whole"], tmp_path, memory="48M")
    assert moved(run) > 2 * 199 * MIB
    run.assert_paged(2 * 200 * MIB, 48 * MIB)


@pytest.mark.parametrize(
    ("what", "memory"), [("cancel", "1G"), ("file", "1G"), ("window", "1G"), ("buffered", "1G"), ("wanted", "96M")]
)
def test_promises(mpi, what, memory, tmp_path):
    """Sends that are taken back, buffered, begun before a call in which their rank serves nobody, or received last first."""
    run = between(mpi, 2, 2, "between_promises.c", [what, tmp_path], tmp_path, memory=memory)
    assert run.output == f"ok {what}\n"
    assert run.total("messages_between_long") > 0
    assert run.short_of_memory == (what == "wanted")


@pytest.mark.parametrize(("mode", "memory"), [("pass", "1G"), ("turns", "1G"), ("turns", "48M")])
def test_several_threads(mode, memory, mpi, tmp_path):
    """Of each rank, in messages, probes and collective calls at once; on one node two ranks, one on the other."""
    run = between(mpi, 3, 2, "threads.c", [], tmp_path, memory=memory, mode=mode, collectives_may_pass=set())
    assert "threads ok" in run.output
    # Each rank's threads: 200 messages, then 3 rounds of 5 sizes of 4 messages, to the next rank: one in three on its node.
    sent = 3 * (200 + 3 * 5 * 4)
    assert (run.total("messages_direct"), run.total("messages_between")) == (sent, 2 * sent)
    assert run.short_of_memory == (memory == "48M")


@pytest.mark.parametrize("memory", ["1G", "80M"])
def test_every_way_to_end_requests(mpi, memory, tmp_path):
    each = 1 if memory == "1G" else 40
    run = between(mpi, 6, 3, "completion.c", [each, 1, tmp_path, 1], tmp_path, memory=memory, may_pass={"communicator"})
    sent, of_library = map(int, re.fullmatch(r"ok (\d+) (\d+)\n", run.output).groups())
    assert run.total("messages_direct") + run.total("messages_between") == sent
    assert min(run.total("messages_direct"), run.total("messages_between")) > 0
    assert run.total("passed_for_communicator") == of_library > 0
    assert run.short_of_memory == (memory == "80M")


@pytest.mark.parametrize("memory", ["2G", "96M"])
def test_random_datatypes(mpi, memory, tmp_path):
    """In collectives and windows, which stay the library's between nodes; before these all ranks wait for each other."""
    each = 1 if memory == "2G" else 40
    run = between(mpi, 4, 2, "random_transfers.c", [each, 815, 20], tmp_path, memory=memory)
    assert re.fullmatch(r"ok \d+ \d+ \d+ \d+\n", run.output)
    assert run.total("windows_passed") > 0
    assert run.short_of_memory == (memory == "96M")


def test_what_is_asked_for_and_cannot_be_had_is_said(tmp_path):
    program = compile_program(WHEELS[0], "long_messages.c")
    before = [*WHEELS[0].command(2), *on_nodes(2)]
    for settings in ({"between": "own", "rdma": "native"}, {"rdma": "optimal"}):
        run = headroom_run([program, 4, 1], tmp_path, before=before, **settings)
        assert run.status != 0
        assert re.search(
            r"--rdma: .*(libibverbs|card).*--rdma auto leaves messages between nodes to the MPI library", run.errors
        )
    run = headroom_run([program, 4, 1], tmp_path, before=before, between="own", direct="off")
    assert run.status != 0
    assert "--between own: messages between nodes cannot be matched by Headroom" in run.errors
