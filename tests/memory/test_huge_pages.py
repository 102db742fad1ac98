"""Huge pages: as the system's setting and the program say while memory is enough; in nobody's way when it is short."""

import re
from pathlib import Path

import pytest

from conftest import compile_program, headroom_run, need

MIB = 1 << 20
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def system_gives() -> str:
    return re.search(r"\[(\w+)\]", SETTING.read_text())[1]


def expected(huge_pages: str, asks: bool) -> bool:
    """As the program would have had them without Headroom."""
    if huge_pages == "auto":
        return system_gives() == "always" or (asks and system_gives() == "madvise")
    return huge_pages == "always"


@pytest.mark.parametrize(
    ("huge_pages", "asks"),
    [("auto", False), ("auto", True), ("always", False), ("never", True)],
    ids=["auto", "auto-asks", "always", "never-asks"],
)
def test_huge_pages(engine, huge_pages, asks, tmp_path):
    need("huge pages")
    program = compile_program(None, "huge_pages.c")
    run = headroom_run([program, *["ask"] * asks], tmp_path, memory="48M", engine=engine, huge_pages=huge_pages)
    assert run.status == 0 and "wrong 0\n" in run.output, (run.output, run.errors)
    run.assert_paged(120 * MIB, 48 * MIB)
    huge = int(re.search(r"huge (\d+) MiB", run.output)[1])
    if not expected(huge_pages, asks):
        assert huge == 0
        assert run.total("huge_bytes_asked") == run.total("huge_pages_split") == 0
    else:
        assert huge >= 16
        assert run.total("huge_bytes_asked") >= 20 * MIB
        assert run.total("huge_pages_split") >= 8
    assert run.total("huge_pages_refused") == 0


def test_huge_pages_that_never_came(engine, tmp_path):
    """Asked for, and not made: small pages leave as ever."""
    need("huge pages")
    program = compile_program(None, "huge_pages.c")
    run = headroom_run([program, "disabled"], tmp_path, memory="48M", engine=engine, huge_pages="always", timeout=60)
    assert run.status == 0 and "wrong 0\n" in run.output, (run.output, run.errors)
    run.assert_paged(120 * MIB, 48 * MIB)
    assert run.total("huge_bytes_asked") >= 20 * MIB
    small_objects = 4  # MiB that were there before they were disabled
    assert int(re.search(r"huge (\d+) MiB", run.output)[1]) <= small_objects
    assert run.total("huge_pages_split") <= small_objects // 2


def test_huge_pages_refused(tmp_path):
    """Where this user may have no user namespace: counted, and a forced choice is refused."""
    need("huge pages")
    none = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    before = ["unshare", "--user", "--map-root-user", "sh", "-c", none, "sh"]
    program = compile_program(None, "huge_pages.c")
    run = headroom_run([program, "ask"], tmp_path, before=before, memory="48M")
    assert run.status == 0 and "huge 0 MiB\nwrong 0\n" in run.output, (run.output, run.errors)
    assert run.total("huge_pages_refused") == (0 if system_gives() == "never" else 1)
    forced = headroom_run([program], tmp_path, before=before, memory="48M", huge_pages="always")
    assert forced.status != 0
    assert "--huge-pages always: this user cannot mount a tmpfs in a user namespace: No space left on device" in forced.errors


def test_huge_pages_of_ranks_that_send_to_each_other(mpi, engine, tmp_path):
    """Other ranks map the huge pages, too."""
    need("huge pages")
    program = compile_program(mpi, "huge_messages.c")
    run = headroom_run([program, 12, 64], tmp_path, before=mpi.command(2), memory="96M", engine=engine, huge_pages="always")
    assert run.status == 0 and run.output == "wrong 0\n", (run.output, run.errors)
    run.assert_paged(2 * 88 * MIB, 96 * MIB)
    assert run.total("messages_direct") >= 8
    assert run.total("huge_pages_split") >= 12
