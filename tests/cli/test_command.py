"""The command line: help, defaults, the report, and the wheel in a clean environment."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conditions import need
from conftest import BUILD, HEADROOM, ROOT, WHEELS, compile_program, environment, headroom_run, plain_run
from headroom import hard_limit, kernel_offers, launcher, machine, rank
from headroom.rank import warn_of_too_much_memory
from headroom.report import trace
from variants import only_in_suites


def test_help_has_every_setting_and_only_those():
    text = plain_run([HEADROOM, "run", "--help"]).stdout
    shown = set(re.findall(r"^\s+(?:-\w+, )*--([a-z-]+)", text, re.M))
    expected = {
        "memory",
        "storage",
        "slots",
        "processes",
        "engine",
        "latency",
        "store",
        "store-direct",
        "checksums",
        "direct",
        "attach",
        "reductions",
        "between",
        "rdma",
        "mode",
        "mpi",
        "json",
        "large",
    }
    expected |= {
        "storage-wait",
        "small",
        "huge-pages",
        "trace",
        "readahead",
        "static-data",
        "summary",
        "ranks",
        "help",
        "collective-io",
    }
    assert shown == expected
    headings = re.findall(r"^(\w[\w ]*):$", text, re.M)
    assert headings == ["Options", "Memory", "Storage", "Turns", "Messages", "Files", "What is said"]


def test_help_is_not_cut_and_in_the_order_of_use():
    for words in ([], ["bench"], ["storage"]):
        text = plain_run([HEADROOM, *words, "--help"], env=environment() | {"COLUMNS": "80"}).stdout
        assert "..." not in text.split("Commands:")[1], text
    listed = plain_run([HEADROOM, "--help"]).stdout.split("Commands:")[1]
    assert re.findall(r"^  (\w+)", listed, re.M) == ["run", "doctor", "report", "top", "storage", "bench", "simulate", "where"]
    text = re.sub(r"\s+", " ", plain_run([HEADROOM, "run", "--help"]).stdout)
    assert text.startswith("Usage: headroom run [OPTIONS] PROGRAM [ARGS]...")
    assert "A SIZE is 512M or 1.5G" in text


def test_the_version_is_the_one_of_the_build():
    written = re.search(r"project\(headroom VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    shown = subprocess.run([HEADROOM, "--version"], capture_output=True, text=True, check=True).stdout
    assert written and shown == f"headroom, version {written[1]}\n"
    assert f"\n## {written[1].removesuffix('.0')}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_constants_are_those_of_the_library():
    """Read by people in one place each, and used by the command before the library is there."""
    assert constant("kPageBytes", "arena/arena.h") == rank.PAGE
    assert constant("kFloorBytes", "pager/pager.h") == rank.LEAST_FOR_A_RANK
    assert constant("kMostDirectories", "pager/store.h") == rank.MOST_DIRECTORIES
    assert constant("kMaxMembers", "node/ledger.h") == rank.MOST_PROCESSES
    assert constant("kLeastLarge", "heap/heap.cc") == rank.LEAST_LARGE
    assert constant("kPieceStripes", "pager/store_room.cc") * constant("kStripeBytes", "pager/store.h") == machine.LEAST_ROOM


def test_events_are_those_of_the_library():
    """The report reads traces by the numbers that the library writes."""
    header = (ROOT / "src/trace/recorder.h").read_text()
    listed = re.search(r"enum class EventKind : uint16_t \{(.*?)\};", header, re.S)
    assert listed and re.findall(r"^  k(\w+)(?: = 1)?,", listed[1], re.M) == [
        "Begin",
        "Sample",
        "RunState",
        "Site",
        "Frame",
        "Module",
        "Lost",
        "Armed",
    ]
    assert (trace.BEGIN, trace.SAMPLE, trace.RUN_STATE, trace.SITE) == (1, 2, 3, 4)
    assert (trace.FRAME, trace.MODULE, trace.LOST, trace.ARMED) == (5, 6, 7, 8)


def test_the_features_that_doctor_asks_for_are_the_engines():
    """By their names in the kernel's header, which is there wherever programs are compiled."""
    asked = re.search(r"kFeatures = (.*?);", (ROOT / "src/pager/engine_userfaultfd.cc").read_text(), re.S)
    assert asked
    kernels = Path("/usr/include/linux/userfaultfd.h").read_text()
    bits = {name: int(bit) for name, bit in re.findall(r"#define (UFFD_FEATURE_\w+)\s+\(1<<(\d+)\)", kernels)}
    newer = {"UFFD_FEATURE_WP_HUGETLBFS_SHMEM": 12, "UFFD_FEATURE_WP_UNPOPULATED": 13}  # than the header may be
    assert (
        sum(1 << (newer | bits)[name] for name in re.findall(r"UFFD_FEATURE_\w+", asked[1]))
        == kernel_offers.USERFAULTFD_FEATURES
    )


