"""Communicators that span nodes (emulated: sessions of their own on one machine): messages inside a node are direct, others the
library's, receives from any source wait for both, and collectives go in stages."""

import re

import pytest

from conftest import WHEELS, compile_program, environment, headroom_run, on_nodes, plain_run
from variants import only_in_suites

MIB = 1 << 20


def spanning(mpi, ranks: int, nodes: int, tmp_path, rounds: int, pressure: int, **settings):
    program = compile_program(mpi, "spanning.c")
    before = [*mpi.command(ranks), *on_nodes(nodes)]
    run = headroom_run(
        [program, nodes, rounds, ranks, pressure],
        tmp_path,
        before=before,
        direct="on",
        may_pass={"other_nodes"},
        collectives_may_pass={"other_nodes"},
        **settings,
    )
    assert run.status == 0, run.errors
    assert len(run.reports) == nodes
    sent, here = map(int, re.fullmatch(r"ok (\d+) (\d+)\n", run.output).groups())
    assert 0 < here < sent
    assert run.total("messages_direct") == here
    assert run.total("receives_on_both_ways") > 0
    run.assert_each_message_went_one_way()  # what the receiver copies aside for its sender, and streams that are, too
    return run, sent, here


@pytest.mark.parametrize(("ranks", "nodes"), [(4, 2), (7, 3)])
def test_messages_of_all_kinds(mpi, ranks, nodes, tmp_path):
    run, sent, here = spanning(mpi, ranks, nodes, tmp_path, 8, 1, memory="1G")
    assert run.total("messages_fetched") > here // 8
    assert run.total("passed_for_other_nodes") == sent - here
    assert run.total("helped_while_away") > 0  # a synchronous send to a receive from anybody that was in a collective


@pytest.mark.parametrize("nodes", [2, 3])
def test_while_memory_is_short(mpi, engine, nodes, tmp_path):
    run, _, _ = spanning(mpi, 2 * nodes, nodes, tmp_path, 3, 60, memory="96M", engine=engine)
    assert run.total("messages_streamed") + run.total("messages_aside_streams") > 0
    run.assert_paged(2 * 60 * MIB, 96 * MIB)
    for node in run.reports:
        assert {rank["engine"] for rank in node["ranks"]} == {engine}


@pytest.mark.parametrize(("ranks", "nodes"), [(4, 2), pytest.param(7, 3, marks=only_in_suites), (5, 4)])
def test_collectives_in_stages(mpi, ranks, nodes, tmp_path):
    """A barrier, broadcasts and exact sums: ranks of a node by direct messages, their leaders by the library."""
    program = compile_program(mpi, "staged.c")
    before = [*mpi.command(ranks), *on_nodes(nodes)]
    run = headroom_run(
        [program, nodes], tmp_path, before=before, memory="1G", direct="on", collectives_may_pass={"other_nodes"}
    )
    assert run.status == 0, run.errors
    sums, count = re.fullmatch(r"((?:0x\S+ 0x\S+\n)+)staged ok (\d+)\n", run.output).groups()
    assert run.total("collectives_staged") == int(count)
    plain = plain_run([*mpi.command(ranks), program, nodes])
    assert plain.stdout.startswith(sums)


@pytest.mark.parametrize("nodes", [2, 3])
def test_collectives_in_stages_while_memory_is_short(mpi, engine, nodes, tmp_path):
    before = [*mpi.command(2 * nodes), *on_nodes(nodes)]
    run = headroom_run(
        [compile_program(mpi, "staged.c"), nodes, 40],
        tmp_path,
        before=before,
        memory="48M",
        direct="on",
        engine=engine,
        collectives_may_pass={"other_nodes"},
    )
    assert run.status == 0, run.errors
    assert run.total("collectives_staged") == int(re.fullmatch(r"staged ok (\d+)\n", run.output)[1]) > 0
    run.assert_paged(2 * 40 * MIB, 48 * MIB)
    for node in run.reports:
        assert {rank["engine"] for rank in node["ranks"]} == {engine}


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
def test_direct_off(mpi, tmp_path):
    run = headroom_run(
        [compile_program(mpi, "spanning.c"), 2, 2, 1, 1], tmp_path, before=[*mpi.command(4), *on_nodes(2)], direct="off"
    )
    assert run.status == 0, run.errors
    assert run.total("messages_direct") == run.total("receives_on_both_ways") == 0


def messages_between(nodes: int, folder) -> int:
    """What Open MPI counted of messages from rank to rank, the program's and its own ("12 msgs sent")."""
    text = "".join(path.read_text() for path in folder.glob("*.prof"))
    sent = re.findall(r"^[EI]\t(\d+)\t(\d+)\t\d+ bytes\t(\d+) msgs sent", text, re.M)
    return sum(int(count) for source, to, count in sent if int(source) % nodes != int(to) % nodes)


@pytest.mark.parametrize("mpi", WHEELS[1:], ids=lambda mpi: mpi.name)  # MPICH counts no messages
def test_turns_add_no_messages_between_nodes(mpi, tmp_path):
    """As the library itself counts them. What is agreed when MPI starts does not depend on how long the program runs."""
    program, few, many = compile_program(mpi, "out_of_core.c"), 1, 3
    counted = {}
    for rounds in (few, many):
        for way in ("plain", "under"):
            folder = tmp_path / f"{way}-{rounds}"
            folder.mkdir()
            env = environment() | {
                "OMPI_MCA_pml_monitoring_enable": "2",
                "OMPI_MCA_pml_monitoring_enable_output": "3",
                "OMPI_MCA_pml_monitoring_filename": str(folder / "rank"),
            }
            if way == "plain":
                assert plain_run([*mpi.command(4), program, 8, rounds], env=env).returncode == 0
            else:
                before = [*mpi.command(4), *on_nodes(2)]
                run = headroom_run([program, 8, rounds], tmp_path, before=before, env=env, memory="16M")
                assert run.status == 0, run.errors
                assert len(run.reports) == 2 and all(node["short_of_memory"] for node in run.reports)
                assert run.total("turns") > 4 * rounds
            counted[way, rounds] = messages_between(2, folder)
    added = {way: counted[way, many] - counted[way, few] for way in ("plain", "under")}
    assert 4 * (many - few) <= added["under"] <= added["plain"], counted


@pytest.mark.parametrize("between", ["library", "own"])
def test_ranks_that_share_processors_with_others_that_they_do_not_know(mpi, between, tmp_path):
    """Two nodes of two ranks on two processors: each believes that it has these for itself. Who waits leaves them to others
    soon: without that each message takes until the waiting rank's time is over, thousands of looks."""
    program = compile_program(mpi, "round_trips.c")
    before = ["taskset", "-c", "0,1", *mpi.command(4), *on_nodes(2)]
    run = headroom_run([program, 1000], tmp_path, before=before, between=between, memory="1G")
    assert run.status == 0, run.errors
    sent = int(re.fullmatch(r"ok (\d+)\n", run.output)[1])
    assert run.total("messages_direct") > 0
    assert run.total("direct_pokes") < 300 * sent  # seen: 66 beside a compiler
