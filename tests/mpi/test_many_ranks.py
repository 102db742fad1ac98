"""More processes on a node than a session usually has places for, and many more than it has processors."""

from conftest import compile_program, headroom_run
from variants import any_of, only_in_suites

MIB = 1 << 20
RANKS = 260  # 256 is usual

pytestmark = any_of("mpi")


def test_few_ranks_among_many_places(mpi, engine, tmp_path):
    """Partitions and areas of message memory are a quarter of what they are otherwise, and lie elsewhere."""
    program = compile_program(mpi, "many_ranks.c")
    settings = {"memory": "64M", "direct": "on", "engine": engine, "processes": 1024}
    run = headroom_run([program, 24, 2], tmp_path, before=mpi.command(4), **settings)
    assert (run.status, run.output) == (0, "ok 4\n"), run.errors
    run.assert_paged(4 * 24 * MIB, 64 * MIB, reads=2, writes=2)


@only_in_suites  # a minute and a half
def test_many_ranks_exchange_and_run_short(mpi, tmp_path):
    program = compile_program(mpi, "many_ranks.c")
    run = headroom_run([program, 8, 1], tmp_path, before=mpi.command(RANKS), memory="2600M", direct="on", timeout=500)
    assert (run.status, run.output) == (0, f"ok {RANKS}\n"), run.errors
    assert len(run.report["ranks"]) == RANKS
    assert run.total("messages_direct") == 2 * RANKS
    assert run.short_of_memory and run.total("bytes_written") > 100 * MIB
