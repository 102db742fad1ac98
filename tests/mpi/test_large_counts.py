"""Collectives with large counts (MPI_Bcast_c and its kin), all of them direct by the counters; and more elements than an int
can count. Open MPI 5.0 has none of these calls."""

import re

import pytest

from conditions import need
from conftest import STANDARD_ABI, WHEELS, compile_program, headroom_run
from variants import any_of

MPICH = WHEELS[0]


def large_counts(mpi, ranks: int, pressure: int, tmp_path, **settings):
    run = headroom_run(
        [compile_program(mpi, "large_counts.c"), pressure],
        tmp_path,
        before=mpi.command(ranks),
        direct="on",
        reductions="direct",
        collectives_may_pass={"operation"},  # nonblocking: MPI_Ialltoall_c in place, long and the program's own reductions
        **settings,
    )
    assert run.status == 0, run.errors
    blocking, started, left = map(int, re.fullmatch(r"large counts ok (\d+) (\d+) (\d+)\n", run.output).groups())
    assert blocking == 4 * (2 * (12 + 5) + 7) == started + left
    assert left == 4 * (2 + 1) + {2: 6, 8: 12}.get(ranks, 8)
    assert run.total("collectives_started") == ranks * started
    assert run.total("collectives_direct") == ranks * (blocking + started)
    assert run.total("collectives_passed_for_operation") == ranks * left
    assert run.total("messages_direct") == 0
    return run


@pytest.mark.parametrize("mpi", [MPICH, STANDARD_ABI], ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("ranks", [2, 5])
def test_every_collective_with_large_counts(mpi, ranks, tmp_path):
    run = large_counts(mpi, ranks, 1, tmp_path, memory="2G")
    assert run.total("messages_collective") > 0
    assert not run.short_of_memory


@any_of("short")
def test_every_collective_with_large_counts_while_memory_is_short(short, tmp_path):
    run = large_counts(MPICH, short.ranks, short.each, tmp_path, **short.settings)
    assert run.total("blocks_brought_for_messages") > 0
    short.assert_paged(run)


def test_more_elements_than_an_int_can_count(tmp_path):
    need("5 GiB of memory")
    program = compile_program(MPICH, "huge_counts.c")
    run = headroom_run([program], tmp_path, before=MPICH.command(2), memory="5G", direct="on")
    assert run.status == 0, run.errors
    assert run.output == "huge counts ok\n"
    count, part = (1 << 31) - 1 + 70000, 70000
    assert run.total("messages_direct") == 1
    assert run.total("messages_direct_bytes") == count
    assert run.total("collectives_direct") == 2 * 3
    assert run.total("messages_collective_bytes") == count + 2 * part
    assert not run.short_of_memory
