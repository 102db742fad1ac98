"""Collectives of long content while memory is short: what goes to many is held once and copied once, and what cannot be held
takes little memory on its way."""

import pytest

from conditions import need
from conftest import WHEELS, compile_program, headroom_run

MIB = 1 << 20
ROUNDS = 3


def exchange(mpi, tmp_path, shape: str, ranks: int, beside: int, kib: int, memory: int, before=()):
    program = compile_program(mpi, "exchanged_in_short_memory.c")
    command = [*before, *mpi.command(ranks)]
    run = headroom_run(
        [program, shape, beside, kib, ROUNDS], tmp_path, before=command, memory=f"{memory}M", direct="on", timeout=250
    )
    assert run.status == 0, run.errors
    assert run.output == "wrong 0\n"
    assert run.short_of_memory
    run.assert_paged(ranks * beside * MIB, memory * MIB)
    assert run.total("messages_collective") >= ranks * (ranks - 1) * ROUNDS
    return run


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
def test_what_goes_to_many_is_held_once(mpi, tmp_path):
    """An allgather of 2 MiB of each of 8 ranks that may hold about 4 MiB each: every receiver copies from the sender's memory.
    (When each receiver's hold counted, 80 of 1200 messages did, and the others went through message memory.)"""
    run = exchange(mpi, tmp_path, "allgather", 8, 64, 2048, 320)
    assert run.total("messages_fetched") == 8 * 7 * ROUNDS
    assert run.total("messages_streamed") == run.total("messages_aside") == 0


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("kib", [2048, 900])
def test_what_cannot_be_held_takes_little_memory(mpi, kib, tmp_path):
    """An alltoall of 2 MiB between each two of 16 ranks, in a cgroup of the budget and a quarter: more than may be held goes
    through rings of 256 KiB. (With 1 MiB each the kernel ended a rank.) Of 900 KiB some is copied aside, as far as that is
    little."""
    need("a hard memory limit")
    from headroom import hard_limit

    with hard_limit.HardLimit(512 * MIB * 5 // 4, swap=False) as limit:
        run = exchange(mpi, tmp_path, "alltoall", 16, 64, kib, 512, before=limit.wrap([]))
        assert limit.killed() == 0
    assert limit.most_swapped == 0
    sent = 16 * 15 * ROUNDS
    assert run.total("messages_streamed") > (sent // 2 if kib > 1024 else sent // 8)
    assert run.total("messages_fetched") > 0
    assert (run.total("messages_aside") > 0) == (kib <= 1024)
