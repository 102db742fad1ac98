"""Reads what `headroom run --trace DIRECTORY` has left: the run's figures and a file of events for each process.

The files are written by src/trace/recorder.cc: an eight-byte mark, then events of 64 bytes. Times are in seconds from the first
event of a node.
"""

import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

MARK = b"HHTRACE1"
EVENT = struct.Struct("<QHHI6q")
BEGIN, SAMPLE, RUN_STATE, SITE, FRAME, MODULE, LOST = range(1, 8)
COMPUTES, BLOCKED, READY = range(3)


@dataclass(slots=True)
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
    samples: list[Sample] = field(default_factory=list)
    states: list[tuple[float, int]] = field(default_factory=list)  # from then on
    sites: list[Site] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"rank {self.rank}" if self.rank >= 0 else f"process {self.pid}"

    @property
    def end(self) -> float:
        return max([self.began, *(sample.at for sample in self.samples[-1:]), *(at for at, _ in self.states[-1:])])


# A drawing has 400 points; hours of a hundred samples a second would fill memory.
MOST_SAMPLES = 4096


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


def _text(part: tuple[int, ...]) -> str:
    return struct.pack("<6q", *part).rstrip(b"\0").decode(errors="replace")


def read_process(path: Path) -> Process:
    """One process's events. ValueError if the file is not a trace."""
    data = path.read_bytes()
    if not data.startswith(MARK):
        raise ValueError(f"{path} is not a trace of this version of Headroom")
    host, pid = re.fullmatch(r"(.*)-(\d+)\.trace", path.name).groups()
    process = Process(host, int(pid))
    modules: dict[int, str] = {}
    sites: dict[int, Site] = {}
    frames: list[tuple[int, int, int]] = []
    whole = (len(data) - len(MARK)) // EVENT.size * EVENT.size  # a process that was killed may have left part of one
    for at_ns, kind, state, label, *values in EVENT.iter_unpack(data[len(MARK) : len(MARK) + whole]):
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
        elif kind == SITE:
            sites[state] = Site(values[0], values[1] / 1e9, values[2])
        elif kind == FRAME:
            frames.append((state, values[0], values[1]))
        elif kind == MODULE:
            modules[state] = modules.get(state, "") + _text(values)
        elif kind == LOST:
            process.lost += values[0]
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


def _of_last_run(processes: list[Process]) -> list[Process]:
    """Those of one host that belong to the run that began last: a directory may have been used before."""
    last = max(processes, key=lambda process: process.real_began)
    return [process for process in processes if process.job == last.job]


def read_run(directory: Path, warn: Callable[[str], None] = lambda _: None) -> list[Node]:
    """The nodes of a run. FileNotFoundError or ValueError, with a reason, if the directory has no trace. `warn` is told what
    was left out, and why."""
    files = sorted(directory.glob("*.trace"))
    if not files:
        raise FileNotFoundError(f"{directory} has no trace; take one with `headroom run --trace {directory} ...`")
    by_host: dict[str, list[Process]] = {}
    unread: list[str] = []
    for path in files:
        try:
            process = read_process(path)
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
    figures = [json.loads(path.read_text()) for path in sorted(directory.glob("run.json*"))]
    nodes = []
    for host, processes in by_host.items():
        begin = min(process.began for process in processes)
        for process in processes:
            process.began -= begin
            for sample in process.samples:
                sample.at -= begin
            process.states = [(at - begin, state) for at, state in process.states]
        pids = {process.pid for process in processes}
        of_host = [each for each in figures if each["host"] == host]
        of_host = [each for each in figures if each["host"] == host]
        own = next((each for each in of_host if pids & {rank["process"] for rank in each["ranks"]}), {})
        nodes.append(Node(host, sorted(processes, key=lambda each: (each.rank < 0, each.rank, each.pid)), own))
    return nodes
