"""What goes wrong ends with a message that names rank, cause and remedy, in time, and leaves nothing behind."""

import contextlib
import json
import os
import platform
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from conditions import LACKS
from conftest import ENGINES, HEADROOM, WHEELS, Run, compile_program, environment, headroom_run, on_nodes, plain_run
from kernel_watch import KernelWatch
from running_processes import running
from small_disk import small_disk
from variants import any_of, only_in_suites

MIB = 1 << 20

pytestmark = any_of("mpi")  # libraries hardly differ here


@pytest.mark.parametrize(
    ("fault", "words"), [("write:EROFS:20", "Read-only file system"), ("read:EIO:5", "Input/output error")]
)
def test_failing_storage(mpi, fault, words, tmp_path):
    program = compile_program(mpi, "out_of_core.c")
    env = environment(store_fault=fault)
    run = headroom_run([program, 16, 2], tmp_path, before=mpi.command(3), memory="48M", env=env, timeout=60)
    assert run.status != 0
    assert re.search(rf"headroom: error: rank \d+: .*storage in \S+ failed: {words}.*--storage", run.errors, re.S), run.errors
    assert run.report["failed"] is True
    assert run.total("bytes_written") > 0


def test_a_write_that_finds_no_room_is_tried_again(mpi, tmp_path):
    """File systems that cannot set room aside (NFS) may be full only when it is written."""
    program = compile_program(mpi, "out_of_core.c")
    env = environment(store_fault="write:ENOSPC:20")
    run = headroom_run([program, 16, 2], tmp_path, before=mpi.command(3), memory="48M", env=env, timeout=60)
    assert run.status == 0, run.errors
    assert run.total("storage_full_ns") > 0
    run.assert_paged(3 * 2 * 16 * MIB, 48 * MIB)
    ended = headroom_run(
        [program, 16, 2],
        tmp_path,
        before=mpi.command(3),
        memory="48M",
        env=environment(store_fault="write:ENOSPC:20+"),
        timeout=60,
        storage_wait=1,
    )
    assert ended.status != 0 and "the run pauses" in ended.errors  # a second one says so if the first has ended before
    assert re.search(r"error: rank \d+: writing .* failed: No space left on device", ended.errors), ended.errors
    assert "the run goes on" not in ended.errors


def test_damage_on_storage_is_found(mpi, tmp_path):
    program = compile_program(mpi, "out_of_core.c")
    good = headroom_run([program, 16, 2], tmp_path, before=mpi.command(3), memory="48M", checksums="on")
    assert good.status == 0, good.errors
    assert good.total("pages_checked") * 4096 >= good.total("bytes_read") > 0  # what is zero is checked, and not read
    env = environment(store_fault="read:DAMAGE:5")
    run = headroom_run([program, 16, 2], tmp_path, before=mpi.command(3), memory="48M", checksums="on", env=env, timeout=60)
    assert run.status != 0
    assert re.search(r"headroom: error: rank \d+: \d+ KiB read back from .* not what was written", run.errors), run.errors


def test_an_error_ends_the_whole_job_even_if_the_launcher_does_not(tmp_path):
    """MPICH's launcher has been seen to leave the other ranks waiting when one ended with a bad exit status."""
    program = compile_program(None, "system_calls.c")
    waits = "b = bytearray(8 << 20); import time; time.sleep(100)"
    both = f"'{sys.executable}' -c '{waits}' & HEADROOM_STORE_FAULT=write:EIO:3 \"$@\"; wait"
    started = time.monotonic()
    run = headroom_run(["sh", "-c", both, "sh", program, 48], tmp_path, memory="24M", timeout=60)
    assert time.monotonic() - started < 40
    assert "failed: Input/output error" in run.errors
    assert "another rank of this node ended with an error" in run.errors


