"""Reads what `headroom run --trace DIRECTORY` has left: the run's figures and a file of events for each process.

The files are written by src/trace/recorder.cc: an eight-byte mark, then events of 64 bytes. Times are in seconds from the first
event of a node. The files may be larger than memory: they are read in pieces, and what is finer than a drawing shows is merged.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

NAME = re.compile(r"(.*)-(\d+)\.trace")  # host and process
MARK = b"HHTRACE2"
EVENT = struct.Struct("<QHHI6q")
BEGIN, SAMPLE, RUN_STATE, SITE, FRAME, MODULE, LOST, ARMED = range(1, 9)
COMPUTES, BLOCKED, READY = range(3)


@dataclass
class Sample:
    at: float
    resident: int
    outside: int
    read: int
    written: int
    faults: int
    waited: float


@dataclass
class Site:
    """Where memory was allocated: frames are (object, offset of the return address), innermost first."""

    faults: int
    waited: float
    bytes: int
    frames: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class Process:
    host: str
    pid: int
    job: int = 0  # the same for all processes of a run
    real_began: int = 0  # ns since 1970
    rank: int = -1
    budget: int = 0
    slots: int = 0
    lost: int = 0
    began: float = 0
    armed: float | None = None  # samples say from then on what is resident, before what was allocated
    samples: list[Sample] = field(default_factory=list)
    states: list[tuple[float, int]] = field(default_factory=list)  # from then on
    sites: list[Site] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"rank {self.rank}" if self.rank >= 0 else f"process {self.pid}"

    @property
    def end(self) -> float:
        return max([self.began, *(sample.at for sample in self.samples[-1:]), *(at for at, _ in self.states[-1:])])


# A drawing has 400 points and 1200 columns; hours of a hundred samples and thousands of states a second would fill memory.
MOST_SAMPLES = 4096
# Events are in the file as they were recorded, nearly in the order of time: no further from it than this.
MOST_OUT_OF_ORDER = 4096
READ_AT_ONCE = EVENT.size << 14


def _thinned(samples: list[Sample]) -> list[Sample]:
    """The last sample of each of at most MOST_SAMPLES equal parts of the time, with the most that was resident in it."""
    if len(samples) <= MOST_SAMPLES:
        return samples
    begin, step = samples[0].at, (samples[-1].at - samples[0].at) / MOST_SAMPLES or 1
    kept: list[Sample] = []
    part = -1
    for sample in samples:
        now = int((sample.at - begin) / step)
        if now == part:
            sample.resident = max(sample.resident, kept[-1].resident)
            kept[-1] = sample
        else:
            kept.append(sample)
            part = now
    return kept


def _merged(states: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """The same in at most MOST_SAMPLES equal parts of the time: each has what it had of each state, in one piece. All but the
    last of `states`, which must be in the order of time, is merged."""
    begin, end = states[0][0], states[-1][0]
    step = (end - begin) / MOST_SAMPLES or 1
    kept: list[tuple[float, int]] = []
    part, spent = 0, {}

    def keep_part() -> None:
        at = begin + part * step
        for state, seconds in spent.items():
            if not kept or kept[-1][1] != state:
                kept.append((at, state))
            at += seconds
        spent.clear()

    for (since, state), (until, _) in zip(states, states[1:]):
        while since < until:
            part_ends = begin + (part + 1) * step
            if since >= part_ends:
                keep_part()
                part += 1
                continue
            ends = min(until, part_ends)
            spent[state] = spent.get(state, 0.0) + ends - since
            since = ends
    keep_part()
    return [*kept, states[-1]]


def _all_but_latest_merged(states: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """The latest are left as they are: something that was before them may follow."""
    states.sort()
    return _merged(states[:-MOST_OUT_OF_ORDER]) + states[-MOST_OUT_OF_ORDER:]


def _text(part: tuple[int, ...]) -> str:
    return struct.pack("<6q", *part).rstrip(b"\0").decode(errors="replace")


def _events(path: Path, done: Callable[[int], None]) -> Iterator[tuple]:
    """The events of a file. ValueError if it is not a trace. `done` is told how many more bytes were read."""
    with path.open("rb") as file:
        if file.read(len(MARK)) != MARK:
            raise ValueError(f"{path} is not a trace of this version of Headroom")
        done(len(MARK))
        while piece := file.read(READ_AT_ONCE):
            whole = len(piece) // EVENT.size * EVENT.size  # a process that was killed may have left part of one
            yield from EVENT.iter_unpack(piece[:whole])
            done(len(piece))


def read_process(path: Path, done: Callable[[int], None] = lambda _: None) -> Process:
    """One process's events. ValueError if the file is not a trace. `done` is told how many more bytes were read."""
    host, pid = NAME.fullmatch(path.name).groups()
    process = Process(host, int(pid))
    modules: dict[int, str] = {}
    sites: dict[int, Site] = {}
    frames: list[tuple[int, int, int]] = []
    for at_ns, kind, state, label, *values in _events(path, done):
        at = at_ns / 1e9
        if kind == BEGIN:
            process.began, process.budget, process.slots = at, values[1], values[2]
            process.real_began, process.job = values[0], values[4]
        elif kind == SAMPLE:
            process.rank = label - 1
            process.samples.append(Sample(at, *values[:5], values[5] / 1e9))
            if len(process.samples) >= 8 * MOST_SAMPLES:
                process.samples = _thinned(process.samples)
        elif kind == RUN_STATE:
            process.states.append((at, state))
            if len(process.states) >= 8 * MOST_SAMPLES:
                process.states = _all_but_latest_merged(process.states)
        elif kind == SITE:
            sites[state] = Site(values[0], values[1] / 1e9, values[2])
        elif kind == FRAME:
            frames.append((state, values[0], values[1]))
        elif kind == MODULE:
            modules[state] = modules.get(state, "") + _text(values)
        elif kind == LOST:
            process.lost += values[0]
        elif kind == ARMED:
            process.armed = at
    for site, module, offset in frames:
        sites[site].frames.append((modules.get(module, "?"), offset))
    process.sites = list(sites.values())
    process.samples = _thinned(process.samples)
    process.states.sort()
    return process


