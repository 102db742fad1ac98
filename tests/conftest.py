"""What all tests share: the MPI libraries, compiled programs, running under Headroom, and the list of allowed skips.

A test that cannot run on this machine skips with a reason. The set of skipped tests must be one that tests/skips.toml allows
for a stated condition; anything else fails the session.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
HEADROOM = BUILD / "venv/bin/headroom"
sys.path.insert(0, str(ROOT / "bench"))

ENGINES = ["userfaultfd", "userfaultfd-user", "sigsegv"]
# As root Open MPI wants to be asked twice.
ROOT_ALLOWED = {f"{p}_ALLOW_RUN_AS_ROOT{s}": "1" for p in ("OMPI", "PRTE") for s in ("", "_CONFIRM")}


class Mpi:
    """An MPI installation: how to compile with it and how to start its programs."""

    def __init__(self, name: str, compiler: str, mpiexec: str, arguments: list[str]):
        self.name = name
        self.compiler = compiler
        self.mpiexec = mpiexec
        self.arguments = arguments

    @property
    def is_open_mpi(self) -> bool:
        return "openmpi" in self.name

    def command(self, ranks: int) -> list[str]:
        return [self.mpiexec, *self.arguments, "-n", str(ranks)]


WHEELS = [
    Mpi("mpich", str(BUILD / "mpi/mpich/bin/mpicc"), str(BUILD / "mpi/mpich/bin/mpiexec"), []),
    Mpi("openmpi", str(BUILD / "mpi/openmpi/bin/mpicc"), str(BUILD / "mpi/openmpi/bin/mpiexec"), ["--oversubscribe"]),
]
STANDARD_ABI = Mpi("standard", str(BUILD / "mpi/mpich/bin/mpicc_abi"), str(BUILD / "mpi/mpich/bin/mpiexec"), [])
DEBIAN = [
    Mpi("mpich-debian", "mpicc.mpich", "mpiexec.mpich", []),
    Mpi("openmpi-debian", "mpicc.openmpi", "mpiexec.openmpi", ["--oversubscribe"]),
]


def compile_program(mpi: Mpi | None, source: str, *flags: str, compiler: str | None = None) -> Path:
    """Compiles tests/programs/SOURCE once for this MPI (None: without MPI)."""
    path = ROOT / "tests/programs" / source
    name = f"{path.stem}-{mpi.name if mpi else 'plain'}{''.join(re.sub(r'[^a-zA-Z0-9]', '', flag) for flag in flags)}"
    program = BUILD / "tests" / name
    if program.exists() and program.stat().st_mtime > path.stat().st_mtime:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    used = compiler or (mpi.compiler if mpi else "gcc")
    subprocess.run([used, "-O2", "-g", *flags, "-o", str(program), str(path), "-lpthread"], check=True, timeout=120)
    return program


class Run:
    """A finished run under Headroom."""

    def __init__(self, status: int, output: str, errors: str, report: dict):
        self.status = status
        self.output = output
        self.errors = errors
        self.report = report

    def total(self, counter: str) -> int:
        return self.report["total"][counter]

    @property
    def short_of_memory(self) -> bool:
        return self.report["short_of_memory"]

    def engines(self) -> set[str]:
        return {rank["engine"] for rank in self.report["ranks"] if rank["rank"] >= 0 or len(self.report["ranks"]) == 1}

    def assert_paged(self, footprint: int, budget: int) -> None:
        """Memory was really short: at least what does not fit was written and read, within the budget."""
        assert self.short_of_memory
        assert self.total("bytes_written") >= footprint - budget, self.report["total"]
        assert self.total("bytes_read") >= footprint - budget, self.report["total"]
        assert self.report["peak_resident_bytes"] <= budget


def environment(**settings: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
    return clean | ROOT_ALLOWED | {f"HEADROOM_{name.upper()}": value for name, value in settings.items()}


def plain_run(command: list, timeout: int = 120, env: dict | None = None) -> subprocess.CompletedProcess:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=env or environment(), check=False)


def headroom_run(
    command: list, tmp_path: Path, before: list = (), timeout: int = 200, env: dict | None = None, **settings
) -> Run:
    """Runs `BEFORE headroom run --SETTING VALUE ... COMMAND`; `before` is a launcher, or empty."""
    report = tmp_path / f"run-{time.monotonic_ns()}.json"
    options = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words = [str(w) for w in [*before, HEADROOM, "run", *options, "--json", report, "--", *command]]
    # A launcher reads options of ours that look like its own only if nothing separates them; -n comes before.
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=env or environment(), check=False)
    figures = json.loads(report.read_text()) if report.exists() else {}
    return Run(done.returncode, done.stdout, done.stderr, figures)


@pytest.fixture(params=WHEELS, ids=lambda mpi: mpi.name)
def mpi(request) -> Mpi:
    return request.param


@pytest.fixture(params=ENGINES)
def engine(request) -> str:
    return request.param


def need_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


def need_program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def need_hard_limit():
    import hard_limit

    need_root()
    why = hard_limit.available()
    if why is not None:
        pytest.skip(f"no hard memory limit: {why}")
    return hard_limit


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """No process, no file in the storage directory and no socket of ours outlives a test."""
    yield
    deadline = time.monotonic() + 10
    while True:
        left = leftovers()
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert not left, left


def leftovers() -> list[str]:
    found = [str(path) for path in Path("/var/tmp").glob(".headroom-*")]
    sockets = Path("/proc/net/unix").read_text()
    found += [line for line in sockets.splitlines() if "@headroom-" in line]
    return found


# --- skips must be ones we know ----------------------------------------------------------------------------------------

_skipped: list[tuple[str, str]] = []


def pytest_runtest_logreport(report):
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skipped.append((report.nodeid, reason.removeprefix("Skipped: ")))


def pytest_sessionfinish(session, exitstatus):
    allowed = tomllib.loads((ROOT / "tests/skips.toml").read_text())["skip"]
    unknown = []
    for node, reason in _skipped:
        if not any(re.search(entry["test"], node) and re.search(entry["reason"], reason) for entry in allowed):
            unknown.append(f"{node}: {reason}")
    if unknown:
        print("\nskipped, but not in tests/skips.toml:\n  " + "\n  ".join(unknown))
        session.exitstatus = 1
