"""What all tests share: the MPI libraries, compiled programs, running under Headroom, and the list of allowed skips.

A test that cannot run on this machine skips with a reason. The tests that are skipped must be just those that tests/skips.toml
lists for what this machine lacks; anything else fails the session (conditions.py).
"""

import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from conditions import may_be_skipped, need
from kernel_watch import KernelWatch
from variants import thin_out

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests/programs"
BUILD = ROOT / "build"
HEADROOM = BUILD / "venv/bin/headroom"

REASONS_TO_PASS = ["other_nodes", "communicator", "arguments", "partitions"]
REASONS_OF_COLLECTIVES = ["other_nodes", "communicator", "operation"]
ENGINES = ["userfaultfd", "userfaultfd-user", "sigsegv"]
# As root Open MPI wants to be asked twice. Its transport over libfabric, which is never chosen on one machine, sleeps for a
# second in each start.
OPEN_MPI = {f"{p}_ALLOW_RUN_AS_ROOT{s}": "1" for p in ("OMPI", "PRTE") for s in ("", "_CONFIRM")} | {"OMPI_MCA_btl": "^ofi"}


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
# Binary compatible with MPICH, so its compiler serves.
INTEL_ROOT = BUILD / "mpi/intel"
INTEL = Mpi(
    "intel",
    WHEELS[0].compiler,
    "env",
    [f"I_MPI_ROOT={INTEL_ROOT}", f"LD_LIBRARY_PATH={INTEL_ROOT}/lib", str(INTEL_ROOT / "bin/mpiexec")],
)
DEBIAN = [
    Mpi("mpich-debian", "mpicc.mpich", "mpiexec.mpich", []),
    Mpi("openmpi-debian", "mpicc.openmpi", "mpiexec.openmpi", ["--oversubscribe"]),
]


def compile_program(mpi: Mpi | None, source: str, *flags: str, compiler: str | None = None, libraries: tuple = ()) -> Path:
    """Compiles SOURCE, of a folder of tests/programs or by its whole path, once for this MPI (None: without MPI)."""
    path = ROOT / source if os.sep in str(source) else next(PROGRAMS.glob(f"*/{source}"))
    name = f"{path.stem}-{mpi.name if mpi else 'plain'}{''.join(re.sub(r'[^a-zA-Z0-9]', '', flag) for flag in flags)}"
    program = BUILD / "tests" / name
    used = compiler or (mpi.compiler if mpi else "gcc")
    headers = [*PROGRAMS.rglob("*.h"), *(ROOT / "include").rglob("*.h"), *(ROOT / "python/headroom/bench").glob("*.h")]
    sources = [path, *headers, Path(shutil.which(used) or path)]
    newest = max(file.stat().st_mtime for file in sources)
    if program.exists() and program.stat().st_mtime > newest:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    flags = (f"-I{PROGRAMS / 'shared'}", *flags)
    subprocess.run([used, "-O2", "-g", *flags, "-o", str(program), str(path), "-lpthread", *libraries], check=True, timeout=120)
    return program


