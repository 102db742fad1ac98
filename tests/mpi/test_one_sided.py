"""One-sided communication past the MPI library: content by every call and every way to synchronise, while memory is enough and
while it is short; that it went that way is asserted from the counters."""

import re

import pytest

from conftest import DEBIAN, STANDARD_ABI, WHEELS, compile_program, headroom_run, on_nodes

MIB = 1 << 20

EVERY_MPI = pytest.mark.parametrize(
    ("mpi", "ranks"),
    [*((mpi, 2) for mpi in (*WHEELS, STANDARD_ABI, *DEBIAN)), *((mpi, 5) for mpi in WHEELS)],
    ids=lambda value: getattr(value, "name", value),
)


def windows(mpi, ranks: int, tmp_path, *arguments, before: list = (), **settings):
    program = compile_program(mpi, "windows.c")
    run = headroom_run([program, *arguments], tmp_path, before=[*mpi.command(ranks), *before], direct="on", **settings)
    assert run.status == 0, run.errors
    return run, [int(count) for count in re.fullmatch(r"ok (\d+) (\d+) (\d+)\n", run.output).groups()]


def direct_calls(run) -> list[int]:
    return [run.total("puts_direct"), run.total("gets_direct"), run.total("folds_direct")]


@pytest.mark.parametrize("kind", ["create", "allocate"])
@EVERY_MPI
def test_every_call(mpi, ranks, kind, tmp_path):
    run, calls = windows(mpi, ranks, tmp_path, 2, 4, kind, memory="1G")
    assert direct_calls(run) == calls
    assert min(calls) > 0
    assert run.total("windows_direct") == ranks
    assert run.total("windows_passed") == 0
    assert run.total("one_sided_bytes") > ranks * 4 * 2 * MIB
    assert run.total("peers_asked_for_blocks") == 0
    assert not run.short_of_memory


@pytest.mark.parametrize("kind", ["create", "allocate"])
def test_while_memory_is_short(mpi, engine, kind, tmp_path):
    run, calls = windows(mpi, 4, tmp_path, 40, 1, kind, memory="96M", engine=engine)
    assert direct_calls(run) == calls
    assert run.total("windows_direct") == 4
    assert run.total("peers_asked_for_blocks") > 10
    assert run.engines() == {engine}
    run.assert_paged(4 * 40 * MIB, 96 * MIB)


def test_more_ranks_than_cores_while_memory_is_short(mpi, tmp_path):
    run, calls = windows(mpi, 8, tmp_path, 24, 1, "create", memory="128M", checksums="on")
    assert direct_calls(run) == calls
    assert run.total("peers_asked_for_blocks") > 10
    run.assert_paged(8 * 24 * MIB, 128 * MIB)


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
def test_a_part_that_cannot_be_reached(mpi, tmp_path):
    """On one rank's stack: then the window is the library's, on all ranks."""
    run, calls = windows(mpi, 3, tmp_path, 1, 2, "stack", memory="1G")
    assert calls[0] > 0
    assert direct_calls(run) == [0, 0, 0]
    assert run.total("windows_direct") == 0
    assert run.total("windows_passed") == 3


def test_windows_that_span_nodes(mpi, tmp_path):
    run, calls = windows(mpi, 4, tmp_path, 1, 2, "stack", before=on_nodes(2), memory="1G", collectives_may_pass={"other_nodes"})
    assert calls[0] > 0
    assert direct_calls(run) == [0, 0, 0]
    assert run.total("windows_passed") == 4


def test_direct_off(mpi, tmp_path):
    program = compile_program(mpi, "windows.c")
    run = headroom_run([program, 1, 1, "stack"], tmp_path, before=mpi.command(2), direct="off")
    assert run.status == 0, run.errors
    assert run.total("windows_direct") == run.total("windows_passed") == run.total("puts_direct") == 0


def test_threads_that_accumulate_at_once(mpi, tmp_path):
    program = compile_program(mpi, "window_threads.c")
    run = headroom_run([program, 4, 300], tmp_path, before=mpi.command(3), memory="1G", direct="on")
    assert run.status == 0, run.errors
    assert run.output == f"ok {run.total('folds_direct')}\n"
    assert run.total("folds_direct") == 2 * 4 * 300 * 3


def test_what_is_forbidden(mpi, tmp_path):
    run = headroom_run([compile_program(mpi, "window_errors.c")], tmp_path, before=mpi.command(3), memory="1G", direct="on")
    assert run.status == 0, run.errors
    assert run.output == "ok\n"
    assert run.total("windows_direct") == 3
    assert run.total("puts_direct") == 3 * 4


@pytest.mark.parametrize(("ranks", "mode"), [(2, "auto"), (5, "auto"), (4, "turns")])
def test_programs_that_poll_a_window(mpi, ranks, mode, tmp_path):
    """Their messages get on meanwhile, and ranks without a processor or a slot get theirs."""
    program = compile_program(mpi, "window_polls.c")
    run = headroom_run([program], tmp_path, before=mpi.command(ranks), memory="1G", direct="on", mode=mode, timeout=100)
    assert run.status == 0, run.errors
    assert run.output == "ok\n"
    assert run.total("windows_direct") == ranks
    assert run.total("folds_direct") >= 5
    assert run.total("turns_overdue") == 0
