"""More memory under calls that outlast their return than may stay resident: the calls succeed."""

import pytest

from conftest import compile_program, headroom_run, plain_run

MIB = 1 << 20


@pytest.mark.parametrize("memory", ["512M", "40M"])
def test_calls_that_outlast_their_return(engine, memory, tmp_path):
    program = compile_program(None, "beyond_pins.c")
    assert plain_run([program, 48, tmp_path / "file"]).stdout == "ok\n"
    run = headroom_run([program, 48, tmp_path / "file"], tmp_path, memory=memory, engine=engine, files=12 * 24 * MIB)
    assert run.status == 0 and run.output == "ok\n", run.errors
    assert "EAGAIN" not in run.errors
    if memory == "40M":
        run.assert_paged(96 * MIB, 40 * MIB)


def test_files_that_mpi_writes_in_the_background(mpi, engine, tmp_path):
    """Open MPI does so by aio_write(), and cannot take an EAGAIN: it waited for ever."""
    program = compile_program(mpi, "background_files.c")
    run = headroom_run(
        [program, 24, tmp_path / "file"],
        tmp_path,
        before=mpi.command(2),
        memory="64M",
        engine=engine,
        files=10 * 24 * MIB,
        timeout=100,
    )
    assert run.status == 0 and run.output.count("right") == 2, run.output + run.errors
    run.assert_paged(2 * 48 * MIB, 64 * MIB, reads=0)


def test_mpi_functions_from_the_librarys_own_handle(mpi, engine, tmp_path):
    """They do not come by Headroom, which has told the library before the program began what it may not do."""
    program = compile_program(mpi, "own_handle.c")
    run = headroom_run([program], tmp_path, before=mpi.command(2), memory="128M", engine=engine, timeout=100)
    assert run.status == 0 and run.output.count("right") == 2, run.output + run.errors
    assert run.total("messages_direct") == 0
    run.assert_paged(2 * 96 * MIB, 128 * MIB, reads=0)
