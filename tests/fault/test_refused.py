"""What cannot be had is refused with cause and remedy before anything runs; how a program ended is handed on."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conditions import need
from conftest import BUILD, HEADROOM, ORDINARY_USER, ROOT, WHEELS, compile_program, environment, headroom_run, plain_run
from headroom import launcher, machine
from variants import any_of

MIB = 1 << 20


def test_unwritable_storage(tmp_path):
    program = compile_program(None, "exit_status.c")
    for path in ("/no/such/place", "/proc"):
        run = headroom_run([program], tmp_path, memory="64M", storage=path)
        assert run.status == 2
        assert f"headroom: error: --storage {path}" in run.errors


def test_storage_that_cannot_be_meant(tmp_path):
    (tmp_path / "file").touch()
    for path, words in (
        ("/var/tmp,/tmp", "no such directory; several directories are separated by colons"),
        (tmp_path / "file", "is a file; name a directory"),
        ("", 'storage "": name one to 8 directories'),
        ("/dev/shm", "choose a directory on a disk, /var/tmp say"),
    ):
        done = plain_run([HEADROOM, "run", "--memory", "64M", "--storage", path, "true"])
        assert done.returncode == 2 and words in done.stderr, done.stderr


def test_storage_of_another_user():
    need("root")
    done = as_ordinary_user([HEADROOM, "run", "--memory", "64M", "--storage", "/root", "true"])
    assert done.returncode == 2 and "--storage /root: this user may not write there; choose another" in done.stderr


def test_unknown_variables_are_warned_of_once(mpi):
    env = environment() | {"HEADROOM_MEMROY": "64M"}
    done = plain_run([*mpi.command(3), HEADROOM, "run", "true"], env=env)
    assert done.returncode == 0
    assert (
        done.stderr.count("headroom: warning: HEADROOM_MEMROY is no setting; did you mean HEADROOM_MEMORY?") == 1
    ), done.stderr


def test_storage_in_memory_is_refused(tmp_path):
    run = headroom_run([compile_program(None, "exit_status.c")], tmp_path, memory="64M", storage="/dev/shm")
    assert run.status == 2
    assert "is in memory" in run.errors


def test_forced_engine_that_cannot_be_had(tmp_path):
    """An ordinary user may not have unrestricted userfaultfd; forced, that is an error and not another engine."""
    need("userfaultfd that is refused to some")
    program = compile_program(None, "exit_status.c")
    program.parent.chmod(0o755)
    run = as_ordinary_user([HEADROOM, "run", "--memory", "64M", "--engine", "userfaultfd", program])
    assert run.returncode == 2, run.stderr
    assert "--engine userfaultfd: the kernel refuses it to this user" in run.stderr
    assert "vm.unprivileged_userfaultfd" in run.stderr


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        (
            "engine",
            "userfaultfd-user",
            "--engine userfaultfd-user: the kernel .* or the container's seccomp profile refuses it",
        ),
        ("store", "io_uring", "--store io_uring: the kernel refuses io_uring here"),
    ],
)
def test_forced_choice_that_a_container_refuses(option, value, words, tmp_path):
    """A forced engine or store is an error where a seccomp profile forbids it."""
    run = headroom_run(
        [compile_program(None, "exit_status.c")],
        tmp_path,
        before=[compile_program(None, "deny.c")],
        memory="64M",
        **{option: value},
    )
    assert run.status == 2, run.errors
    assert re.search(words, run.errors), run.errors


@pytest.mark.parametrize("name", ["with space", "with:colon"])
def test_an_installation_that_cannot_be_preloaded(name, tmp_path):
    """The loader separates what LD_PRELOAD names at spaces and colons."""
    there = tmp_path / name
    (there / "setup").mkdir(parents=True)
    (there / "headroom").symlink_to(Path(machine.__file__).parent)
    start = f"import sys; sys.path.insert(0, {str(there)!r}); from headroom.command import main; main()"
    command = [BUILD / "venv/bin/python", "-c", start]
    for options in ([], ["-n", "2"]):
        done = plain_run([*command, "run", *options, "true"])
        assert done.returncode == 2 and done.stderr.startswith(f"headroom: error: {there}/headroom/lib/libheadroom.so has a ")
        assert "LD_PRELOAD" in done.stderr and "install Headroom in a folder without" in done.stderr
    found = plain_run([*command, "doctor"])
    assert found.returncode == 1 and re.search(r"^no +library +.*LD_PRELOAD", found.stdout, re.M), found.stdout
    shutil.copy(ROOT / "setup/build.sh", there / "setup")
    built = plain_run(["bash", there / "setup/build.sh"])
    assert built.returncode == 1 and "LD_PRELOAD" in built.stdout and not (there / "build").exists()


def as_ordinary_user(command: list) -> subprocess.CompletedProcess:
    words = [*ORDINARY_USER, *command]
    return plain_run(words, env=environment() | {"HOME": "/tmp"})


def test_forced_abi_that_is_another(tmp_path):
    mpi = WHEELS[0]
    run = headroom_run([compile_program(mpi, "calls.c"), 1], tmp_path, before=mpi.command(1), memory="64M", mpi="openmpi")
    assert run.status == 2
    assert re.search(
        r"--mpi openmpi: the program uses \S*libmpi.so.12, which is mpich; leave --mpi out", run.errors
    ), run.errors
    done = plain_run([HEADROOM, "run", "-n", 1, "--memory", "64M", "--mpi", "openmpi", compile_program(mpi, "calls.c"), 1])
    assert done.returncode == 2 and "which is mpich; leave --mpi out" in done.stderr


@pytest.mark.parametrize("insists", [False, True], ids=["as it comes", "insists"])
def test_nothing_moves_where_a_library_cannot_be_told_to_copy(insists, engine, tmp_path):
    """An MPICH that says it is MVAPICH, on a node that seems to have a card: what it registers would be lost if it moved.
    Nothing moves then, and messages are right and direct. A user who insists on memory that moves is told why not."""
    need("root")
    mpi = WHEELS[0]
    library = (Path(mpi.mpiexec).parents[1] / "lib/libmpi.so.12").resolve()
    (tmp_path / "libmpi").write_bytes(library.read_bytes().replace(b"MPICH Version:", b"MVAPICH Ver.:\t"))
    card = f"mount -t tmpfs none /sys/class && mkdir -p /sys/class/cxi/cxi0 && mount --bind {tmp_path}/libmpi {library}"
    before = ["unshare", "-m", "sh", "-c", f'{card} && exec "$@"', "sh", *mpi.command(2)]
    program = compile_program(mpi, "out_of_core.c", "-DSTATIC_MIB=48")
    settings = {"memory": "64M", "engine": engine} | ({"large": "1M"} if insists else {})
    run = headroom_run([program, 48, 1], tmp_path, before=before, **settings)
    why = "MVAPICH registers memory with this node's network cards, and was never seen to copy"
    assert run.errors.count(why) == 1, run.errors
    if insists:
        assert run.status == 2 and "Start with --large 1T --small off --static-data off" in run.errors, run.errors
        return
    assert run.status == 0 and run.errors.count("so nothing moves to storage, as with --large 1T") == 1, run.errors
    for counter in ("allocations", "static_bytes", "small_object_bytes", "bytes_written"):
        assert run.total(counter) == 0, counter
    assert run.total("messages_direct") > 0


def test_wrong_launcher_is_explained(tmp_path):
    """N times rank 0 of 1: the launcher of another MPI. The other way round MPICH's own words would be that it is an
    "unsupported PMI version"."""
    program = compile_program(WHEELS[1], "out_of_core.c")
    run = headroom_run([program, 2, 1], tmp_path, before=WHEELS[0].command(3), memory="64M")
    assert run.status == 2 and "wrong 0" not in run.output
    assert run.errors.count('this one is "rank 0 of 1"') == 1, run.errors
    assert "headroom run -n 3 --mpi openmpi" in run.errors
    program = compile_program(WHEELS[0], "out_of_core.c")
    run = headroom_run([program, 2, 1], tmp_path, before=WHEELS[1].command(3), memory="64M")
    assert run.status == 2 and "PMI" not in run.errors
    assert run.errors.count("Open MPI's launcher started this program as one of 3 ranks, but it uses another MPI (mpich)") == 1
    assert "headroom run -n 3 --mpi mpich" in run.errors and "everything fitted" not in run.errors


def test_a_program_that_is_started_alone_may_be_any_mpis():
    for mpi in WHEELS:
        done = plain_run([HEADROOM, "run", "--memory", "64M", compile_program(mpi, "out_of_core.c"), 2, 1], timeout=60)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("under", [False, True], ids=["starts it", "under it"])
def test_too_little_memory_for_the_ranks(mpi, under):
    """Refused before the program runs, once, with a size that is accepted."""
    start = [*mpi.command(6), HEADROOM, "run"] if under else [HEADROOM, "run", "-n", 6, "--mpi", mpi.name]
    env = environment() | {"PATH": f"{Path(mpi.mpiexec).parent}:{os.environ['PATH']}"}
    done = plain_run([*start, "--memory", "20M", "--", "sh", "-c", "echo started"], env=env)
    assert done.returncode == 2 and "started" not in done.stdout
    assert done.stderr.count("--memory 20.0 MiB is too small for 6 ranks on a node, 3.3 MiB each") == 1, done.stderr
    assert "raise it to 48M" in done.stderr
    done = plain_run([*start, "--memory", "48M", "--", "sh", "-c", "echo started"], env=env)
    assert done.returncode == 0 and done.stdout.count("started") == 6, done.stderr


def test_a_launcher_under_a_launcher_is_refused(mpi):
    done = plain_run([*mpi.command(3), HEADROOM, "run", "-n", 2, "--memory", "64M", "sh", "-c", "echo started"])
    assert done.returncode == 2 and "started" not in done.stdout
    assert done.stderr.count("headroom: error: -n 2 under a launcher, which has started 3 processes") == 1, done.stderr
    assert "mpiexec -n 3 headroom run" in done.stderr


def test_a_launcher_in_a_batch_script_is_not_refused(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    monkeypatch.setenv("SLURM_STEP_ID", str(machine.FIRST_SPECIAL_STEP + 11))
    assert launcher.started_ranks(os.environ) == 1
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert launcher.started_ranks(os.environ) == 4


@any_of("mpi")
def test_a_job_that_is_only_partly_under_headroom_is_refused(mpi, tmp_path):
    program = compile_program(mpi, "calls.c")
    command = [*mpi.command(1), program, 1, ":", "-n", 2, HEADROOM, "run", "--memory", "64M", "--", program, 1]
    done = plain_run(command, timeout=60)
    assert done.returncode != 0
    assert "only 2 of the 3 ranks that the launcher started on this node found each other" in done.stderr


def test_program_not_found(tmp_path):
    run = headroom_run(["no-such-program"], tmp_path)
    assert run.status == 127
    assert "no-such-program: not found" in run.errors


@pytest.mark.parametrize("status", [0, 1, 42])
def test_exit_status_is_the_programs(status, tmp_path):
    run = headroom_run([compile_program(None, "exit_status.c"), status], tmp_path, memory="64M")
    assert run.status == status


@pytest.mark.parametrize("status", [0, 7])
def test_exit_status_through_the_launcher(mpi, status, tmp_path):
    program = compile_program(mpi, "exit_status.c")
    plain = plain_run([*mpi.command(2), program, status], timeout=60)
    done = plain_run([HEADROOM, "run", "-n", 2, "--memory", "64M", program, status], timeout=60)
    assert done.returncode == plain.returncode == status
