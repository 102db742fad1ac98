"""`headroom doctor`: what it says of the kernel, storage, messages and privileges."""

import contextlib
import json
import os
import re
import subprocess

import pytest

from conditions import need
from conftest import HEADROOM, ORDINARY_USER, compile_program, plain_run
from headroom import doctor, machine, rank
from headroom.errors import Refused
from headroom.rank import become
from headroom.run import launch
from small_disk import small_disk


def test_doctor_says_what_there_is():
    done = plain_run([HEADROOM, "doctor"])
    assert done.returncode == 0, done.stdout
    for topic in (
        "system",
        "library",
        "memory",
        "storage",
        "page faults",
        "storage transfers",
        "messages",
        "one-sided",
        "blocks",
        "MPI",
    ):
        assert re.search(rf"^(ok   |so-so|no   )  {topic}\b", done.stdout, re.M), done.stdout
    findings = json.loads(plain_run([HEADROOM, "doctor", "--json"]).stdout)
    assert {"topic", "level", "what", "cost", "remedy"} == set(findings[0])
    assert {finding["level"] for finding in findings} <= {"ok", "so-so", "no"}
    last = done.stdout.splitlines()[-1]
    assert last.startswith("Headroom works here")
    assert all(finding["topic"] in last for finding in findings if finding["level"] != "ok")


def test_doctor_says_if_nothing_can_be_run(monkeypatch):
    monkeypatch.setattr(machine, "best_storage", lambda: None)
    found = doctor.findings()
    assert not doctor.usable(found) and doctor.summed_up(found) == "Headroom cannot run programs here: storage"


def test_an_installation_for_some_mpi_libraries(monkeypatch, tmp_path):
    """As packages of distributions are: it works, and doctor says for which it does not."""
    monkeypatch.setattr(rank, "find_library", lambda: str(tmp_path / "libheadroom.so"))

    def said():
        return next(finding for finding in doctor.findings() if finding.topic == "library")

    assert (said().level, said().remedy) == (doctor.NO, "install Headroom again")
    (tmp_path / "libheadroom_mpich.so").touch()
    assert said().level == doctor.SO_SO and "without backends for Open MPI and the standard ABI" in said().what
    (tmp_path / "libheadroom_openmpi.so").touch()
    assert said().level == doctor.SO_SO and "mpi_abi.h" in said().remedy
    (tmp_path / "libheadroom_standard.so").touch()
    assert said().level == doctor.OK


def test_kernels_with_other_pages_are_refused(monkeypatch):
    asked = os.sysconf
    monkeypatch.setattr(os, "sysconf", lambda name: 65536 if name == "SC_PAGE_SIZE" else asked(name))
    with pytest.raises(Refused, match="pages of 64 KiB; .* needs pages of 4 KiB; boot"):
        become(["true"], {})
    with pytest.raises(Refused, match="pages of 64 KiB"):
        launch(2, ["true"], {})
    found = doctor.findings()
    assert not doctor.usable(found) and any("64 KiB" in finding.what and "boot" in finding.remedy for finding in found)


def test_doctor_says_how_blocks_move():
    assert doctor.moves_blocks_as_pages((6, 14), True).level == doctor.OK
    old, refused = doctor.moves_blocks_as_pages((6, 13), True), doctor.moves_blocks_as_pages((6, 18), False)
    assert old.level == doctor.SO_SO and "6.14" in old.what and old.cost and old.remedy
    assert refused.level == doctor.SO_SO and "namespaces" in refused.what and "sysctl" in refused.remedy


@contextlib.contextmanager
def cannot_be_written(folder):
    """Root may write to whatever is not mounted read-only."""
    if os.geteuid() != 0:
        folder.chmod(0o555)
        yield
        folder.chmod(0o755)
        return
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def only_storage(monkeypatch):
    """Makes a directory the only one that might be chosen."""
    monkeypatch.setattr(machine, "USUAL_PLACES", ())
    monkeypatch.chdir("/dev/shm")  # is in memory
    for name in ("SLURM_TMPDIR", "PBS_JOBDIR"):
        monkeypatch.delenv(name, raising=False)
    return lambda folder: monkeypatch.setenv("TMPDIR", str(folder))


def test_doctor_says_what_storage_would_be_chosen(tmp_path, only_storage):
    only_storage(tmp_path)
    found = doctor._storage()
    assert found.level == doctor.OK and str(tmp_path) in found.what and "GiB free" in found.what


def test_doctor_says_that_storage_cannot_be_written_or_is_in_memory(tmp_path, only_storage):
    folder = tmp_path / "folder"
    folder.mkdir()
    only_storage(folder)
    assert doctor._storage().level == doctor.OK
    with cannot_be_written(folder):
        found = doctor._storage()
    assert (
        (found.level, found.what) == (doctor.NO, "no writable local directory") and found.cost and "--storage" in found.remedy
    )
    only_storage("/dev/shm")
    assert doctor._storage() == found


def test_doctor_says_that_storage_has_little_room(tmp_path, only_storage):
    with small_disk(tmp_path, 20) as mount:
        only_storage(mount)
        found = doctor._storage()
        assert found.level == doctor.NO and str(mount) in found.what and "ext4" in found.what
        assert "too little room" in found.cost and "--storage" in found.remedy


def test_doctor_tries_what_messages_need():
    done = plain_run([HEADROOM, "doctor"])
    assert "ok     messages           direct inside the node, cross-memory attach allowed" in done.stdout
    done = plain_run([compile_program(None, "deny.c"), HEADROOM, "doctor"])
    assert re.search(
        r"messages +direct; cross-memory attach .* is refused\n.*copied twice\n.*ptrace_scope", done.stdout
    ), done.stdout


def test_doctor_tells_an_ordinary_user_what_to_do():
    need("root", "userfaultfd that is refused to some", "the engine userfaultfd-user")
    done = plain_run([*ORDINARY_USER, HEADROOM, "doctor"])
    assert re.search(r"so-so  page faults .*accesses of the program only\n.*under 128 KiB.*EFAULT", done.stdout), done.stdout
    assert "vm.unprivileged_userfaultfd=1" in done.stdout
