"""The traps of the kernel and of MPI libraries that were met while Headroom was designed (docs/bugs.md): each test fails if the
guard against one of them is taken away."""

import json
import re
import shutil
import signal
import subprocess
import sys

import pytest

from conditions import lack, need
from conftest import (
    DEBIAN,
    HEADROOM,
    ORDINARY_USER,
    ROOT,
    WHEELS,
    Run,
    compile_program,
    environment,
    headroom_run,
    make_public,
    plain_run,
)
from headroom import machine
from kernel_watch import KernelWatch
from variants import every_second, only_in_suites

MIB = 1 << 20


@pytest.mark.parametrize("memory", ["256M", "24M"])
def test_fork_keeps_its_meaning(engine, memory, tmp_path):
    run = headroom_run([compile_program(None, "fork_snapshot.c"), 48], tmp_path, memory=memory, engine=engine)
    assert run.status == 0, run.errors
    assert run.output == "parent wrong 0 child 0\n"
    assert run.total("forks") == 2
    assert run.total("fork_blocks_copied") > 0
    assert run.total("static_bytes") >= 7 * MIB
    if memory == "24M":
        run.assert_paged(48 * MIB, 24 * MIB)


@pytest.mark.parametrize("memory", ["256M", "24M"])
def test_fork_handlers_of_a_library_write_to_memory(engine, memory, tmp_path):
    """They were registered before ours could be, and yet must run before memory is protected for the child: a write after that
    waits for the child, which is not there yet."""
    library = compile_program(None, "fork_handler_library.c", "-shared", "-fPIC")
    program = compile_program(None, "fork_handlers.c", "-Wl,--no-as-needed", str(library))
    run = headroom_run([program, 24], tmp_path, memory=memory, engine=engine, timeout=60)
    assert run.status == 0, run.errors
    assert run.output == "ok\n"
    assert run.total("forks") == 2
    assert run.total("fork_blocks_copied") > 0
    if memory == "24M":
        run.assert_paged(48 * MIB, 24 * MIB)


@pytest.mark.parametrize("how", ["killed", "leaves", "_exits", "replaced", "daemon", "closes", "downwards", "helper"])
def test_a_forked_child_outlives_its_parent_or_dies_with_it(engine, how, tmp_path):
    """Nobody else has what a child still needs when its parent is killed: it must not wait for ever, nor go on with zeros. In
    all other cases it gets what it needs, and nobody else is killed."""
    unwatched = "what is read for a child after its parent has left is in no report"
    program = compile_program(None, "fork_orphan.c")
    run = headroom_run([program, how, 24], tmp_path, memory="24M", engine=engine, timeout=60, unwatched=unwatched)
    killed = how == "killed" and engine != "sigsegv"  # there it was given everything at once
    assert run.output == ("child 9\n" if killed else "child 0\n"), run.errors
    if how not in ("killed", "helper", "_exits", "replaced", "daemon"):  # else the parent's counts are gone
        assert run.total("fork_blocks_copied") >= 24 * 4
        assert run.total("bytes_written") >= 24 * MIB


