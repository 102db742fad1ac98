"""What forked children have of their parent's memory: the same pages, as long as nobody changes them."""

import re
import sys

import pytest

from conftest import ROOT, headroom_run, plain_run

POOL = ROOT / "tests/programs/worker_pool.py"


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


def test_a_fork_without_descriptors_fails_in_the_parent(engine, tmp_path):
    """It needs some; before, the child began without its parent's memory, and crashed."""
    from conftest import compile_program

    run = headroom_run([compile_program(None, "few_descriptors.c")], tmp_path, memory="64M", engine=engine)
    assert run.status == 0 and run.output.startswith("right, "), run.output + run.errors
    forked, refused = (int(word) for word in re.findall(r"\d+", run.output))
    assert forked >= 1 and refused >= 1
    assert "ulimit -n" in run.errors
