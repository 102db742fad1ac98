"""`headroom bench`: each benchmark runs, its figures are complete, and what it compares with is there."""

import contextlib
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import BUILD, HEADROOM, ROOT, compile_program, environment, plain_run
from headroom import hard_limit
from variants import only_in_suites


def test_swap_files_of_killed_comparisons_are_removed(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, in_use = tmp_path / f"headroom-swap-{ended.pid}", tmp_path / "headroom-swap-1"
    left.touch()
    in_use.touch()
    with contextlib.suppress(OSError), hard_limit.SwapFile(4 << 20, tmp_path):  # where nobody may swap this is all it does
        pass
    assert list(tmp_path.iterdir()) == [in_use]


def bench_messages(group: str, figures: Path, *options) -> tuple[list[dict], str]:
    """The rows of one round of a group, each of which stands in the table as it is; and the table."""
    command = [HEADROOM, "bench", "messages", "--mpi", BUILD / "mpi/mpich", "--group", group, "--rounds", 1]
    done = plain_run([*command, "--json", figures, *options], timeout=200)
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())
    for row in rows:
        assert row["ratio"] == pytest.approx(row["library"] / row["headroom"]) and row["noise"] > 0
        assert re.search(rf"{row['what']} .* {row['ratio']:.2f} ", done.stdout), done.stdout
    return rows, done.stdout


def test_bench_io(mpi, tmp_path):
    """Each side's figures are there, and stand in the table; Headroom's are Headroom's."""
    figures = tmp_path / "figures.json"
    command = [HEADROOM, "bench", "io", "--mpi", BUILD / "mpi" / mpi.name, "--pattern", "random", "--pattern", "short"]
    command += ["--rounds", 1, "--ranks", 4, "--nodes", 2, "--size", 1, "--folder", tmp_path, "--json", figures]
    command += ["--plot", tmp_path / "figures.svg"]
    done = plain_run(command)
    assert done.returncode == 0, done.stderr
    drawing = (tmp_path / "figures.svg").read_text()
    assert drawing.startswith("<svg") and f">{mpi.name}, random: read<" in drawing and ">library, 4M<" in drawing
    rows = json.loads(figures.read_text())
    assert [row["side"] for row in rows] == 2 * ["library", "library, 1M", "library, 4M", "library, 16M", "Headroom"]
    for row in rows:
        assert min(row[what] for what in ("write", "read")) > 0 and row["write_and_sync"] > row["write"]
        assert re.search(rf"{row['side']} +{row['write']:.4f} s ", done.stdout), done.stdout
    refused = plain_run([*command[:3], "--left", "1,2,3"])
    assert refused.returncode != 0 and "--left 1,2,3: name the MiB left on each of --nodes 4" in refused.stderr


@only_in_suites
def test_bench_messages_with_work(tmp_path):
    """Both sides are measured, and compared as the table says, also with what else there is."""
    figures = tmp_path / "figures.json"
    rows, _ = bench_messages("work", figures, "--compare", BUILD / "mpi/mpich")
    assert {row["what"].split()[-1] for row in rows} == {"ring", "halo", "MPI_Alltoall", "MPI_Allreduce"}
    for row in rows:
        times = [row["library"], row["headroom"], row["others"]["mpich"], row["others"]["turns"]]
        assert min(times) > 0.9 * row["others"]["ideal"] > 0
    goals = plain_run([sys.executable, ROOT / "bench/message_goals.py", figures]).stdout
    worst = min(row["ratio"] for row in rows if row["what"].startswith("1 ms"))
    assert re.search(rf"1 ms of work between calls +mpich +1\.00 +{worst:.2f} ", goals), goals
    assert len(goals.splitlines()) == 1 + 4  # those of this group


def test_bench_messages(tmp_path):
    rows, _ = bench_messages("strided", tmp_path / "figures.json")
    assert {row["what"].split(",")[0] for row in rows} >= {"runs of 64 B", "runs of 256 B", "runs of 2048 B"}
    assert all(row["library"] > 0 and row["headroom"] > 0 for row in rows)
    refused = plain_run([HEADROOM, "bench", "messages", "--mpi", tmp_path])
    assert refused.returncode != 0 and "--mpi names a folder with bin/mpicc and bin/mpiexec" in refused.stderr


