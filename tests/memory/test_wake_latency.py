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
    """What was asked for meanwhile, one after the other; the same as before is asked for after."""
    seen, stop = [], threading.Event()

    def watch():
        while not stop.wait(0.002):
            now = wish()
            if seen[-1:] != [now]:
                seen.append(now)

    before = wish()
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
    assert 0 in seen
    assert 0 < run.total("low_latency_ns") < 1e9 * run.report["elapsed_s"]


def test_the_wish_ends_when_no_pages_are_awaited(tmp_path):
    need("fast wake-ups")
    program = compile_program(None, "jumps_and_pauses.c")
    with watched_wish() as seen:
        run = headroom_run([program, 64], tmp_path, memory="24M", latency="low")
    assert run.status == 0, run.errors
    assert run.total("single_pages_read") > 2_000
    assert seen.count(0) >= 2  # before it slept for a second, and after
    assert run.total("low_latency_ns") < 1e9 * (run.report["elapsed_s"] - 0.8)


def test_it_is_not_asked_unasked(tmp_path):
    need("fast wake-ups")
    with watched_wish() as seen:
        run = random_reads(tmp_path, "anywhere")
    assert 0 not in seen and run.total("low_latency_ns") == 0


def test_a_child_does_not_keep_the_wish_alive(tmp_path):
    """The parent ends right after single pages were awaited; a child that it has forked lives on."""
    need("fast wake-ups")
    go_on = tmp_path / "go_on"
    try:
        with watched_wish() as seen:
            run = headroom_run([compile_program(None, "jumps_and_pauses.c"), 64, go_on], tmp_path, memory="24M", latency="low")
            assert run.status == 0, run.errors
            assert 0 in seen and run.total("low_latency_ns") > 0
    finally:
        go_on.touch()
    deadline = time.monotonic() + 20
    while go_on.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not go_on.exists(), "the child did not live on"


def test_who_may_not_write_there_is_refused(tmp_path):
    """Before the program begins; and `headroom doctor` says the same."""
    need("root", "fast wake-ups")
    run = plain_run([*ORDINARY_USER, HEADROOM, "run", "--memory", "64M", "--latency", "low", "true"])
    found = plain_run([*ORDINARY_USER, HEADROOM, "doctor"]).stdout
    assert run.returncode == 2 and "--latency low: this user may not write" in run.stderr, run.stderr
    assert re.search(r"^so-so  idle processors .*this user may not write", found, re.M), found
    assert "chmod a+w /dev/cpu_dma_latency" in found


def test_what_doctor_says_where_it_cannot_be_had(monkeypatch):
    def said() -> doctor.Finding:
        return next(finding for finding in doctor.findings() if finding.topic == "idle processors")

    monkeypatch.setattr(machine, "WAKE_LATENCY", "/dev/there_is_none")
    monkeypatch.setattr(machine, "_read", lambda path: "intel_idle\n" if "cpuidle" in path else None)
    assert said().level == doctor.SO_SO and "--device" in said().remedy
    monkeypatch.setattr(machine, "_read", lambda path: "none\n" if "cpuidle" in path else None)
    assert said().level == doctor.OK and "one way to be idle" in said().what
