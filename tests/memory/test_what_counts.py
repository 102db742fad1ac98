"""What counts against the budget: memory that is touched, not what is allocated; and all of it, movable or not."""

import re

import pytest

from conftest import compile_program, headroom_run
from variants import any_of

MIB = 1 << 20


def test_memory_that_is_never_touched_costs_nothing(mpi, engine, tmp_path):
    program = compile_program(mpi, "untouched.c")
    run = headroom_run([program, 400, 40, 200], tmp_path, before=mpi.command(2), memory="400M", engine=engine)
    assert run.status == 0 and "wrong 0" in run.output, run.errors
    assert run.report["watched"] and not run.report["short_of_memory"]
    for name in ("bytes_written", "bytes_read", "faults_first_write", "blocks_hidden", "waits_turns", "room_requests"):
        assert run.total(name) == 0, name
    assert 80 * MIB <= run.total("touched_bytes_peak") <= 100 * MIB
    assert run.total("allocated_bytes_peak") >= 880 * MIB
    assert "everything fitted" in run.errors and "needed, of " in run.errors
    assert {change["mode"] for change in run.report["modes"]} <= {"pass", "yield"}


def test_what_is_touched_is_known_while_memory_is_enough(mpi, tmp_path):
    program = compile_program(mpi, "untouched.c")
    run = headroom_run([program, 400, 40, 5], tmp_path, before=mpi.command(2), memory="2G")
    assert run.status == 0 and not run.report["watched"], run.errors
    assert 80 * MIB <= run.total("touched_bytes_peak") <= 140 * MIB  # with what was set aside ahead of it


# With which engines what a program fills outside the arena, or in small pieces, can move all the same.
MOVES = {
    "small": {"userfaultfd"},
    "middle": {"userfaultfd", "userfaultfd-user", "sigsegv"},
    "proposed": {"userfaultfd", "userfaultfd-user", "sigsegv"},
    "brk": set(),
    "shared": set(),
    "reserved": set(),
    "insisting": set(),
}


@pytest.mark.parametrize("kind", MOVES)
def test_what_cannot_move_is_counted_and_said(kind, engine, tmp_path):
    """Before MPI_Init, 200 MiB a rank."""
    from conftest import WHEELS

    mpi = WHEELS[0]
    early = ["-DWITH_LARGE_ARRAY"] if engine in MOVES[kind] else []
    program = compile_program(mpi, "outside.c", "-DWITH_MPI", *early)
    settings = {"memory": "64M", "engine": engine}
    run = headroom_run([program, kind, 200], tmp_path, before=mpi.command(2), unwatched="its start is not", **settings)
    assert run.status == 0 and run.output.count("wrong 0") == 2, run.errors
    if engine in MOVES[kind]:
        assert run.total("bytes_written") > 250 * MIB
        assert "cannot be moved" not in run.errors
        assert run.report["peak_resident_bytes"] < 128 * MIB
        return
    assert run.errors.count("cannot be moved to storage") == 1, run.errors
    assert run.report["peak_resident_bytes"] >= 380 * MIB
    assert run.total("other_bytes_peak") >= 380 * MIB
    peak = re.search(r"peak ([\d.]+) MiB", run.errors)
    assert peak and float(peak[1]) >= 380, run.errors


@any_of("engine")
@pytest.mark.parametrize("engine", ["userfaultfd-user", "sigsegv"], indirect=True)
def test_smaller_ones_move_once_much_cannot(engine, tmp_path):
    """Of pieces of 96 KiB the first hundred MiB stay; that is noticed, said, and the second hundred can move."""
    program = compile_program(None, "outside.c")
    run = headroom_run([program, "growing", 200], tmp_path, memory="64M", engine=engine, unwatched="its first half stays")
    assert run.status == 0 and "wrong 0" in run.output, run.errors
    assert (
        run.errors.count("allocations from 64 KiB on can be moved from now on (--large 64K: from the start)") == 1
    ), run.errors
    assert run.total("allocated_bytes_peak") >= 95 * MIB
    assert run.total("bytes_written") > 50 * MIB
    from_the_start = headroom_run([program, "growing", 200], tmp_path, memory="64M", engine=engine, large="64K")
    assert from_the_start.status == 0 and "cannot be moved" not in from_the_start.errors, from_the_start.errors
    assert from_the_start.total("allocated_bytes_peak") >= 195 * MIB


@pytest.mark.parametrize("kind", ["shared", "reserved", "grown"])
def test_a_program_without_mpi_is_measured_too(kind, tmp_path):
    """It allocates nothing large, so only its mapping, growing and committing tell that it has become so."""
    program = compile_program(None, "outside.c")
    run = headroom_run([program, kind, 200], tmp_path, memory="64M", unwatched="nothing moves")
    assert run.status == 0 and "wrong 0" in run.output
    assert run.errors.count("cannot be moved to storage") == 1 and re.search(r"peak 2\d\d\.\d MiB", run.errors), run.errors


def test_a_small_program_is_said_nothing_of(tmp_path):
    run = headroom_run(["sh", "-c", "true"], tmp_path, memory="64M")
    assert run.status == 0 and run.errors == "" and not run.reports


def test_who_insists_on_addresses_gets_them(engine, tmp_path):
    """An allocator that gives memory back which lies elsewhere than proposed, and asks again, is not made to for ever."""
    program = compile_program(None, "outside.c")
    run = headroom_run([program, "insisting", 8], tmp_path, memory="64M", engine=engine)
    assert run.status == 0 and "attempts 2\n" in run.errors, run.errors