@every_second("engine", "writers")
@pytest.mark.parametrize(("writers", "readers"), [(72, 0), (36, 36), (0, 100)], ids=["faults", "both", "system calls"])
def test_many_threads_wait_for_room(engine, writers, readers, tmp_path):
    """More than the pager once had room to keep account of, and all of them want what the others just got: who waits longest
    has it first, so that none makes many more accesses than the others before each has made forty."""
    threads = writers + readers
    program = compile_program(None, "many_waiters.c")
    run = headroom_run([program, 1, writers, readers, 40], tmp_path, memory="24M", engine=engine, timeout=60)
    assert run.status == 0, run.errors
    assert run.output.startswith("wrong 0\n")
    assert run.total("bytes_read") <= 4 * threads * 40 * (MIB // 4)  # each access moves a block of 256 KiB
    run.assert_paged(threads * MIB, 24 * MIB)


UNLIMITED_STACKS = ["sh", "-c", 'ulimit -s unlimited && exec "$@"', "sh"]  # then libraries lie elsewhere


@pytest.mark.parametrize("stacks", [[], UNLIMITED_STACKS], ids=["usual", "unlimited"])
def test_segments_that_need_their_address(mpi, engine, stacks, tmp_path):
    """Launchers' libraries map data of the job at an address that they chose where Headroom's memory is not known of."""
    library = compile_program(None, "segment_library.c", "-shared", "-fPIC")
    named = library.with_name("libpmix-segment.so")
    named.unlink(missing_ok=True)
    named.symlink_to(library.name)
    program = compile_program(mpi, "segment.c", "-Wl,--no-as-needed", str(named))
    segment = tmp_path / "segment"
    segment.write_bytes(bytes(MIB))
    before = [*stacks, *mpi.command(3)]
    run = headroom_run([program, segment, 12], tmp_path, before=before, memory="64M", engine=engine, direct="on", files=2 * MIB)
    assert run.status == 0, run.errors
    assert run.output == "ok\n"
    assert run.total("messages_fetched") + run.total("messages_aside") + run.total("messages_streamed") >= 6
    run.assert_paged(3 * 28 * MIB, 64 * MIB)


@pytest.mark.parametrize(
    ("mpi", "ranks"),
    [*((mpi, 24) for mpi in WHEELS), pytest.param(WHEELS[1], 72, marks=only_in_suites)],
    ids=lambda value: getattr(value, "name", value),
)
def test_many_ranks_start(mpi, ranks, tmp_path):
    """Where more processes' memory lies, Open MPI's launcher wants all of them to have data of the job; and libraries lie
    elsewhere where stacks are unlimited."""
    command = [*(UNLIMITED_STACKS if ranks == 24 else []), *mpi.command(ranks)]
    settings = {"memory": "4G", "direct": "on", "collectives_may_pass": {"operation"}, "timeout": 150}
    run = headroom_run([compile_program(mpi, "calls.c"), 1], tmp_path, before=command, **settings)
    assert run.status == 0, run.errors
    assert len(run.report["ranks"]) == ranks
    assert run.total("messages_direct") > ranks and run.total("collectives_direct") > ranks


def fortified_for(engine: str) -> str:
    """Compilers choose other functions with it; that they are wrapped too shows where they must be."""
    return "-D_FORTIFY_SOURCE=" + ("2" if engine == "userfaultfd-user" else "0")


@pytest.mark.parametrize("memory", ["256M", "24M"])
def test_system_calls_on_evictable_memory(engine, memory, tmp_path):
    program = compile_program(None, "system_calls.c", "-U_FORTIFY_SOURCE", fortified_for(engine))
    run = headroom_run([program, 48], tmp_path, memory=memory, engine=engine, files=96 * MIB)
    assert run.output == "ok\n", run.errors
    assert run.total("holds") > 0
    if engine != "userfaultfd":
        assert run.total("bounced_bytes") > 0  # stdio
    if memory == "24M":
        run.assert_paged(48 * MIB, 24 * MIB)


def test_paths_structures_and_limits(engine, tmp_path):
    program = compile_program(None, "structures.c", "-U_FORTIFY_SOURCE", fortified_for(engine))
    run = headroom_run([program, 28, tmp_path.resolve()], tmp_path, memory="16M", engine=engine)
    assert run.output == "ok\n", run.errors
    assert (run.total("holds") > 50) == (engine != "userfaultfd")
    for limit in "ulimit -v", "ulimit -f":
        assert run.errors.count(limit) == 1
    run.assert_paged(28 * MIB, 16 * MIB)


def test_calls_that_last(engine, tmp_path):
    run = headroom_run([compile_program(None, "lasting_calls.c"), 40], tmp_path, memory="24M", engine=engine, timeout=100)
    assert run.output == "ok\n", run.errors
    run.assert_paged(40 * MIB, 24 * MIB)


def test_a_handler_for_one_time_does_not_keep_a_crash_from_ending(engine, tmp_path):
    command = [compile_program(None, "lasting_calls.c"), 40, "crash"]
    run = headroom_run(command, tmp_path, memory="24M", engine=engine, timeout=60)
    assert run.status != 0 and run.output == "handled\n", run.errors
    assert "signal 11" in run.errors, run.errors


def test_more_than_a_process_can_have(tmp_path):
    """What does not fit in its 256 GiB of addresses is plain memory, and that is said once, with the cause."""
    script = (
        "import mmap\n"
        "kept = [mmap.mmap(-1, gib << 30, flags=0x4022) for gib in (200, 100, 300)]  # private, without reserve\n"
        "for each in kept: each[5] = 1"
    )
    run = headroom_run([sys.executable, "-c", script], tmp_path, memory="64M")
    assert run.status == 0, run.errors
    assert run.errors.count("stays in memory") == run.errors.count("a process can have 256 GiB") == 1
    assert run.total("allocations_refused") == 2


@pytest.mark.parametrize("memory", ["512M", "24M"])
def test_mappings_at_fixed_addresses_and_rights(engine, memory, tmp_path):
    of_much = "0" if engine == "sigsegv" else "1"
    run = headroom_run(
        [compile_program(None, "fixed_maps.c"), 48, of_much, int(engine != "sigsegv")], tmp_path, memory=memory, engine=engine
    )
    assert run.output == "ok\n", run.errors
    assert "mapping a file or shared memory over memory that may be moved to storage is not possible" in run.errors
    assert run.total("allocations_refused") == 0
    if memory == "24M":
        run.assert_paged(48 * MIB, 24 * MIB)


def test_rights_of_much_memory_with_the_engine_that_uses_rights(tmp_path):
    run = headroom_run([compile_program(None, "fixed_maps.c"), 48, 1, 0], tmp_path, memory="24M", engine="sigsegv")
    assert run.status == 1
    assert "the program changes access rights of more memory than may be kept resident" in run.errors


def test_every_way_to_allocate(engine, tmp_path):
    run = headroom_run([compile_program(None, "allocations.c"), 24], tmp_path, memory="24M", engine=engine)
    assert run.output == "ok\n", run.errors
    assert run.total("allocations") >= 3 * 9
    assert run.total("forks") == run.total("fork_blocks_copied") == 0  # popen and system copy nothing
    run.assert_paged(24 * MIB + 9 * 2 * MIB, 24 * MIB)


@pytest.mark.parametrize("memory", ["256M", "24M"])
def test_locking_everything_is_refused(memory, tmp_path):
    """It would fill the arena's holes, also if it is asked for before there is an arena."""
    run = headroom_run([compile_program(None, "lock_all.c"), 24], tmp_path, memory=memory)
    assert run.output == "ok\n", run.errors
    assert "mlockall() is refused" in run.errors
    if memory == "24M":
        run.assert_paged(48 * MIB, 24 * MIB)


def test_what_a_debugger_reads(engine, tmp_path):
    """By /proc/PID/mem: content or an error, and nothing of it disturbs the program. (`sigsegv` takes rights away, and the
    kernel does not ask for a debugger's: it sees a hole.)"""
    run = headroom_run([compile_program(None, "debugger_reads.c"), 160], tmp_path, memory="64M", engine=engine)
    assert run.status == 0 and run.output.endswith("wrong 0\n"), (run.output, run.errors)
    right, refused, other = map(int, re.match(r"right (\d+) refused (\d+) other (\d+)\n", run.output).groups())
    assert right > 0 and refused + other > 0
    assert (refused == 0) if engine == "sigsegv" else (other == 0)
    run.assert_paged(160 * MIB, 64 * MIB)


def test_core_dump(engine, tmp_path):
    """The dump leaves the arena out: it would read every hole, and wait for a pager that is dumped with it."""
    need("core files")
    program = compile_program(None, "dump_core.c")
    before = ["sh", "-c", f'ulimit -c unlimited; cd {tmp_path}; exec "$@"', "sh"]
    run = headroom_run([program, 48], tmp_path, before=before, memory="24M", engine=engine, timeout=60)
    assert run.status == -6
    assert "was ended by signal 6" in run.errors
    core = next(tmp_path.glob("core*"))
    assert core.stat().st_size < 24 * MIB


def test_writes_by_cross_memory_attach(mpi, tmp_path):
    """A peer's write that does not pass through the owner's page tables is not lost when it meets an eviction."""
    need("the engine userfaultfd")
    program = compile_program(mpi, "attach_writes.c")
    run = headroom_run([program, 48, 6], tmp_path, before=mpi.command(2), memory="48M", engine="userfaultfd")
    assert run.status == 0, run.errors
    assert run.output == "ok\n"
    run.assert_paged(2 * 48 * MIB + 4 * MIB, 48 * MIB)


def test_several_nodes(tmp_path):
    """Ranks that do not see each other's session are nodes of their own, with budgets and reports of their own; collectives
    between them agree on their form. The launcher is told of two hosts, which are one, so messages take the network."""
    mpi = WHEELS[0]
    program = compile_program(mpi, "out_of_core.c")
    hosts = [*mpi.command(2)[:1], "-launcher", "fork", "-hosts", "localhost,127.0.0.1", "-ppn", 2]
    plain = plain_run([*hosts, "-n", 4, program, 16, 2])
    assert plain.returncode == 0, plain.stderr
    report = tmp_path / "nodes.json"
    under = [HEADROOM, "run", "--memory", "32M", "--json", report, "--", program, 16, 2]
    jobs = [["env", f"HEADROOM_JOB={job}", *under] for job in ("a", "b")]
    with KernelWatch() as kernel:
        done = plain_run([*hosts, "-n", 2, *jobs[0], ":", "-n", 2, *jobs[1]])
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    nodes = [json.loads(report.read_text()), json.loads(next(tmp_path.glob("nodes.json.*")).read_text())]
    for node, ranks in zip(nodes, ({0, 1}, {2, 3}), strict=True):
        assert {rank["rank"] for rank in node["ranks"]} == ranks
        assert node["total"]["messages_direct"] > 0  # inside each node
    run = Run(done, nodes, kernel)
    run.assert_what_it_says_of_shortage()
    run.assert_paged(2 * 2 * 16 * MIB, 32 * MIB)


@pytest.mark.parametrize("mpi", [*WHEELS, *DEBIAN, None], ids=lambda mpi: mpi.name if mpi else "no MPI")
def test_functions_that_the_library_lacks_stay_absent(mpi, tmp_path):
    """Weak symbols of the program itself: the same are null as without Headroom."""
    program = compile_program(mpi, "absent.c", *([] if mpi else ["-DWITHOUT_MPI"]))
    command = [*mpi.command(1), program] if mpi else [program]
    plain = plain_run(command)
    assert plain.returncode == 0, plain.stderr
    run = headroom_run([program], tmp_path, before=mpi.command(1) if mpi else [], memory="64M")
    assert run.status == 0, run.errors
    assert run.output == plain.stdout
    assert ("large 0" in plain.stdout) == (mpi is None or mpi.name not in ("mpich", "mpich-debian"))


@pytest.mark.parametrize("flags", [["-fno-plt"], ["-no-pie", "-fno-pie"], ["-no-pie", "-fno-plt", "-Wl,-z,now"]])
def test_ways_to_link_and_mpi_before_main(mpi, flags, tmp_path):
    program = compile_program(mpi, "early.c", *flags)
    run = headroom_run([program], tmp_path, before=mpi.command(3), memory="1G")
    assert run.status == 0, run.errors
    assert sorted(run.output.splitlines()) == [f"rank {rank} wrong 0" for rank in range(3)]
    assert sorted(rank["rank"] for rank in run.report["ranks"]) == [0, 1, 2]
    assert run.total("allocations") == 3 * 2


@pytest.mark.parametrize("mode", ["pass", "turns"])
@pytest.mark.parametrize("way", [[], ["-DBY_NAME"]], ids=["linking", "dlsym"])
@pytest.mark.parametrize("place", ["linked", "preloaded"])
def test_tools_that_use_the_profiling_interface(mpi, place, way, mode, tmp_path):
    """A tool sees each call once, whatever Headroom makes of it, and so does Headroom. (One that fetches the next function by
    name passes Headroom by, so Headroom stays above it; reductions that change their form are then not seen by the tool.)"""
    tool = compile_program(mpi, "counting_tool.c", "-shared", "-fPIC", *way)
    linked = ["-Wl,--no-as-needed", str(tool)] if place == "linked" else []
    program = compile_program(mpi, "calls.c", *linked)
    command = mpi.command(3) if place == "linked" else [*mpi.command(3), "env", f"LD_PRELOAD={tool}"]
    plain = plain_run([*command, program, 2])
    assert plain.returncode == 0, plain.stderr
    run = headroom_run([program, 2], tmp_path, before=command, memory="1G", mode=mode)
    assert run.status == 0, run.errors
    counts = re.compile(r" reductions \d+" if way and mode == "turns" else "$^")
    assert sorted(counts.sub("", run.output).splitlines()) == sorted(counts.sub("", plain.stdout).splitlines())
    assert len(re.findall(r"^tool: rank \d starts 1 sends [1-9]\d* reductions [1-9]", run.output, re.M)) == 3
    assert {change["mode"] for change in run.report["modes"]} == {mode}
    assert sorted(rank["rank"] for rank in run.report["ranks"]) == [0, 1, 2]
    assert (run.total("turns") > 0) == (mode == "turns")
    assert (run.total("messages_direct") > 0) == (not way)


def test_a_program_that_runs_without_headroom_is_noticed(tmp_path):
    source = tmp_path / "static.c"
    source.write_text("#include <stdlib.h>\nint main(int count, char** words) { count > 1 ? abort() : exit(0); }\n")
    subprocess.run(["gcc", "-static", "-o", tmp_path / "static", source], check=True)
    for command, status, without in (
        ([tmp_path / "static"], 0, True),
        ([tmp_path / "static", "crash"], -signal.SIGABRT, True),
        (["true"], 0, False),
    ):
        run = headroom_run(command, tmp_path, memory="64M")
        assert run.status == status
        assert ("static runs without Headroom: it is linked statically" in run.errors) == without, run.errors
        assert "link it dynamically" in run.errors or not without
        assert "ran without Headroom" not in run.errors  # said once


def test_a_program_that_runs_without_headroom_is_noticed_once_a_node(mpi, tmp_path):
    (tmp_path / "static.c").write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-static", "-o", tmp_path / "static", tmp_path / "static.c"], check=True)
    run = headroom_run([tmp_path / "static"], tmp_path, before=mpi.command(3), memory="64M")
    assert run.status == 0 and run.errors.count("without Headroom") == 1, run.errors


def test_address_sanitizer_is_named(tmp_path):
    (tmp_path / "asan.c").write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-fsanitize=address", "-o", tmp_path / "asan", tmp_path / "asan.c"], check=True)
    run = headroom_run([tmp_path / "asan"], tmp_path, memory="64M")
    assert "built with AddressSanitizer (libasan.so" in run.errors and "build it without" in run.errors, run.errors
    assert "linked statically" not in run.errors


def test_why_a_program_would_not_have_the_library(tmp_path):
    copy = tmp_path / "copy"
    shutil.copy("/bin/true", copy)
    assert machine.why_not_preloaded(str(copy)) is None
    assert machine.why_not_preloaded(str(tmp_path)) is None and machine.why_not_preloaded("/no/such/file") is None
    content = bytearray(copy.read_bytes())
    content[4] = 1
    copy.write_bytes(content)
    assert machine.why_not_preloaded(str(copy)) == "it is built for another processor, or has 32 bits; build it for this one"
    content[4] = 2
    copy.write_bytes(content[:40])
    assert machine.why_not_preloaded(str(copy)) is None


@pytest.mark.parametrize("symbols", [[], ["-s"]], ids=["symbols", "stripped"])
def test_libraries_data_inside_the_program_stays(mpi, symbols, engine, tmp_path):
    """stderr, environ and MPI's handles lie in the program's static data by copy relocation; the pager needs some of them."""
    program = compile_program(mpi, "copies.c", "-no-pie", "-fno-pie", *symbols)
    run = headroom_run([program, 24], tmp_path, before=mpi.command(2), memory="40M", engine=engine)
    assert run.status == 0, run.errors
    assert run.output == "ok\n"
    assert run.errors.count("round 2\n") == 2
    stays = bool(symbols) and engine != "userfaultfd"
    assert (run.total("static_bytes") >= 2 * 15 * MIB) == (not stays)
    run.assert_paged(2 * (24 + (0 if stays else 16)) * MIB, 40 * MIB)


def test_a_wrapper_script_is_not_a_rank(mpi, tmp_path):
    """Shells and small tools carry a rank's environment without being that rank."""
    program = compile_program(mpi, "calls.c")
    script = tmp_path / "wrapper.sh"
    script.write_text(f'#!/bin/bash\necho hello | sed s/hello/x/ >/dev/null\n"{program}" "$@"\n')
    script.chmod(0o755)
    run = headroom_run([script, 1], tmp_path, before=mpi.command(3), memory="256M")
    assert run.status == 0, run.errors
    assert sorted(rank["rank"] for rank in run.report["ranks"]) == [0, 1, 2]


def test_address_space_is_random_and_the_arena_is_not(tmp_path):
    with open("/proc/sys/kernel/randomize_va_space") as file:
        assert file.read().strip() != "0"
    source = tmp_path / "addresses.c"
    source.write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n"
        'int main(void) { printf("%p %p\\n", malloc(2 << 20), (void*)&printf); return 0; }\n'
    )
    subprocess.run(["gcc", "-w", "-o", tmp_path / "addresses", source], check=True)
    runs = [headroom_run([tmp_path / "addresses"], tmp_path, memory="64M").output.split() for _ in range(4)]
    assert len({arena for arena, _ in runs}) == 1
    assert len({library for _, library in runs}) > 1


