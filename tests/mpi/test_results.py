"""The same results as without Headroom, with memory enough and short, on every engine and MPI; and that it really paged."""

import json

import pytest

from conditions import need
from conftest import BUILD, DEBIAN, HEADROOM, INTEL, STANDARD_ABI, WHEELS, compile_program, headroom_run, plain_run

MIB = 1 << 20


POINT_TO_POINT = 8  # messages that each rank sends in a round of calls.c


@pytest.mark.parametrize("mpi", [*WHEELS, STANDARD_ABI, *DEBIAN], ids=lambda mpi: mpi.name)
def test_every_call_in_memory(mpi, tmp_path):
    program = compile_program(mpi, "calls.c")
    for ranks in (2, 5):
        plain = plain_run([*mpi.command(ranks), program, 2])
        assert plain.returncode == 0, plain.stderr
        under = headroom_run([program, 2], tmp_path, before=mpi.command(ranks), memory="1G")
        assert under.status == 0, under.errors
        assert under.output == plain.stdout
        assert under.total("messages_direct") == ranks * 2 * POINT_TO_POINT
        expected = "standard" if mpi.name == "standard" else "openmpi" if mpi.is_open_mpi else "mpich"
        assert {rank["mpi"] for rank in under.report["ranks"]} == {expected}
        assert len(under.report["ranks"]) == ranks
        assert not under.short_of_memory
        assert under.total("shortcuts_taken") == 0
        under = headroom_run([program, 2], tmp_path, before=mpi.command(ranks), memory="1G", direct="off")
        assert under.status == 0, under.errors
        assert under.output == plain.stdout
        assert under.total("messages_direct") == 0
        if ranks == 2 and under.report["cores"] >= 2:
            assert under.total("shortcuts_taken") == ranks  # nothing to do: straight to the library
            assert under.total("shortcuts_ended") == 0


@pytest.mark.parametrize("mpi", [*WHEELS, STANDARD_ABI], ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("mode", ["pass", "yield", "turns"])
@pytest.mark.parametrize("direct", ["on", "off"])
def test_every_call_in_every_mode(mpi, mode, direct, tmp_path):
    program = compile_program(mpi, "calls.c")
    plain = plain_run([*mpi.command(4), program, 3])
    sums = {"operation"}
    under = headroom_run(
        [program, 3], tmp_path, before=mpi.command(4), memory="1G", mode=mode, direct=direct, collectives_may_pass=sums
    )
    assert under.status == 0, under.errors
    assert under.output == plain.stdout
    assert {change["mode"] for change in under.report["modes"]} == {mode}
    assert under.total("messages_direct") == (4 * 3 * POINT_TO_POINT if direct == "on" else 0)
    straight = direct == "off" and (mode == "pass" or (mode == "yield" and not mpi.is_open_mpi))
    assert (under.total("shortcuts_taken") > 0) == straight
    if not mpi.is_open_mpi:
        # The library yields in its own progress loop, so no collective may change its form: that would change which of
        # MPICH's algorithms later reductions take, and with it their last bits.
        assert under.total("collectives_nonblocking") == 0
    if mode == "turns":
        assert under.total("turns") > 0
        assert under.total("waits_turns") > 0 or direct == "on"


def test_out_of_core(mpi, engine, tmp_path):
    """4 ranks on 2 cores need four times the budget; every block has been out at least twice."""
    program = compile_program(mpi, "out_of_core.c")
    plain = plain_run([*mpi.command(4), program, 32, 2])
    assert plain.returncode == 0
    budget, footprint = 64 * MIB, 4 * 2 * 32 * MIB
    under = headroom_run([program, 32, 2], tmp_path, before=mpi.command(4), memory="64M", engine=engine)
    assert under.status == 0, under.errors
    assert under.output == plain.stdout
    assert "wrong 0" in under.output
    under.assert_paged(footprint, budget)
    assert under.engines() == {engine}
    assert under.total("bytes_read_ahead") >= footprint  # it reads from front to back
    assert under.total("blocks_twice_out") >= (footprint - budget) // (
        256 << 10
    )  # all but what stays of sweeps again and again
    assert "turns" in {change["mode"] for change in under.report["modes"]}
    assert under.total("messages_direct") == 4 * 2
    assert under.total("messages_direct_bytes") == 4 * 2 * 32 * MIB
    assert under.total("messages_streamed") > 0  # larger than what may be held while memory is short


def test_shortcuts_end_when_memory_becomes_short(mpi, tmp_path):
    """In memory that suffices calls lead straight to the library; each rank takes that back when it does not any more."""
    program = compile_program(mpi, "out_of_core.c")
    under = headroom_run([program, 16, 2], tmp_path, before=mpi.command(3), memory="48M", direct="off")
    assert under.status == 0, under.errors
    assert under.output.startswith("wrong 0")
    under.assert_paged(3 * 2 * 16 * MIB, 48 * MIB)
    assert under.total("messages_direct") == 0
    assert under.total("shortcuts_taken") == under.total("shortcuts_ended") > 0


