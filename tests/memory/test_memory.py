"""What is moved between memory and storage, and what need not be: sweeps, rounds of ranks, hints, small objects."""

import subprocess

import pytest

from conftest import ROOT, compile_program, headroom_run

MIB = 1 << 20
PUBLIC_HEADERS = f"-I{ROOT}/include"


def compile_sweep():
    return compile_program(None, str(ROOT / "bench/sweep.c"))


def test_sweeps_keep_what_fits(engine, tmp_path):
    """Each later sweep reads what does not fit, not everything; so do updates, which also write it."""
    footprint, budget, sweeps = 96 * MIB, 48 * MIB, 8
    run = headroom_run([compile_sweep(), 96, sweeps], tmp_path, memory="48M", engine=engine)
    assert run.status == 0, run.errors
    run.assert_paged(footprint, budget)
    outside = run.total("other_bytes_peak")
    assert run.total("bytes_read") <= 1.2 * sweeps * (footprint - (budget - outside)), run.report["total"]
    assert run.total("faults_probation") > 0  # what stays was looked at


def test_rounds_of_ranks_turn_direction(mpi, tmp_path):
    """Ranks that take turns: in each round what does not fit is read, and not what the last rounds left behind."""
    program = compile_program(mpi, "rounds.c", PUBLIC_HEADERS)
    rounds, ranks, each, budget = 10, 4, 64, 128 * MIB
    run = headroom_run([program, each, rounds], tmp_path, before=mpi.command(ranks), memory="128M", slots=1, mode="turns")
    assert run.status == 0, run.errors
    read = [int(line.split()[3]) * MIB for line in run.output.splitlines() if line.startswith("round")]
    assert len(read) == rounds and "wrong 0" in run.output
    assert run.report["most_slots_held"] == 1
    floors = (ranks - 1) * MIB
    needed = ranks * each * MIB - (budget - run.total("other_bytes_peak") - floors)
    # The first rounds settle, reading in larger pieces costs something, and with MPICH the rank that comes last wakes late;
    # without turning all of it would be read.
    later = sorted(read[3:])
    assert later[len(later) // 2] <= 1.35 * needed, (read, needed)
    assert 1.35 * needed < ranks * each * MIB


def test_ranks_that_do_not_fit_together_compute_one_after_the_other(mpi, tmp_path):
    program = compile_program(mpi, "rounds.c", PUBLIC_HEADERS)
    run = headroom_run([program, 64, 10], tmp_path, before=mpi.command(4), memory="128M", slots=2, mode="turns")
    assert run.status == 0 and "wrong 0" in run.output, run.errors
    assert run.total("turns_put_off") > 0
    assert run.report["most_slots_held"] <= 2


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
    command = [program, 64, tmp_path / "done"]
    run = headroom_run(command, tmp_path, before=mpi.command(3), memory="48M", slots=1, mode="turns", engine=engine)
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    assert run.total("turns_cut_short") > 0
    assert run.total("turns_overdue") == 0
    assert run.report["most_slots_held"] == 1


def test_what_a_program_says_of_its_memory(engine, tmp_path):
    run = headroom_run([compile_program(None, "hints.c", PUBLIC_HEADERS)], tmp_path, memory="24M", engine=engine)
    assert run.output == "wrong 0\n", run.errors
    assert run.total("blocks_forgotten") >= 48 * 4
    run.assert_paged(72 * MIB, 24 * MIB)


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
