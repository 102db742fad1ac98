"""Pipes between the ranks of a node (docs/user/pipes.md), for Python.

    from mpi4py import MPI
    from headroom import rpipe

    with rpipe.init(), rpipe.Pipe(peer, rpipe.WRITER) as pipe:
        with pipe.allocate(800) as buffer:            # written at the end of the block
            buffer.array("d")[:] = 1.0

        # and the other rank, with rpipe.READER:
        with pipe.read() as buffer:                   # freed at the end of the block
            print(buffer.array("d").sum())

What a buffer gives out (`view`, `array()`) is the pipe's memory itself, nothing is copied; after the block it is released, and
using it is a ValueError. A NumPy array that was made of it must be gone by then: the block ends with a BufferError otherwise,
and the buffer is neither written nor freed. Calls that wait let other threads run. Errors are OSError with the library's
numbers: BrokenPipeError where a peer has ended or closed, TimeoutError, BlockingIOError for timeout=0, and for a second init().

The end of a Pipe's block, and of init()'s, waits until the peer has read all, also after an exception: close(timeout) and
init(timeout) bound it. A Pipe cannot be used after the block of init(). To write less than was allocated there is the library's
own interface alone.

To wait for any of several pipes, with other things that poll(), selectors or an event loop wait for:

    while rpipe.arm(reading=pipes):                   # until one of them is ready
        select.select([rpipe.descriptor()], [], [])
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from headroom.rank import library_path

READER, WRITER, BOTH = 0, 1, 2
FIRST_FIT, NEXT_FIT, BEST_FIT, WORST_FIT = 0, 1, 2, 3
ANY, NODE, MPI, OFI = 0, 1, 2, 3  # backends
ALL = ctypes.c_size_t(-1).value
THREADS, PULL = 1, 2


class _Options(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("size", "flags", "width", "channel")),
        ("heap_bytes", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("policy", "frees", "backend", "padding")),
    )


_COUNTS = ("written", "read", "freed", "bytes_written", "bytes_read", "waits_for_room", "sleeps")


class _State(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("size", "backend", "peer", "padding")),
        *((name, ctypes.c_uint64) for name in (*_COUNTS, "heap_bytes", "heap_used", "largest_free")),
    )


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(library_path()).parent / "librpipe.so.1"))
    handle, address, nanoseconds, size = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64, ctypes.c_size_t
    pointer = ctypes.POINTER
    library.rpipe_init.argtypes = [pointer(ctypes.c_int), pointer(ctypes.c_int)]
    library.rpipe_finalize.argtypes = [nanoseconds]
    library.rpipe_open.argtypes = [pointer(handle), ctypes.c_int, ctypes.c_int, pointer(_Options)]
    library.rpipe_close.argtypes = [handle, nanoseconds]
    library.rpipe_alloc.argtypes = [handle, size, pointer(address), nanoseconds]
    library.rpipe_write.argtypes = [address, size, nanoseconds]
    library.rpipe_read.argtypes = [handle, pointer(address), pointer(size), nanoseconds]
    library.rpipe_free.argtypes = [address]
    library.rpipe_arm.argtypes = [pointer(handle), ctypes.c_char_p, ctypes.c_int]
    library.rpipe_at.argtypes, library.rpipe_at.restype = [address], ctypes.c_void_p
    library.rpipe_reason.argtypes, library.rpipe_reason.restype = [handle], ctypes.c_char_p
    library.rpipe_error.argtypes, library.rpipe_error.restype = [ctypes.c_int], ctypes.c_char_p
    library.rpipe_read_state.argtypes = [handle, pointer(_State)]
    return library


_library = _load()


def _nanoseconds(timeout: float | None) -> int:
    """A time in seconds, None for ever, as the library's."""
    return -1 if timeout is None else max(int(timeout * 1e9), 1) if timeout > 0 else 0


def _check(error: int, pipe: ctypes.c_void_p | None = None) -> None:
    if error < 0:
        reason = _library.rpipe_reason(pipe) if pipe is not None and error in (-errno.EPIPE, -errno.EPROTO) else None
        raise OSError(-error, (reason or _library.rpipe_error(error)).decode())


@contextlib.contextmanager
def init(timeout: float | None = None) -> Iterator[tuple[int, int]]:
    """All ranks of MPI's world, after MPI_Init: gives this rank and how many there are. At the end all pipes are closed."""
    rank, ranks = ctypes.c_int(), ctypes.c_int()
    _check(_library.rpipe_init(rank, ranks))
    try:
        yield rank.value, ranks.value
    finally:
        _check(_library.rpipe_finalize(_nanoseconds(timeout)))