@pytest.mark.parametrize("wait", [0, 1])
def test_full_file_system(mpi, wait, tmp_path):
    program = compile_program(mpi, "out_of_core.c")
    with small_disk(tmp_path, 110) as mount:
        arguments = {"memory": "48M", "storage": mount, "storage_wait": wait}
        run = headroom_run([program, 64, 1], tmp_path, before=mpi.command(2), timeout=60, **arguments)
    assert run.status != 0
    failed = re.search(r"error: rank (\d+): .*No space left on device.*--storage", run.errors)
    assert failed, run.errors
    assert ("the run pauses" in run.errors) == (wait > 0)
    # (The end of that rank makes room for others, which may go on until the launcher ends them.)
    assert not re.search(rf"rank {failed[1]}: .*the run goes on", run.errors), run.errors
    assert (run.total("storage_full_ns") >= 1e9) == (wait > 0)


@contextlib.contextmanager
def started_on_a_full_disk(mpi, mount, report, *arguments, **settings):
    """A job whose memory does not fit on the small disk at `mount`, once it has said so; it needs 150 MiB there."""
    program = compile_program(mpi, "out_of_core.c")
    options = ["--memory", "48M", "--storage", mount, "--storage-wait", "60", "--json", report, *arguments]
    command = [*mpi.command(2), HEADROOM, "run", *options, program, "96", "2"]
    env = environment(**settings) | {"PYTHONUNBUFFERED": "1"}
    words = [str(word) for word in command]
    job = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    said = ""
    while "the run pauses" not in said:
        line = job.stdout.readline()
        assert line, said
        said += line
    try:
        yield job
    finally:
        if job.poll() is None:
            job.terminate()
            job.communicate(timeout=60)


def rank_of(job):
    """A process that runs under Headroom as a part of this job."""
    below = psutil.Process(job.pid).children(recursive=True)
    return next(process.pid for process in below if process.name().startswith("out_of_core"))


def headroom(*arguments):
    command = [str(word) for word in (HEADROOM, *arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(), check=False)


def test_a_directory_is_added_to_a_job_whose_storage_is_full(mpi, tmp_path):
    report = tmp_path / "report.json"
    store = "auto" if mpi.name == "mpich" else "threads"
    other = tmp_path / "other"
    other.mkdir()
    with small_disk(tmp_path, 84) as mount:
        with started_on_a_full_disk(mpi, mount, report, "--store", store) as job:
            assert "storage is full" in headroom("top", "--once", "--interval", "0.2").stdout
            refused = headroom("storage", "add", tmp_path / "none", "--process", rank_of(job))
            assert refused.returncode != 0 and "no such directory" in refused.stderr
            added = headroom("storage", "add", other, "--process", rank_of(job))
            assert added.returncode == 0 and "go on" in added.stdout, added.stdout + added.stderr
            said, _ = job.communicate(timeout=60)
            assert job.returncode == 0 and said.count("the run goes on") == 1, said
        assert list(mount.glob(".headroom*")) == [] == list(other.iterdir())
    run = json.loads(report.read_text())
    assert run["storage_added"] == [str(other)]
    assert run["total"]["storage_full_ns"] > 0 and run["total"]["stripes_elsewhere"] > 0


def test_a_directory_is_added_to_a_job_whose_storage_cannot_be_written(mpi, tmp_path):
    """It has room, says its file system, and what is written fails all the same: quotas on NFS, copies on write. What was
    written before is where it was, and what is to be written goes to the directory that was added."""
    report = tmp_path / "report.json"
    other = tmp_path / "other"
    other.mkdir()
    fault = "write:EDQUOT:40+@0"
    with started_on_a_full_disk(mpi, "/var/tmp", report, "--checksums", "on", store_fault=fault) as job:
        added = headroom("storage", "add", other, "--process", rank_of(job))
        assert added.returncode == 0, added.stderr
        said, _ = job.communicate(timeout=60)
        assert job.returncode == 0 and said.count("the run goes on") == 1, said
    run = json.loads(report.read_text())
    assert run["total"]["storage_full_ns"] > 0 and run["total"]["stripes_elsewhere"] > 0
    assert run["total"]["evictions_given_up"] > 0


def test_a_directory_is_added_to_a_job_whose_writes_fail_slowly(mpi, tmp_path):
    """In two directories in turn, each for longer than the other one is left alone for. It is said once, and how it ends."""
    report = tmp_path / "report.json"
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))
    for directory in (first, second, other):
        directory.mkdir()
    fault = "late:300000:write:EDQUOT:40+@0-1"
    with started_on_a_full_disk(mpi, f"{first}:{second}", report, "--checksums", "on", store_fault=fault) as job:
        time.sleep(2)
        added = headroom("storage", "add", other, "--process", rank_of(job))
        assert added.returncode == 0, added.stderr
        said, _ = job.communicate(timeout=60)
        assert job.returncode == 0 and said.count("the run goes on") == 1 and "the run pauses" not in said, said
    run = json.loads(report.read_text())
    assert run["storage_added"] == [str(other)]
    assert run["total"]["storage_full_ns"] > 2e9 and run["total"]["stripes_elsewhere"] > 0


