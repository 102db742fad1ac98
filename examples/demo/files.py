"""Part 5: collective writes of one file by nodes that have very different memory left (`headroom bench io`)."""

from __future__ import annotations

import json
import os
from pathlib import Path

from headroom import hard_limit
from steps import HEADROOM, MPI, Part, run, say, say_bars

LEFT = "16,32,96,512"


def show(folder: Path) -> Part:
    figures = folder / "io.json"
    command = [HEADROOM, "bench", "io", "--mpi", MPI, "--rounds", "1", "--json", figures]
    limited = os.geteuid() == 0 and hard_limit.available() is None
    if limited:
        command += ["--pattern", "blocks", "--size", "32", "--left", LEFT]
        where = f"four emulated nodes with {LEFT.replace(',', ', ')} MiB of memory left"
    else:
        command += ["--pattern", "interleaved"]
        where = "four emulated nodes (setting memory limits needs root)"
    say(f"5. Collective access to a file: 8 ranks on {where} write together")
    _, _, errors, status = run(command, quiet=True)
    if status != 0:
        say(f"  failed: {(errors.strip().splitlines() or ['it failed'])[-1]}")
        return Part("Collective access to a file", "It failed.", good=False)
    rows = json.loads(figures.read_text())
    bars = [(row["side"].replace("library", "MPICH"), row["write"]) for row in rows if row["write"] is not None]
    killed = [row["side"].replace("library", "MPICH") for row in rows if row["write"] is None]
    say_bars(bars, "s")
    for side in killed:
        say(f"  {side}: killed, out of memory")
    text = f"8 ranks on {where} write one file together. Headroom's buffers fit what each node has left."
    if killed:
        text += f" The kernel killed, for lack of memory: {'; '.join(killed)}."
    return Part("Collective access to a file", text, "s", bars)
