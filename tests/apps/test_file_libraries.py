"""The tests that come with HDF5 and PnetCDF, whose collective calls are Headroom's: they pass as without."""

import re
import subprocess

import pytest

from conditions import BUILD, need
from conftest import DEBIAN, ROOT, environment, headroom_run, on_nodes, plain_run
from variants import only_in_suites

FOLDER = BUILD / "apps/file-libraries"
OPEN_MPI = DEBIAN[1]


@pytest.fixture(scope="module", autouse=True)
def built():
    subprocess.run([ROOT / "setup/file_library_tests.sh"], check=True, timeout=900, env=environment())
    need("tests of file libraries")


def headroom_calls(run) -> int:
    return run.total("io_writes") + run.total("io_reads")


@only_in_suites
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("memory, nodes", [("1G", 1), ("1G", 2), ("96M", 1)])
@pytest.mark.parametrize("mpi", DEBIAN, ids=lambda mpi: mpi.name)
def test_hdf5(mpi, memory, nodes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = FOLDER / f"hdf5-{'openmpi' if mpi.is_open_mpi else 'mpich'}/testphdf5"
    env = environment() | {"HDF5_PARAPREFIX": str(tmp_path)}
    before = [*mpi.command(4), *(on_nodes(nodes) if nodes > 1 else [])]
    run = headroom_run([program], tmp_path, before=before, timeout=1100, env=env, memory=memory, files=1 << 30)
    assert run.status == 0 and re.search("no errors", run.output), run.output[-2000:] + run.errors[-2000:]
    assert headroom_calls(run) > 4000
    if memory == "96M":
        assert run.short_of_memory and run.total("bytes_read") > 0 and run.total("bytes_written") > 0


@only_in_suites
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("nodes", [1, 2])
def test_pnetcdf(nodes, tmp_path, monkeypatch):
    """Some fail without Headroom, too: they want files that PnetCDF's build makes."""
    monkeypatch.chdir(tmp_path)
    programs = sorted((FOLDER / "pnetcdf/programs").iterdir())
    calls = passed = 0
    for program in programs:
        command = [program, tmp_path / "file.nc"]
        plain = plain_run([*OPEN_MPI.command(4), *command])
        before = [*OPEN_MPI.command(4), *(on_nodes(nodes) if nodes > 1 else [])]
        run = headroom_run(command, tmp_path, before=before, memory="1G")
        assert (run.status, "fail" in run.output) == (plain.returncode, "fail" in plain.stdout), [
            program,
            run.output,
            run.errors,
        ]
        passed += run.status == 0 and "pass" in run.output
        calls += headroom_calls(run)
    assert passed > 0.8 * len(programs) > 30
    assert calls > 1000