def constant(name, source):
    found = re.search(rf"constexpr \w+ {name} = ([\d <]+);", (ROOT / "src" / source).read_text())
    assert found, name
    number, _, shift = found[1].partition("<<")
    return int(number) << int(shift or 0)


def test_the_ranks_variables_are_those_of_the_library():
    """The command and the library take the same process for the first rank."""
    listed = re.search(r"kRankVariables\[\] = \{(.*?)\}", (ROOT / "src/base/launchers.h").read_text(), re.S)
    assert listed and tuple(re.findall(r'"(\w+)"', listed[1])) == launcher.RANKS
    listed = re.search(r"kLocalRankVariables\[\] = \{(.*?)\}", (ROOT / "src/base/launchers.h").read_text(), re.S)
    assert listed and tuple(re.findall(r'"(\w+)"', listed[1])) == launcher.LOCAL_RANKS


@pytest.mark.parametrize(
    ("said", "node", "ranks"), [("4", "0", 4), ("4(x2),1", "1", 4), ("4(x2),1", "2", 1), ("1,3(x2)", "2", 3)]
)
def test_ranks_of_a_node_under_slurm(said, node, ranks, monkeypatch):
    """Where the MPI library's own variables are missing, as with PMIx in srun."""
    step = {"SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": said, "SLURM_NODEID": node}
    for name, value in step.items():
        monkeypatch.setenv(name, value)
    assert launcher.ranks_on_node(step) == ranks
    assert launcher.ranks_on_node(step | {"SLURM_NODEID": "3"}) == 0
    assert launcher.ranks_on_node(step | {"MPI_LOCALNRANKS": "7"}) == 7
    monkeypatch.setenv("SLURM_STEP_ID", str(machine.FIRST_SPECIAL_STEP))  # a batch script is no rank
    assert launcher.ranks_on_node(step) == 0


@pytest.mark.parametrize(("environment", "processes"), [({}, 1), ({"PMI_RANK": "3", "MPI_LOCALNRANKS": "384"}, 480)])
def test_there_is_room_for_ranks_and_what_they_start(environment, processes):
    assert launcher.processes_on_node(environment) == processes


def test_defaults(tmp_path):
    """Without options: 80 % of what is free, a directory on a disk."""
    run = headroom_run([compile_program(None, "exit_status.c")], tmp_path)
    assert run.status == 0
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(meminfo["MemAvailable"].split()[0]) << 10
    assert 0.5 * 0.8 * available < run.report["budget_bytes"] <= 0.9 * available
    kind = subprocess.run(["stat", "-f", "-c", "%T", run.report["storage"]], capture_output=True, text=True, check=True).stdout
    assert "tmpfs" not in kind


def test_memory_default_follows_the_cgroup(tmp_path):
    need("a hard memory limit")
    with hard_limit.HardLimit(512 << 20, swap=False) as limit:
        run = headroom_run([compile_program(None, "exit_status.c")], tmp_path, before=limit.wrap([]))
    assert 256 << 20 < run.report["budget_bytes"] < 0.81 * (512 << 20)


