"""Pipes between the ranks of an MPI program: under both libraries, with and without Headroom, and while memory is short."""

import errno
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from conditions import need
from conftest import BUILD, ENGINES, HEADROOM, ROOT, WHEELS, compile_program, environment, headroom_run, plain_run
from headroom.rank import library_path

MIB = 1 << 20
LIBRARY = Path(library_path()).parent
LINK = (f"-L{LIBRARY}", "-l:librpipe.so.1", f"-Wl,-rpath,{LIBRARY}")
POLICIES = 4  # of heaps


def compiled(mpi, source):
    return compile_program(mpi, source, f"-I{ROOT / 'include'}", libraries=LINK)


def test_the_program_of_the_paper(mpi):
    done = plain_run([*mpi.command(2), compiled(mpi, ROOT / "examples/rpipe/paper.c")])
    assert (done.returncode, done.stdout) == (0, "rank 1 read 42\n"), done.stderr


@pytest.mark.parametrize(
    "source, arguments, ranks, said",
    [("halo.c", (120, 50), 3, r"sum [\d.]+, change [\d.e-]+\n"), ("hash_table.c", (3000,), 4, r"\d+ keys, sum [\da-f]{16}\n")],
)
def test_the_examples_do_the_same_in_every_way(mpi, source, arguments, ranks, said, tmp_path):
    """By pipes, by messages and by windows; and by pipes under Headroom."""
    program = compiled(mpi, ROOT / "examples/rpipe" / source)
    outputs = {}
    for way in ("pipes", "messages", "windows"):
        done = plain_run([*mpi.command(ranks), program, way, *arguments])
        assert done.returncode == 0, done.stderr
        assert f"{way}: " in done.stderr
        outputs[way] = done.stdout
    run = headroom_run([program, "pipes", *arguments], tmp_path, before=mpi.command(ranks), memory="256M")
    assert run.total("messages_piped") > 0
    assert re.fullmatch(said, run.output)
    assert set(outputs.values()) == {run.output}


@pytest.mark.parametrize("ranks", [3, 8])
def test_without_headroom(mpi, ranks):
    done = plain_run([*mpi.command(ranks), compiled(mpi, "pipes.c"), 4, 300, 0])
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"right {ranks * 2 * 2 * 300}\n"


@pytest.mark.parametrize("ranks", [3, 8])
@pytest.mark.parametrize("library", ["mpi", "ofi"])
def test_by_messages(mpi, ranks, library):
    """As between nodes, which is what the program asks for; it looks that this is how they went."""
    before = ["env", f"RPIPE_BETWEEN={library}"]
    done = plain_run([*mpi.command(ranks), *before, compiled(mpi, "pipes.c"), 4, 300, 0, f"by-{library}"])
    assert (done.returncode, done.stdout) == (0, f"right {ranks * 2 * 2 * 300}\n"), done.stderr


@pytest.mark.parametrize("under", [False, True], ids=["plain", "headroom"])
def test_what_holds_by_messages_alone(mpi, under, tmp_path):
    """Which ends fit, which threads may send, and that the end comes although much is never read."""
    program = compiled(mpi, "pipe_ways.c")
    if under:
        run = headroom_run([program], tmp_path, before=mpi.command(2), memory="2G")
        assert (run.status, run.output) == (0, "right\n"), run.errors
        errors = run.errors
    else:
        done = plain_run([*mpi.command(2), program])
        assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
        errors = done.stderr
    assert len(re.findall(r"rpipe: rank \d: no pipe to rank \d \(on \S+\) by messages: it is this rank\n", errors)) == 2


def test_to_other_nodes_they_go_by_messages(tmp_path):
    """Ranks in network namespaces of their own have no memory in common that they could find."""
    need("network namespaces")
    mpi = WHEELS[0]
    program = compiled(mpi, "pipes.c")
    done = plain_run([*mpi.command(3), "unshare", "--net", program, 4, 100, 0, "elsewhere"])
    assert (done.returncode, done.stdout) == (0, f"right {3 * 2 * 2 * 100}\n"), done.stderr
    # What ranks say goes to a file: MPICH's launcher may drop what a rank has said just before it ended.
    said = tmp_path / "said"
    into_file = ["sh", "-c", 'exec "$@" 2>>"$0"', said]
    done = plain_run([*mpi.command(2), *into_file, "unshare", "--net", program, 4, 100, 0, "on-node"])
    assert done.returncode != 0
    assert re.search(r"rpipe: rank \d: no pipe to rank \d \(on \S+\) by memory: it is on another node\n", said.read_text())


