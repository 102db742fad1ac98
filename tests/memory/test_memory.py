"""What is moved between memory and storage, and what need not be: sweeps, rounds of ranks, hints, small objects."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, WHEELS, compile_program, environment, headroom_run, plain_run
from variants import any_of

MIB = 1 << 20
PUBLIC_HEADERS = f"-I{ROOT}/include"
OVERDUE_S = 5  # kOverdueNs of src/sched/slots.h
PATIENCE_S = OVERDUE_S / 2  # kPatienceNs of src/sched/preemption.cc

pytestmark = any_of("mpi")  # libraries hardly differ here


def compile_sweep():
    return compile_program(None, "sweep.c")


def test_sweeps_keep_what_fits(engine, tmp_path):
    """Each later sweep reads what does not fit, not everything; so do updates, which also write it."""
    footprint, budget, sweeps = 96 * MIB, 48 * MIB, 8
    run = headroom_run([compile_sweep(), 96, sweeps], tmp_path, memory="48M", engine=engine)
    assert run.status == 0, run.errors
    run.assert_paged(footprint, budget, reads=sweeps, writes=sweeps // 2 + 1)
    outside = run.total("other_bytes_peak")
    assert run.total("bytes_read") <= 1.2 * sweeps * (footprint - (budget - outside)), run.report["total"]
    assert run.total("blocks_hidden") > run.total("faults_probation") > 0  # what stays was looked at
    assert run.total("storage_wait_ns") > 0
    assert run.total("readers_sparse") == 0


def test_page_tables_are_part_of_the_budget(tmp_path):
    """16 MiB of them leave as much less for blocks."""
    program = compile_program(None, "page_tables.c")
    others = {}
    for tables in ("none", "many"):
        run = headroom_run([program, 96, tables], tmp_path, memory="64M")
        assert run.status == 0 and run.output == "sum 0\n", run.errors
        assert run.total("bytes_written") >= 32 * MIB
        assert run.report["peak_resident_bytes"] <= 65 * MIB
        others[tables] = run.total("other_bytes_peak")
    assert 15 * MIB <= others["many"] - others["none"] <= 18 * MIB, others


def cores_of_a_rank(launcher: list[str]) -> set[int]:
    script = "import os; print(*os.sched_getaffinity(0))"
    return set(map(int, plain_run([*launcher, sys.executable, "-c", script], 60, environment()).stdout.split()))


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
def test_the_pager_runs_beside_a_rank_that_its_launcher_binds(mpi, tmp_path):
    """Not on that rank's core, if there are others that no rank has."""
    free = os.sched_getaffinity(0)
    binds = [*mpi.command(1), "--bind-to" if mpi.is_open_mpi else "-bind-to", "core"]
    is_bound = ["taskset", "-c", str(min(free)), *mpi.command(1)]
    for launcher in binds, is_bound:
        run = headroom_run([compile_sweep(), 48, 2], tmp_path, before=launcher, memory="24M")
        assert run.status == 0, run.errors
        run.assert_paged(48 * MIB, 24 * MIB)
        if launcher is is_bound:
            assert run.total("pager_runs_beside") == 0
        elif len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) == 1:
            assert run.total("pager_runs_beside") == (cores_of_a_rank(launcher) != free)
        assert run.total("pager_joins_reader") == 0


@pytest.mark.parametrize("binds", [True, False])
def test_the_pager_comes_to_the_core_of_who_waits_for_single_pages(binds, mpi, tmp_path):
    """If that is bound to one, so that it will not be woken on another."""
    program = compile_program(mpi, "hot_memory.c")
    where = "core" if binds else "none"
    launcher = [*mpi.command(1), "--bind-to" if mpi.is_open_mpi else "-bind-to", where]
    run = headroom_run([program, 96, 2, 3000], tmp_path, before=launcher, memory="24M")
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    assert run.total("single_pages_read") > 1000
    cores = cores_of_a_rank(launcher)
    if run.total("pager_runs_beside") and len(cores) == 1:
        assert run.total("pager_joins_reader") >= 1
    else:
        assert run.total("pager_joins_reader") == 0
    assert binds or run.total("pager_runs_beside") == 0


