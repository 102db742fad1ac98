"""Other processes that read or write memory which may move: debuggers, core dumps, cross-memory attach."""

import re

from conditions import need
from conftest import compile_program, headroom_run

MIB = 1 << 20


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
