"""What one rank alone knows of a call (count, datatype, errors) must not decide which way its message goes."""

from pathlib import Path

import pytest

from conftest import WHEELS, Mpi, compile_program, headroom_run

# Open MPI refuses MPI_DATATYPE_NULL itself in these, so that the other side waits without Headroom, too.
REFUSED_BY_OPEN_MPI = ("send", "receive", "matched-receive", "between-groups")
CASES = [
    "broadcast",
    "broadcast-from-nothing",
    "nonblocking-broadcast",
    "scatter",
    "gather",
    "neighbors",
    "window",
    "communicator",
]


@pytest.mark.parametrize("case", CASES)
def test_what_one_rank_alone_knows_decides_no_way(mpi, case, tmp_path):
    ends_right(mpi, case, tmp_path)


@pytest.mark.parametrize("case", REFUSED_BY_OPEN_MPI)
def test_no_datatype_for_no_elements_with_mpich(case, tmp_path):
    ends_right(WHEELS[0], case, tmp_path)


def ends_right(mpi: Mpi, case: str, tmp_path: Path) -> None:
    program = compile_program(mpi, "one_sided_arguments.c")
    run = headroom_run([program, case], tmp_path, mpi.command(3), memory="256M", timeout=60)
    assert run.status == 0, run.errors
    assert run.output.count("right") == 3, run.output
    assert run.total("messages_direct") + run.total("collectives_direct") > 0