@pytest.mark.parametrize(("arrays", "times"), [(2, 1.2), (6, 1.6)])
def test_arrays_that_are_used_in_step(arrays, times, engine, tmp_path):
    """What is read ahead for one does not push out what was read for another: each pass reads what does not fit, once."""
    footprint, budget, passes = 128 * MIB, 64 * MIB, 6
    program = compile_program(None, "in_step.c", PUBLIC_HEADERS)

    def read_of_needed() -> float:
        run = headroom_run([program, arrays, 128, passes], tmp_path, memory="64M", engine=engine)
        assert run.status == 0 and "wrong 0" in run.output, run.errors
        run.assert_paged(footprint, budget)
        read = sorted(int(line.split()[3]) * MIB for line in run.output.splitlines() if line.startswith("pass"))
        assert len(read) == passes
        assert read[0] >= footprint - budget
        assert run.total("readers_sparse") == 0
        assert run.total("single_pages_read") <= arrays  # of the last block of each, of which the array has a few
        return read[passes // 2] / (footprint - (budget - run.total("other_bytes_peak")))

    # With sigsegv six arrays were read twice in each pass in 7 of 80 runs, for the rest of the run (docs/user/limits.md).
    runs = [read_of_needed()]
    while (engine, arrays) == ("sigsegv", 6) and runs[-1] > times and len(runs) < 3:
        runs.append(read_of_needed())
    assert runs[-1] <= times, runs


@pytest.mark.parametrize("engine", ["userfaultfd", "userfaultfd-user"], indirect=True)
def test_columns_of_a_matrix_are_read_in_single_pages(engine, tmp_path):
    """Its blocks do not stay until the next column is gone over, its pages do: whole blocks would be read 200 times."""
    footprint, budget = 144 * MIB, 72 * MIB
    run = headroom_run([compile_program(None, "columns.c"), 3072], tmp_path, memory="72M", engine=engine)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    run.assert_paged(footprint, budget)
    # Found by probes of its reader, or since few pages of the blocks were used, whichever comes first.
    assert run.total("readers_sparse") + run.total("blocks_thin") > 0
    assert run.total("single_pages_read") > 3072
    assert run.total("single_pages_ahead") > run.total("single_pages_read") // 2
    assert run.total("bytes_read") < 10 * footprint, run.report["total"]


@pytest.mark.parametrize("engine", ["userfaultfd", "userfaultfd-user"], indirect=True)
def test_columns_of_a_static_matrix_end_with_it(engine, tmp_path):
    """Nothing is read ahead behind its end, which lies in the middle of a block."""
    run = headroom_run([compile_program(None, "static_columns.c")], tmp_path, memory="32M", engine=engine)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    run.assert_paged(62 * MIB, 32 * MIB)
    assert run.total("single_pages_ahead") > 1001


@pytest.mark.parametrize("engine", ["userfaultfd", "userfaultfd-user"], indirect=True)
def test_columns_that_are_read_and_changed_are_moved_in_single_pages(engine, tmp_path):
    """Each page that was read, or read ahead, is written to afterwards, and comes back changed."""
    run = headroom_run([compile_program(None, "static_columns.c"), 3], tmp_path, memory="32M", engine=engine)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    run.assert_paged(62 * MIB, 32 * MIB)
    assert run.total("readers_sparse") > 0
    assert run.total("single_pages_ahead") > 1001
    assert run.total("single_pages_written") > 1001
    assert run.total("bytes_read") < 10 * 62 * MIB, run.report["total"]


@pytest.mark.parametrize("engine", ["userfaultfd", "userfaultfd-user"], indirect=True)
def test_a_walk_among_jumps_gets_blocks(engine, tmp_path):
    """As many threads would make it, one that waits for the other: the page before was asked for long ago."""
    rounds, jumps, walked = 6, 600, 24
    run = headroom_run(
        [compile_program(None, "interleaved_walks.c"), 128, rounds, jumps, walked], tmp_path, memory="32M", engine=engine
    )
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    run.assert_paged(128 * MIB, 32 * MIB, reads=0)  # few pages of it are used again
    assert run.total("single_pages_read") > rounds * jumps / 2
    assert run.total("single_pages_read") < rounds * (jumps + walked * 6)
    assert run.total("blocks_filled") > rounds * walked / 2


@pytest.mark.parametrize("engine", ["userfaultfd", "userfaultfd-user"], indirect=True)
def test_strides_that_come_to_other_pages_each_time_are_read_in_blocks(engine, tmp_path):
    """Few pages of each block are used, but none again before all others: alone they would take longer than the blocks. (Where
    some blocks were found thin by chance, pages are read there for a while; less is read then.)"""
    run = headroom_run([compile_program(None, "strided.c"), 64], tmp_path, memory="32M", engine=engine)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    run.assert_paged(64 * MIB, 32 * MIB)
    assert run.total("readers_sparse") == 0
    assert run.total("single_pages_read") < 64 * MIB // 4096 // 2


def test_rounds_of_ranks_turn_direction(mpi, engine, tmp_path):
    """Ranks that take turns: in each round what does not fit is read, and not what the last rounds left behind."""
    program = compile_program(mpi, "rounds.c", PUBLIC_HEADERS)
    rounds, ranks, each, budget = 10, 4, 64, 128 * MIB
    settings = {"memory": "128M", "slots": 1, "mode": "turns", "engine": engine}
    run = headroom_run([program, each, rounds], tmp_path, before=mpi.command(ranks), **settings)
    assert run.status == 0, run.errors
    read = [int(line.split()[3]) * MIB for line in run.output.splitlines() if line.startswith("round")]
    assert len(read) == rounds and "wrong 0" in run.output
    assert run.report["most_slots_held"] == 1
    assert run.total("slot_wait_ns") > 0
    floors = (ranks - 1) * MIB
    needed = ranks * each * MIB - (budget - run.total("other_bytes_peak") - floors)
    # The first rounds settle. Without turning all of it would be read.
    later = sorted(read[3:])
    assert ranks * each * MIB - budget <= later[len(later) // 2] <= 1.15 * needed, (read, needed)
    assert 1.15 * needed < ranks * each * MIB
    run.assert_paged(ranks * each * MIB, budget, reads=rounds, writes=rounds)


def test_ranks_that_change_all_they_have_write_what_must_leave(mpi, engine, tmp_path):
    """And little in vain."""
    source = str(ROOT / "python/headroom/bench/paging.c")
    program, ranks, each, budget = compile_program(mpi, source, PUBLIC_HEADERS, libraries=("-lm",)), 4, 64, 128 * MIB
    passes = ["touch", "write", "update", "update", "update"]
    settings = {"memory": "128M", "engine": engine}
    run = headroom_run([program, each, *passes], tmp_path, before=mpi.command(ranks), **settings)
    assert run.status == 0, run.errors
    run.assert_paged(ranks * each * MIB, budget, reads=3, writes=len(passes))
    needed = len(passes) * (ranks * each * MIB - (budget - run.total("other_bytes_peak")))
    assert run.total("bytes_written") <= 1.25 * needed, (run.total("bytes_written"), needed)


def test_ranks_that_do_not_fit_together_compute_one_after_the_other(mpi, tmp_path):
    """They sweep their memory several times in a turn: two at a time would read all of it each time."""
    program = compile_program(mpi, "rounds.c", PUBLIC_HEADERS)
    rounds, sweeps, ranks, each = 7, 8, 4, 64
    run = headroom_run([program, each, rounds, sweeps], tmp_path, before=mpi.command(ranks), memory="128M", slots=2)
    assert run.status == 0 and "wrong 0" in run.output, run.errors
    assert run.total("turns_put_off") > 0
    assert run.report["most_slots_held"] <= 2
    read = [int(line.split()[3]) * MIB for line in run.output.splitlines() if line.startswith("round")]
    needed_alone = ranks * each * MIB
    needed_together = ranks * (each - (128 - run.total("other_bytes_peak") // MIB) // 2) * MIB * sweeps
    run.assert_paged(ranks * each * MIB, 128 * MIB)
    # Company is tried again after 2, 4 ... turns, by each rank: that costs some of the rounds, not most.
    assert sorted(read)[rounds // 2] < (needed_alone + needed_together) / 2, (read, needed_alone, needed_together)


def test_ranks_that_stream_compute_together(mpi, tmp_path):
    """What they go over once a turn does not fit, but less does as well."""
    program = compile_program(mpi, "rounds.c", PUBLIC_HEADERS)
    run = headroom_run([program, 96, 10], tmp_path, before=mpi.command(4), memory="128M", slots=2)
    assert run.status == 0 and "wrong 0" in run.output, run.errors
    assert run.total("turns_put_off") < 0.25 * run.total("turns"), run.report["total"]
    assert run.report["most_slots_held"] == 2
    run.assert_paged(4 * 96 * MIB, 128 * MIB, reads=10, writes=10)


def test_several_storage_directories(engine, tmp_path):
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    storage = ":".join(str(folder) for folder in folders)
    run = headroom_run([compile_sweep(), 96, 3], tmp_path, memory="48M", engine=engine, storage=storage)
    assert run.status == 0, run.errors
    run.assert_paged(96 * MIB, 48 * MIB)
    assert run.report["storage"] == storage
    missing = headroom_run([compile_sweep(), 96, 3], tmp_path, memory="48M", storage=f"{storage}:{tmp_path}/none")
    assert missing.status != 0 and f"--storage {tmp_path}/none: no such directory" in missing.errors


def test_a_rank_that_never_calls_mpi_gives_way(mpi, engine, tmp_path):
    """Its turn ends at a fault; nobody has to be admitted beside it because he has waited too long."""
    program = compile_program(mpi, "long_turn.c")
    command = [program, 64, tmp_path / "done", "sweeping"]
    run = headroom_run(command, tmp_path, before=mpi.command(3), memory="48M", slots=1, mode="turns", engine=engine)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    assert run.total("turns_cut_short") > 0
    assert run.total("turns_overdue") == 0
    assert run.report["most_slots_held"] == 1
    run.assert_paged(3 * 64 * MIB, 48 * MIB, reads=3, writes=3)


def longest_wait(run) -> float:
    """For a turn, of any rank, in seconds."""
    return max(rank["slot_wait_ns_peak"] for rank in run.report["ranks"]) / 1e9


@any_of("engine", "mpi")
def test_nobody_waits_for_ever_for_ranks_that_never_call_mpi(mpi, engine, tmp_path):
    """Each of the others computes longer than a turn may last, too, and has its own after those at most that wait already:
    docs/dev/mpi.md says why that takes no longer than a turn each."""
    ranks = 4
    command = [compile_program(mpi, "long_turn.c"), 64, tmp_path / "done", "sweeping", 30]
    run = headroom_run(command, tmp_path, before=mpi.command(ranks), memory="64M", slots=1, mode="turns", engine=engine)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    assert run.total("turns_overdue") == 0
    assert PATIENCE_S < longest_wait(run) < ranks * PATIENCE_S
    run.assert_paged(ranks * 64 * MIB, 64 * MIB, reads=3, writes=4)


@any_of("mpi")
def test_who_waits_for_a_rank_that_keeps_its_turn_is_admitted_beside_it(mpi, tmp_path):
    """That one uses its core and no storage, so its turn cannot be cut; the others go on regardless, one at a time."""
    program = compile_program(mpi, "long_turn.c")
    command = [program, 64, tmp_path / "done", "still"]
    run = headroom_run(command, tmp_path, before=mpi.command(3), memory="48M", slots=1, mode="turns")
    assert run.status == 0 and run.output == "wrong 0\n", run.errors  # it ends when they have gone on
    assert run.total("turns_overdue") > 0
    assert OVERDUE_S < longest_wait(run) < 3 * OVERDUE_S
    assert run.report["most_slots_held"] == 2
    run.assert_paged(3 * 64 * MIB, 48 * MIB, reads=3, writes=3)


def test_what_a_program_says_of_its_memory(engine, tmp_path):
    run = headroom_run([compile_program(None, "hints.c", PUBLIC_HEADERS)], tmp_path, memory="24M", engine=engine)
    assert run.output == "wrong 0\n", run.errors
    assert run.total("blocks_forgotten") >= 48 * 4
    run.assert_paged(72 * MIB, 24 * MIB)


def test_memory_that_is_given_up_moves_nothing(engine, tmp_path):
    """free and calloc again, realloc and mremap to less, munmap, MADV_DONTNEED and MADV_FREE of memory that is mostly on
    storage: nothing is read or written for it, nor when it is looked at."""
    run = headroom_run([compile_program(None, "given_up.c", PUBLIC_HEADERS)], tmp_path, memory="32M", engine=engine)
    assert run.output == "wrong 0\n", run.errors
    run.assert_paged(5 * 32 * MIB, 32 * MIB, reads=0)
    assert run.total("bytes_read") < 16 * MIB
    assert run.total("blocks_discarded") >= 3 * 128 + 2 * 112
    assert run.total("blocks_forgotten") >= 96


def test_hints_are_absent_without_headroom(tmp_path):
    program = tmp_path / "absent"
    source = tmp_path / "absent.c"
    source.write_text(
        "#include <headroom/memory.h>\nint main(void) { return headroom_will_need != 0 || headroom_hold != 0; }\n"
    )
    subprocess.run(["gcc", "-Wno-address", PUBLIC_HEADERS, "-o", program, source], check=True)
    assert subprocess.run([program], check=False).returncode == 0


@pytest.mark.parametrize("memory", ["1G", "48M"])
@pytest.mark.parametrize("engine", ["userfaultfd"], indirect=True)
def test_small_objects(engine, memory, tmp_path):
    program = compile_program(None, "small_objects.cc", compiler="g++")
    run = headroom_run([program, 600], tmp_path, memory=memory, engine=engine, small="on")
    assert run.output == "wrong 0\n", run.errors
    assert run.total("small_object_bytes") >= 80 * MIB
    assert run.short_of_memory == (memory == "48M")
    if memory == "48M":
        run.assert_paged(80 * MIB, 48 * MIB)


def test_small_objects_stay_where_the_kernel_could_not_use_them(tmp_path):
    program = compile_program(None, "small_objects.cc", compiler="g++")
    run = headroom_run([program, 20], tmp_path, memory="256M", engine="sigsegv")
    assert run.output == "wrong 0\n" and run.total("small_object_bytes") == 0, run.errors
    refused = headroom_run([program, 20], tmp_path, memory="256M", engine="sigsegv", small="on")
    assert refused.status != 0 and "vm.unprivileged_userfaultfd" in refused.errors
    off = headroom_run([program, 20], tmp_path, memory="256M", small="off")
    assert off.output == "wrong 0\n" and off.total("small_object_bytes") == 0


def test_ranks_hold_as_many_slots_as_threads_are_busy(mpi, tmp_path):
    program = compile_program(mpi, "busy_threads.c")

    def slots_of(threads: int) -> int:
        run = headroom_run([program, threads, 18], tmp_path, before=mpi.command(3), slots=2, mode="turns")
        assert run.status == 0 and "wrong 0" in run.output, run.errors
        assert run.report["most_slots_held"] == 2
        assert run.total("turns_overdue") == 0
        return run.total("turns_of_several_slots")

    assert slots_of(threads=1) == 0
    # Two threads are seen to be busy only while other programs leave them both cores.
    assert any(slots_of(threads=2) > 0 for _ in range(6))


def test_a_thread_that_does_nothing_keeps_no_slot_while_memory_is_enough(mpi, tmp_path):
    """Its rank waits in the library, where nobody polls; each time the other one waited for five seconds."""
    program = compile_program(mpi, "idle_thread.c")
    settings = {"memory": "1G", "mode": "turns", "slots": 1, "direct": "off"}
    run = headroom_run([program, 3], tmp_path, before=mpi.command(2), **settings)
    assert run.status == 0 and "wrong 0" in run.output, run.errors
    assert not run.short_of_memory
    assert run.total("turns_overdue") == 0


@pytest.mark.parametrize("level", ["funneled", "multiple"])
def test_openmp_and_mpi(mpi, engine, level, tmp_path):
    program = compile_program(mpi, "hybrid.c", "-fopenmp")
    mib, rounds, budget = 48, 3, 72
    env = environment() | {"OMP_NUM_THREADS": "2"}
    settings = {"memory": f"{budget}M", "engine": engine, "slots": 2, "env": env}
    run = headroom_run([program, mib, rounds, level], tmp_path, before=mpi.command(3), **settings)
    assert run.status == 0 and "wrong 0" in run.output, run.errors
    run.assert_paged(3 * mib * MIB, budget * MIB)
    assert run.report["most_slots_held"] <= 2 and run.total("turns") >= 3 * rounds
    assert run.total("turns_overdue") == 0


@pytest.mark.parametrize("threads", ["both", "main"])
def test_a_thread_computes_while_another_waits_in_mpi(mpi, engine, threads, tmp_path):
    """Its rank does not wait, whether the thread that computes has called MPI or never does: it gets in line for its turn
    at its first fault on storage, and keeps what it is in need of. Taken for a waiting one it read the same 8 MiB thirty times
    and more."""
    program = compile_program(mpi, "computing_thread.c")
    run = headroom_run([program, threads, 8, 64, 1500], tmp_path, before=mpi.command(2), memory="48M", engine=engine)
    assert run.status == 0 and "wrong 0" in run.output, run.errors
    (first,) = [rank for rank in run.report["ranks"] if rank["rank"] == 0]
    assert first["turns_begun_at_faults"] > 0
    assert first["bytes_read"] <= 5 * 8 * MIB
    run.assert_paged((8 + 64) * MIB, 48 * MIB)


@pytest.mark.parametrize(
    ("how", "kib"),
    [
        ("send", 4096),
        ("send", 32768),
        *(
            (how, 8192)
            for how in ("isend", "bcast", "allgather", "alltoall", "get", "reduce", "allreduce", "scan", "operation")
        ),
    ],
)
def test_what_a_message_fills_is_not_read_first(mpi, engine, how, kib, tmp_path):
    program = compile_program(mpi, "received_whole.c", PUBLIC_HEADERS)
    mib, rounds, budget = 32, 3, 96
    run = headroom_run([program, mib, kib, how], tmp_path, before=mpi.command(2), memory=f"{budget}M", engine=engine)
    assert run.status == 0 and "wrong 0" in run.output, run.errors
    run.assert_paged(2 * 4 * mib * MIB, budget * MIB)
    assert run.total("blocks_forgotten") >= rounds * mib, run.report["total"]
    read = int(run.output.split()[1])
    # Messages begin in the middle of a block, which is then read; without forgetting it was 75 MiB and more. Reductions fill a
    # block in several steps, between which it may leave: 7 to 44 MiB were read, 45 to 109 without forgetting.
    reduces = how in ("reduce", "allreduce", "scan", "operation")
    assert read < rounds * mib / (1 if reduces else 3), run.output


@any_of("mpi")
def test_turns_end_when_memory_is_enough_again(mpi, tmp_path):
    program = compile_program(mpi, "phases.c")
    run = headroom_run([program, 64, 6], tmp_path, before=mpi.command(3), memory="96M", slots=2)
    assert run.status == 0 and "wrong 0" in run.output, run.errors
    modes = [change["mode"] for change in run.report["modes"]]
    assert modes.count("turns") >= 2, modes
    run.assert_paged(3 * 64 * MIB, 96 * MIB, reads=2 * 4, writes=2 * (1 + 4))
    between = modes[modes.index("turns") + 1 :]
    assert between[0] in ("pass", "yield") and "turns" in between, modes
    assert run.total("turns_overdue") == 0


@pytest.mark.parametrize("slots", [None, 1])
def test_ranks_that_wait_for_single_pages_lend_their_slots(slots, mpi, tmp_path):
    """The disk is used best by several of them, if not even one fits alone; but not more than were asked for."""
    program = compile_program(mpi, "hot_memory.c")
    on_one_core = ["taskset", "-c", "0", *mpi.command(4)]
    run = headroom_run(
        [program, 96, 2, 3000], tmp_path, before=on_one_core, memory="96M", **({"slots": slots} if slots else {})
    )
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    assert run.report["slots"] == 1
    assert run.total("single_pages_read") > 1000
    run.assert_paged(4 * 96 * MIB, 96 * MIB, reads=0)  # few pages of it are used again
    assert (run.total("turns_lent") > 0) == (slots is None)
    assert run.total("turns_overdue") == 0
    assert run.report["most_slots_held"] == 1
    assert (1 < run.report["most_slots_held_with_lent"] <= 4) if slots is None else run.report["most_slots_held_with_lent"] == 1


@pytest.mark.parametrize("direct", ["on", "off"])
def test_ranks_that_look_again_and_again_give_way(mpi, direct, tmp_path):
    """By every call that looks for a message without waiting, the library's own too: they count as blocked."""
    ranks, each, rounds = 4, 48, 7
    command = [compile_program(mpi, "polling_rounds.c"), each, rounds]
    run = headroom_run(command, tmp_path, before=mpi.command(ranks), memory="96M", slots=1, mode="turns", direct=direct)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    assert run.total("messages_direct") == (ranks * rounds - 1 + ranks if direct == "on" else 0)
    assert run.total("turns") >= ranks * (rounds - 1)
    assert run.total("turns_overdue") == 0  # nobody got on only because he had waited too long
    assert run.report["most_slots_held"] == 1
    run.assert_paged(ranks * each * MIB, 96 * MIB)


def test_what_ranks_jump_about_in_is_read_whole_if_it_fits_for_one_at_a_time(mpi, tmp_path):
    """They touch half of their pages in a turn, in no order: page for page that takes longer than to read all."""
    program = compile_program(mpi, "hot_memory.c")
    ranks, each, rounds, accesses = 8, 24, 6, 4000
    on_two_cores = ["taskset", "-c", "0,1", *mpi.command(ranks)]
    run = headroom_run([program, each, rounds, accesses], tmp_path, before=on_two_cores, memory="128M")
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    assert run.total("blocks_read_whole") > 400
    assert run.total("single_pages_read") < ranks * rounds * accesses / 8
    assert run.total("bytes_read") < 2 * rounds * ranks * each * MIB, run.report["total"]
    assert run.total("turns_overdue") == 0
    run.assert_paged(ranks * each * MIB, 128 * MIB)


def test_how_fast_storage_is_decides_between_pages_and_blocks(mpi, tmp_path):
    """It is measured meanwhile: where a page takes as long as a block, two pages are worth one; where it does not, many."""
    program = compile_program(mpi, "hot_memory.c")
    runs = {}
    for disk, fault in {"seeks": "slow:2000:0", "is narrow": "slow:0:3000"}.items():
        on_two_cores = ["taskset", "-c", "0,1", *mpi.command(4)]
        env = environment(store_fault=fault)
        run = headroom_run([program, 24, 4, 600], tmp_path, before=on_two_cores, memory="64M", env=env)
        assert run.status == 0 and run.output == "wrong 0\n", run.errors
        run.assert_paged(4 * 24 * MIB, 64 * MIB, reads=0)  # pages of it, here and there
        runs[disk] = run
        times = run.report["read_times_ns"]
        assert all(times[size]["samples"] >= 16 for size in ("page", "block")), times
    seeks, narrow = (runs[disk].report["read_times_ns"] for disk in runs)
    assert seeks["page"]["median"] > 2e6 and narrow["block"]["median"] > 3e6 > narrow["page"]["median"]
    assert runs["seeks"].total("single_pages_read") < runs["is narrow"].total("single_pages_read") / 2
    assert runs["seeks"].total("blocks_read_whole") > 2 * runs["is narrow"].total("blocks_read_whole")


def test_ranks_that_compute_when_turns_begin_take_them_at_their_faults(mpi, engine, tmp_path):
    """They call MPI at the beginning and at the end only, and memory becomes short in between."""
    program = compile_program(mpi, "hot_memory.c")
    ranks, each, rounds = 8, 24, 4
    on_two_cores = ["taskset", "-c", "0,1", *mpi.command(ranks)]
    command = [program, each, rounds, 100_000, "alone"]
    run = headroom_run(command, tmp_path, before=on_two_cores, memory="128M", engine=engine)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    # More ranks than there are slots: a rank that is still in MPI_Init when memory becomes short begins at the end of that.
    assert run.total("turns_begun_at_faults") > 2
    run.assert_paged(ranks * each * MIB, 128 * MIB)
    assert run.total("turns_overdue") == 0
    assert run.total("bytes_read") < 6 * ranks * each * MIB, run.report["total"]


def test_ranks_that_need_more_than_their_share_do_not_compute_all_at_once(mpi, tmp_path):
    """What each uses all the time fits one or two at a time, and not all: nobody would get on if slots were lent, or given to
    whoever waits. An equal share of what the library leaves is less than half of it, so nobody gets on within his either."""
    program = compile_program(mpi, "hot_memory.c")
    ranks, each, rounds = 8, 24, 4
    on_two_cores = ["taskset", "-c", "0,1", *mpi.command(ranks)]
    run = headroom_run([program, each, rounds, 400_000], tmp_path, before=on_two_cores, memory="128M")
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    run.assert_paged(ranks * each * MIB, 128 * MIB)
    assert run.total("wants_all") > 0
    assert run.total("turns_overdue") == 0
    assert run.total("bytes_read") < 3 * rounds * ranks * each * MIB, run.report["total"]
