"""Pages that came alone and are used again stay while others leave."""

import pytest

from conditions import need
from conftest import compile_program, headroom_run
from variants import any_of

MIB = 1 << 20
ACCESSES = 80_000


def hot_pages(engine: str, how: str, tmp_path):
    need(f"the engine {engine}")
    run = headroom_run([compile_program(None, "hot_pages.c"), 64, ACCESSES, how], tmp_path, memory="24M", engine=engine)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    assert run.engines() == {engine}
    run.assert_paged(64 * MIB, 24 * MIB)
    return run


@pytest.mark.parametrize("how", ["read", "update"])
@pytest.mark.parametrize("engine", ["userfaultfd", "userfaultfd-user"])
def test_hot_pages_stay(engine, how, tmp_path):
    """A fifth of the pages, in all blocks, has four fifths of the accesses, and fits. How many pages are read depends on how
    fast others leave, too; that pages stayed does not: without what is tested none is counted."""
    run = hot_pages(engine, how, tmp_path)
    assert run.total("single_pages_used_again") > 1000
    assert run.total("single_pages_stayed") > ACCESSES / 10


@pytest.mark.parametrize("engine", ["userfaultfd", "userfaultfd-user"])
@any_of("engine")
def test_where_no_pages_are_hot_only_a_sample_is_watched(engine, tmp_path):
    run = hot_pages(engine, "anywhere", tmp_path)
    assert run.total("single_pages_read") < 0.72 * ACCESSES  # 0.62 at best
    assert 0 < run.total("single_pages_used_again") < run.total("single_pages_read") / 6
