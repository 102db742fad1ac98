"""The trace of a run, what it must show of a run in turns, and the page that is drawn from it."""

import json
import subprocess

from conftest import HEADROOM, ROOT, compile_program, environment, headroom_run
from headroom.report.advice import seconds_in
from headroom.report.sites import by_site, resolve
from headroom.report.trace import (
    BEGIN,
    BLOCKED,
    COMPUTES,
    EVENT,
    MARK,
    MOST_SAMPLES,
    READY,
    SAMPLE,
    read_process,
    read_run,
)

MIB = 1 << 20
SAMPLE_EVERY = 0.01


def report(*arguments) -> subprocess.CompletedProcess:
    words = [str(word) for word in (HEADROOM, "report", *arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment(), check=False)


def most_computing_at_once(processes) -> int:
    """Of ranks that have had a turn; an overlap of less than a millisecond is the time between giving a slot and saying so."""
    edges = []
    for process in processes:
        states = process.states
        for (at, state), (until, _) in zip(states, [*states[1:], (process.end, -1)], strict=True):
            if state == COMPUTES and until - at > 1e-3:
                edges += [(at, 1), (until - 1e-3, -1)]
    now = most = 0
    for _, change in sorted(edges):
        now += change
        most = max(most, now)
    return most


def test_trace_of_a_run_in_turns(mpi, tmp_path):
    program = compile_program(mpi, "rounds.c", f"-I{ROOT}/include")
    folder = tmp_path / "run"
    budget, slots, ranks = 96 * MIB, 1, 4
    run = headroom_run(
        [program, 48, 6], tmp_path, before=mpi.command(ranks), memory="96M", slots=slots, mode="turns", trace=folder
    )
    assert run.status == 0 and "wrong 0" in run.output, run.errors
    assert json.loads((folder / "run.json").read_text())["total"]["bytes_read"] == run.total("bytes_read")
    (node,) = read_run(folder)
    assert [process.rank for process in node.processes] == list(range(ranks))
    assert all(process.lost == 0 for process in node.processes)
    assert most_computing_at_once(node.processes) <= slots
    for process in node.processes:
        assert process.budget == budget and process.slots == slots
        assert len(process.samples) > 0.2 * (process.end - process.began) / SAMPLE_EVERY
        assert seconds_in(process, BLOCKED) > 0 and seconds_in(process, READY) > 0
    # What is resident, all together: the samples are not of one moment, so what moved in between is allowed.
    for sample in node.processes[0].samples:
        others = [
            max((s for s in p.samples if s.at <= sample.at), key=lambda s: s.at, default=None) for p in node.processes[1:]
        ]
        assert sample.resident + sum(other.resident for other in others if other) <= budget + 16 * MIB
    read = sum(process.samples[-1].read for process in node.processes)
    assert 0.9 * run.total("bytes_read") <= read <= run.total("bytes_read")

    sites = by_site(node, resolve([node]))
    where, faults, waited, allocated = sites[0]
    assert where.startswith("main, rounds.c:") and allocated == ranks * 48 * MIB
    assert faults > 0 and waited > 0
    assert sum(row[1] for row in sites) == run.total("faults_storage")

    drawn = report(folder)
    assert drawn.returncode == 0, drawn.stderr
    assert "waited for storage" in drawn.stdout or "for their turn" in drawn.stdout
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 8 and "main, rounds.c:" in page and "rank 3" in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )
    words = json.loads(report(folder, "--json", "--no-measure").stdout)
    assert abs(sum(words[0]["time"].values()) - 1) < 0.01 and words[0]["advice"]


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


def test_what_is_no_trace_is_refused(tmp_path):
    assert "has no trace" in report(tmp_path).stderr
    (tmp_path / "host-1.trace").write_bytes(b"something else")
    assert "is not a trace" in report(tmp_path).stderr


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
