"""Memory that is touched for the first time, where it cannot have huge pages."""

from pathlib import Path

import pytest

from conftest import compile_program, headroom_run

MIB = 1 << 20


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
