"""Two ranks: one fills NumPy arrays in a pipe, the other adds them up where they are. Prints "right" on rank 1."""

import select
import time

import numpy
from mpi4py import MPI

from headroom import rpipe


def raises(kind, function, *arguments, **more):
    try:
        function(*arguments, **more)
    except kind:
        return True
    return False


kept = []


def keep_an_array(pipe):
    with pipe.allocate(16) as buffer:  # is not written
        kept.append(numpy.asarray(buffer.view))


def write(pipe):
    for number in range(200):
        if number == 101:
            while pipe.state["freed"] < number:
                time.sleep(0.01)
            time.sleep(0.3)  # the reader waits for this one
        with pipe.allocate(8 * number * 10) as buffer:
            numbers = buffer.array("d")
            if number:
                numpy.asarray(numbers)[:] = number
        assert raises(ValueError, lambda released=numbers: released[0]), "a view of a buffer that was written"
    pipe.send(b"bytes")
    assert raises(BufferError, keep_an_array, pipe), "an array outlives its buffer"
    with pipe.allocate(16) as buffer:
        buffer.view[:] = bytes(16)
    try:
        with pipe.allocate(100) as buffer:
            raise KeyError  # nothing is written
    except KeyError:
        pass
    assert pipe.state["written"] == 202 and pipe.state["heap_bytes"] > 0
    assert raises(OSError, pipe.receive, timeout=0)


def read(pipe):
    waits = 0
    for number in range(200):
        while number % 2 and rpipe.arm([pipe]):
            assert select.select([rpipe.descriptor()], [], [], 60)[0]
            waits += 1
        with pipe.read(timeout=0 if number % 2 else None) as buffer:
            assert len(buffer) == 8 * number * 10
            numbers = buffer.array("d")
            total = numpy.asarray(numbers).sum()
            assert total == number * number * 10, (total, number)
    assert waits > 0 and raises(OSError, rpipe.arm), "nothing to wait for"
    assert pipe.receive() == b"bytes"
    assert pipe.receive() == bytes(16)
    assert raises((BlockingIOError, BrokenPipeError), pipe.receive, timeout=0)
    assert raises((TimeoutError, BrokenPipeError), pipe.receive, timeout=0.01)
    assert pipe.state["read"] == 202 and pipe.state["freed"] == 202


with rpipe.init() as (rank, ranks):
    assert (rank, ranks) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    assert raises(OSError, rpipe.Pipe, 7, rpipe.READER)
    with rpipe.Pipe(1 - rank, rpipe.WRITER if rank == 0 else rpipe.READER) as pipe:
        (write if rank == 0 else read)(pipe)
if rank == 1:
    print("right")
