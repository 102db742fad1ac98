"""Pages that came alone and are used again stay while others leave."""

import pytest

from conditions import need
from conftest import compile_program, headroom_run
from variants import any_of

MIB = 1 << 20
ACCESSES = 80_000
PASSES = {"few": 24, "all": 6}


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
    assert 0 < run.total("single_pages_used_again") < run.total("single_pages_read") / 4


@pytest.mark.parametrize("engine", ["userfaultfd", "userfaultfd-user", "sigsegv"])
@pytest.mark.parametrize("pages", ["few", "all"])
def test_pages_that_are_not_used_leave_blocks_that_are(pages, engine, tmp_path):
    """The blocks came whole, since they were filled. Of those of which an eighth of the pages is used the others leave: the
    eighth of all then fits. Those that are gone over in order stay whole."""
    if engine != "sigsegv":
        need(f"the engine {engine}")
    program = compile_program(None, "thin_blocks.c")
    run = headroom_run([program, 64, PASSES[pages], pages], tmp_path, memory="24M", engine=engine)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    assert run.engines() == {engine}
    run.assert_paged(64 * MIB, 24 * MIB)
    if engine == "sigsegv":
        assert run.total("blocks_surveyed") == 0
    elif pages == "all":
        assert run.total("blocks_thin") == 0
    else:
        assert run.total("blocks_thin") >= 4  # one tells of the others beside it
        # A pass uses 256 blocks, for two thirds of which there is no room while they are whole: 3000 faults without this.
        assert run.total("faults_storage") < 1800