@pytest.mark.parametrize("mode", ["pass", "yield", "turns", "short"])
def test_intel_mpi(mode, tmp_path):
    """libmpi.so.12 that is not MPICH's: its progress loop cannot be hooked, so nonblocking forms serve."""
    need("Intel MPI")
    program, arguments = ("out_of_core.c", [24, 2]) if mode == "short" else ("calls.c", [3])
    command = [compile_program(INTEL, program), *arguments]
    plain = plain_run([*INTEL.command(4), *command])
    assert plain.returncode == 0, plain.stderr
    choice = {"memory": "64M"} if mode == "short" else {"memory": "1G", "mode": mode}
    under = headroom_run(command, tmp_path, before=INTEL.command(4), **choice)
    assert under.status == 0, under.errors
    assert under.output == plain.stdout
    assert {rank["mpi"] for rank in under.report["ranks"]} == {"mpich"}
    if mode == "short":
        under.assert_paged(4 * 2 * 24 * MIB, 64 * MIB)
    elif mode != "pass":
        assert under.total("collectives_nonblocking") > 0


@pytest.mark.parametrize("store", ["io_uring", "threads"])
def test_stores(store, tmp_path):
    if store == "io_uring":
        need("io_uring")
    mpi = WHEELS[1]
    program = compile_program(mpi, "out_of_core.c")
    under = headroom_run([program, 16, 2], tmp_path, before=mpi.command(3), memory="48M", store=store)
    assert under.status == 0, under.errors
    assert {rank["store"] for rank in under.report["ranks"]} == {store}
    assert all(rank["store_direct"] for rank in under.report["ranks"])
    under.assert_paged(3 * 2 * 16 * MIB, 48 * MIB)


def test_out_of_core_with_the_standard_binary_interface(tmp_path):
    program = compile_program(STANDARD_ABI, "out_of_core.c")
    under = headroom_run([program, 24, 2], tmp_path, before=STANDARD_ABI.command(4), memory="48M")
    assert under.status == 0, under.errors
    assert "wrong 0" in under.output
    assert {rank["mpi"] for rank in under.report["ranks"]} == {"standard"}
    under.assert_paged(4 * 2 * 24 * MIB, 48 * MIB)


def test_through_the_page_cache(tmp_path):
    mpi = WHEELS[0]
    program = compile_program(mpi, "out_of_core.c")
    cached = {"store_direct": "off", "unwatched": "through the page cache"}
    under = headroom_run([program, 16, 2], tmp_path, before=mpi.command(3), memory="48M", **cached)
    assert under.status == 0, under.errors
    assert "wrong 0" in under.output
    assert {rank["store_direct"] for rank in under.report["ranks"]} == {False}
    assert under.total("bytes_written") >= 3 * 2 * 16 * MIB - 48 * MIB
    with pytest.raises(AssertionError, match="of the store are in the page cache"):
        under.kernel.assert_past_caches()
    under = headroom_run([program, 16, 2], tmp_path, before=mpi.command(3), memory="48M", readahead="0", **cached)
    assert "wrong 0" in under.output
    assert under.total("bytes_read_ahead") == 0


def test_more_ranks_than_cores_and_memory(mpi, tmp_path):
    program = compile_program(mpi, "out_of_core.c")
    under = headroom_run([program, 8, 2], tmp_path, before=mpi.command(8), memory="64M", timeout=250)
    assert under.status == 0, under.errors
    assert "wrong 0" in under.output
    under.assert_paged(8 * 2 * 8 * MIB, 64 * MIB)
    assert under.report["slots"] <= under.report["cores"]