@dataclass
class Node:
    name: str
    processes: list[Process]
    figures: dict

    @property
    def end(self) -> float:
        return max((process.end for process in self.processes), default=0)

    @property
    def armed(self) -> float | None:
        """When the first of its processes had its memory watched."""
        return min((process.armed for process in self.processes if process.armed is not None), default=None)


def _of_last_run(processes: list[Process]) -> list[Process]:
    """Those of one host that belong to the run that began last: a directory may have been used before."""
    last = max(processes, key=lambda process: process.real_began)
    return [process for process in processes if process.job == last.job]


def trace_files(directory: Path) -> list[Path]:
    """Those that Headroom has written; something else may be called so, too."""
    return sorted(path for path in directory.glob("*.trace") if NAME.fullmatch(path.name))


def _figures(directory: Path) -> list[dict]:
    """Of each node. ValueError, with a reason, if a file is not whole."""
    found = []
    for path in sorted(directory.glob("run.json*")):
        try:
            found.append(json.loads(path.read_text()))
        except ValueError as error:
            raise ValueError(
                f"{path} is not whole JSON ({error}): it was cut off, or changed; trace the run again, or remove this file to "
                "see the report without the figures of its node"
            ) from None
    return found


def read_run(
    directory: Path, warn: Callable[[str], None] = lambda _: None, done: Callable[[int], None] = lambda _: None
) -> list[Node]:
    """The nodes of a run. FileNotFoundError or ValueError, with a reason, if the directory has no trace, or what it has cannot
    be read. `warn` is told what was left out, and why; `done` how many more bytes of the files were read."""
    files = trace_files(directory)
    if not files:
        raise FileNotFoundError(f"{directory} has no trace; take one with `headroom run --trace {directory} ...`")
    by_host: dict[str, list[Process]] = {}
    unread: list[str] = []
    for path in files:
        try:
            process = read_process(path, done)
        except ValueError as error:
            unread.append(str(error))
            continue
        if process.real_began == 0:
            warn(f"{path.name} has no events: its process was killed before it wrote any")
            continue
        by_host.setdefault(process.host, []).append(process)
    if not by_host:
        raise ValueError("; ".join(unread) or f"no process has left events in {directory}")
    for why in unread:
        warn(why)
    found = sum(len(processes) for processes in by_host.values())
    by_host = {host: _of_last_run(processes) for host, processes in by_host.items()}
    if left_out := found - sum(len(processes) for processes in by_host.values()):
        warn(f"{left_out} processes of earlier runs are left out: {directory} was used before")
    figures = _figures(directory)
    nodes = []
    for host, processes in by_host.items():
        begin = min(process.began for process in processes)
        for process in processes:
            process.began -= begin
            process.armed = None if process.armed is None else process.armed - begin
            for sample in process.samples:
                sample.at -= begin
            process.states = [(at - begin, state) for at, state in process.states]
        pids = {process.pid for process in processes}
        of_host = [each for each in figures if each["host"] == host]
        own = next((each for each in of_host if pids & {rank["process"] for rank in each["ranks"]}), {})
        nodes.append(Node(host, sorted(processes, key=lambda each: (each.rank < 0, each.rank, each.pid)), own))
    return nodes
