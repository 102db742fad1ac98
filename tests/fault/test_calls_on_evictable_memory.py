"""System calls and library calls whose arguments lie in memory that may be on storage."""

import pytest

from conftest import compile_program, headroom_run

MIB = 1 << 20


def fortified_for(engine: str) -> str:
    """Compilers choose other functions with it; that they are wrapped too shows where they must be."""
    return "-D_FORTIFY_SOURCE=" + ("2" if engine == "userfaultfd-user" else "0")


@pytest.mark.parametrize("memory", ["256M", "24M"])
def test_system_calls_on_evictable_memory(engine, memory, tmp_path):
    program = compile_program(None, "system_calls.c", "-U_FORTIFY_SOURCE", fortified_for(engine))
    run = headroom_run([program, 48], tmp_path, memory=memory, engine=engine, files=96 * MIB)
    assert run.output == "ok\n", run.errors
    assert run.total("holds") > 0
    if engine != "userfaultfd":
        assert run.total("bounced_bytes") > 0  # stdio
    if memory == "24M":
        run.assert_paged(48 * MIB, 24 * MIB)


def test_paths_structures_and_limits(engine, tmp_path):
    program = compile_program(None, "structures.c", "-U_FORTIFY_SOURCE", fortified_for(engine))
    run = headroom_run([program, 28, tmp_path.resolve()], tmp_path, memory="16M", engine=engine)
    assert run.output == "ok\n", run.errors
    assert (run.total("holds") > 50) == (engine != "userfaultfd")
    for limit in "ulimit -v", "ulimit -f":
        assert run.errors.count(limit) == 1
    run.assert_paged(28 * MIB, 16 * MIB)


def test_calls_that_last(engine, tmp_path):
    run = headroom_run([compile_program(None, "lasting_calls.c"), 40], tmp_path, memory="24M", engine=engine, timeout=100)
    assert run.output == "ok\n", run.errors
    run.assert_paged(40 * MIB, 24 * MIB)


@pytest.mark.parametrize("direct", ["on", "off"])
def test_files_and_windows_on_evictable_memory(mpi, engine, direct, tmp_path):
    """Windows of Headroom's own, and of the library."""
    program = compile_program(mpi, "file_and_window.c")
    command = [program, 16, tmp_path / "shared_file"]
    settings = {"memory": "48M", "engine": engine, "direct": direct}
    run = headroom_run(command, tmp_path, before=mpi.command(3), files=3 * 16 * MIB, **settings)
    assert run.status == 0, run.errors
    assert run.output == "ok\n"
    assert run.engines() == {engine}
    assert run.total("windows_direct") == (3 if direct == "on" else 0)
    assert run.total("turns_overdue") == 0  # Open MPI's MPI_Accumulate waits inside for ranks that wait for a slot
    # ROMIO, inside the library, is made of MPI calls; OMPIO is not.
    assert (run.total("mpi_calls_inner") > 0) == (not mpi.is_open_mpi)
    run.assert_paged(3 * 3 * 16 * MIB, 48 * MIB)


def test_direct_io_while_memory_is_driven_out(engine, tmp_path):
    """The device writes into pages that must not be taken away meanwhile: it would report success all the same."""
    program = compile_program(None, "direct_io.c")
    run = headroom_run([program, 64, 8], tmp_path, memory="24M", engine=engine, files=4 * 64 * MIB)
    assert run.output == "ok\n", run.errors
    assert run.total("holds") > 0
    run.assert_paged((64 + 16) * MIB, 24 * MIB)


def test_scattered_vectors(engine, tmp_path):
    """One call's pieces lie in more blocks than there is memory for: they are not all held at the same time."""
    run = headroom_run([compile_program(None, "scattered_vectors.c"), 100], tmp_path, memory="32M", engine=engine)
    assert run.output == "ok\n", run.errors
    assert run.total("holds") > 400
    run.assert_paged(100 * MIB, 32 * MIB)


def test_a_handler_for_one_time_does_not_keep_a_crash_from_ending(engine, tmp_path):
    command = [compile_program(None, "lasting_calls.c"), 40, "crash"]
    run = headroom_run(command, tmp_path, memory="24M", engine=engine, timeout=60)
    assert run.status != 0 and run.output == "handled\n", run.errors
    assert "signal 11" in run.errors, run.errors
