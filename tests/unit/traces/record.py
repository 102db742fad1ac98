#!/usr/bin/env python3
"""Makes a trace for replay_test.cc of what a rank has logged: the blocks that it touched, one after the other.

The less memory a run has the more of its accesses fault, so it is recorded with as little as it bears, and no reading ahead:

    HEADROOM_LOG=pager:trace mpiexec -n 2 headroom run --memory 30M --readahead 256K ./program 2> log
    tests/unit/traces/record.py log RANK program.trace

Each access is a number of variable length (LEB128): twice the distance from the block before, folded to be positive, and one
more if the block was fresh, that is newly allocated.
"""

import re
import sys


def accesses(log, rank):
    wanted = re.compile(rf"rank {rank}: fault in block (\d+), page -?\d+; the block is (\w+)")
    before = None
    with open(log, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if found := wanted.search(line):
                block, fresh = int(found[1]), found[2] == "fresh"
                if block != before or fresh:
                    yield block, fresh
                before = block


def number(block, before, fresh):
    distance = block - before
    folded = distance * 2 if distance >= 0 else -distance * 2 - 1
    value = folded * 2 + fresh
    while value >= 0x80:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


def main():
    log, rank, out = sys.argv[1:]
    before, trace = 0, bytearray()
    for block, fresh in accesses(log, rank):
        trace += bytes(number(block, before, fresh))
        before = block
    with open(out, "wb") as file:
        file.write(trace)


if __name__ == "__main__":
    main()
