"""What the storage can do: a file written and read past the page cache, in pieces of 1 MiB, 16 at a time."""

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


def measure(directory: str) -> dict[str, float]:
    """MiB/s of reading and writing; empty if it cannot be measured there (no room, no direct I/O)."""
    if not os.path.isdir(directory):
        return {}
    try:
        with tempfile.NamedTemporaryFile(dir=directory) as file, ThreadPoolExecutor(AT_ONCE) as pool:
            descriptor = os.open(file.name, os.O_RDWR | os.O_DIRECT)
            try:
                buffers = [mmap.mmap(-1, PIECE) for _ in range(AT_ONCE)]
                for buffer in buffers:
                    buffer.write(os.urandom(4096) * (PIECE // 4096))

                def write(piece: int) -> None:
                    os.pwrite(descriptor, buffers[piece % AT_ONCE], piece * PIECE)

                def read(piece: int) -> None:
                    os.preadv(descriptor, [buffers[piece % AT_ONCE]], piece * PIECE)

                _rate(pool, write)  # makes the file
                return {"write": _rate(pool, write), "read": _rate(pool, read)}
            finally:
                os.close(descriptor)
    except OSError:
        return {}