class Buffer:
    """Memory of a pipe, while it is this rank's."""

    def __init__(self, address: int, size: int):
        place = _library.rpipe_at(address) if size > 0 else None
        self._memory = (ctypes.c_char * size).from_address(place) if place else (ctypes.c_char * 0)()
        self.view = memoryview(self._memory).cast("B")
        self._given = [self.view]

    def __len__(self) -> int:
        return self.view.nbytes

    def array(self, code: str = "B") -> memoryview:
        """The content as numbers of this kind (those of the struct module); numpy.asarray() of it copies nothing."""
        view = self.view.cast(code)
        self._given.append(view)
        return view

    def _release(self) -> None:
        """Ends all that was given out; BufferError if somebody uses it still."""
        while self._given:
            self._given.pop().release()
        own_references = 2  # the attribute's, and that of the call; a view of a view has another one
        if sys.getrefcount(self._memory) > own_references:
            raise BufferError("an array or a view of this buffer is there still: it must be gone before the block ends")


class Pipe:
    """This rank's end of a pipe; see rpipe_open() in headroom/rpipe.h."""

    def __init__(self, peer: int, role: int, *, width=0, channel=0, heap_bytes=0, policy=FIRST_FIT, backend=ANY, flags=0):
        options = _Options(ctypes.sizeof(_Options), flags, width, channel, heap_bytes, policy, 0, backend, 0)
        self._pipe: ctypes.c_void_p | None = ctypes.c_void_p()
        _check(_library.rpipe_open(self._pipe, peer, role, options))

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, kind, *_) -> None:
        if self._pipe is not None:
            with contextlib.suppress(OSError) if kind else contextlib.nullcontext():
                self.close()

    def close(self, timeout: float | None = None) -> None:
        pipe, self._pipe = self._pipe, None
        _check(_library.rpipe_close(pipe, _nanoseconds(timeout)))

    @contextlib.contextmanager
    def allocate(self, size: int, timeout: float | None = None) -> Iterator[Buffer]:
        """Memory that is written at the end of the block, or given back if that ends by an exception."""
        address = ctypes.c_uint64()
        _check(_library.rpipe_alloc(self._pipe, size, address, _nanoseconds(timeout)), self._pipe)
        buffer = Buffer(address.value, size)
        try:
            yield buffer
        except BaseException:
            with contextlib.suppress(BufferError):  # the error that ends the block says more
                buffer._release()
                _library.rpipe_free(address)
            raise
        buffer._release()
        _check(_library.rpipe_write(address, ALL, -1), self._pipe)

    @contextlib.contextmanager
    def read(self, timeout: float | None = None) -> Iterator[Buffer]:
        """The next message, which is freed at the end of the block."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        _check(_library.rpipe_read(self._pipe, address, size, _nanoseconds(timeout)), self._pipe)
        buffer = Buffer(address.value, size.value)
        try:
            yield buffer
        except BaseException:
            with contextlib.suppress(BufferError):
                buffer._release()
                _library.rpipe_free(address)
            raise
        buffer._release()
        _check(_library.rpipe_free(address))

    def send(self, content, timeout: float | None = None) -> None:
        """Copies anything with the buffer protocol into a message."""
        source = memoryview(content).cast("B")
        with self.allocate(source.nbytes, timeout) as buffer:
            buffer.view[:] = source

    def receive(self, timeout: float | None = None) -> bytes:
        """The next message, copied."""
        with self.read(timeout) as buffer:
            return bytes(buffer.view)

    @property
    def handle(self) -> int | None:
        """The library's rpipe_t."""
        return self._pipe.value if self._pipe is not None else None

    @property
    def state(self) -> dict[str, int]:
        state = _State(ctypes.sizeof(_State))
        _check(_library.rpipe_read_state(self._pipe, state))
        return {name: getattr(state, name) for name, _ in _State._fields_ if name not in ("size", "padding")}

    @property
    def reason(self) -> str | None:
        """Why it is broken; None if it is not."""
        text = _library.rpipe_reason(self._pipe)
        return text.decode() if text else None


def descriptor() -> int:
    """Readable when a pipe of the last arm() may be ready; the process's until the end of init()'s block."""
    result = _library.rpipe_descriptor()
    _check(result)
    return result


def arm(reading: Iterable[Pipe] = (), writing: Iterable[Pipe] = ()) -> bool:
    """True: the descriptor will become readable when one of the pipes can be read, or written; False: one can now."""
    handles = [[pipe.handle for pipe in pipes] for pipes in (reading, writing)]
    all_handles = (ctypes.c_void_p * sum(map(len, handles)))(*handles[0], *handles[1])
    ways = bytes(len(handles[0])) + b"\1" * len(handles[1])
    result = _library.rpipe_arm(all_handles, ways, len(all_handles))
    _check(result)
    return result == 0
