"""What the tests of shortage rely on (kernel_watch.py) sees what it should, and nothing else."""

import os
import subprocess
import sys

import pytest

import kernel_watch
from kernel_watch import MIB, OTHERS_READ, OTHERS_WRITTEN, KernelWatch

# A nameless file, as the store has, with a descriptor as the store has, is written and read.
MOVES = """
import fcntl, mmap, os, sys, time
directory, flags, mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
file = os.open(directory, os.O_TMPFILE | os.O_RDWR | flags, 0o600)
file = fcntl.fcntl(file, fcntl.F_DUPFD, 256)
buffer = mmap.mmap(-1, 1 << 20)
for call in (os.pwritev, os.preadv):
    for at in range(mib):
        assert call(file, [buffer], at << 20) == 1 << 20
time.sleep(1)
"""
MOVED = 96  # MiB


def moved_by_a_child(flags: int) -> KernelWatch:
    with KernelWatch() as kernel:
        subprocess.run([sys.executable, "-c", MOVES, "/var/tmp", str(flags), str(MOVED)], check=True, timeout=60)
    return kernel


def test_what_goes_past_the_page_cache_is_counted():
    kernel = moved_by_a_child(os.O_DIRECT)
    kernel.assert_agrees(MOVED * MIB, MOVED * MIB)
    kernel.assert_past_caches()
    for read, written in ((1, 0), (0, 1)):
        with pytest.raises(AssertionError, match="the kernel counted"):
            kernel.assert_agrees((MOVED + read * 64) * MIB, (MOVED + written * 64) * MIB)
        with pytest.raises(AssertionError, match="the kernel counted"):
            kernel.assert_agrees(MOVED * MIB - read * (OTHERS_READ + MIB), MOVED * MIB - written * (OTHERS_WRITTEN + MIB))


def test_what_goes_through_the_page_cache_is_seen_there():
    kernel = moved_by_a_child(0)
    assert kernel.store_bytes_cached == MOVED * MIB
    with pytest.raises(AssertionError, match="of the store are in the page cache"):
        kernel.assert_past_caches()
    with pytest.raises(AssertionError, match="read: the kernel counted"):
        kernel.assert_agrees(MOVED * MIB, MOVED * MIB)


def test_a_run_without_a_store_is_not_taken_for_one():
    with KernelWatch() as kernel:
        subprocess.run(["sleep", "1.1"], check=True)
    with pytest.raises(AssertionError, match="no file of the store was seen"):
        kernel.assert_past_caches()


def test_both_ways_to_ask_for_cached_pages_agree(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * MIB + 1))
    with path.open("rb") as file:
        assert kernel_watch.pages_by_mincore(file.fileno()) == -(-(3 * MIB + 1) // os.sysconf("SC_PAGESIZE"))
        assert kernel_watch.pages_by_cachestat(file.fileno()) in (None, kernel_watch.pages_by_mincore(file.fileno()))