def test_environment_is_as_good_as_options(tmp_path):
    run = headroom_run([compile_program(None, "exit_status.c")], tmp_path, env=environment(memory="77M", engine="sigsegv"))
    assert run.report["budget_bytes"] == 77 << 20
    assert run.engines() == {"sigsegv"}


def test_options_win_over_the_environment(tmp_path):
    run = headroom_run([compile_program(None, "exit_status.c")], tmp_path, env=environment(memory="77M"), memory="88M")
    assert run.report["budget_bytes"] == 88 << 20


def test_bad_values_are_named(tmp_path):
    wrong = [("--memory", "plenty", ""), ("--engine", "steam", ""), ("--slots", "-1", ""), ("--memory", "1M", "1.0 MiB")]
    wrong += [
        ("--memory", "512", "did you mean 512M"),
        ("--memory", "0", "0 bytes"),
        ("--memory", "64B", "not a size: a number, and K, M"),
    ]
    wrong += [("--large", "0", "64K or more"), ("--large", "32K", "64K or more"), ("--readahead", "4T", "at most 1.0 GiB")]
    wrong += [("--trace", tmp_path / "none/run", "no such directory")]
    wrong += [("--json", tmp_path / "none/run.json", "no such directory"), ("--json", tmp_path, "is a directory")]
    wrong += [("--memroy", "64M", "--memory")]  # not taken for the program
    for ranks in ([], ["-np", "2"]):
        for option, value, words in wrong:
            done = plain_run([HEADROOM, "run", *ranks, option, value, "true"])
            assert done.returncode == 2
            assert done.stderr.startswith("headroom: error: ") and done.stderr.count("\n") == 1, done.stderr
            assert option in done.stderr and words in done.stderr, done.stderr


def test_what_all_ranks_refuse_is_said_once(mpi, tmp_path):
    done = plain_run([*mpi.command(4), HEADROOM, "run", "--storage", "/no/such/place", "true"])
    assert done.returncode != 0
    assert done.stderr.count("/no/such/place: no such directory") == 1, done.stderr


def test_what_one_rank_refuses_is_said(mpi, tmp_path):
    wrong = ["-n", 1, HEADROOM, "run", "--storage", "/no/such/place", "true"]
    done = plain_run([*mpi.command(1), HEADROOM, "run", "--memory", "64M", "sleep", 3, ":", *wrong])
    assert done.stderr.count("/no/such/place: no such directory") == 1, done.stderr


def test_more_memory_than_there_is_is_said_once(tmp_path):
    program = compile_program(WHEELS[0], "exit_status.c")
    run = headroom_run([program], tmp_path, before=WHEELS[0].command(2), memory="900T")
    assert run.errors.count("--memory 921600.0 GiB is more than the") == 1, run.errors


def test_summary(tmp_path):
    program = compile_program(WHEELS[0], "out_of_core.c")
    run = headroom_run([program, 64, 1], tmp_path, before=WHEELS[0].command(3), memory="192M")
    lines = [line for line in run.errors.splitlines() if line.startswith("headroom:")]
    assert len(lines) == 5, run.errors
    assert re.match(r"headroom: \S+: 3 processes, [\d.]+ s", lines[0])
    assert re.match(
        r"headroom:   memory    [\d.]+ MiB needed, peak [\d.]+ MiB, budget 192.0 MiB$",
        lines[1],
    )
    assert f" {run.footprint / 2**20:.1f} MiB needed" in lines[1]
    assert re.match(r"headroom:   storage   [\d.]+ MiB read, [\d.]+ MiB written, /", lines[2])
    assert re.match(r"headroom:   faults    \d+ \(userfaultfd(-user)?\), [\d.]+ s of waiting", lines[3])
    messages = f"{run.total('messages_direct')} of {run.total('messages_direct')} direct"
    calls, sums = run.total("collectives_direct"), run.total("collectives_passed_for_operation")
    assert sums == 3  # an MPI_Allreduce of numbers with fractions on each rank
    assert lines[4].startswith(f"headroom:   messages  {messages}, {calls} of {calls + sums} collective calls direct, ")
    quiet = headroom_run([program, 64, 1], tmp_path, before=WHEELS[0].command(2), memory="128M", summary="off")
    assert "headroom" not in quiet.errors
    alone = headroom_run([program, 64, 1], tmp_path, before=WHEELS[0].command(1), memory="20G")
    assert re.search(r": 1 process, [\d.]+ s\n.*budget 20.0 GiB\n.*everything fitted\n", alone.errors), alone.errors
    assert "0 of 0" not in alone.errors


