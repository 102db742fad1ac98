"""Memory that is touched for the first time, by programs that have not asked for huge pages."""

from pathlib import Path

import pytest

from conftest import compile_program, headroom_run, need

MIB = 1 << 20
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.parametrize("how", ["dense", "sparse"])
def test_what_is_filled_in_order_without_huge_pages_is_touched_ahead(how, engine, tmp_path):
    program = compile_program(None, "first_touch.c")
    run = headroom_run([program, how], tmp_path, memory="256M", engine=engine, huge_pages="never")
    assert run.status == 0 and run.output == "huge 0 MiB\nwrong 0\n", (run.output, run.errors)
    one_node = Path("/sys/devices/system/node/has_memory").read_text().strip() == "0"
    if how == "dense" and one_node:
        assert 8 * MIB <= run.total("bytes_touched_ahead") <= 96 * MIB
    else:
        assert run.total("bytes_touched_ahead") == 0


@pytest.mark.parametrize("how", ["dense", "sparse", "small"])
def test_what_is_filled_in_order_is_set_aside_in_large_pages(how, engine, tmp_path):
    need("files with large pages")
    program = compile_program(None, "first_touch.c")
    run = headroom_run([program, how], tmp_path, memory="256M", engine=engine)
    assert run.status == 0 and "wrong 0\n" in run.output, (run.output, run.errors)
    if how != "dense" or SETTING.read_text().startswith("[always]"):
        assert run.total("bytes_set_aside") == 0
    else:
        assert run.output.startswith("huge 0 MiB\n")
        assert 64 * MIB <= run.total("bytes_set_aside") <= 96 * MIB
    assert run.total("bytes_touched_ahead") == 0


@pytest.mark.parametrize("part", [8, 40])
def test_what_was_set_aside_and_not_used_counts(part, engine, tmp_path):
    """Memory becomes short when a part of an array is filled, or was filled and the rest is left: what was set aside is there,
    and goes to storage and comes back as what it is, zeros. The pager's thread, which sets aside, may come too late in a run:
    then there is nothing to see."""
    need("files with large pages")
    program = compile_program(None, "partly_filled.c")
    set_aside = 0
    for _ in range(6):
        run = headroom_run([program, 64, part, 96], tmp_path, memory="96M", engine=engine)
        assert run.status == 0 and run.output == "wrong 0\n", (run.output, run.errors)
        run.assert_paged((part + 96) * MIB, 96 * MIB)
        set_aside += run.total("bytes_set_aside")
        if set_aside > 0:
            break
    assert set_aside > 0


def test_what_was_given_up_while_it_was_filled_stays_so(engine, tmp_path):
    """And an array that is kept for the next one is all of it there, zeroed, when memory becomes short."""
    need("files with large pages")
    program = compile_program(None, "given_up_while_filled.c")
    run = headroom_run([program, 96], tmp_path, memory="112M", engine=engine)
    assert run.status == 0 and run.output == "back 0 MiB, wrong 0\n", (run.output, run.errors)
    run.assert_paged(120 * MIB, 112 * MIB)
    if not SETTING.read_text().startswith("[always]"):
        assert run.total("bytes_set_aside") > 16 * MIB
