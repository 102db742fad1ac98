"""An array that is read by workers of a ProcessPoolExecutor, which forks. Prints how much memory all have then (their
proportional shares, MiB), and whether the sums are right; with "write" the parent changes every second MiB while they live.

usage: worker_pool.py MIB [write]"""

import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

import numpy

MIB = 1 << 20
context = multiprocessing.get_context("fork")
have_read = context.Semaphore(0)
is_measured = context.Event()
array = numpy.arange(int(sys.argv[1]) * MIB // 8, dtype=numpy.float64)


def proportional_mib(process: int) -> float:
    with open(f"/proc/{process}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def add(part: int) -> tuple[float, float]:
    first = float(array[part::2].sum())
    have_read.release()
    is_measured.wait()
    return first, float(array[part::2].sum())  # as it was at the fork, whatever the parent does


if __name__ == "__main__":
    wanted = float(array.sum())
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        sums = [pool.submit(add, part) for part in range(2)]
        for _ in sums:
            have_read.acquire()
        processes = [os.getpid(), *(worker.pid for worker in multiprocessing.active_children())]
        print(f"memory {sum(proportional_mib(process) for process in processes):.0f} of {len(processes)}")
        if sys.argv[2:] == ["write"]:
            for at in range(0, array.size, 2 * MIB // 8):
                array[at : at + MIB // 8] = -1.0
        is_measured.set()
        found = [each.result() for each in sums]
    right = all(abs(sum(each) - wanted) <= 1e-9 * wanted for each in zip(*found, strict=True))
    print("right" if right else f"wrong {found} {wanted}")