def test_summary_of_a_failure(tmp_path):
    program = tmp_path / "abort"
    source = tmp_path / "abort.c"
    source.write_text(
        "#include <mpi.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n"
        "int main(int argc, char** argv) {\n"
        "  int rank;\n  MPI_Init(&argc, &argv);\n  MPI_Comm_rank(MPI_COMM_WORLD, &rank);\n"
        "  char* volatile memory = argc > 1 ? malloc(8 << 20) : NULL;\n  if (memory) memset(memory, 1, 8 << 20);\n"
        "  MPI_Barrier(MPI_COMM_WORLD);\n  if (rank == 1) MPI_Abort(MPI_COMM_WORLD, 3);\n  sleep(20);\n}\n"
    )
    subprocess.run([WHEELS[0].compiler, "-o", program, source], check=True)
    run = headroom_run([program, "allocates"], tmp_path, before=WHEELS[0].command(2), memory="64M")
    assert run.status == 3
    assert re.search(r": 2 processes, [\d.]+ s, ended by an error or MPI_Abort; figures up to then\n", run.errors), run.errors
    assert "everything fitted" not in run.errors and run.errors.count("headroom:   memory") == 1


def test_starts_the_launcher_of_the_program(mpi, tmp_path):
    program = compile_program(mpi, "calls.c")
    report = tmp_path / "run.json"
    done = plain_run([HEADROOM, "run", "-n", 3, "--memory", "256M", "--json", report, program, 1])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("digest") == 3
    figures = json.loads(report.read_text())
    assert sorted(rank["rank"] for rank in figures["ranks"]) == [0, 1, 2]
    assert {rank["mpi"] for rank in figures["ranks"]} == {mpi.name}


def test_mpi_chooses_the_launcher_of_a_script(mpi, tmp_path):
    """Which names no MPI library; whatever comes first in PATH."""
    program, script = compile_program(mpi, "calls.c"), tmp_path / "script.sh"
    script.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    script.chmod(0o755)
    for first, second in (WHEELS, WHEELS[::-1]):
        folders = [str(Path(each.mpiexec).parent) for each in (first, second)]
        env = environment() | {"PATH": ":".join([*folders, os.environ["PATH"]])}
        chosen = [HEADROOM, "run", "-n", 2, "--memory", "256M", "--mpi", mpi.name, script, 1]
        done = plain_run(chosen, env=env)
        assert done.returncode == 0 and done.stdout.count("digest") == 2, done.stderr
        assert "names no MPI library" not in done.stderr
        guessed = plain_run([HEADROOM, "run", "-n", 2, "--memory", "256M", script, 1], env=env)
        assert f"script.sh names no MPI library; started with {folders[0]}/mpiexec" in guessed.stderr
        assert "--mpi or PATH choose another" in guessed.stderr