def test_room_is_freed_for_a_job_whose_storage_is_full(mpi, tmp_path):
    report = tmp_path / "report.json"
    with small_disk(tmp_path, 460) as mount:
        ballast = mount / "ballast"
        free = os.statvfs(mount)
        ballast.write_bytes(bytes(free.f_bavail * free.f_frsize - 70 * MIB))
        with started_on_a_full_disk(mpi, mount, report) as job:
            ballast.unlink()
            said, _ = job.communicate(timeout=60)
        assert job.returncode == 0 and said.count("the run goes on") == 1, said
    run = json.loads(report.read_text())
    assert run["storage_added"] == [] and run["total"]["storage_full_ns"] > 0


def test_storage_without_room_is_refused(tmp_path):
    with small_disk(tmp_path, 20) as mount:
        run = headroom_run([compile_program(None, "exit_status.c")], tmp_path, memory="64M", storage=mount)
    assert run.status == 2
    assert re.search(rf"storage in {mount} has \d+\.\d MiB free: too little", run.errors), run.errors


def test_what_does_not_fit_on_one_disk_goes_to_another(mpi, tmp_path):
    program = compile_program(mpi, "out_of_core.c")
    other = tmp_path / "other"
    other.mkdir()
    with small_disk(tmp_path, 80) as mount:
        run = headroom_run([program, 128, 2], tmp_path, before=mpi.command(2), memory="48M", storage=f"{mount}:{other}")
    assert run.status == 0, run.errors
    assert run.total("stripes_elsewhere") > 0 == run.total("storage_full_ns")
    run.assert_paged(2 * 2 * 128 * MIB, 48 * MIB)


def test_adding_a_directory_says_what_is_wrong(tmp_path):
    assert f"DIRECTORY {tmp_path}/none: no such directory" in headroom("storage", "add", tmp_path / "none").stderr
    not_ours = headroom("storage", "add", tmp_path, "--process", os.getpid())
    assert "has no ledger of Headroom's; `headroom top` names one that has" in not_ours.stderr
    assert "is in memory" in headroom("storage", "add", "/dev/shm").stderr


def test_budget_too_small(mpi, tmp_path):
    program = compile_program(mpi, "out_of_core.c")
    unknown = ["env", "-u", "MPI_LOCALNRANKS", "-u", "OMPI_COMM_WORLD_LOCAL_SIZE"]  # how many there are; else it is seen before
    run = headroom_run([program, 16, 1], tmp_path, before=[*mpi.command(6), *unknown], memory="16M", timeout=60)
    assert run.status != 0
    assert re.search(
        r"error: rank \d: --memory 16 MiB is too small for \d processes on this node: .* raise it to \d+ MiB", run.errors
    ), run.errors


def test_killed_rank(mpi, tmp_path):
    program = compile_program(mpi, "wait_and_die.c")
    started = time.monotonic()
    run = headroom_run([program, "kill"], tmp_path, before=mpi.command(3), memory="64M", timeout=60)
    assert time.monotonic() - started < 50
    assert run.status != 0
    assert re.search(
        r"rank 2 \(process \d+, \S*wait_and_die-\w+\) was ended by signal 9 .*memory ran out", run.errors
    ), run.errors


# MPICH's launcher neither ends survivors nor hears of the death, so they are on their own. (It may tell them by a signal.)
LENIENT = [WHEELS[0].mpiexec, "-disable-auto-cleanup"]
UNHEARD = ["sh", "-c", 'trap "" USR1; "$@"; true', "sh"]


