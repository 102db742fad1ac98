"""Under Slurm: a real one, of two nodes on this machine (slurm.py)."""

import json
import re
import subprocess
import time

import pytest

from conditions import need
from conftest import DEBIAN, HEADROOM, WHEELS, Mpi, compile_program, headroom_run, plain_run
from running_processes import running
from slurm import Slurm
from variants import only_in_suites

MIB = 1 << 20
STORAGE = "/var/tmp"  # what jobs are told to take for temporary files differs from version to version
NO_CHILD = "what Slurm starts is no child of the test's, so the kernel counts it elsewhere"
MPICH = WHEELS[0]
MPICH_DEBIAN, OPEN_MPI_DEBIAN = DEBIAN
# Open MPI 4 names its shared memory by the host, which both nodes here are.
APART = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"}


@pytest.fixture(scope="module")
def slurm():
    need("Slurm")
    with Slurm() as started:
        yield started


@pytest.fixture(params=["groups", "cgroups"])
def tracking(request):
    """A Slurm that knows which processes are a job's by their process groups, or by their cgroups: it signals others."""
    need("Slurm")
    if request.param == "groups":
        yield request.getfixturevalue("slurm")
        return
    need("Slurm's cgroups")
    with Slurm(cgroups=True) as started:
        yield started


def assert_went_to_storage(reports: list[dict], nodes: int, ranks: int, each: int, budget: int) -> None:
    """Each node has a session of its own, of just its ranks, and was short of memory. `each`: MiB that a rank has."""
    assert len(reports) == nodes
    here = ranks // nodes
    numbers = sorted(sorted(rank["rank"] for rank in report["ranks"]) for report in reports)
    assert numbers == [list(range(node * here, (node + 1) * here)) for node in range(nodes)]
    for report in reports:
        assert report["short_of_memory"] and report["budget_bytes"] == budget * MIB
        assert report["total"]["bytes_written"] >= (here * each - budget) * MIB
        assert report["total"]["bytes_read"] >= (here * each - budget) * MIB
        assert report["total"]["messages_direct"] > 0


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("mpi", [MPICH, MPICH_DEBIAN, OPEN_MPI_DEBIAN], ids=lambda mpi: mpi.name)
def test_srun(slurm, mpi: Mpi, nodes, tmp_path):
    """The ranks are srun's: MPICH's by PMI-2, Open MPI's by PMIx. (Open MPI 5 may not start by Slurm 22.)"""
    need("Slurm")
    program = compile_program(mpi, "out_of_core.c")
    protocol = "pmix" if mpi.is_open_mpi else "pmi2"
    before = ["srun", f"--mpi={protocol}", "-N", nodes, "-n", 4, f"--ntasks-per-node={4 // nodes}"]
    env = slurm.environment | (APART if nodes > 1 and mpi is OPEN_MPI_DEBIAN else {})
    each = 24 * nodes
    plain = plain_run([*before, program, each, 2], env=env)
    assert plain.returncode == 0 and plain.stdout.startswith("wrong 0"), plain.stderr
    run = headroom_run([program, each, 2], tmp_path, before=before, env=env, memory="96M", storage=STORAGE, unwatched=NO_CHILD)
    assert (run.status, run.output) == (0, plain.stdout), run.errors
    assert run.errors.count("headroom:   memory") == nodes
    assert_went_to_storage(run.reports, nodes, 4, 2 * each, 96)


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("launcher", ["mpiexec", "headroom run -n"])
def test_batch(slurm, mpi: Mpi, launcher, tmp_path):
    """The launcher of the program's MPI, started from a batch script, asks Slurm where its ranks may be."""
    need("Slurm")
    program = compile_program(mpi, "out_of_core.c")
    report = tmp_path / "report.json"
    options = f"--memory 96M --storage {STORAGE} --json {report} -- {program} 48 2"
    before = f"{HEADROOM} run -n 4" if launcher == "headroom run -n" else f"{mpi.mpiexec} -n 4 {HEADROOM} run"
    job = slurm.submit(tmp_path / "job", f"{before} {options}", "-N2", "-n4", "--ntasks-per-node=2")
    assert job.wait() == ("COMPLETED", "0:0"), job.output
    assert re.search(r"^wrong 0 checksum ", job.output, re.M), job.output
    written = sorted(tmp_path.glob("report.json*"))
    assert_went_to_storage([json.loads(path.read_text()) for path in written], 2, 4, 96, 96)


