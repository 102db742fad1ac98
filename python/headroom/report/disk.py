"""What the storage can do: a file in each directory written and read past the page cache, in pieces of 1 MiB, 16 at a time."""

import contextlib
import mmap
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

PIECE = 1 << 20
PIECES = 256
AT_ONCE = 16


def _rate(pool: ThreadPoolExecutor, transfer) -> float:
    began = time.perf_counter()
    list(pool.map(transfer, range(PIECES)))
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
            files = []
            for directory in directories:
                file = stack.enter_context(tempfile.NamedTemporaryFile(dir=directory))
                files.append(os.open(file.name, os.O_RDWR | os.O_DIRECT))
                stack.callback(os.close, files[-1])
            buffers = [mmap.mmap(-1, PIECE) for _ in range(AT_ONCE)]
            for buffer in buffers:
                buffer.write(os.urandom(4096) * (PIECE // 4096))

            def write(piece: int) -> None:
                os.pwrite(files[piece % len(files)], buffers[piece % AT_ONCE], piece // len(files) * PIECE)

            def read(piece: int) -> None:
                os.preadv(files[piece % len(files)], [buffers[piece % AT_ONCE]], piece // len(files) * PIECE)

            _rate(pool, write)  # makes the files
            return {"write": _rate(pool, write), "read": _rate(pool, read)}
    except OSError:
        return {}
