"""How programs end, and what is said of it: nothing that is not so, and the figures in any case."""

import subprocess
import sys

import pytest

from conditions import need
from conftest import ORDINARY_USER, compile_program, environment, headroom_run, make_public


@pytest.mark.parametrize("way", ["instruction", "syscall"])
def test_a_program_that_ends_by_the_bare_system_call_leaves_its_figures(way, engine, tmp_path):
    """As every Go program does. Nobody of the node is left to write them: its supervisor has them written."""
    run = headroom_run([compile_program(None, "raw_exit.c"), way], tmp_path, memory="24M", engine=engine)
    assert run.status == 3 and run.errors.count("headroom:   memory ") == 1, run.errors
    assert [rank["end"] for rank in run.report["ranks"]] == ["ended"]
    assert run.total("bytes_written") >= 8 << 20 and run.report["short_of_memory"]


@pytest.mark.parametrize("way", ["instruction", "return"])
def test_the_figures_are_written_once(way, tmp_path):
    """Of processes that end at about the same time, in whatever way."""
    program = compile_program(None, "raw_exit.c")
    script = f"{program} instruction 1 & {program} {way} 1 & wait"
    for _ in range(3):
        run = headroom_run(["sh", "-c", script], tmp_path, memory="96M")
        assert run.status == 0 and run.errors.count("headroom:   memory ") == 1, run.errors
        assert [rank["end"] for rank in run.report["ranks"]] == ["ended", "ended"], run.errors
    run = headroom_run([program, "instruction"], tmp_path, memory="96M", summary="off")
    assert run.status == 3 and run.errors == "" and run.reports


def test_a_program_that_becomes_another_leaves_the_figures_of_the_latter(tmp_path):
    """A shell that joined its node, and was the only one there: its node ended with it, not in any of the ways that count."""
    script = "exec dd if=/dev/zero of=/dev/null bs=2M count=1 status=none"
    run = headroom_run(["sh", "-c", script], tmp_path, memory="64M", large="64K")
    assert run.status == 0 and run.errors == "", run.errors  # dd closes it before it ends
    assert [rank["program"] for rank in run.report["ranks"]] == ["dd"]


CONSTRUCTOR = "#include <stdlib.h>\n#include <unistd.h>\n__attribute__((constructor)) static void begin(void) { %s; }\n"


@pytest.mark.parametrize(("what", "status"), [("_exit(3)", 3), ("abort()", -6)])
def test_a_program_that_ends_in_a_constructor_ran_under_headroom(what, status, tmp_path):
    """Of a library's, which comes before the preloaded one's: that it did not begin means nothing."""
    source, library, main = tmp_path / "ends.c", tmp_path / "libends.so", tmp_path / "main.c"
    source.write_text(CONSTRUCTOR % what)
    main.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    flags = ["-Wl,--no-as-needed", f"-L{tmp_path}", "-lends", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(["gcc", "-o", tmp_path / "program", main, *flags], check=True)
    run = headroom_run([tmp_path / "program"], tmp_path, memory="64M")
    assert run.status == status and "without Headroom" not in run.errors, run.errors


def test_workers_that_are_told_to_end_are_not_missed(tmp_path):
    """A pool that closes ends its workers by a signal."""
    script = tmp_path / "pool.py"
    script.write_text(
        "import multiprocessing\n"
        "def work(size): return len(bytearray(size))\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(3) as pool:\n"
        "        print(sum(pool.map(work, [8 << 20] * 12)))\n"
    )
    run = headroom_run([sys.executable, script], tmp_path, memory="256M")
    assert run.status == 0 and run.output == f"{96 << 20}\n", run.errors
    for words in ("unexpectedly", "was ended by", "died"):
        assert words not in run.errors, run.errors
    assert len(run.report["ranks"]) >= 4


def test_a_worker_that_crashes_is_named_once(tmp_path):
    script = tmp_path / "crash.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "kept = bytearray(8 << 20)\n"
        "code = 'import os; kept = bytearray(8 << 20); os.kill(os.getpid(), 9)'\n"
        "worker = subprocess.Popen([sys.executable, '-c', code])\n"
        "time.sleep(1)\n"  # who is waited for at once may be gone before its node-mate can ask how it ended
        "worker.wait()\n"
    )
    run = headroom_run([sys.executable, script], tmp_path, memory="256M")
    assert run.status == 0 and run.errors.count("was ended by signal 9 (Killed)") == 1, run.errors


def test_a_missing_symbol_table_is_not_said_where_it_hardly_matters(mpi, tmp_path):
    """Every Debian Python is stripped; its static data are small."""
    python = "/usr/bin/python3"
    command = [python, "-c", "kept = bytearray(8 << 20)"]
    run = headroom_run(command, tmp_path, before=mpi.command(2), memory="256M", engine="sigsegv")
    assert run.status == 0 and "symbol table" not in run.errors, run.errors


def test_many_short_programs_under_one_supervisor(tmp_path):
    """Each hands its node's figures in. Descriptors on their way count against the user's limit (but not root's)."""
    need("root")
    make_public(tmp_path)
    (tmp_path / "script").write_text(
        "ulimit -n 64\n"
        f"mkfifo {tmp_path}/never\n"
        f"exec 9<>{tmp_path}/never\n"
        "dd bs=2M count=1 of=/dev/null status=none <&9 &\n"
        "count=0\n"
        "while [ $count -lt 100 ]; do\n"
        "  dd bs=2M count=1 if=/dev/zero of=/dev/null status=none\n"
        "  count=$((count + 1))\n"
        "done\n"
        "echo >&9\n"
        "wait\n"
    )
    env = environment() | {"HOME": "/tmp", "TMPDIR": "/tmp"}
    run = headroom_run(["sh", tmp_path / "script"], tmp_path, before=ORDINARY_USER, memory="64M", storage="/var/tmp", env=env)
    assert run.status == 0 and "headroom: warning" not in run.errors, run.errors
    assert len(run.report["ranks"]) > 64, len(run.report["ranks"])  # all but those that ended before the lasting one began