@pytest.mark.parametrize("memory", ["1G", "24M"])
@pytest.mark.parametrize("how", ["alone", "threads", "nodes", "own"])
def test_a_rank_is_killed_anywhere_among_messages(mpi, memory, how, tmp_path):
    """No wrong data, and no hang; by a timer, or at an instruction of a message's way. (More of these, of the protocol alone:
    tests/unit/killed_anywhere_test.cc.)"""
    program = compile_program(mpi, "killed_anywhere.c")
    nodes = on_nodes(2) if how in ("nodes", "own") else []
    engines = [engine for engine in ENGINES if engine == "sigsegv" or not LACKS[f"the engine {engine}"]()]
    for attempt in range(4 if how == "alone" else 3):
        ranks, moment = (4 if nodes else 2 + attempt % 3), random.randrange(100, 60_000)
        if attempt >= 2 and how == "alone" and platform.machine() == "x86_64":
            moment = f"{random.randrange(40)}:{random.randrange(1, 8000)}"
        unheard = mpi.name == "mpich" and attempt % 3 == 1 and not nodes
        command = [*(UNHEARD if unheard else []), program, attempt % 2, moment, 6, how]
        before = [*LENIENT, "-n", str(ranks)] if unheard else mpi.command(ranks)
        settings = {"memory": memory, "direct": "on", "timeout": 100, "engine": random.choice(engines)}
        settings |= {"between": "own"} if how == "own" else {}
        run = headroom_run(command, tmp_path, before=[*before, *nodes], **settings)
        errors = run.errors
        if nodes:  # what the library copies to the other node from whom is being killed: limits_system.md
            for killed in re.findall(r"error: rank (\d) .* was ended by signal 9", errors):
                others = "[02]" if int(killed) % 2 else "[13]"
                errors = re.sub(rf"wrong: rank {others}, \d+ bytes from rank {killed} .*", "", errors)
        assert "wrong" not in errors, f"{moment}\n{run.errors}"
        for left in Path("/dev/shm").glob("mpich_shm_*"):  # by MPICH
            left.unlink()
        # Its own supervisor says it, if a survivor has not been faster, whose end makes the launcher kill everybody. To another
        # emulated node the library copies by itself, and may be the first to say that nobody is there.
        ended = r"error: rank \d: (memory of )?rank \d " + ("" if unheard else r"|was ended by signal 9")
        ended += r"|process_vm_readv failed \(errno 3\)" if nodes else ""
        assert re.search(ended, run.errors), f"{moment}\n{run.errors}"


@pytest.mark.parametrize("memory", ["1G", "48M"])
@pytest.mark.parametrize("when", ["holding", "anywhere"])
def test_a_rank_is_killed_that_others_share_windows_with(mpi, when, memory, tmp_path):
    """It holds a lock that the others wait for, or dies anywhere in what it does."""
    program = compile_program(mpi, "window_killed.c")
    for attempt in range(1 if when == "holding" else 4):
        ranks, moment = 2 + attempt % 3, "holding" if when == "holding" else random.randrange(100, 60_000)
        unheard = mpi.name == "mpich" and attempt % 2 == 0
        command = [*(UNHEARD if unheard else []), program, attempt % 2, moment, 16]
        before = [*LENIENT, "-n", str(ranks)] if unheard else mpi.command(ranks)
        run = headroom_run(command, tmp_path, before=before, memory=memory, direct="on", timeout=100)
        for left in Path("/dev/shm").glob("mpich_shm_*"):  # by MPICH
            left.unlink()
        # Its own supervisor says it, if a survivor has not been faster, whose end makes the launcher kill everybody.
        ended = r"error: rank \d: (memory of )?rank \d " + ("" if unheard else r"|was ended by signal 9")
        assert re.search(ended, run.errors), f"{moment}\n{run.errors}"