def test_hard_limit(mpi, engine, tmp_path):
    """Three times the budget inside a cgroup of what docs/using.md says is enough, swap off, 4 ranks: memory is reserved before
    it is filled (a refill at the limit is killed, not refused), what lies outside the arena counts, and nothing goes through
    the page cache."""
    need("a hard memory limit")
    from headroom import hard_limit

    budget = 192 * MIB
    program = compile_program(mpi, "out_of_core.c")
    plain = plain_run([*mpi.command(4), program, 72, 2])
    with hard_limit.HardLimit(budget + budget // 32 + 4 * 8 * MIB, swap=False) as limit:
        before = [*limit.wrap([]), *mpi.command(4)]
        run = headroom_run([program, 72, 2], tmp_path, before=before, memory="192M", engine=engine, timeout=250)
        assert run.status == 0, run.errors
        assert limit.killed() == 0
    assert limit.most_swapped == 0
    assert limit.most_page_cache < 32 * MIB
    assert run.output == plain.stdout
    assert run.engines() == {engine}
    run.assert_paged(4 * 2 * 72 * MIB, budget)
    assert run.total("blocks_twice_out") >= 4 * 2 * 72 * 4 * 3 // 4  # all but what stays of sweeps again and again


def test_as_an_ordinary_user(mpi, tmp_path):
    """Without privileges: engine userfaultfd-user (or sigsegv), the library's cross-memory attach off, everything right."""
    need("root")
    program = compile_program(mpi, "out_of_core.c")
    make_public(tmp_path)
    env = environment() | {"HOME": "/tmp", "TMPDIR": "/tmp"}
    started = [*ORDINARY_USER, *mpi.command(3)]
    run = headroom_run([program, 24, 2], tmp_path, before=started, memory="64M", storage="/var/tmp", env=env)
    assert run.status == 0, run.errors
    assert "wrong 0" in run.output
    assert run.engines() == {"userfaultfd" if lack("userfaultfd that is refused to some") else "userfaultfd-user"}
    run.assert_paged(3 * 2 * 24 * MIB, 64 * MIB)


def test_without_userfaultfd_and_io_uring(mpi, tmp_path):
    """As in a container whose seccomp profile forbids both: the fall-backs serve, and say so."""
    program = compile_program(None, "deny.c")
    job = compile_program(mpi, "out_of_core.c")
    run = headroom_run([job, 16, 2], tmp_path, before=[program, *mpi.command(2)], memory="32M")
    assert run.status == 0, run.errors
    assert run.engines() == {"sigsegv"}
    assert {rank["store"] for rank in run.report["ranks"]} == {"threads"}
    assert "the kernel refuses io_uring here; storage is read and written by threads" in run.errors
    run.assert_paged(2 * 2 * 16 * MIB, 32 * MIB)


@pytest.mark.parametrize("mode,memory", [("pass", "1G"), ("yield", "1G"), ("turns", "1G"), ("turns", "48M")])
def test_threads_multiple(mode, memory, mpi, tmp_path):
    run = headroom_run(
        [compile_program(mpi, "threads.c")], tmp_path, before=mpi.command(3), memory=memory, mode=mode, timeout=100
    )
    assert run.status == 0, run.errors
    assert "threads ok" in run.output
    assert {change["mode"] for change in run.report["modes"]} == {mode}
    # Each rank's threads: 200 messages, then 3 rounds of 5 sizes of 4 messages.
    assert run.total("messages_direct") == 3 * 3 * (200 + 3 * 5 * 4)
    assert run.total("collectives_direct") == 3 * (3 * 200 + 1)
    assert run.total("messages_copied_apart") > 0
    assert run.short_of_memory == (memory == "48M")
    if memory == "48M":
        run.assert_paged(run.footprint, 48 * MIB)


@pytest.mark.parametrize("memory", ["1G", "24M"])
def test_a_program_that_knows_sessions_only(mpi, memory, tmp_path):
    """No MPI_COMM_WORLD, so nothing is agreed at MPI_Init; ranks, binary interface and modes are known all the same."""
    run = headroom_run([compile_program(mpi, "session.c"), 16], tmp_path, before=mpi.command(3), memory=memory, timeout=100)
    assert run.status == 0, run.errors
    assert run.output == "session ok\n"
    assert sorted(rank["rank"] for rank in run.report["ranks"]) == [0, 1, 2]
    assert {rank["mpi"] for rank in run.report["ranks"]} == {mpi.name}
    assert run.total("collectives_nonblocking") == 0
    if memory == "24M":
        run.assert_paged(2 * 3 * 16 * MIB, 24 * MIB)
        assert run.total("turns") > 0


def test_exceptions_and_no_mpi(tmp_path):
    """A program that never calls MPI runs too, and C++ exceptions pass through."""
    source = ROOT / "tests/programs/plain.cc"
    program = ROOT / "build/tests/plain-cc"
    subprocess.run(["g++", "-O2", "-o", program, source], check=True)
    run = headroom_run([program], tmp_path, memory="24M")
    assert run.output == "plain ok\n", run.errors
    run.assert_paged(64 * MIB, 24 * MIB)


def test_direct_io_while_memory_is_driven_out(engine, tmp_path):
    """The device writes into pages that must not be taken away meanwhile: it would report success all the same."""
    program = compile_program(None, "direct_io.c")
    run = headroom_run([program, 64, 8], tmp_path, memory="24M", engine=engine, files=4 * 64 * MIB)
    assert run.output == "ok\n", run.errors
    assert run.total("holds") > 0
    run.assert_paged((64 + 16) * MIB, 24 * MIB)


def test_scattered_vectors(engine, tmp_path):
    """One call's pieces lie in more blocks than there is memory for: they are not all held at the same time."""
    run = headroom_run([compile_program(None, "scattered_vectors.c"), 100], tmp_path, memory="32M", engine=engine)
    assert run.output == "ok\n", run.errors
    assert run.total("holds") > 400
    run.assert_paged(100 * MIB, 32 * MIB)


def test_mappings_run_out(tmp_path):
    """The engine that works by rights needs a mapping where neighbours differ; userfaultfd does not."""
    program = compile_program(None, "many_maps.c")
    run = headroom_run([program, 96], tmp_path, memory="24M", engine="sigsegv")
    assert run.status == 2
    assert "scattered access may exhaust vm.max_map_count (raise it, or use userfaultfd)" in run.errors
    need("the engine userfaultfd-user")
    run = headroom_run([program, 96], tmp_path, memory="24M", engine="userfaultfd-user")
    assert run.output == "ok\n", run.errors


@pytest.mark.parametrize("mode", ["pass", "turns"])
def test_exceptions_of_callbacks_cross_the_wrappers(mpi, mode, tmp_path):
    """What is counted on the way into the library is counted back, else the program's memory counts as the library's."""
    program = compile_program(mpi, "thrower.cc", compiler=mpi.compiler.replace("mpicc", "mpicxx"))
    run = headroom_run([program], tmp_path, before=mpi.command(2), memory="1G", mode=mode)
    assert run.status == 0, run.errors
    assert run.output == "ok 100\n" * 2
    assert run.total("allocations") == 2


@pytest.mark.parametrize("direct", ["on", "off"])
def test_files_and_windows_on_evictable_memory(mpi, engine, direct, tmp_path):
    """Windows of Headroom's own, and of the library."""
    program = compile_program(mpi, "file_and_window.c")
    command = [program, 16, tmp_path / "shared_file"]
    settings = {"memory": "48M", "engine": engine, "direct": direct}
    run = headroom_run(command, tmp_path, before=mpi.command(3), files=3 * 16 * MIB, **settings)
    assert run.status == 0, run.errors
    assert run.output == "ok\n"
    assert run.engines() == {engine}
    assert run.total("windows_direct") == (3 if direct == "on" else 0)
    assert run.total("turns_overdue") == 0  # Open MPI's MPI_Accumulate waits inside for ranks that wait for a slot
    # ROMIO, inside the library, is made of MPI calls; OMPIO is not.
    assert (run.total("mpi_calls_inner") > 0) == (not mpi.is_open_mpi)
    run.assert_paged(3 * 3 * 16 * MIB, 48 * MIB)