@pytest.fixture
def two_nodes():
    """Two network namespaces that reach each other: the words that run a command in each."""
    need("network namespaces that reach each other")
    tag = f"hr{os.getpid()}"
    names = [f"{tag}-{each}" for each in range(2)]
    ends = [f"{tag}e{each}" for each in range(2)]
    steps = [["ip", "netns", "add", name] for name in names]
    steps.append(["ip", "link", "add", ends[0], "netns", names[0], "type", "veth", "peer", "name", ends[1], "netns", names[1]])
    for each, (name, end) in enumerate(zip(names, ends, strict=True)):
        steps.append(["ip", "-n", name, "addr", "add", f"10.94.0.{each + 1}/24", "dev", end])
        steps += [["ip", "-n", name, "link", "set", device, "up"] for device in ("lo", end)]
    try:
        for step in steps:
            subprocess.run(step, check=True)
        for name, end in zip(names, ends, strict=True):
            while "state UP" not in plain_run(["ip", "-n", name, "link", "show", end]).stdout:
                time.sleep(0.01)
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def start_without_mpi(folder, where, kib):
    """The example's ranks, each where it is said."""
    program = folder / "without_mpi"
    source = ROOT / "examples/rpipe/without_mpi.c"
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", f"-I{ROOT / 'include'}", source, "-o", program, *LINK], check=True)
    meeting = folder / "meeting"
    meeting.mkdir()
    words = [[*before, program, meeting, rank, len(where), kib] for rank, before in enumerate(where)]
    commands = [[str(word) for word in command] for command in words]
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for command in commands]
    return [rank.communicate(timeout=60) for rank in ranks]


def test_without_mpi_on_one_node(tmp_path):
    said = start_without_mpi(tmp_path, [[]] * 3, 64)
    assert said == [(f"rank {rank} read 8192 right words from rank {(rank - 1) % 3} by memory\n", "") for rank in range(3)]


@pytest.mark.parametrize("kib", [1, 40960])
def test_without_mpi_between_nodes_they_go_by_libfabric(two_nodes, kib, tmp_path):
    """Two ranks on each: the next one is on the other node, or on the same."""
    said = start_without_mpi(tmp_path, [two_nodes[0], two_nodes[0], two_nodes[1], two_nodes[1]], kib)
    ways = ["libfabric", "memory", "libfabric", "memory"]
    words = kib * 1024 // 8
    assert said == [
        (f"rank {rank} read {words} right words from rank {(rank - 1) % 4} by {way}\n", "") for rank, way in enumerate(ways)
    ]


@pytest.mark.parametrize("way", [(), ("by-mpi",), ("by-ofi",)], ids=["memory", "mpi", "ofi"])
def test_what_is_sent_and_received_is_on_storage(mpi, engine, way, tmp_path):
    """4 ranks on fewer cores, each with an array that is 3 times its memory: content is copied from storage into buffers, which
    stay in memory, and received from them into storage; in between each rank goes over all of its array."""
    rounds = 4
    policy = (ENGINES.index(engine) + WHEELS.index(mpi)) % POLICIES
    command = [compiled(mpi, "pipes.c"), 32, rounds, policy, "compute", *way]
    environment = ["env", "RPIPE_BETWEEN=ofi"] if "by-ofi" in way else []
    run = headroom_run(command, tmp_path, before=[*mpi.command(4), *environment], memory="48M", engine=engine)
    assert run.status == 0, run.errors
    assert run.output == f"right {4 * 2 * 2 * rounds}\n"
    run.assert_paged(4 * 32 * MIB, 48 * MIB, reads=rounds)
    assert run.engines() == {engine}
    # One written in place for each read, or one that says what follows and one that is a copy.
    assert 4 * 4 * rounds < run.total("messages_piped") < 2 * 4 * 4 * rounds
    assert run.total("messages_piped_bytes") > 4 * 4 * rounds * 8


@pytest.mark.parametrize("way", [(), ("by-mpi",)], ids=["memory", "messages"])
def test_ranks_that_wait_in_pipes_give_their_turn_up(mpi, way, tmp_path):
    """Ranks take turns, one at a time; the one that has the turn waits for a message of one that has none."""
    program = compiled(mpi, "pipes.c")
    run = headroom_run(
        [program, 32, 4, 0, "compute", *way], tmp_path, before=mpi.command(4), memory="48M", mode="turns", slots=1
    )
    assert run.status == 0, run.errors
    assert run.output == f"right {4 * 2 * 2 * 4}\n"
    assert run.total("turns_overdue") == 0
    assert run.total("messages_piped") > 0


@pytest.mark.parametrize("mib, error", [(16, 0), (80, -errno.ENOMEM)])
def test_heaps_are_as_large_as_the_budget_allows(mpi, mib, error, tmp_path):
    program = compiled(mpi, "pipe_of_much.c")
    assert plain_run([*mpi.command(2), program, mib]).stdout == "0\n"
    run = headroom_run([program, mib], tmp_path, before=mpi.command(2), memory="96M")
    assert (run.status, run.output) == (0, f"{error}\n"), run.errors