@pytest.mark.parametrize("backend", ["memory", "mpi", "ofi"])
def test_bench_rpipe(backend, tmp_path):
    """All ways give figures, plain and (on a node) under Headroom, and the ratios are those of the figures."""
    sides = ("plain", "Headroom") if backend == "memory" else ("plain",)
    figures = tmp_path / "figures.json"
    command = [HEADROOM, "bench", "rpipe", "--mpi", BUILD / "mpi/mpich", "--rounds", 1, "--seconds", 0.01, "--largest", 4096]
    done = plain_run([*command, "--backend", backend, "--json", figures, "--plot", tmp_path / "figures.svg"])
    assert done.returncode == 0, done.stderr
    drawing = (tmp_path / "figures.svg").read_text()
    where = "under Headroom" if backend == "memory" else "plain"
    assert drawing.startswith("<svg") and f">mpich, {where}: copied in<" in drawing and ">send/recv<" in drawing
    rows = json.loads(figures.read_text())
    assert {(row["under"], row["what"]) for row in rows} == {
        (under, what) for under in sides for what in ("copied in", "handed over", "filled, read")
    }
    assert {row["bytes"] for row in rows} == {1, 8, 48, 64, 256, 1024, 4096}
    for row in rows:
        assert min(row["rpipe"], row["bare"], *row["others"].values()) > 0
        assert row["what"] == "handed over" or set(row["others"]) == {"send/recv", "fence", "pscw", "lock", "flush"}
        assert f" {row['rpipe']:.2f} us {row['bare']:>10.2f} us {row['bare'] / row['rpipe']:>6.2f}" in done.stdout


@only_in_suites
def test_bench_rpipe_of_many_ranks(tmp_path):
    figures = tmp_path / "figures.json"
    command = [HEADROOM, "bench", "rpipe", "--mpi", BUILD / "mpi/mpich", "--rounds", 1, "--writes", 300]
    done = plain_run([*command, "--group", "random", "--group", "one-core", "--json", figures])
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())
    assert [row["ranks"] for row in rows] == [2, 4, 8, 16] * 6 + [2]
    assert all(row["rpipe"] > 0 and row["least"] > 0 for row in rows)
    for row in rows[1:4]:
        growth = row["rpipe"] / rows[0]["rpipe"] / (row["least"] / rows[0]["least"])
        assert abs(row["growth"] - growth) < 1e-9 and f"{growth:.2f}" in done.stdout


@pytest.mark.parametrize("benchmark, group", [("messages", "pairs"), ("paging", "quick")])
def test_benchmarks_without_a_launcher_are_refused(benchmark, group, tmp_path):
    """As where a library's headers and compiler are installed, and not its mpiexec."""
    compiler = tmp_path / "bin/mpicc"
    compiler.parent.mkdir()
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n/bin/cp /bin/true "$2"\n')  # is linked with no MPI
    compiler.chmod(0o755)
    env = environment() | {"PATH": str(compiler.parent)}
    done = plain_run([HEADROOM, "bench", benchmark, "--group", group, "--mpi", tmp_path], env=env)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.splitlines()[-1].startswith("headroom: error: no mpiexec") and "--mpi FOLDER" in done.stderr


def test_what_is_compared_with_must_be_an_mpi(tmp_path):
    done = plain_run([HEADROOM, "bench", "messages", "--compare", tmp_path])
    assert done.returncode == 2 and done.stderr.startswith(f"headroom: error: --compare {tmp_path}: there is no bin/mpiexec")


def least_reads_of(lines: list[str], ranks: int, granules: int, first: int = 0) -> int:
    program = compile_program(None, "least_reads.c")
    command = [str(program), str(ranks), str(granules), str(first)]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return int(done.stdout)


