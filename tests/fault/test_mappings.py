"""What a program does with its address space: allocations of every kind, mappings at fixed addresses, rights, locks, limits."""

import subprocess
import sys

import pytest

from conditions import need
from conftest import compile_program, headroom_run

MIB = 1 << 20


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


def test_mappings_run_out(tmp_path):
    """The engine that works by rights needs a mapping where neighbours differ; userfaultfd does not."""
    program = compile_program(None, "many_maps.c")
    run = headroom_run([program, 96], tmp_path, memory="24M", engine="sigsegv")
    assert run.status == 2
    assert "scattered access may exhaust vm.max_map_count (raise it, or use userfaultfd)" in run.errors
    need("the engine userfaultfd-user")
    run = headroom_run([program, 96], tmp_path, memory="24M", engine="userfaultfd-user")
    assert run.output == "ok\n", run.errors