def test_memory_limit(tmp_path):
    """Slurm's limit is seen without --memory, and kept; without Headroom the kernel ends the program there."""
    need("Slurm", "Slurm's cgroups")
    program = compile_program(MPICH, "out_of_core.c")
    before = ["srun", "--mpi=pmi2", "--kill-on-bad-exit=1", "-N1", "-n4", "--mem=400M"]
    with Slurm(cgroups=True) as slurm:
        plain = plain_run([*before, program, 64, 2], env=slurm.environment)
        assert plain.returncode != 0 and "oom-kill" in plain.stderr, plain.stderr
        run = headroom_run(
            [program, 64, 2], tmp_path, before=before, env=slurm.environment, storage=STORAGE, unwatched=NO_CHILD
        )
        assert run.status == 0 and run.output.startswith("wrong 0"), run.errors
        budget = run.report["budget_bytes"] / MIB
        assert 200 <= budget <= 320, "80 % of the limit, less what the ranks' interpreters had just then"
        assert run.report["short_of_memory"]


def in_a_batch_job(slurm: Slurm, tmp_path, how: str, mpi: Mpi = MPICH, *options: str):
    """A job of three ranks that wait for SIGUSR1, memory short, when they do."""
    program = compile_program(mpi, "until_told.c")
    settings = f"--memory 64M --storage {STORAGE} -- {program} 40"
    # Of a batch script Slurm signals the shell alone, which tells nobody: the launcher takes its place.
    command = {"srun": f"srun --mpi=pmi2 -n3 {HEADROOM} run", "headroom run -n": f"exec {HEADROOM} run -n 3"}[how]
    job = slurm.submit(tmp_path / "job", f"{command} {settings}", "-N1", "-n3", *options)
    job.said("waiting\n")
    return job, program


@pytest.mark.parametrize("how", ["srun", "headroom run -n"])
def test_a_signal_of_slurms_arrives_once(tracking, how, tmp_path):
    """As a job's is that asks for a checkpoint, whomever Slurm sends it to: the first process of a step, or all."""
    need("Slurm")
    job, _ = in_a_batch_job(tracking, tmp_path, how)
    tracking.ask("scancel", *(["--batch"] if how != "srun" else []), "--signal=USR1", job.number)
    assert job.wait() == ("COMPLETED", "0:0"), job.output
    assert sorted(re.findall(r"^rank.*", job.output, re.M)) == [f"rank {rank} got 1 wrong 0" for rank in range(3)]
    assert "headroom:   memory" in job.output


@only_in_suites  # half a minute of waiting
def test_time_limit(slurm, tmp_path):
    """Slurm looks at limits twice a minute, so the signal before the end comes within half a minute."""
    need("Slurm")
    job, _ = in_a_batch_job(slurm, tmp_path, "srun", MPICH, "--time=1", "--signal=USR1@50")
    assert job.wait() == ("COMPLETED", "0:0"), job.output
    assert sorted(re.findall(r"^rank.*", job.output, re.M)) == [f"rank {rank} got 1 wrong 0" for rank in range(3)]


@pytest.mark.parametrize("how", ["srun", "headroom run -n"])
def test_scancel(tracking, how, tmp_path):
    """All are told to stop, before they are killed; nobody is left."""
    need("Slurm")
    job, program = in_a_batch_job(tracking, tmp_path, how)
    began = time.monotonic()
    tracking.ask("scancel", job.number)
    assert job.wait(60)[0] == "CANCELLED"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and running(program.name):
        time.sleep(0.1)
    assert not running(program.name)
    assert time.monotonic() - began < 20, "they were killed after KillWait"  # slurm.py


def test_job_array(slurm, tmp_path):
    """Two jobs on one node at once, by one daemon: each has its own memory."""
    need("Slurm")
    program = compile_program(MPICH, "until_told.c")
    command = (
        f"exec srun --mpi=pmi2 --output {tmp_path}/%a.out -n2 {HEADROOM} run --memory 64M --storage {STORAGE} "
        f"--json {tmp_path}/$SLURM_ARRAY_TASK_ID.json -- {program} 48"
    )
    job = slurm.submit(tmp_path / "job", command, "-N1", "-n2", "--nodelist=headroom1", "--array=0-1", "--mem=500M")
    outputs = [tmp_path / f"{number}.out" for number in range(2)]
    deadline = time.monotonic() + 60
    while not all(output.exists() and "waiting" in output.read_text() for output in outputs):
        assert time.monotonic() < deadline, slurm.ask("squeue")
        time.sleep(0.1)
    top = subprocess.run([HEADROOM, "top", "--once", "--json"], capture_output=True, text=True, timeout=60, check=True)
    assert [len(json.loads(line)["members"]) for line in top.stdout.splitlines()] == [2, 2]
    slurm.ask("scancel", "--signal=USR1", job.number)
    assert job.wait() == ("COMPLETED", "0:0"), job.output
    for number, output in enumerate(outputs):
        assert sorted(re.findall(r"^rank.*", output.read_text(), re.M)) == [f"rank {rank} got 1 wrong 0" for rank in range(2)]
        report = json.loads((tmp_path / f"{number}.json").read_text())
        assert_went_to_storage([report | {"total": report["total"] | {"messages_direct": 1}}], 1, 2, 48, 64)
