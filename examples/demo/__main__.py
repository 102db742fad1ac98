"""The demo: what Headroom does, in five parts and at most five minutes; run by `make demo`. Writes build/demo/index.html."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time

import files
import halo
import page
import pagerank
from headroom.bench.programs import ended_in_order
from steps import ROOT, say


def main() -> int:
    folder = ROOT / "build/demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    parts = []
    with ended_in_order():
        for show in (lambda: pagerank.show(folder), halo.messages, halo.between_nodes, halo.pipes, lambda: files.show(folder)):
            parts.append(show())
            say()
    cores = len(os.sched_getaffinity(0))
    page.write(parts, f"{cores} cores, Linux {platform.release()}, MPICH, {time.strftime('%Y-%m-%d')}", folder / "index.html")
    good = all(part.good for part in parts)
    say(f"{time.monotonic() - began:.0f} s. All of it with pictures: build/demo/index.html")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
