"""What the C library and the kernel promise holds in memory that may be moved to storage (programs/posix_promises.c)."""

import signal
import subprocess
from functools import partial

import pytest

from conftest import HEADROOM, WHEELS, compile_program, environment, headroom_run, on_nodes, plain_run

MIB = 1 << 20
CLOSING = [f"descriptors-{way}" for way in ("close", "close_range", "closefrom", "dup2", "raw")]
# In more than they may have: MiB, and how often they write and read all of it. (Two look at a part of it only.)
PRESSED = {case: (64, 2, 2) for case in CLOSING} | {
    "numbers": (160, 1, 0),
    "maps": (64, 1, 1),
    "children": (64, 1, 1),
    "children_with_threads": (64, 1, 1),
    "raw_calls": (64, 4, 4),
    "raw_maps": (64, 1, 1),
    "messages": (64, 2, 2),
    "positions": (64, 1, 1),
    "buffers": (64, 3 * 6, 3 * 6),
    "stacks": (64, 1, 0),
    "small_stacks": (64, 1, 0),
}
FILES = {"raw_calls": 32 * MIB, "positions": 48 * MIB, "buffers": 12 * MIB}  # that they write
CASES = [*PRESSED, "sizes", "sized", "aligned", "rights", "executions", "handlers", "forks", "streams", "sockets"]
# What does not need it, but is more with it: a thread drives everything else out meanwhile.
PRESSED_BY_A_THREAD = ["rights", "executions", "handlers", "forks", "sockets"]
# But what a system may not have, and what only Headroom must see to.
SYSTEMS_TOO = [case for case in CASES if case not in (*CLOSING, "sized", "sockets")]


