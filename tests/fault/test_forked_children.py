"""What forked children have of their parent's memory: the same pages, as long as nobody changes them."""

import re
import sys

import pytest

from conftest import ROOT, compile_program, headroom_run, plain_run

MIB = 1 << 20
POOL = ROOT / "tests/programs/fault/worker_pool.py"


def memory_of(output: str) -> float:
    return float(re.search(r"memory (\d+) of 3", output)[1])


@pytest.mark.parametrize("engine", ["userfaultfd", "userfaultfd-user"], indirect=True)
def test_children_that_only_read_share_their_parents_pages(engine, tmp_path):
    """200 MiB that two workers read: a copy for each would be 2.9 times as much as without Headroom."""
    plain = plain_run([sys.executable, POOL, 200])
    run = headroom_run([sys.executable, POOL, 200], tmp_path, memory="1G", engine=engine)
    assert run.status == 0 and run.output.endswith("right\n") and plain.stdout.endswith("right\n"), run.errors
    assert memory_of(run.output) < 1.2 * memory_of(plain.stdout), (run.output, plain.stdout)
    assert run.total("fork_blocks_shared") >= 2 * 200 * 4 * 0.9
    assert run.total("fork_blocks_copied") < 200


@pytest.mark.parametrize("memory", ["1G", "96M"])
def test_a_parent_that_writes_leaves_its_children_what_was_there(engine, memory, tmp_path):
    """Every second MiB, while both still read; with too little memory what they read comes from storage, too."""
    files = "the children's reads are their parent's pager's"
    run = headroom_run([sys.executable, POOL, 200, "write"], tmp_path, memory=memory, engine=engine, unwatched=files)
    assert run.status == 0 and run.output.endswith("right\n"), run.output + run.errors
    assert run.total("fork_blocks_copied") >= 2 * 100 * 4 * 0.9
    assert (run.total("fork_blocks_shared") > 0) == (engine != "sigsegv")


def test_what_children_have_of_their_own_counts(engine, tmp_path):
    """64 MiB that a child writes to are 128 then, in 96: half is set aside for what cannot move; the parent's leaves."""
    run = headroom_run([compile_program(None, "fork_keeps.c"), 64], tmp_path, memory="96M", engine=engine)
    assert (run.status, run.output) == (0, "wrong 0, child 0\n"), run.errors
    assert run.total("forked_bytes_peak") >= 60 * MIB
    assert run.total("other_bytes_peak") >= run.total("forked_bytes_peak")
    assert run.report["peak_resident_bytes"] > 96 * MIB
    assert run.short_of_memory and run.total("bytes_written") > 0
    assert re.search(r"cannot be moved to storage \(.*, 6\d\.\d MiB in forked children\)", run.errors), run.errors


def test_a_fork_without_descriptors_fails_in_the_parent(engine, tmp_path):
    """It needs some; before, the child began without its parent's memory, and crashed."""
    from conftest import compile_program

    run = headroom_run([compile_program(None, "few_descriptors.c")], tmp_path, memory="64M", engine=engine)
    assert run.status == 0 and run.output.startswith("right, "), run.output + run.errors
    forked, refused = (int(word) for word in re.findall(r"\d+", run.output))
    assert forked >= 1 and refused >= 1
    assert "ulimit -n" in run.errors


@pytest.mark.parametrize("memory", ["256M", "24M"])
def test_fork_keeps_its_meaning(engine, memory, tmp_path):
    run = headroom_run([compile_program(None, "fork_snapshot.c"), 48], tmp_path, memory=memory, engine=engine)
    assert run.status == 0, run.errors
    assert run.output == "parent wrong 0 child 0\n"
    assert run.total("forks") == 2
    assert run.total("fork_blocks_copied") > 0
    assert run.total("static_bytes") >= 7 * MIB
    if memory == "24M":
        run.assert_paged(48 * MIB, 24 * MIB)


@pytest.mark.parametrize("memory", ["256M", "24M"])
def test_fork_handlers_of_a_library_write_to_memory(engine, memory, tmp_path):
    """They were registered before ours could be, and yet must run before memory is protected for the child: a write after that
    waits for the child, which is not there yet."""
    library = compile_program(None, "fork_handler_library.c", "-shared", "-fPIC")
    program = compile_program(None, "fork_handlers.c", "-Wl,--no-as-needed", str(library))
    run = headroom_run([program, 24], tmp_path, memory=memory, engine=engine, timeout=60)
    assert run.status == 0, run.errors
    assert run.output == "ok\n"
    assert run.total("forks") == 2
    assert run.total("fork_blocks_copied") > 0
    if memory == "24M":
        run.assert_paged(48 * MIB, 24 * MIB)


@pytest.mark.parametrize("how", ["killed", "leaves", "_exits", "replaced", "daemon", "closes", "downwards", "helper"])
def test_a_forked_child_outlives_its_parent_or_dies_with_it(engine, how, tmp_path):
    """Nobody else has what a child still needs when its parent is killed: it must not wait for ever, nor go on with zeros. In
    all other cases it gets what it needs, and nobody else is killed."""
    unwatched = "what is read for a child after its parent has left is in no report"
    program = compile_program(None, "fork_orphan.c")
    run = headroom_run([program, how, 24], tmp_path, memory="24M", engine=engine, timeout=60, unwatched=unwatched)
    killed = how == "killed" and engine != "sigsegv"  # there it was given everything at once
    assert run.output == ("child 9\n" if killed else "child 0\n"), run.errors
    if how not in ("killed", "helper", "_exits", "replaced", "daemon"):  # else the parent's counts are gone
        assert run.total("fork_blocks_copied") >= 24 * 4
        assert run.total("bytes_written") >= 24 * MIB
