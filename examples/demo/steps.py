"""What all parts of the demo share: running commands, saying what happens, and what a part leaves for the page."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADROOM = ROOT / "build/venv/bin/headroom"
EXAMPLES = ROOT / "build/examples"
MPI = ROOT / "build/mpi/mpich"
MPIEXEC = MPI / "bin/mpiexec"


@dataclass
class Part:
    """What the page shows of a part: a picture, or bars (name, value), and what they mean."""

    title: str
    text: str
    unit: str = ""
    bars: list[tuple[str, float]] = field(default_factory=list)
    pictures: dict[str, str] = field(default_factory=dict)  # light and dark
    link: str = ""  # a page with more of it
    good: bool = True  # it ran, and results were right


def say(text: str = "") -> None:
    print(text, flush=True)


def run(command: list, quiet: bool = False, environment: dict[str, str] | None = None) -> tuple[float, str, str, int]:
    """Seconds, what it printed, what it said on standard error, and its status."""
    started = time.monotonic()
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | (environment or {}))
    if not quiet or done.returncode != 0:
        shown = done.stdout + done.stderr
        say("".join(f"    {line}\n" for line in shown.splitlines()).rstrip())
    return time.monotonic() - started, done.stdout, done.stderr, done.returncode


def checksum(output: str) -> str:
    found = re.search(r"checksum: (\w+)", output)
    return found[1] if found else "none"


def in_turn(sides: dict[str, list], figure: str, rounds: int = 3, environment: dict[str, str] | None = None):
    """Runs all sides in turn, so that none has a better hour. The median of what `figure` finds in what each says, and whether
    all printed the same."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    outputs = set()
    for _ in range(rounds):
        for name, command in sides.items():
            _, output, errors, status = run(command, quiet=True, environment=environment)
            match = re.search(figure, errors)
            if status != 0 or match is None:
                return {}, False
            found[name].append(float(match[1]))
            outputs.add(output)
    return {name: statistics.median(values) for name, values in found.items()}, len(outputs) == 1


def say_bars(bars: list[tuple[str, float]], unit: str) -> None:
    width = max((len(name) for name, _ in bars), default=0)
    for name, value in bars:
        say(f"  {name:<{width}}  {value:9.2f} {unit}" if value < 100 else f"  {name:<{width}}  {value:9.1f} {unit}")