@pytest.mark.parametrize("case", CASES)
def test_posix_promises(case, engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    memory = 48 if case in PRESSED else 256
    program = compile_program(None, "posix_promises.c", "-D_FORTIFY_SOURCE=0")
    run = headroom_run([program, case], tmp_path, memory=f"{memory}M", engine=engine, timeout=60, files=FILES.get(case, 0))
    assert (run.status, run.output) == (0, "ok\n"), run.errors
    assert run.engines() == {engine}
    assert run.short_of_memory == (case in PRESSED)
    if case in PRESSED:
        footprint, writes, reads = PRESSED[case]
        run.assert_paged(footprint * MIB, memory * MIB, reads=reads, writes=writes)
    assert "warning" not in run.errors or case == "maps", run.errors


@pytest.mark.parametrize("case", PRESSED_BY_A_THREAD)
def test_posix_promises_while_memory_is_short(case, engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = compile_program(None, "posix_promises.c", "-D_FORTIFY_SOURCE=0")
    run = headroom_run([program, case, "pressed"], tmp_path, memory="48M", engine=engine, timeout=100)
    assert (run.status, run.output) == (0, "ok\n"), run.errors
    assert run.engines() == {engine} and run.short_of_memory
    assert run.total("blocks_evicted") > 32 and run.total("bytes_written") > 8 * MIB
    assert "warning" not in run.errors, run.errors


def test_a_constructor_waits_for_a_thread_that_calls_what_is_wrapped(tmp_path):
    library = compile_program(None, "constructor_thread_library.c", "-shared", "-fPIC")
    program = compile_program(None, "posix_promises.c", "-D_FORTIFY_SOURCE=0")
    run = headroom_run([program, "constructor", library], tmp_path, memory="256M", timeout=20)
    assert (run.status, run.output) == (0, "ok\n"), run.errors


@pytest.mark.parametrize("kib", [0, 3, 4096, 78 * 256 + 255])  # the last of them allows what is no number of blocks
def test_limits_of_file_sizes_from_the_start(kib, tmp_path):
    """They hold for memory files, too, and whoever goes beyond is killed."""
    program = compile_program(None, "posix_promises.c", "-D_FORTIFY_SOURCE=0")
    before = ["bash", "-c", f'ulimit -f {kib}; exec "$@"', "bash"]
    run = headroom_run([program, "limited"], tmp_path, before=before, memory="256M", large="64K", timeout=60)
    assert (run.status, run.output) == (0, "ok\n"), run.errors
    assert run.errors.count("ulimit -f") == 1
    assert bool(run.reports) == (kib > 8192)


@pytest.mark.parametrize("case", SYSTEMS_TOO)
def test_the_same_without_headroom(case, tmp_path, monkeypatch):
    """What is asked for is what the system does, but for what only Headroom refuses."""
    monkeypatch.chdir(tmp_path)
    done = plain_run([compile_program(None, "posix_promises.c", "-D_FORTIFY_SOURCE=0"), case], timeout=60)
    refused = {"maps": "a promise that is not kept"}
    assert done.stdout == refused.get(case, "ok") + "\n"


OF_MPI = {"tallies": 6, "attributes": 3, "errors": 2, "successes": 3, "freed": 2, "operations": 2, "statuses": 2}
OF_MPI |= {"many_requests": 2, "wrong_parts": 2, "many_freed": 2, "probed": 2, "polls": 2}


@pytest.mark.parametrize(("case", "ranks"), OF_MPI.items())
def test_mpi_promises(case, ranks, mpi, tmp_path):
    program = compile_program(mpi, "mpi_promises.c")
    run = headroom_run([program, case], tmp_path, before=mpi.command(ranks), memory="1G", timeout=60)
    assert (run.status, run.output) == (0, "ok\n"), run.errors
    is_much = case == "many_requests"  # a million of them, a KiB each, which stay: that is said, if it is seen
    warnings = [line for line in run.errors.splitlines() if "warning" in line]
    assert not [line for line in warnings if not is_much or "cannot be moved to storage" not in line], run.errors
    assert "ended" not in run.errors, run.errors
    if case == "tallies":
        assert run.total("collectives_by_tally") > 0
    elif case == "operations":
        assert run.total("messages_collective") > 0
    else:
        assert run.total("messages_direct") > 0


@pytest.mark.parametrize("name", ["libcollision.so", "libeventloop.so"])
def test_a_library_of_the_program_that_is_called_like_a_part_of_the_librarys(name, mpi, tmp_path):
    library = compile_program(mpi, "completing_library.c", "-shared", "-fPIC")
    named = tmp_path / name
    named.symlink_to(library)
    program = compile_program(mpi, "completed_elsewhere.c", "-Wl,--no-as-needed", f"-Wl,-rpath,{tmp_path}", str(named))
    run = headroom_run([program], tmp_path, before=mpi.command(2), memory="1G", timeout=30)
    assert (run.status, run.output) == (0, "ok\n"), run.errors
    assert run.total("messages_direct") >= 200


@pytest.mark.parametrize("attach", ["auto", "off"])
def test_a_rank_that_sends_and_sends_waits_some_time(attach, mpi, tmp_path):
    program = compile_program(mpi, "mpi_promises.c")
    run = headroom_run([program, "floods"], tmp_path, before=mpi.command(2), memory="1G", attach=attach, timeout=60)
    assert (run.status, run.output) == (0, "ok\n"), run.errors
    assert (run.total("messages_aside_at_once") > 0) == (attach == "off")
    assert run.total("messages_aside") > 300


ON_TWO_NODES = ["probes", "freed_on_nodes", "handlers", "handlers_talk", "forgotten_errors"]
ON_TWO_NODES += ["orders_of_threads", "orders_again", "errors_of_both", "handlers_beside_a_flood"]


@pytest.mark.parametrize("case", ON_TWO_NODES)
def test_mpi_promises_on_two_nodes(case, mpi, tmp_path):
    program = compile_program(mpi, "mpi_promises.c")
    before = [*mpi.command(4), *on_nodes(2)]
    run = headroom_run([program, case], tmp_path, before=before, memory="1G", engine="sigsegv", timeout=100)
    assert (run.status, run.output) == (0, "ok\n"), run.errors
    assert run.total("receives_on_both_ways") > 0


@pytest.mark.parametrize("how", ["leave", "leave_together", "leave_last", "leave_replaced", "leave_unseen", "leave_refused"])
def test_who_has_finalized_may_end_as_it_likes(how, tmp_path):
    """With Open MPI: MPICH's launcher ends the others unless it has seen the process end before its connection. Whoever is the
    last writes the report."""
    program = compile_program(WHEELS[1], "mpi_promises.c")
    for _ in range(1 if how == "leave" else 4):
        run = headroom_run([program, how], tmp_path, before=WHEELS[1].command(2), memory="1G", timeout=60)
        assert (run.status, run.output) == (0, "ok\n"), run.errors
        assert "ended" not in run.errors, run.errors
        assert len(run.reports) == 1 and len(run.report["ranks"]) == 2, run.errors
        assert run.errors.count("headroom:   memory ") == 1, run.errors


def test_memory_of_who_has_left_is_the_nodes_again(mpi, tmp_path):
    """Not only on the account: others have it mapped, and go on."""
    program = compile_program(mpi, "left_memory.c")
    run = headroom_run([program, 512], tmp_path, before=mpi.command(3), memory="2G", timeout=60)
    assert (run.status, run.output) == (0, "ok\n"), run.errors


def test_status_where_nobody_waits_for_children():
    """Whoever starts us may ignore the ends of children."""
    for command, status in (("exit 3", 3), ("kill -SEGV $$", -signal.SIGSEGV)):
        words = [HEADROOM, "run", "--memory", "64M", "sh", "-c", command]
        ignoring = partial(signal.signal, signal.SIGCHLD, signal.SIG_IGN)
        done = subprocess.run(words, env=environment(), preexec_fn=ignoring, capture_output=True, timeout=60, check=False)
        assert done.returncode == status


def test_another_program_has_none_of_the_memory(tmp_path):
    """A process that becomes another program, which needs no memory of ours, leaves its share to the others, and ends as it
    likes."""
    script = """
        becomes_another() { sleep 0.5; exec "$1" 40 exec; }
        becomes_another "$1" & "$1" 40 stay; status=$?; wait; exit $status
    """
    program = compile_program(None, "becomes_another.c")
    run = headroom_run(["sh", "-c", script, "sh", program], tmp_path, memory="32M", timeout=60)
    assert run.status == 0 and run.output.count("ok\n") == 2, run.errors
    assert "ended unexpectedly" not in run.errors, run.errors
    stays = min(run.report["ranks"], key=lambda rank: rank["bytes_read"])
    assert len(run.report["ranks"]) == 2 and 2 * 8 * MIB < stays["bytes_read"] < 2 * 20 * MIB
