"""The example fft2d: a transposition that is done by different datatypes on the two sides alone, checked against numpy."""

import re

import pytest

from conftest import ROOT, headroom_run


def fft2d(mpi, side: int, ranks: int, tmp_path, *arguments, **settings):
    """The run, and its checksum."""
    program = [ROOT / f"build/mpi/{mpi.name}/bin/python", ROOT / "examples/fft2d/fft2d.py", side, *arguments]
    run = headroom_run(program, tmp_path, before=mpi.command(ranks), direct="on", **settings)
    assert run.status == 0, run.errors
    assert run.total("collectives_direct") >= ranks
    assert run.total("messages_collective_bytes") >= 16 * side * side * (ranks - 1) // ranks
    return run, re.search(r"checksum (\S+)", run.output)[1]


@pytest.mark.parametrize("ranks", [2, 4])
def test_is_what_numpy_says(mpi, ranks, tmp_path):
    run, _ = fft2d(mpi, 512, ranks, tmp_path, "--check", memory="1G")
    assert re.search(r"largest difference from numpy\.fft\.fft2: \d", run.output)


def test_bigger_than_memory(mpi, engine, tmp_path):
    checked, enough = fft2d(mpi, 2048, 2, tmp_path, "--check", memory="1G")
    assert re.search(r"largest difference from numpy\.fft\.fft2: \d", checked.output)
    run, short = fft2d(mpi, 2048, 2, tmp_path, memory="128M", engine=engine)
    assert short == enough
    assert run.engines() == {engine}
    matrix = 16 * 2048 * 2048  # bytes; twice, and what is being transformed
    run.assert_paged(3 * matrix, 128 << 20)