class Run:
    """A finished run under Headroom."""

    def __init__(self, done: subprocess.CompletedProcess | subprocess.Popen, reports: list[dict], kernel: KernelWatch):
        self.status = done.returncode
        self.output = done.stdout
        self.errors = done.stderr
        self.report = reports[0] if reports else {}
        self.reports = reports  # one a node
        self.kernel = kernel
        self.kernel_agrees = False  # as far as is known

    def total(self, counter: str) -> int:
        assert self.reports, f"no node has written a report; status {self.status}, errors: {self.errors}"
        return sum(report["total"][counter] for report in self.reports)

    def assert_each_message_went_one_way(self) -> None:
        """Nothing is counted twice, and nothing that was sent and received is counted nowhere."""
        sent = self.total("messages_direct") + self.total("messages_collective")
        assert sent == sum(self.total(f"messages_{way}") for way in ("inline", "fetched", "aside", "streamed"))
        long_bytes = sum(self.total(f"messages_{way}_bytes") for way in ("fetched", "aside", "streamed"))
        assert self.total("messages_long_bytes") == long_bytes

    @property
    def footprint(self) -> int:
        """What its processes had touched at most, each at its own time: in the arena, and what counts outside it."""
        return self.total("touched_bytes_peak") + self.total("other_bytes_peak")

    @property
    def short_of_memory(self) -> bool:
        return any(report["short_of_memory"] for report in self.reports)

    def engines(self) -> set[str]:
        return {rank["engine"] for rank in self.report["ranks"] if rank["rank"] >= 0 or len(self.report["ranks"]) == 1}

    def assert_what_it_says_of_shortage(self, files: int = 0) -> None:
        """What holds of every run in which memory was short, whatever its program does: the kernel has counted what the store
        says that it has moved, past swap and page cache, and no node has kept more than it may. `files`: bytes that the program
        itself reads, and writes, as files."""
        assert {rank["store_direct"] for node in self.reports for rank in node["ranks"] if rank["armed"]} <= {True}
        for node in self.reports:
            assert node["peak_counted_bytes"] <= within(node)
        self.kernel.assert_agrees(self.total("bytes_read"), self.total("bytes_written"), files)
        self.kernel.assert_past_caches()
        self.kernel_agrees = True

    def assert_paged(self, footprint: int, budget: int, reads: int = 1, writes: int = 1) -> None:
        """Memory was really short: on each node, which has so much of both, at least what does not fit was written and read.
        That the kernel agrees has been looked at for every run. `reads`, `writes`: how often the program goes over all of its
        memory reading (whatever else), and writing: what does not fit moves each time."""
        assert footprint > budget
        assert self.kernel_agrees and self.reports
        for node in self.reports:
            assert node["short_of_memory"] and node["budget_bytes"] == budget
            assert node["total"]["bytes_written"] >= writes * (footprint - budget), node["total"]
            assert node["total"]["bytes_read"] >= reads * (footprint - budget), node["total"]


def within(node: dict) -> int:
    """The most that may count as resident on a node at one time: memory outside the arena is found when it is there, counts up
    to half a share, and is then made up for; and messages to oneself, or to ranks that do not receive yet, are there whatever
    the budget (seen: 8 of 96 MiB). That no hard limit is reached is test_hard_limit's to show."""
    budget = node["budget_bytes"]
    return budget + min(budget // 2, node["total"]["other_bytes_peak"]) + max(4 << 20, budget // 6)


def environment(**settings: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
    return clean | OPEN_MPI | {f"HEADROOM_{name.upper()}": value for name, value in settings.items()}


# Without root's privileges; comes first in a command.
ORDINARY_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]


def make_public(folder: Path) -> None:
    """An ordinary user may write there; it is pytest's own."""
    folder.chmod(0o777)
    for parent in folder.parents:
        if Path(tempfile.gettempdir()) in parent.parents:
            parent.chmod(0o755)


def plain_run(command: list, timeout: int = 120, env: dict | None = None) -> subprocess.CompletedProcess:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=env or environment(), check=False)


# Makes ranks of one machine those of several nodes: rank r is on node r % NODES. Each node has its own session and reports.
_ON_NODES = """
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} size=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}
node=$((rank % NODES)) here=$(((size - node + NODES - 1) / NODES))
export HEADROOM_JOB=$HEADROOM_JOB-$node MPI_LOCALNRANKS=$here OMPI_COMM_WORLD_LOCAL_SIZE=$here
left=$#
while [ $left -gt 0 ]; do
  word=$1
  [ "$previous" != --json ] || [ $node = 0 ] || word=$word.$node
  previous=$1
  shift
  set -- "$@" "$word"
  left=$((left - 1))
done
exec "$@"
"""


def on_nodes(count: int) -> list[str]:
    """A command that starts `headroom run` as on one of `count` nodes; comes after the launcher."""
    return ["env", f"NODES={count}", f"HEADROOM_JOB=emulated-{time.monotonic_ns()}", "sh", "-c", _ON_NODES, "sh"]