@pytest.mark.parametrize(
    ("compiler", "flags"),
    [
        ("gcc", []),
        ("gcc", ["-no-pie", "-fno-pic", "-O2"]),
        ("gcc", ["-std=c99"]),
        ("g++", []),
        ("g++", ["-no-pie", "-fno-pic"]),
    ],
    ids=lambda words: words if isinstance(words, str) else "".join(words),
)
def test_public_headers(compiler, flags, tmp_path):
    """Found with Headroom, null without it, however the program is built, and without warnings."""
    source = tmp_path / ("calls.c" if compiler == "gcc" else "calls.cc")
    source.write_text(
        "#include <headroom/headroom.h>\n#include <headroom/memory.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
        "#include <string.h>\n"
        "int main(void) {\n"
        "  struct headroom_statistics s;\n  s.size = sizeof s;\n"
        '  if (!headroom_read_statistics || headroom_hold == 0) { puts(headroom_will_need ? "some" : "absent"); return 0; }\n'
        "  char *m = (char *)malloc(40 << 20); memset(m, 1, 40 << 20);\n"
        "  if (headroom_read_statistics(&s) != 0 || m[5] != 1) return 1;\n"
        "  int (*need)(const void *, size_t) = headroom_will_need;\n"
        "  for (int i = 0; i < 2; ++i) if (headroom_hold(m, 4096) != 0 || headroom_release(m, 4096) != 0) return 2;\n"
        "  if (need(m, 4096) != 0 || headroom_will_not_need(m, 1) != 0 || headroom_will_overwrite(m, 4096) != 0) return 3;\n"
        '  printf("%d %u %d\\n", s.budget_bytes == 24 << 20, s.short_of_memory, s.written_bytes >= 16 << 20);\n'
        "  return 0;\n}\n"
    )
    program = tmp_path / "calls"
    include = next((BUILD / "venv/lib").glob("python3*/site-packages/headroom/include"))
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{include}"]
    subprocess.run([compiler, "-O1", *strict, *flags, "-o", program, source], check=True)
    assert plain_run([program]).stdout == "absent\n"
    assert headroom_run([program], tmp_path, memory="24M").output == "1 1 1\n"


@only_in_suites  # it compiles everything once more
def test_wheel_in_a_clean_environment(tmp_path):
    """`pip install .` where nothing of this checkout is known: the headers of MPI are fetched if that is asked for, the command
    works and has its manual pages."""
    subprocess.run([BUILD / "venv/bin/python", "-m", "venv", tmp_path / "clean"], check=True)
    env = environment() | {"CMAKE_ARGS": "-DHEADROOM_FETCH_MPI_HEADERS=ON"}
    install = [tmp_path / "clean/bin/pip", "install", "-q", f"--config-settings=build-dir={tmp_path}/build", ROOT]
    subprocess.run([str(word) for word in install], check=True, env=env, timeout=280)
    command = tmp_path / "clean/bin/headroom"
    assert plain_run([command, "doctor"]).returncode == 0
    assert (tmp_path / "clean/share/man/man1/headroom-run.1").exists()
    done = plain_run([command, "run", "--memory", "64M", sys.executable, "-c", "print(sum(range(10)))"])
    assert done.stdout == "45\n", done.stderr


def test_mpi_headers_are_not_downloaded_unasked(tmp_path):
    command = [BUILD / "venv/bin/cmake", "-S", ROOT, "-B", tmp_path]
    done = plain_run(command, env=environment() | {"CMAKE_ARGS": ""})
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "No MPI headers were given. Set HEADROOM_MPICH_INCLUDE" in said and "HEADROOM_FETCH_MPI_HEADERS=ON" in said


def test_storage_prefers_disks_without_moving_parts(monkeypatch, tmp_path):
    for name in ("slow", "quick"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path / "slow"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "quick"))
    assert machine.storage_candidates()[0].path == str(tmp_path / "slow")  # job-local ones come first
    monkeypatch.setattr(machine, "is_rotating", lambda path: path != str(tmp_path / "quick"))
    assert machine.storage_candidates()[0].path == str(tmp_path / "quick")


