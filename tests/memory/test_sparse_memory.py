"""Memory of which few pages are touched, in all blocks, takes as much as these pages."""

import pytest

from conditions import need
from conftest import compile_program, headroom_run

MIB = 1 << 20
TABLE, EACH = 512, 40  # MiB; one page in so many is touched: 12.8 MiB
TOUCHED = TABLE * MIB // EACH


@pytest.mark.parametrize("order", ["in-order", "random"])
@pytest.mark.parametrize("checksums", ["off", "on"])
@pytest.mark.parametrize("engine", ["userfaultfd", "userfaultfd-user", "sigsegv"])
def test_sparse_memory(engine, checksums, order, tmp_path):
    """All that is touched would fit at last, and four passes read and write little; as whole blocks the table has ten times
    the budget, and each pass would read it."""
    if engine != "sigsegv":
        need(f"the engine {engine}")
    program = compile_program(None, "sparse_memory.c")
    run = headroom_run([program, TABLE, EACH, 16, 4, order], tmp_path, memory="48M", engine=engine, checksums=checksums)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    assert run.engines() == {engine}
    if engine == "sigsegv":
        assert run.total("blocks_hollow") == 0
        return
    assert run.total("blocks_hollow") > TABLE * 4 / 2  # a block has 256 KiB
    assert run.total("single_pages_untouched") > 0
    # The last part of the program fills a quarter of the table, and touches all pages of another.
    assert run.total("bytes_read") < 1.2 * TABLE * MIB


@pytest.mark.parametrize("engine", ["userfaultfd", "userfaultfd-user", "sigsegv"])
def test_blocks_that_have_few_pages_when_memory_becomes_short(engine, tmp_path):
    """They are touched while memory is enough, which nobody sees. As long as all that is touched fits, nothing is moved."""
    if engine != "sigsegv":
        need(f"the engine {engine}")
    program = compile_program(None, "sparse_memory.c")
    # The table fits into the budget, and what is allocated later does not, but what is touched of both does.
    run = headroom_run([program, 96, EACH, 96, 2, "random"], tmp_path, memory="128M", engine=engine)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    assert run.engines() == {engine}
    assert (run.total("blocks_hollow") > 200) == (engine != "sigsegv")