@pytest.mark.parametrize("how", ["one node", "two nodes", "no launcher ends them", "by library", "alone"])
def test_a_rank_is_killed_in_a_collective_call_on_a_file(mpi, how, tmp_path):
    """Wherever it is: as it gathers, writes or waits. The others end, too, and nobody has read what was not written."""
    program = compile_program(mpi, "killed_in_file.c")
    hints = {"by library": ["headroom_driver=library"], "alone": ["headroom_view=late"]}.get(how, [])
    unheard = mpi.name == "mpich" and how == "no launcher ends them"
    nodes = on_nodes(2) if how == "two nodes" else []
    for attempt in range(1 if unheard else 3):
        moment = random.randrange(1000, 300_000)
        command = [*(UNHEARD if unheard else []), program, tmp_path / "file", attempt % 2, moment, *hints]
        before = [*LENIENT, "-n", "4"] if unheard else mpi.command(4)
        run = headroom_run(command, tmp_path, before=[*before, *nodes], memory="1G", direct="on", timeout=100)
        ended = r"error: (rank \d \(.* was ended by signal 9|rank \d: rank \d )"
        assert "wrong" not in run.errors and re.search(ended, run.errors), f"{moment}\n{run.errors}"
        # A survivor whose message fails in the library says so itself: the library's words are about calls of Headroom's.
        assert how != "two nodes" or "Fatal error" not in run.errors, f"{moment}\n{run.errors}"
        for left in Path("/dev/shm").glob("mpich_shm_*"):  # by MPICH
            left.unlink()


def test_storage_fails_that_a_peer_needs(mpi, tmp_path):
    program = compile_program(mpi, "windows.c")
    env = environment(store_fault="read:EIO:5")
    run = headroom_run([program, 32, 2, "create"], tmp_path, before=mpi.command(3), memory="64M", env=env, timeout=60)
    assert run.status != 0
    assert re.search(r"error: rank \d+: .*storage in \S+ failed: Input/output error.*--storage", run.errors, re.S), run.errors
    assert run.report["failed"] is True


@pytest.mark.parametrize("how", ["kill", "kill-early", "poll", "exit"])
def test_survivors_that_no_launcher_ends(how, tmp_path):
    program = compile_program(WHEELS[0], "wait_and_die.c")
    run = headroom_run([*UNHEARD, program, how], tmp_path, before=[*LENIENT, "-n", "3"], memory="1G", direct="on", timeout=100)
    assert re.search(
        r"error: rank [01]: rank 2 \(process \d+\) has ended without leaving MPI, and a message", run.errors
    ), run.errors


def test_storage_of_a_killed_rank_is_free_while_the_others_live(tmp_path):
    program = compile_program(WHEELS[0], "wait_and_die.c")

    def free(mount):
        room = os.statvfs(mount)
        return room.f_bavail * room.f_frsize

    with small_disk(tmp_path, 460) as mount:
        before = free(mount)
        words = [*LENIENT, "-n", 3, HEADROOM, "run", "--memory", "64M", "--storage", mount, "--", *UNHEARD, program, "sleep"]
        with subprocess.Popen([str(word) for word in words], text=True, env=environment(), stdout=subprocess.PIPE) as job:
            try:
                assert job.stdout.readline() == "waiting\n"
                below = psutil.Process(job.pid).children(recursive=True)
                ranks = [process for process in below if process.name().startswith("wait_and_die")]
                taken = free(mount)
                assert len(ranks) == 3 and before - taken > 64 * MIB
                ranks[0].kill()
                deadline = time.monotonic() + 20
                while free(mount) < taken + 16 * MIB and time.monotonic() < deadline:
                    time.sleep(0.01)
                assert free(mount) >= taken + 16 * MIB
                assert [process.is_running() for process in ranks[1:]] == [True, True]
            finally:
                below = psutil.Process(job.pid).children(recursive=True)
                for process in below:
                    with contextlib.suppress(psutil.NoSuchProcess):  # the launcher has ended it
                        process.kill()
                psutil.wait_procs(below, timeout=20)
                job.kill()
        assert free(mount) == before
    for left in Path("/dev/shm").glob("mpich_shm_*"):  # by MPICH
        left.unlink()


