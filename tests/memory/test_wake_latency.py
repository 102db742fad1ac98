"""--latency low: idle processors do not sleep while single pages are awaited."""

import contextlib
import re
import struct
import threading
import time

import pytest

from conditions import need
from conftest import HEADROOM, ORDINARY_USER, compile_program, headroom_run, plain_run
from headroom import doctor, machine
from variants import any_of

MIB = 1 << 20


def wish() -> int:
    """The shortest time that anybody asks the kernel for now, in us."""
    with open(machine.WAKE_LATENCY, "rb", buffering=0) as device:
        return struct.unpack("i", device.read(4))[0]


@contextlib.contextmanager
def watched_wish():
    """What was asked for meanwhile; something must not be asked for before, nor after."""
    seen, stop = set(), threading.Event()

    def watch():
        while not stop.wait(0.002):
            seen.add(wish())

    before = wish()
    assert before > 0, "another program asks for fast wake-ups"
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
    assert wish() == before


def random_reads(tmp_path, how: str, **settings):
    run = headroom_run([compile_program(None, "hot_pages.c"), 64, 40_000, how], tmp_path, memory="24M", **settings)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    run.assert_paged(64 * MIB, 24 * MIB)
    return run


@pytest.mark.parametrize("engine", ["userfaultfd", "userfaultfd-user"])
@any_of("engine")
def test_the_kernel_is_asked_while_single_pages_are_awaited(engine, tmp_path):
    need("fast wake-ups", f"the engine {engine}")
    with watched_wish() as seen:
        run = random_reads(tmp_path, "anywhere", engine=engine, latency="low")
    assert run.total("single_pages_read") > 10_000
    assert 0 in seen and len(seen) > 1  # not before they were awaited
    assert 0 < run.total("low_latency_ns") < 1e9 * run.report["elapsed_s"]


def test_it_is_not_asked_unasked(tmp_path):
    need("fast wake-ups")
    with watched_wish() as seen:
        run = random_reads(tmp_path, "anywhere")
    assert 0 not in seen and run.total("low_latency_ns") == 0


def test_a_child_does_not_keep_the_wish_alive(tmp_path):
    """The parent ends right after single pages were awaited; a child that it has forked lives on."""
    need("fast wake-ups")
    go_on = tmp_path / "go_on"
    with watched_wish() as seen:
        run = headroom_run([compile_program(None, "child_outlives.c"), 64, go_on], tmp_path, memory="24M", latency="low")
        assert run.status == 0, run.errors
        assert 0 in seen and run.total("low_latency_ns") > 0
    go_on.touch()
    deadline = time.monotonic() + 20
    while go_on.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not go_on.exists(), "the child did not live on"


@pytest.mark.parametrize("why", ["may not write", "one way to be idle"])
def test_where_it_cannot_be_had_the_run_is_refused(why, monkeypatch, tmp_path):
    """Before the program begins; and `headroom doctor` says the same."""
    if why == "may not write":
        need("root", "fast wake-ups")
        run = plain_run([*ORDINARY_USER, HEADROOM, "run", "--memory", "64M", "--latency", "low", "true"])
        found = plain_run([*ORDINARY_USER, HEADROOM, "doctor"]).stdout
        assert run.returncode == 2 and "--latency low: this user may not write" in run.stderr, run.stderr
        assert re.search(r"^so-so  idle processors .*this user may not write", found, re.M), found
        assert "chmod a+w /dev/cpu_dma_latency" in found
    else:
        monkeypatch.setattr(machine, "_read", lambda path: "none\n" if "cpuidle" in path else None)
        finding = next(finding for finding in doctor.findings() if finding.topic == "idle processors")
        assert finding.level == doctor.OK and why in finding.what
