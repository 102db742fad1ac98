"""The tests that come with MPICH's source, plain MPI programs of others: they pass under Headroom exactly as without.

By default every eighth one of point to point, with MPICH. With HEADROOM_SUITES=all (variants.py): all of FOLDERS, with both
libraries, and on two and three emulated nodes between which Headroom matches the messages.
"""

import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from conditions import BUILD, need
from conftest import ROOT, WHEELS, environment, headroom_run, on_nodes, plain_run
from variants import EVERY_VARIANT, only_in_suites

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


def listed_cases(library, folder: str) -> list[Case]:
    script = ROOT / "setup/mpich_tests.sh"
    build = [script, library.name]
    subprocess.run([*build, folder.split("/")[0]] if EVERY_VARIANT else build, check=True, timeout=900, env=environment())
    need("MPICH's tests")
    listed = cases(BUILD / f"apps/mpich-tests/{library.name}/{folder}")
    if EVERY_VARIANT:
        return listed
    eighth = listed[::8]
    programs = sorted({case.program.name for case in eighth})
    subprocess.run([*build, folder, *programs], check=True, timeout=900, env=environment())
    return eighth


def run_all(listed: list[Case], library, tmp_path, nodes: int = 1, **settings) -> dict[str, int]:
    """Asserts that those pass that pass without Headroom, and returns sums of counters."""
    worse = {}
    passed = 0
    sums = dict.fromkeys(("messages_direct", "collectives_direct", "messages_between"), 0)
    for case in [case for case in listed if case.program.exists()]:
        command = [case.program, *case.arguments]
        env = environment() | case.variables
        starts = [*library.command(case.ranks), *(on_nodes(nodes) if nodes > 1 else [])]
        try:
            run = headroom_run(command, tmp_path, before=starts, timeout=SECONDS, env=env, **settings)
        except subprocess.TimeoutExpired:
            worse |= {str(case): f"not ended after {SECONDS} s"} if passes_plain(case, library) else {}
            continue
        sums = {name: value + run.total(name) for name, value in sums.items()}
        if has_passed(case, run.status, run.output):
            passed += 1
        elif passes_plain(case, library):
            worse[str(case)] = run.output[-1000:] + run.errors[-1000:]
    assert not worse
    share = SHARE_OF_FILES if listed[0].program.parent.name == "io" else SHARE_THAT_PASSES
    assert passed >= share * len(listed) > 0
    return sums


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("folder", FOLDERS if EVERY_VARIANT else FOLDERS[:1])
@pytest.mark.parametrize("library", WHEELS if EVERY_VARIANT else WHEELS[:1], ids=lambda mpi: mpi.name)
def test_mpich_suite(library, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # those of files leave some
    listed = listed_cases(library, folder)
    sums = run_all(listed, library, tmp_path)
    assert sums["messages_direct"] + sums["collectives_direct"] >= len(listed) or folder in CALLS_ONLY


@only_in_suites
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("library", WHEELS, ids=lambda mpi: mpi.name)
def test_mpich_suite_between_nodes(library, nodes, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listed = listed_cases(library, folder)
    sums = run_all(listed, library, tmp_path, nodes, between="own")
    assert sums["messages_between"] > 0 or folder in CALLS_ONLY or "pt2pt" not in folder