@pytest.mark.parametrize("who", ["abort", "abort-all"])
def test_abort_leaves_a_report(mpi, who, tmp_path):
    program = compile_program(mpi, "wait_and_die.c")
    run = headroom_run([program, who], tmp_path, before=mpi.command(3), memory="64M", timeout=60)
    assert run.status != 0
    assert run.errors.count("headroom:   memory") == 1, run.errors
    assert run.report["failed"]
    assert run.short_of_memory and run.total("bytes_written") > 0


def test_a_process_that_fails_waits_until_its_report_is_read(tmp_path):
    """Else a launcher that hears of the end first drops it."""
    program = compile_program(WHEELS[0], "wait_and_die.c")
    report = tmp_path / "report.json"
    words = [HEADROOM, "run", "--memory", "64M", "--json", report, "--", program, "abort-all"]
    with started(words, stderr=subprocess.PIPE) as job:
        deadline = time.monotonic() + 20
        while not report.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)  # much less than it waits
        assert job.poll() is None
        assert "headroom:   memory" in job.communicate(timeout=20)[1]
    assert job.returncode != 0


def started(words: list, **more) -> subprocess.Popen:
    return subprocess.Popen([str(word) for word in words], text=True, env=environment(), stdout=subprocess.PIPE, **more)


@only_in_suites
def test_a_rank_that_is_stopped_for_a_while(mpi, tmp_path):
    """Its memory cannot be had meanwhile, and its messages do not come; nothing is lost."""
    program = compile_program(mpi, "out_of_core.c")
    plain = plain_run([*mpi.command(3), program, 24, 4])
    report = tmp_path / "stopped.json"
    words = [*mpi.command(3), HEADROOM, "run", "--memory", "48M", "--json", report, "--", program, 24, 4]
    with KernelWatch() as kernel, started(words) as job:
        deadline = time.monotonic() + 60
        while not (rank := short_rank(program.name)) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(rank, signal.SIGSTOP)
        time.sleep(3)
        os.kill(rank, signal.SIGCONT)
        output = job.communicate(timeout=200)[0]
        assert job.returncode == 0
    assert output == plain.stdout
    run = Run(job, [json.loads(report.read_text())], kernel)
    run.assert_what_it_says_of_shortage()
    run.assert_paged(3 * 2 * 24 * MIB, 48 * MIB)


def members(program: Path) -> dict[int, dict]:
    """What `headroom top` says of each rank of the job that runs this program; there may be other jobs on the machine."""
    done = plain_run([HEADROOM, "top", "--json", "--once", "--interval", "0.1"])
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    every = [member for line in lines for member in json.loads(line)["members"]]
    return {member["rank"]: member for member in every if member["program"] == program.name}


def read_while_stopped(program: Path, process: int) -> dict[int, int]:
    """What each rank reads of its memory while this process is stopped, until all others have read some."""
    os.kill(process, signal.SIGSTOP)
    try:
        time.sleep(2.5)  # until then they may not know
        before = members(program)
        moved = dict.fromkeys(before, 0)
        deadline = time.monotonic() + 60
        while sum(bytes_read > 0 for bytes_read in moved.values()) < len(before) - 1 and time.monotonic() < deadline:
            moved = {rank: member["read"] - before[rank]["read"] for rank, member in members(program).items()}
        return moved
    finally:
        os.kill(process, signal.SIGCONT)


@any_of("mpi")
def test_others_go_on_while_a_rank_is_stopped(mpi, tmp_path):
    """With the memory that there is without the stopped one's, all at the same time."""
    first = tmp_path / "done"
    program = compile_program(mpi, "long_turn.c")
    report = tmp_path / "stopped.json"
    words = [*mpi.command(4), HEADROOM, "run", "--memory", "64M", "--mode", "yield", "--json", report, "--"]
    words += [program, 64, first, "sweeping", 60]
    with KernelWatch() as kernel, started(words) as job:
        deadline = time.monotonic() + 60
        while not (tmp_path / "done.begun").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        moved = read_while_stopped(program, members(program)[1]["pid"])
        assert moved[1] == 0 and sum(bytes_read > 0 for bytes_read in moved.values()) == 3, moved
        first.touch()
        output = job.communicate(timeout=200)[0]
        assert job.returncode == 0
    assert output == "wrong 0\n"
    run = Run(job, [json.loads(report.read_text())], kernel)
    run.assert_what_it_says_of_shortage()
    run.assert_paged(4 * 64 * MIB, 64 * MIB, reads=3, writes=4)


