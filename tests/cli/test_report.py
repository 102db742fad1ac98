"""The trace of a run, what it must show of a run in turns, and the page that is drawn from it."""

import bisect
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import tracemalloc
from itertools import accumulate, pairwise
from types import SimpleNamespace

import pytest

from conftest import HEADROOM, ROOT, compile_program, environment, headroom_run, plain_run
from headroom.report import drawings, progress
from headroom.report.advice import _advise_on_memory, seconds_in
from headroom.report.sites import by_site, resolve
from headroom.report.trace import (
    BEGIN,
    BLOCKED,
    COMPUTES,
    EVENT,
    MARK,
    MOST_SAMPLES,
    READY,
    RUN_STATE,
    SAMPLE,
    Node,
    Process,
    Sample,
    read_process,
    read_run,
)

MIB = 1 << 20
SAMPLE_EVERY = 0.01
MOST_UNDER_WAY = 16 * MIB  # two ranks read ahead


def report(*arguments) -> subprocess.CompletedProcess:
    words = [str(word) for word in (HEADROOM, "report", *arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment(), check=False)


def turns_of(process) -> list[tuple[float, float]]:
    """When it had a slot: it computes after it was ready. (What it does before it has waited for the first time is no turn.)"""
    states = [*process.states, (process.end, BLOCKED)]
    return [
        (since, until)
        for (_, before), (since, state), (until, _) in zip(states, states[1:], states[2:], strict=False)
        if before == READY and state == COMPUTES
    ]


def most_at_once(spans: list[tuple[float, float]]) -> int:
    """How many of them cover one moment. Who gives a slot up says so before somebody else can take it, so there is no overlap
    to be allowed for."""
    edges = sorted(edge for since, until in spans for edge in ((since, 1), (until, -1)))
    return max(accumulate(change for _, change in edges))


def samples_around(process, at: float) -> tuple[Sample, Sample]:
    index = bisect.bisect_left(process.samples, at, key=lambda sample: sample.at)
    after = process.samples[min(index, len(process.samples) - 1)]
    return after if after.at == at else process.samples[max(index - 1, 0)], after


def resident_at(processes, at: float) -> int:
    """Of all together, at least: samples are not of one moment, and what a process has between two of its own is taken for the
    less of both. (What one gives to another in between would otherwise count twice.)"""
    return sum(min(sample.resident for sample in samples_around(process, at)) for process in processes)


def read_until(processes, at: float) -> float:
    """By all together, evenly between two samples."""
    total = 0.0
    for process in processes:
        before, after = samples_around(process, at)
        passed = (at - before.at) / (after.at - before.at) if after.at > before.at else 0
        total += before.read + min(max(passed, 0), 1) * (after.read - before.read)
    return total


def assert_rounds_turn_direction(run, processes, whole: int, budget: int) -> None:
    """Each round reads what does not fit, by the trace and by what the program has counted, and little more. (What was under
    way when a round ended may count for either of two.)"""
    rounds = re.findall(r"round \d+ read (\d+) until (\S+)\n", run.output)
    first = processes[0]
    ends = [first.began + float(until) - first.real_began / 1e9 for _, until in rounds]
    read = [after - before for before, after in pairwise(read_until(processes, end) for end in ends)]
    needed = whole - (budget - run.total("other_bytes_peak") - (len(processes) - 1) * MIB)
    assert 1.15 * needed < whole  # which is what each would read if all went in the same direction
    for counted, traced in zip((int(count) * MIB for count, _ in rounds[1:]), read, strict=True):
        assert whole - budget <= counted <= 1.15 * needed, (rounds, needed)
        assert abs(traced - counted) <= MOST_UNDER_WAY, (rounds, read)


def test_trace_of_a_run_in_turns(mpi, engine, tmp_path):
    program = compile_program(mpi, "rounds.c", f"-I{ROOT}/include")
    folder = tmp_path / "run"
    budget, slots, ranks, each, rounds = 96 * MIB, 1, 4, 48 * MIB, 6
    settings = {"memory": "96M", "slots": slots, "mode": "turns", "engine": engine, "trace": folder}
    run = headroom_run([program, each // MIB, rounds], tmp_path, before=mpi.command(ranks), **settings)
    assert run.status == 0 and "wrong 0" in run.output, run.errors
    assert run.engines() == {engine}
    run.assert_paged(ranks * each, budget, reads=rounds, writes=1 + rounds)
    assert json.loads((folder / "run.json").read_text())["total"]["bytes_read"] == run.total("bytes_read")
    (node,) = read_run(folder)
    assert [process.rank for process in node.processes] == list(range(ranks))
    assert all(process.lost == 0 for process in node.processes)
    for process in node.processes:
        assert process.budget == budget and process.slots == slots
        assert len(process.samples) > 0.2 * (process.end - process.began) / SAMPLE_EVERY
        assert seconds_in(process, BLOCKED) > 0 and seconds_in(process, READY) > 0
    turns = {process.rank: turns_of(process) for process in node.processes}
    assert most_at_once([turn for those in turns.values() for turn in those]) == slots
    counted = sum(run.total(name) for name in ("turns", "turns_begun_at_faults", "turns_cut_short"))
    assert sum(map(len, turns.values())) == counted
    # A rank that makes room for what it reads has less for a moment, by one transfer.
    assert run.report["peak_resident_bytes"] <= budget + ranks * MIB
    most = budget + ranks * MIB
    assert all(resident_at(node.processes, sample.at) <= most for process in node.processes for sample in process.samples)
    assert_rounds_turn_direction(run, node.processes, ranks * each, budget)
    read = sum(process.samples[-1].read for process in node.processes)
    assert 0.9 * run.total("bytes_read") <= read <= run.total("bytes_read")

    sites = by_site(node, resolve([node]))
    where, faults, waited, allocated = sites[0]
    assert where.startswith("main, rounds.c:") and allocated == ranks * each
    assert faults > 0 and waited > 0
    assert sum(row[1] for row in sites) == run.total("faults_storage")

    drawn = report(folder)
    assert drawn.returncode == 0, drawn.stderr
    assert "waited for storage" in drawn.stdout or "for their turn" in drawn.stdout
    page = (folder / "report.html").read_text()
    assert all(0 < process.armed < process.end for process in node.processes)
    assert "Up to the dotted line what was allocated" in page and ">resident from here<" in page
    assert page.count("<svg") == 8 and "main, rounds.c:" in page and "rank 3" in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )
    words = json.loads(report(folder, "--json", "--no-measure").stdout)
    assert abs(sum(words[0]["time"].values()) - 1) < 0.01 and words[0]["advice"]


@pytest.mark.parametrize("direct", ["auto", "off"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_waits_outside_turns(mpi, ranks, direct, tmp_path):
    """A rank that waits for one that comes late is blocked, however it waits; who comes late is not."""
    program = compile_program(mpi, "late_rank.c")
    folder, late = tmp_path / "run", 0.3
    run = headroom_run(
        [program, int(1000 * late)], tmp_path, before=mpi.command(ranks), memory="1G", direct=direct, trace=folder
    )
    assert run.status == 0 and "ok" in run.output, run.errors
    (node,) = read_run(folder)
    *early, last = node.processes
    for process in early:
        assert 0.9 * 3 * late < seconds_in(process, BLOCKED) < process.end - process.began
    assert seconds_in(last, BLOCKED) < late and seconds_in(last, COMPUTES) > 3 * late
    assert all(seconds_in(process, READY) == 0 and process.armed is None for process in node.processes)
    if ranks == 4:
        words = json.loads(report(folder, "--json", "--no-measure").stdout)
        assert words[0]["time"]["waiting in MPI"] > 0.1
        assert report(folder, "--no-measure").returncode == 0
        page = (folder / "report.html").read_text()
        assert ">MiB allocated<" in page and ">resident from here<" not in page


@pytest.mark.parametrize("direct", ["auto", "off"])
def test_a_wait_that_never_ends_is_seen(mpi, direct, tmp_path):
    program = compile_program(mpi, "late_rank.c")
    settings = ["--memory", "1G", "--direct", direct, "--trace", tmp_path / "run"]
    command = [*mpi.command(2), HEADROOM, "run", *settings, program, "60000"]
    job = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    try:
        waited, deadline = 0.0, time.monotonic() + 30
        while waited < 0.5 and time.monotonic() < deadline:
            time.sleep(0.2)
            if len(list((tmp_path / "run").glob("*.trace"))) == 2:
                (node,) = read_run(tmp_path / "run")
                waited = seconds_in(node.processes[0], BLOCKED) if node.processes[0].rank == 0 else 0.0
        assert waited >= 0.5
    finally:
        for path in (tmp_path / "run").glob("*.trace"):
            os.kill(int(path.stem.rpartition("-")[2]), signal.SIGKILL)
        job.communicate(timeout=60)


def test_names_of_many_ranks_do_not_overlap():
    processes = [
        Process("here", rank, rank=rank, budget=1 << 30, samples=[Sample(1.0, MIB, 0, 0, 0, 0, 0.0)]) for rank in range(256)
    ]
    drawn = drawings.in_both_themes(drawings.turns, Node("here", processes, {}))
    for svg in drawn.values():
        places = [float(y) for y in re.findall(r'<text [^>]*?y="([\d.]+)"[^>]*>rank \d+</text>', svg)]
        size = float(re.search(r"font-size: ([\d.]+)px[^>]*>rank 0</text>", svg)[1])
        assert 32 <= len(places) < 256 and min(after - before for before, after in pairwise(places)) > 1.2 * size
    few = drawings.in_both_themes(drawings.turns, Node("here", processes[:16], {}))
    assert all(svg.count(">rank ") == 16 for svg in few.values())


def test_a_directory_that_was_used_before(tmp_path):
    """The last run alone is drawn; who left no events, or something else, is named."""
    program = compile_program(None, "exit_status.c")
    pids = []
    for _ in range(2):
        run = headroom_run([program, "0"], tmp_path, memory="64M", trace=tmp_path / "run")
        pids.append(run.report["ranks"][0]["process"])
    folder = tmp_path / "run"
    (folder / "here-1.trace").write_bytes(MARK)
    (folder / "here-2.trace").write_text("something else")
    said = []
    (node,) = read_run(folder, said.append)
    assert [process.pid for process in node.processes] == pids[1:]
    assert node.figures["ranks"][0]["process"] == pids[1]
    assert len(said) == 3 and any(text.startswith("here-1.trace has no events") for text in said)
    assert any("here-2.trace is not a trace" in text for text in said) and any("1 processes of earlier runs" in t for t in said)


def test_long_traces_are_thinned(tmp_path):
    """No more samples than can be drawn; the most that was resident stays, and so do the sums at the end."""
    begin = EVENT.pack(10**9, BEGIN, 0, 0, 1, 1 << 30, 1, 1 << 18, 7, 0)
    count = 10 * MOST_SAMPLES
    samples = [EVENT.pack(10**9 + index * 10**7, SAMPLE, 0, 1, index % 1000, 0, index, 0, 0, 0) for index in range(count)]
    (tmp_path / "here-3.trace").write_bytes(MARK + begin + b"".join(samples))
    process = read_process(tmp_path / "here-3.trace")
    assert 100 < len(process.samples) <= MOST_SAMPLES + 1
    assert max(sample.resident for sample in process.samples) == 999
    assert process.samples[-1].read == count - 1
    assert process.samples == sorted(process.samples, key=lambda sample: sample.at)


def test_long_traces_are_read_in_pieces(tmp_path):
    """Of many changes of state no more is kept than can be drawn, never the whole file; how long each lasted stays."""
    chance = random.Random(1)
    begin = EVENT.pack(10**9, BEGIN, 0, 0, 1, 1 << 30, 1, 1 << 18, 7, 0)
    at, state, events, lasted = 10**9, COMPUTES, [], [0, 0, 0]
    for _ in range(150_000):
        long = chance.random() < 0.001
        spent = chance.randrange(1, 10**8 if long else 10**5)
        lasted[state] += spent
        at += spent
        state = (state + chance.randrange(1, 3)) % 3
        events.append(EVENT.pack(at, RUN_STATE, state, 0, 0, 0, 0, 0, 0, 0))
    for index in range(0, len(events) - 7, 7):  # a little out of order, as threads record them
        events[index], events[index + 3] = events[index + 3], events[index]
    path = tmp_path / "here-4.trace"
    path.write_bytes(MARK + begin + b"".join(events) + b"part of an event")
    read = []
    tracemalloc.start()
    process = read_process(path, read.append)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(process.states) < 8 * MOST_SAMPLES and process.states == sorted(process.states)
    assert most < path.stat().st_size and sum(read) == path.stat().st_size and len(read) > 2
    assert [seconds_in(process, each) for each in range(3)] == pytest.approx([each / 1e9 for each in lasted], rel=1e-6)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_of_long_work_on_a_terminal(monkeypatch):
    def shown_after(long_s: float, stderr: io.StringIO) -> str:
        monkeypatch.setattr(progress, "LONG_S", long_s)
        monkeypatch.setattr(sys, "stderr", stderr)
        with progress.progress_of("reading", 10) as done:
            for _ in range(10):
                done(1)
        return stderr.getvalue()

    assert "reading" in (shown := shown_after(-1, Terminal())) and "100%" in shown
    assert shown_after(60, Terminal()) == "" and shown_after(-1, io.StringIO()) == ""


def test_the_page_says_which_run_it_is(tmp_path):
    program = [sys.executable, "-c", "bytearray(64 << 20)"]
    headroom_run(program, tmp_path, memory="32M", trace=tmp_path / "trace")
    done = plain_run([HEADROOM, "report", "--no-measure", tmp_path / "trace"])
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "trace/report.html").read_text()
    assert re.search(r"<title>Headroom: python[\d.]*, 1 process, \d{4}-\d\d-\d\d \d\d:\d\d</title>", page)
    assert re.search(r"<p>headroom run --memory=32M .*python[\d.]* -c", page)
    counters = page[page.index("<details><summary>All counters</summary>") :]
    assert re.search(r"<td>allocated_bytes_peak</td><td>[\d.]+ MiB</td>", counters)
    assert re.search(r"<td>storage_wait_ns</td><td>[\d.]+ s</td>", counters)
    assert re.search(r"<td>faults</td><td>\d+</td><td>\d+</td><td>faults</td>", counters)


def test_a_page_that_cannot_be_written(tmp_path):
    program = [sys.executable, "-c", "bytearray(8 << 20)"]
    headroom_run(program, tmp_path, memory="64M", trace=tmp_path / "trace")
    done = plain_run([HEADROOM, "report", "--no-measure", tmp_path / "trace", "--output", "/dev/full"])
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "/dev/full: No space left on device; name another file with --output" in done.stderr, done.stderr


def test_what_is_no_trace_is_refused(tmp_path):
    assert "has no trace" in report(tmp_path).stderr
    (tmp_path / "host-1.trace").write_bytes(b"something else")
    assert "is not a trace" in report(tmp_path).stderr


def test_what_else_lies_in_the_directory_is_no_trace(tmp_path):
    """A file that is only called like one is left alone; figures that are cut off are named, with what to do."""
    headroom_run([compile_program(None, "exit_status.c"), "0"], tmp_path, memory="64M", trace=tmp_path / "run")
    (tmp_path / "run/x.trace").write_text("something else")
    assert len(json.loads(report(tmp_path / "run", "--json", "--no-measure").stdout)) == 1
    figures = tmp_path / "run/run.json"
    figures.write_text(figures.read_text()[:100])
    done = report(tmp_path / "run", "--no-measure")
    assert done.returncode == 2 and done.stderr.startswith(f"headroom: error: {figures} is not whole JSON"), done.stderr
    assert "trace the run again, or remove this file" in done.stderr
    figures.unlink()
    assert report(tmp_path / "run", "--json", "--no-measure").returncode == 0


def test_json_has_no_page(tmp_path):
    done = report(tmp_path, "--json", "--output", tmp_path / "page.html")
    assert done.returncode == 2 and done.stderr.startswith("headroom: error: --output") and "--json" in done.stderr


def test_a_trace_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [HEADROOM, "run", "--trace", tmp_path / "file/under", "true"],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode != 0 and "--trace" in done.stderr


def what_is_advised(read: int, written: int, faults: int, seconds: float, needed: int = 131, budget: int = 108) -> list[str]:
    """Of two ranks that hardly waited for storage."""
    sample = SimpleNamespace(waited=0.01 * seconds)
    process = SimpleNamespace(began=0.0, end=seconds, states=[], samples=[sample])
    counted = {"bytes_read": read * MIB, "bytes_written": written * MIB, "faults": faults, "touched_bytes_peak": needed * MIB}
    others = (
        "other_bytes_peak",
        "allocated_bytes_peak",
        "static_bytes",
        "evictions_given_up",
        "blocks_evicted",
        "turns_overdue",
    )
    figures = {"total": dict.fromkeys(others, 0) | counted, "budget_bytes": budget * MIB, "short_of_memory": True}
    return _advise_on_memory(SimpleNamespace(figures=figures, processes=[process, process], end=seconds), {})


def test_what_cost_little_is_said_to_only_if_it_did():
    """OpenFOAM once had 6590 MiB written for 744 read, in 9.7 s, and was told that it cost little."""
    (said,) = what_is_advised(read=744, written=6590, faults=30_000, seconds=9.7)
    assert "took about 14% of the processes' time" in said and "written again and again" in said, said
    assert "With 23 MiB more of --memory nothing would have to be moved" in said
    (said,) = what_is_advised(read=193, written=162, faults=3100, seconds=3.4)
    assert said.startswith("Memory was short, and it cost little: 193 MiB were read and 162 MiB written"), said
    (said,) = what_is_advised(read=2000, written=1900, faults=16_000, seconds=9.7)
    assert "of the processes' time" in said and "again and again" not in said, said
