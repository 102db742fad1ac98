"""How programs are linked and started, and what is preloaded beside Headroom: none may go without it unnoticed."""

import re
import shutil
import signal
import subprocess

import pytest

from conftest import DEBIAN, ROOT, WHEELS, compile_program, headroom_run, plain_run
from headroom import machine
from variants import only_in_suites

MIB = 1 << 20


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


def test_exceptions_and_no_mpi(tmp_path):
    """A program that never calls MPI runs too, and C++ exceptions pass through."""
    source = ROOT / "tests/programs/shared/plain.cc"
    program = ROOT / "build/tests/plain-cc"
    subprocess.run(["g++", "-O2", "-o", program, source], check=True)
    run = headroom_run([program], tmp_path, memory="24M")
    assert run.output == "plain ok\n", run.errors
    run.assert_paged(64 * MIB, 24 * MIB)


@pytest.mark.parametrize("mode", ["pass", "turns"])
def test_exceptions_of_callbacks_cross_the_wrappers(mpi, mode, tmp_path):
    """What is counted on the way into the library is counted back, else the program's memory counts as the library's."""
    program = compile_program(mpi, "thrower.cc", compiler=mpi.compiler.replace("mpicc", "mpicxx"))
    run = headroom_run([program], tmp_path, before=mpi.command(2), memory="1G", mode=mode)
    assert run.status == 0, run.errors
    assert run.output == "ok 100\n" * 2
    assert run.total("allocations") == 2


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