@any_of("mpi")
def test_a_rank_that_is_stopped_in_line_for_its_turn(mpi, tmp_path):
    """Nobody waits for it: the others go on with their turns, which end when another one is in line."""
    ready, first = 2, tmp_path / "done"
    program = compile_program(mpi, "long_turn.c")
    report = tmp_path / "stopped.json"
    words = [*mpi.command(4), HEADROOM, "run", "--memory", "64M", "--slots", "1", "--mode", "turns", "--json", report, "--"]
    words += [program, 64, first, "sweeping", 60]
    with KernelWatch() as kernel, started(words) as job:
        deadline = time.monotonic() + 60
        stopped = None
        while stopped is None and time.monotonic() < deadline:
            if (tmp_path / "done.begun").exists():
                stopped = next(
                    (member for rank, member in members(program).items() if rank > 0 and member["state"] == ready), None
                )
        moved = read_while_stopped(program, stopped["pid"])
        assert moved[stopped["rank"]] == 0 and sum(bytes_read > 0 for bytes_read in moved.values()) == 3, moved
        first.touch()
        output = job.communicate(timeout=200)[0]
        assert job.returncode == 0
    assert output == "wrong 0\n"
    run = Run(job, [json.loads(report.read_text())], kernel)
    assert run.total("turns_cut_short") > 0
    assert run.total("turns_overdue") == 0
    assert run.report["most_slots_held"] == 1
    run.assert_what_it_says_of_shortage()
    run.assert_paged(4 * 64 * MIB, 64 * MIB, reads=3, writes=4)


def test_a_process_that_cannot_take_part(tmp_path):
    """It has joined, and finds no addresses: nobody takes it for one that watches the next one, or for one that has crashed."""
    script = """
        "$1" & first=$!; sleep 0.4
        (ulimit -v 900000; exec "$1") & second=$!; sleep 0.4
        "$1" & third=$!; sleep 0.4
        kill -9 $third; sleep 0.5; kill $second $first; wait
    """
    run = headroom_run(
        ["sh", "-c", script, "sh", compile_program(None, "waits_to_be_ended.c")], tmp_path, memory="64M", timeout=60
    )
    assert run.status == 0, run.errors
    assert run.errors.count("cannot reserve 1024 MiB of addresses") == 1
    assert run.errors.count("was ended by signal 9 (Killed)") == 1, run.errors
    assert run.report["total"]["allocated_bytes_peak"] > 0  # the last one that left has written it


def test_programs_that_lie_deep(tmp_path):
    """Their names are said whole, or cut between letters, and nothing follows what does not fit into the line."""
    folder = tmp_path.joinpath(*["x" * 200] * 4)
    folder.mkdir(parents=True)
    for name, said in (("app", "app"), ("\u00fc" * 40, "\u00fc" * 31)):
        program = folder / name
        program.write_bytes(compile_program(None, "waits_to_be_ended.c").read_bytes())
        program.chmod(0o755)
        run = headroom_run(["sh", "-c", '"$1" & sleep 0.5; kill $!; wait', "sh", program], tmp_path, memory="64M", timeout=60)
        assert run.status == 0 and {rank["program"] for rank in run.report["ranks"]} == {said}
    killed = folder / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    done = plain_run([HEADROOM, "run", "--memory", "64M", killed])
    assert done.returncode != 0 and done.stderr.count("\n") == 1, done.stderr
    assert f"{killed}) was ended by signal 9 (Killed)" in done.stderr


def short_rank(name: str) -> int | None:
    """The process of a rank that has written memory to storage."""
    for line in running(name):
        pid, _, command, *_ = line.split()
        with contextlib.suppress(OSError, StopIteration):
            rows = Path(f"/proc/{pid}/io").read_text().splitlines()
            written = next(row for row in rows if row.startswith("write_bytes:"))
            if command.endswith(name) and int(written.split()[1]) > 16 * MIB:
                return int(pid)
    return None
