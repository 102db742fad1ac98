"""What the storage can do: a file in each directory written and read past the page cache, in pieces of 1 MiB, 16 at a time.

The buffers are huge pages where the system has them: pieces of scattered small pages are split into many requests, and a fast
disk then seems 2.5 times slower than what the pager, whose blocks are whole, gets from it.
"""

import contextlib
import ctypes
import mmap
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headroom.report.progress import progress_of

PIECE = 1 << 20
PIECES = 256
AT_ONCE = 16


def _buffers() -> list[memoryview]:
    """AT_ONCE buffers of PIECE bytes, in whole huge pages, with something in them."""
    huge = 2 << 20
    memory = mmap.mmap(-1, AT_ONCE * PIECE + huge, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % huge
    view = memoryview(memory)[start : start + AT_ONCE * PIECE]
    view[:] = os.urandom(4096) * (AT_ONCE * PIECE // 4096)
    return [view[each * PIECE : (each + 1) * PIECE] for each in range(AT_ONCE)]


def _rate(pool: ThreadPoolExecutor, transfer, done: Callable[[int], None]) -> float:
    began = time.perf_counter()
    for _ in pool.map(transfer, range(PIECES)):
        done(1)
    return PIECES * PIECE / 2**20 / (time.perf_counter() - began)


def measure(storage: str) -> dict[str, float]:
    """MiB/s of reading and writing, in turn in each of the directories (separated by colons) as the store does; empty if it
    cannot be measured there (another host's, no room, no direct I/O)."""
    directories = storage.split(":")
    if not all(os.path.isdir(directory) for directory in directories):
        return {}
    try:
        with contextlib.ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
            done = stack.enter_context(progress_of("measuring the storage", 3 * PIECES))
            files = []
            for directory in directories:
                file = stack.enter_context(tempfile.NamedTemporaryFile(dir=directory))
                files.append(os.open(file.name, os.O_RDWR | os.O_DIRECT))
                stack.callback(os.close, files[-1])
            buffers = _buffers()

            def write(piece: int) -> None:
                os.pwrite(files[piece % len(files)], buffers[piece % AT_ONCE], piece // len(files) * PIECE)

            def read(piece: int) -> None:
                os.preadv(files[piece % len(files)], [buffers[piece % AT_ONCE]], piece // len(files) * PIECE)

            _rate(pool, write, done)  # makes the files
            return {"write": _rate(pool, write, done), "read": _rate(pool, read, done)}
    except OSError:
        return {}
