"""Several threads: in MPI, and waiting for room."""

import pytest

from conftest import compile_program, headroom_run

MIB = 1 << 20


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