@pytest.mark.parametrize("mib, error", [(16, 0), (40, -errno.ENOMEM)])
def test_what_comes_by_messages_counts_where_it_is_read(mpi, mib, error, tmp_path):
    """The writer's heap fits in the budget, the reader's beside it does not: the reader is told."""
    program = compiled(mpi, "pipe_of_much.c")
    run = headroom_run([program, mib, "by-mpi"], tmp_path, before=mpi.command(2), memory="96M")
    assert (run.status, run.output) == (0, f"{error}\n"), run.errors
    assert ("rank 0: no memory is left here for what rank 1 (on " in run.errors) == (error != 0)


def test_a_rank_that_dies_is_named(tmp_path):
    """The launcher that ends nobody is MPICH's."""
    mpi = WHEELS[0]
    heard = tmp_path / "heard"
    plain_run([mpi.mpiexec, "-disable-auto-cleanup", "-n", 2, compiled(mpi, "pipe_of_the_dead.c"), heard])
    said = heard.read_text()
    assert re.fullmatch(r"-32: rank 0 \(on \S+\) has ended without closing the pipe\n", said)


def test_it_needs_mpi_that_has_begun():
    program = compiled(WHEELS[0], "pipe_before_mpi.c")
    done = plain_run([program])
    assert done.returncode == 0, done
    assert done.stderr == "rpipe: MPI is not initialized, or finalized: rpipe_init() comes between\n"
    assert done.stdout == "-95: it cannot be had here\n"


def test_what_it_exports():
    """Its own names alone, in their version: a library that exports the paper's would capture those of others. Each function
    has a manual page."""
    done = plain_run(["objdump", "-T", LIBRARY / "librpipe.so.1"])
    names = {tuple(line.split()[-2:]) for line in done.stdout.splitlines() if " g " in line and "*UND*" not in line}
    functions = {name for version, name in names if version == "RPIPE_1" and name != "RPIPE_1"}
    header = (ROOT / "include/headroom/rpipe.h").read_text()
    assert functions == set(re.findall(r"^\w[\w *]*\b(rpipe_\w+)\(", header, re.M))
    assert {version for version, name in names} == {"RPIPE_1"}
    pages = Path(plain_run([HEADROOM, "where", "man"]).stdout.strip()) / "man3"
    assert {page.stem for page in pages.glob("rpipe*")} == functions | {"rpipe"}
    assert ".B int rpipe_free(raddr_t buffer);" in (pages / "rpipe_free.3").read_text()
    needed = plain_run(["objdump", "-p", LIBRARY / "librpipe.so.1"]).stdout
    assert set(re.findall(r"NEEDED +(\S+)", needed)) <= {
        "libc.so.6",
        "libm.so.6",
        "ld-linux-x86-64.so.2",
        "libdl.so.2",
        "libpthread.so.0",
    }
    assert os.path.basename(re.search(r"SONAME +(\S+)", needed)[1]) == "librpipe.so.1"


@pytest.mark.parametrize("under", [False, True], ids=["plain", "headroom"])
def test_from_python(mpi, under, tmp_path):
    """With mpi4py and NumPy: arrays in a pipe's memory, which are gone with their block."""
    place = plain_run([HEADROOM, "where", "python"]).stdout.strip()
    command = [BUILD / f"mpi/{mpi.name}/bin/python", ROOT / "tests/programs/rpipe/pipes.py"]
    env = environment() | {"PYTHONPATH": place}
    if under:
        run = headroom_run(command, tmp_path, before=mpi.command(2), memory="512M", env=env)
        assert (run.status, run.output) == (0, "right\n"), run.errors
        assert run.total("messages_piped") == 202
    else:
        done = plain_run([*mpi.command(2), *command], env=env)
        assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_how_it_is_found_by_build_tools(tmp_path):
    """pkg-config's words are enough to compile and link; CMake finds the target."""
    env = environment() | {"PKG_CONFIG_PATH": str(LIBRARY / "pkgconfig")}
    words = plain_run(["pkg-config", "--cflags", "--libs", "rpipe"], env=env).stdout.split()
    source = ROOT / "tests/programs/rpipe/pipe_before_mpi.c"
    subprocess.run([WHEELS[0].compiler, source, *words, "-o", tmp_path / "by-pkg-config"], check=True)
    assert plain_run([tmp_path / "by-pkg-config"]).stdout == "-95: it cannot be had here\n"
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(user C)\nfind_package(rpipe REQUIRED)\nadd_executable(user user.c)\n"
        "target_link_libraries(user rpipe::rpipe)\n"
    )
    (tmp_path / "user.c").write_text(
        "#include <headroom/rpipe.h>\n#include <stdio.h>\nint main(void) { puts(rpipe_error(-32)); return 0; }\n"
    )
    cmake = ["cmake", f"-DCMAKE_PREFIX_PATH={LIBRARY / 'cmake'}", "-S", tmp_path, "-B", tmp_path / "build"]
    subprocess.run(cmake, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True, capture_output=True)
    assert plain_run([tmp_path / "build/user"]).stdout == "the peer has ended or closed its end\n"