def fewest_reads(uses: list[int], memory: int) -> int:
    """The fewest of all that could leave at each use, tried out."""
    after = {frozenset(): 0}  # by what is in memory
    for at, granule in enumerate(uses):
        known, before, after = granule in uses[:at], after, {}
        for resident, reads in before.items():
            if granule in resident:
                after[resident] = min(reads, after.get(resident, reads))
                continue
            for left in resident if len(resident) == memory else [None]:
                now = resident - {left} | {granule}
                after[now] = min(reads + known, after.get(now, reads + known))
    return min(after.values())


def test_least_reads_of_the_benchmark():
    """The bound of applications is the fewest reads that there could be; a sweep again and again needs what does not fit."""
    draw = random.Random(7)
    for _ in range(20):
        sizes = [draw.randint(1, 3) for _ in range(3)]
        walks = [draw.randrange(3) for _ in range(6)]
        first = [sum(sizes[:each]) for each in range(3)]
        uses = [first[walk] + each for walk in walks for each in range(sizes[walk])]
        lines = [*(f"array {size}" for size in sizes), *(f"walk {walk}" for walk in walks)]
        assert least_reads_of(lines, 1, 3) == fewest_reads(uses, 3), (sizes, walks)
    sweeps = ["array 100", "walk 0", "meet", "walk 0", "walk 0", "walk 0"]
    assert 3 * 40 <= least_reads_of(sweeps, 1, 60, first=1) <= 3 * 42
    # Apart, each of two ranks would read 40 or more three times; in turn, what is not there is read once for three passes.
    assert 80 <= least_reads_of(sweeps, 2, 120, first=1) <= 84


@only_in_suites
def test_bench_paging(tmp_path):
    """Every side runs, content is right, and what was moved is what had to be."""
    figures = tmp_path / "figures.json"
    words = [
        "bench",
        "paging",
        "--mpi",
        str(ROOT / "build/mpi/mpich"),
        "--group",
        "quick",
        "--group",
        "quick coarsen",
        "--rounds",
        "1",
        "--peer",
        f"other=env MALLOC_ARENA_MAX=2 {HEADROOM} run --memory {{budget}}M --summary off",
        "--peer",
        "broken=false --memory={budget}",
        "--json",
        str(figures),
        "--plot",
        str(tmp_path / "figures.svg"),
    ]
    done = plain_run([HEADROOM, *words], timeout=200)
    assert done.returncode == 0, done.stderr
    assert " run --memory 48M " in done.stderr and " run --memory 64M " in done.stderr  # the peer's
    drawing = (tmp_path / "figures.svg").read_text()
    assert drawing.startswith("<svg") and ">read, later passes<" in drawing and ">other<" in drawing
    rows = {row["phase"]: row for row in json.loads(figures.read_text())}
    assert {"touch", "read, first pass", "read, later passes", "update", "random-read"} <= rows.keys()
    assert {"objects-tree", "objects-lists", "objects-threads"} <= rows.keys() and " M/s" in done.stdout
    assert {"random-zipf-read", "random-zipf-update", "hash-insert", "hash-find"} <= rows.keys()
    assert (
        {"tree-find", "tree-update"} <= rows.keys() and rows["tree-build"]["bound"] > 0 and rows["tree-find"]["bound"] is None
    )
    later = rows["read, later passes"]
    assert {"plain", "again", "headroom", "other"} <= later["seconds"].keys()
    assert "broken" not in later["seconds"] and "quick, broken: " in done.stderr  # said, and the others go on
    assert later["needed"] > 0 and later["bound"] > 0
    assert later["read"]["headroom"] >= later["needed"] * 0.9
    assert "quick: 1 x 96 MiB with 48 MiB" in done.stdout
    coarsen = rows["coarsen"]
    assert coarsen["needed"] > 0 and coarsen["bound"] > 0 and coarsen["what"] == "2 x 96 MiB in 64 MiB"
    assert coarsen["read"]["headroom"] >= coarsen["needed"] * 0.9
