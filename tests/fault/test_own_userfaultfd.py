"""A program, or a library of its, that watches memory by a userfaultfd of its own (UMap does)."""

import subprocess

import pytest

from conditions import need
from conftest import ROOT, compile_program, headroom_run


@pytest.mark.parametrize("way", ["ioctl", "syscall"])
def test_it_is_refused_on_memory_that_may_move(way, tmp_path):
    """It would wait for pages that are there already, or read zeros."""
    need("root")
    program = compile_program(None, "own_userfaultfd.c")
    run = headroom_run([program, 8, way], tmp_path, memory="1G")
    assert run.status == 0 and run.output == "refused 16\n", run.output
    assert "userfaultfd of the program's own" in run.errors and "--large" in run.errors
    run = headroom_run([program, 8, way], tmp_path, memory="1G", large="16M")
    assert run.status == 0 and run.output == "filled\n" and "userfaultfd of" not in run.errors


def test_the_memory_of_a_library_that_does_so_is_left_alone(tmp_path):
    """Of those that are known, by their names."""
    need("root")
    source = ROOT / "tests/programs/fault/own_userfaultfd.c"
    library = tmp_path / "libumap.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-Dmain=watched", "-o", library, source, "-lpthread"], check=True)
    main = tmp_path / "main.c"
    main.write_text("int watched(int, char**);\nint main(int count, char** words) { return watched(count, words); }\n")
    program = tmp_path / "program"
    subprocess.run(["gcc", "-o", program, main, library, f"-Wl,-rpath,{tmp_path}"], check=True)
    run = headroom_run([program, 8, "ioctl"], tmp_path, memory="1G")
    assert run.status == 0 and run.output == "filled\n" and "userfaultfd of" not in run.errors, run.errors