def test_more_memory_than_is_free(monkeypatch, capsys):
    """Is warned of; but not because of what the interpreters use that start the ranks."""
    asked = 1 << 30
    monkeypatch.setattr(machine, "free_bytes", lambda: asked - (32 << 20))
    warn_of_too_much_memory(asked)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(machine, "free_bytes", lambda: asked // 2)
    warn_of_too_much_memory(asked)
    assert "--memory 1.0 GiB is more than the 512.0 MiB that are free" in capsys.readouterr().err


def test_programs_that_are_not_found(tmp_path):
    (tmp_path / "app").write_text("#!/bin/sh\n")
    (tmp_path / "plain").write_text("no program\n")
    for name, status, text in (
        ("app", 127, "headroom: error: app: not found in PATH; did you mean ./app?"),
        ("./plain", 126, "headroom: error: ./plain: is not executable"),
        ("./", 126, "headroom: error: ./: is a directory"),
        ("nowhere", 127, "headroom: error: nowhere: not found"),
    ):
        (tmp_path / "app").chmod(0o755)
        done = subprocess.run(
            [HEADROOM, "run", name], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment()
        )
        assert (done.returncode, done.stderr.strip()) == (status, text)


def test_scripts_lead_to_their_interpreters(tmp_path):
    script = tmp_path / "script"
    for line, found in (
        (f"#!{sys.executable} -u", sys.executable),
        ("#!/usr/bin/env -S A=1 sh -e", shutil.which("sh")),
        ("#!/no/such/interpreter", None),
        ("no script", None),
    ):
        script.write_text(line + "\n")
        assert machine.script_interpreter(str(script)) == found
    assert machine.script_interpreter(str(tmp_path)) is None


def test_runs_of_a_batch_script_are_jobs_of_their_own(monkeypatch):
    """Slurm's daemon has started them all; of what srun has started it is what they have in common."""
    above = machine.process_above
    monkeypatch.setattr(machine, "process_above", lambda pid: above(pid) if pid == os.getpid() else ("slurmstepd", 0, 500))
    daemon = f"{os.getppid()}.500"
    for name in [name for names in machine.STEP_NAMES for name in names]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    own = f"{os.getpid()}."
    assert machine.job_name().startswith(own)
    monkeypatch.setenv("SLURM_STEP_ID", str(machine.FIRST_SPECIAL_STEP + 11))
    assert machine.job_name().startswith(own)
    monkeypatch.setenv("SLURM_STEP_ID", "3")
    assert machine.job_name() == daemon


def test_launchers_that_are_not_known(tmp_path):
    """Processes of one step share the node's budget though nothing that started them is known; those of two steps do not."""
    report = tmp_path / "run.json"
    program = [sys.executable, "-c", "import time; array = bytearray(8 << 20); time.sleep(1)"]
    command = [str(HEADROOM), "run", "--memory", "64M", "--json", str(report), "--", *program]
    for steps, processes in ((["77", "77"], 2), (["77", "78"], 1)):
        started = [subprocess.Popen(command, env=environment() | {"PALS_APID": step}, stderr=subprocess.PIPE) for step in steps]
        errors = [child.communicate(timeout=60)[1].decode() for child in started]
        words = ": 1 process," if processes == 1 else f": {processes} processes,"
        assert sum(words in text for text in errors) == 2 // processes, errors


def test_the_programs_own_io_uring_is_refused(tmp_path):
    """Memory in a ring could not be moved safely; such programs have another way for kernels without io_uring."""
    need("io_uring")
    source = tmp_path / "ring.c"
    source.write_text(
        "#include <errno.h>\n#include <stdio.h>\n#include <unistd.h>\n"
        "int main(void) { char room[256] = {0}; long ring = syscall(425, 8, room);"
        ' printf("%d %d\\n", ring < 0 && errno == ENOSYS, syscall(39) == getpid()); return 0; }\n'
    )
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-o", tmp_path / "ring", source], check=True)
    done = plain_run([HEADROOM, "run", "--memory", "64M", "--", tmp_path / "ring"])
    assert done.stdout == "1 1\n"
    assert "the program's io_uring is refused" in done.stderr