def headroom_run(
    command: list,
    tmp_path: Path,
    before: list = (),
    timeout: int = 200,
    env: dict | None = None,
    may_pass: frozenset[str] | set[str] = frozenset(),
    collectives_may_pass: frozenset[str] | set[str] = frozenset(),
    files: int = 0,
    unwatched: str | None = None,
    **settings,
) -> Run:
    """Runs `BEFORE headroom run --SETTING VALUE ... COMMAND`; `before` is a launcher, or empty. With direct="on" messages
    and collectives may be left to the MPI library for the reasons given alone, and some must be for each of them.

    If memory was short, and the run succeeded, the kernel's counts must say so, too (assert_what_it_says_of_shortage). `files`:
    the most that the program itself reads, or writes, as files. `unwatched`: why that cannot hold."""
    report = tmp_path / f"run-{time.monotonic_ns()}.json"
    options = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words = [str(w) for w in [*before, HEADROOM, "run", *options, "--json", report, "--", *command]]
    # A launcher reads options of ours that look like its own only if nothing separates them; -n comes before.
    with KernelWatch(str(settings.get("storage", "/var/tmp"))) as kernel:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=env or environment(), check=False)
    written = sorted(report.parent.glob(f"{report.name}*"), key=lambda path: len(path.name))
    run = Run(done, [json.loads(path.read_text()) for path in written], kernel)
    if settings.get("direct") == "on" and run.status == 0:
        assert {why for why in REASONS_TO_PASS if run.total(f"passed_for_{why}") > 0} == set(may_pass)
        passed = {why for why in REASONS_OF_COLLECTIVES if run.total(f"collectives_passed_for_{why}") > 0}
        assert passed == set(collectives_may_pass)
    if run.status == 0 and run.short_of_memory and unwatched is None:
        run.assert_what_it_says_of_shortage(files)
    return run


@pytest.fixture(params=WHEELS, ids=lambda mpi: mpi.name)
def mpi(request) -> Mpi:
    return request.param


@pytest.fixture(params=ENGINES)
def engine(request) -> str:
    if request.param != "sigsegv":
        need(f"the engine {request.param}")
    return request.param


class Shortage:
    """Memory too short for what the ranks have: with each engine, and with more ranks than cores."""

    def __init__(self, engine: str, ranks: int):
        self.engine = engine
        self.ranks = ranks
        self.each = 40 if ranks == 4 else 24  # MiB a rank
        self.budget = 96

    @property
    def settings(self) -> dict:
        return {"memory": f"{self.budget}M", "engine": self.engine}

    def assert_paged(self, run: Run) -> None:
        assert run.engines() == {self.engine}
        run.assert_paged(self.ranks * self.each << 20, self.budget << 20)


@pytest.fixture(
    params=[*((engine, 4) for engine in ENGINES), (ENGINES[0], 8)],
    ids=lambda value: f"{value[0]}-{value[1]}",
)
def short(request) -> Shortage:
    engine, ranks = request.param
    if engine != "sigsegv":
        need(f"the engine {engine}")
    return Shortage(engine, ranks)


SEED = os.environ.get("HEADROOM_TEST_SEED") or str(time.time_ns() % 1_000_000)


@pytest.fixture(autouse=True)
def seeded(request):
    """Random work is the same again with the same seed, whatever other tests run. A test that fails says which it was."""
    random.seed(f"{SEED} {request.node.nodeid}")
    request.node.add_report_section("setup", "seed", f"HEADROOM_TEST_SEED={SEED}")


@pytest.fixture(autouse=True, scope="session")
def programs_are_in_the_page_cache():
    """What a run reads from the disk beside the store is then little, and can be told from it (kernel_watch.py)."""
    for path in BUILD.rglob("*.so*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(16 << 20):
                    pass


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """No process, no named file in the storage directory and no socket of ours outlives a test. (Storage has no name, and is
    freed with the process that has it open.)"""
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
    for process in Path("/proc").glob("[0-9]*"):
        try:
            loaded = (process / "maps").read_text()
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # another user's, or it has ended
        if "libheadroom.so" in loaded or words[0].endswith(b"headroom-supervise"):
            found.append(f"process {process.name}: {b' '.join(words).decode()}")
    return found


# --- skips must be those that are listed -------------------------------------------------------------------------------

_outcomes: dict[str, str] = {}


def pytest_collection_modifyitems(config, items):
    thin_out(config, items)


def pytest_runtest_logreport(report):
    if report.skipped or report.when == "call":
        _outcomes[report.nodeid] = "skipped" if report.skipped else "run"


def pytest_sessionfinish(session, exitstatus):
    wrong = [f"{test} was {outcome}" for test, outcome in _outcomes.items() if (outcome == "skipped") != may_be_skipped(test)]
    if wrong:
        print("\nnot as tests/skips.toml says:\n  " + "\n  ".join(wrong))
        session.exitstatus = 1
