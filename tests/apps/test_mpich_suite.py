"""The tests that come with MPICH's source, plain MPI programs of others: they pass under Headroom exactly as without.

By default every second one of point to point, with MPICH. With HEADROOM_SUITES=all (variants.py): all of FOLDERS, with both
libraries.
"""

import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from conditions import BUILD, need
from conftest import ROOT, WHEELS, environment, headroom_run, plain_run
from variants import EVERY_VARIANT

FOLDERS = [
    "pt2pt",
    "datatype",
    "comm",
    "coll",
    "topo",
    "attr",
    "errhan",
    "group",
    "info",
    "rma",
    "threads/pt2pt",
    "threads/comm",
    "threads/coll",
    "threads/rma",
    "errors/basic",
    "errors/coll",
    "errors/comm",
    "errors/datatype",
    "errors/group",
    "errors/pt2pt",
    "errors/rma",
    "io",
    "errors/io",
]
CALLS_ONLY = [
    "errhan",
    "info",
    "errors/basic",
    "errors/comm",
    "errors/datatype",
    "errors/group",
    "errors/io",
]  # these hardly send anything
SECONDS = 120
# Of the tests that a folder lists, at least so many pass. Others fail without Headroom, too: some use what newer versions of
# MPI no longer have, and some (of topologies and attributes) expect of Open MPI what MPICH does.
SHARE_THAT_PASSES = 0.75
SHARE_OF_FILES = 0.5  # some need what MPICH's build makes, or file systems of its own


class Case(NamedTuple):
    """A line of a list of tests."""

    program: Path
    ranks: int
    arguments: list[str]
    variables: dict[str, str]
    must_fail: bool

    def __str__(self) -> str:
        return shlex.join([self.program.name, str(self.ranks), *self.arguments])


def cases(folder: Path) -> list[Case]:
    lists = [path for path in (folder / "testlist", folder / "testlist.in") if path.exists()]
    found = {}
    for line in lists[0].read_text().splitlines():
        words = line.split("#")[0].split()
        if len(words) < 2 or "/" in words[0] or "@" in line:
            continue  # an option of MPICH's build, or a program that is made from data for MPICH's developers
        options = [word.partition("=")[::2] for word in words[2:]]
        variables = dict(value.partition("=")[::2] for name, value in options if name == "env")
        if any(name.startswith("MPIR_CVAR") for name in variables):
            continue  # the same program, with other insides of MPICH
        arguments = [value for name, value in options if name == "arg"]
        left_out = any(name in ("mem", "xfail") for name, _ in options)  # needs gigabytes; MPICH's own list expects it to fail
        case = Case(folder / words[0], int(words[1]), arguments, variables, ("resultTest", "TestErrFatal") in options)
        if not left_out:
            found[str(case)] = case
    return list(found.values())


def has_passed(case: Case, status: int, output: str) -> bool:
    return status != 0 if case.must_fail else status == 0 and "No Errors" in output


def passes_plain(case: Case, mpi) -> bool:
    env = environment() | case.variables
    try:
        done = plain_run([*mpi.command(case.ranks), case.program, *case.arguments], SECONDS, env)
    except subprocess.TimeoutExpired:
        return False
    return has_passed(case, done.returncode, done.stdout)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("folder", FOLDERS if EVERY_VARIANT else FOLDERS[:1])
@pytest.mark.parametrize("library", WHEELS if EVERY_VARIANT else WHEELS[:1], ids=lambda mpi: mpi.name)
def test_mpich_suite(library, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # those of files leave some
    script = ROOT / "setup/mpich_tests.sh"
    subprocess.run([script, library.name, folder.split("/")[0]], check=True, timeout=900, env=environment())
    need("MPICH's tests")
    listed = cases(BUILD / f"apps/mpich-tests/{library.name}/{folder}")[:: 1 if EVERY_VARIANT else 8]
    worse = {}
    passed = direct = 0
    for case in [case for case in listed if case.program.exists()]:
        command = [case.program, *case.arguments]
        env = environment() | case.variables
        try:
            run = headroom_run(command, tmp_path, before=library.command(case.ranks), timeout=SECONDS, env=env)
        except subprocess.TimeoutExpired:
            worse |= {str(case): f"not ended after {SECONDS} s"} if passes_plain(case, library) else {}
            continue
        direct += run.total("messages_direct") + run.total("collectives_direct")
        if has_passed(case, run.status, run.output):
            passed += 1
        elif passes_plain(case, library):
            worse[str(case)] = run.output[-1000:] + run.errors[-1000:]
    assert not worse
    assert passed >= (SHARE_OF_FILES if folder.endswith("io") else SHARE_THAT_PASSES) * len(listed) and listed
    assert direct >= len(listed) or folder in CALLS_ONLY