def test_ranks_that_would_choose_other_forms_agree(tmp_path):
    """One rank would wait in the library, two would poll nonblocking forms: the collectives of all take one form."""
    mpi = WHEELS[1]
    program = compile_program(mpi, "calls.c")
    report = tmp_path / "forms.json"
    under = [HEADROOM, "run", "--memory", "1G", "--json", report]
    plain = plain_run([*mpi.command(3), program, 2])
    mixed = [*mpi.command(1), *under, "--mode", "pass", "--", program, 2, ":", "-n", 2, *under, "--mode", "turns", "--"]
    done = plain_run([*mixed, program, 2], timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    figures = json.loads(report.read_text())
    assert {rank["collectives"] for rank in figures["ranks"]} == {"nonblocking"}
    assert all(rank["collectives_nonblocking"] > 0 for rank in figures["ranks"])


def test_slots_bound_who_computes(mpi, tmp_path):
    program = compile_program(mpi, "out_of_core.c")
    under = headroom_run([program, 12, 2], tmp_path, before=mpi.command(4), memory="40M", slots=1)
    assert under.status == 0, under.errors
    assert under.report["slots"] == 1
    assert under.total("turns_overdue") == 0
    assert under.report["most_slots_held"] == under.report["most_slots_held_with_lent"] == 1
    assert under.total("turns") > 4
    under.assert_paged(4 * 2 * 12 * MIB, 40 * MIB)


def test_python_started_by_headroom(mpi, tmp_path):
    """`headroom run -n 3 -- python3 script.py`: the launcher is that of the interpreter's mpi4py."""
    script = tmp_path / "script.py"
    script.write_text(
        "from mpi4py import MPI\nimport subprocess, sys\narray = bytearray(8 << 20)\n"
        "assert subprocess.run(['echo', 'x'], capture_output=True, text=True).stdout == 'x\\n'\n"
        "sys.stdout.write('%d\\n' % MPI.COMM_WORLD.allreduce(1))\n"
    )
    report = tmp_path / "python.json"
    done = plain_run(
        [HEADROOM, "run", "-n", 3, "--memory", "1G", "--json", report, "--", BUILD / f"mpi/{mpi.name}/bin/python3", script]
    )
    assert done.stdout.split() == ["3", "3", "3"], done.stderr
    assert ": 3 processes," in done.stderr
    total = json.loads(report.read_text())["total"]
    assert total["allocations"] >= 3
    assert total["forks"] == 0  # subprocess copies no memory


def test_yielding_happens_in_the_library(tmp_path):
    """More ranks than cores, memory enough: MPICH yields in its own progress loop, so no call changes its form."""
    mpi = WHEELS[0]
    program = compile_program(mpi, "calls.c")
    under = headroom_run([program, 2], tmp_path, before=mpi.command(8), memory="1G")
    assert under.status == 0
    assert "yield" in {change["mode"] for change in under.report["modes"]}  # alone at the end, a rank may pass
    assert under.total("collectives_nonblocking") == 0
    assert under.total("waits_yielding") == 0


def test_allocations_of_the_mpi_library_stay_out(tmp_path):
    mpi = WHEELS[0]
    program = compile_program(mpi, "calls.c")
    under = headroom_run([program, 1], tmp_path, before=mpi.command(2), memory="1G")
    assert under.total("allocations_passed") > 0
    # The program itself allocates one large piece a rank, by MPI_Alloc_mem.
    assert under.total("allocations") == 2


@pytest.mark.parametrize("mpi", DEBIAN, ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("interface", ["USE_MPIF", "USE_MPI", "USE_MPI_F08"])
@pytest.mark.parametrize("memory", ["1G", "96M"])
def test_fortran_common_blocks(mpi, interface, memory, tmp_path):
    compiler = {"mpich-debian": "mpif90.mpich", "openmpi-debian": "mpif90.openmpi"}[mpi.name]
    program = compile_program(mpi, "common_block.f90", "-cpp", f"-D{interface}", "-fallow-argument-mismatch", compiler=compiler)
    under = headroom_run([program], tmp_path, before=mpi.command(2), memory=memory)
    assert under.status == 0, under.errors
    assert "sum ok" in under.output
    assert under.total("static_bytes") > 2 * 90 * MIB
    if memory == "96M":
        under.assert_paged(2 * 91 * MIB, 96 * MIB, reads=0)  # what the sum fills is not read first
        assert under.total("bytes_read") > 32 * MIB
    else:
        assert not under.short_of_memory


def test_static_data_can_stay(tmp_path):
    mpi = DEBIAN[0]
    program = compile_program(mpi, "common_block.f90", "-cpp", "-DUSE_MPI_F08", compiler="mpif90.mpich")
    under = headroom_run([program], tmp_path, before=mpi.command(2), memory="64M", static_data="off")
    assert under.status == 0, under.errors
    assert under.total("static_bytes") == 0


def test_small_shared_memory_file_system(mpi, tmp_path):
    """With /dev/shm of 64 MiB: the arena does not lie there, and what the MPI library puts there still fits."""
    need("root")
    program = compile_program(mpi, "out_of_core.c")
    mount = "mount --make-private /dev/shm && mount -t tmpfs -o size=64M none /dev/shm"
    small = mount + ' && df -m --output=size /dev/shm | tail -1 && exec "$@"'
    before = ["unshare", "-m", "--propagation", "unchanged", "sh", "-c", small, "sh", *mpi.command(4)]
    under = headroom_run([program, 48, 1], tmp_path, before=before, memory="96M")
    assert under.status == 0, under.errors
    assert under.output.split()[:3] == ["64", "wrong", "0"]
    under.assert_paged(4 * 2 * 48 * MIB, 96 * MIB)
