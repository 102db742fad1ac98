"""A two-dimensional Fourier transform, distributed by rows: an ordinary mpi4py program that knows nothing of Headroom.

usage: mpiexec -n 4 python3 fft2d.py SIDE [--check]

Each rank has SIDE / ranks rows of a square of complex numbers. It transforms its rows, the square is turned round, and it
transforms its rows again. Turning round is one MPI_Alltoallw and nothing else: what leaves is described as columns (elements a
row apart), what arrives as rows, and MPI puts every element where it belongs. Prints a checksum and the time spent in
transforms and in the transposition; with --check, rank 0 compares everything with numpy.fft.fft2 (which it does alone and in
memory of its own, so not for squares that do not fit).
"""

import sys

import numpy
from mpi4py import MPI


def transposition_types(side: int, rows: int, ranks: int) -> tuple[list, list]:
    """For each rank: the block that it gets, column by column, and where it goes, row by row."""
    number = MPI.C_DOUBLE_COMPLEX
    column = number.Create_vector(rows, 1, side).Create_resized(0, number.Get_size())
    leaves = column.Create_contiguous(rows).Commit()
    arrives = number.Create_vector(rows, rows, side).Commit()
    return [leaves] * ranks, [arrives] * ranks


def main() -> None:
    comm = MPI.COMM_WORLD
    rank, ranks = comm.rank, comm.size
    side = int(sys.argv[1])
    if side % ranks != 0:
        raise SystemExit(f"fft2d: {side} rows cannot be shared out evenly to {ranks} ranks")
    rows = side // ranks

    square = numpy.empty((rows, side), dtype=complex)
    turned = numpy.empty((rows, side), dtype=complex)
    for row in range(rows):  # a row at a time: nothing as large as the square is made on the way
        seed = numpy.random.default_rng(rank * rows + row)
        square[row] = seed.standard_normal(side) + 1j * seed.standard_normal(side)
    original = square.copy() if "--check" in sys.argv else None

    leaves, arrives = transposition_types(side, rows, ranks)
    places = [peer * rows * square.itemsize for peer in range(ranks)]
    comm.Barrier()
    started = MPI.Wtime()
    for row in range(rows):
        square[row] = numpy.fft.fft(square[row])
    transformed = MPI.Wtime()
    comm.Alltoallw([square, [1] * ranks, places, leaves], [turned, [1] * ranks, places, arrives])
    exchanged = MPI.Wtime()
    for row in range(rows):
        turned[row] = numpy.fft.fft(turned[row])
    ended = MPI.Wtime()

    weights = numpy.arange(side) * 17 % 101  # so that it matters what is where
    checksum = comm.allreduce(
        sum(float(numpy.abs(turned[row]) @ weights) * (1 + (rank * rows + row) % 7) for row in range(rows))
    )
    if rank == 0:
        print(f"side {side}, {ranks} ranks, checksum {checksum / side**2:.9e}")
        print(f"transforms {ended - exchanged + transformed - started:.3f} s, transposition {exchanged - transformed:.3f} s")
    if original is not None:
        whole = comm.gather(original)
        result = comm.gather(turned)
        if rank == 0:
            expected = numpy.fft.fft2(numpy.concatenate(whole)).T
            difference = numpy.abs(numpy.concatenate(result) - expected).max() / numpy.abs(expected).max()
            print(f"largest difference from numpy.fft.fft2: {difference:.1e}")
            if difference > 1e-12:
                comm.Abort(1)


main()
