"""Random work on memory against a model of it, much shorter of memory than any program would be; see stress.c and soak.py."""

import pytest

from conftest import ROOT, compile_program, headroom_run

MIB = 1 << 20
OWN_FILES = 64 * MIB


def compile_stress(mpi):
    return compile_program(mpi, "stress.c", f"-I{ROOT}/include")


@pytest.mark.parametrize(
    ("ranks", "threads", "each", "memory", "huge_pages"),
    [
        (2, 3, 20, 32, "auto"),
        (1, 1, 60, 32, "auto"),
        (2, 1, 20, 16, "auto"),
        (1, 3, 80, 96, "never"),
        (1, 3, 80, 96, "auto"),
    ],
)
def test_stress(mpi, engine, ranks, threads, each, memory, huge_pages, tmp_path):
    settings = {
        "memory": f"{memory}M",
        "engine": engine,
        "checksums": "on",
        "huge_pages": huge_pages,
    }
    run = headroom_run(
        [compile_stress(mpi), threads, each, 600, 2], tmp_path, before=mpi.command(ranks), files=OWN_FILES, **settings
    )
    assert run.status == 0 and run.output.startswith("wrong 0\n"), run.errors
    done = {name: int(count) for name, count in (line.split() for line in run.output.splitlines()[1:])}
    assert all(done.values()), done  # each kind of operation
    assert run.engines() == {engine}
    assert run.total("pages_checked") > 0
    assert (run.total("blocks_thin") > 0) == (engine != "sigsegv") or (ranks, threads) == (1, 1)
    assert (run.total("blocks_hollow") > 0) == (engine != "sigsegv")
    run.assert_paged(run.footprint, memory * MIB)
    # There is a read buffer for every 48 MiB that a rank has, where blocks are not pages.
    assert (run.total("bytes_read_buffered") > 0) == (memory // ranks >= 48 and run.total("blocks_made_whole") == 0)
    assert run.total("bytes_read_buffered") > 0 or huge_pages != "never"
