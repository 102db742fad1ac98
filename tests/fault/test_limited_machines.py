"""Where a machine gives less: hard limits, no privileges, old kernels, many ranks; and several nodes."""

import json

import pytest

from conditions import lack, need
from conftest import HEADROOM, ORDINARY_USER, WHEELS, Run, compile_program, environment, headroom_run, make_public, plain_run
from kernel_watch import KernelWatch

MIB = 1 << 20


def test_hard_limit(mpi, engine, tmp_path):
    """Three times the budget inside a cgroup of what docs/user/using.md says is enough, swap off, 4 ranks: memory is reserved
    before it is filled (a refill at the limit is killed, not refused), what lies outside the arena counts, and nothing goes
    through the page cache."""
    need("a hard memory limit")
    from headroom import hard_limit

    budget = 192 * MIB
    program = compile_program(mpi, "out_of_core.c")
    plain = plain_run([*mpi.command(4), program, 72, 2])
    with hard_limit.HardLimit(budget + budget // 32 + 4 * 8 * MIB, swap=False) as limit:
        before = [*limit.wrap([]), *mpi.command(4)]
        run = headroom_run([program, 72, 2], tmp_path, before=before, memory="192M", engine=engine, timeout=250)
        assert run.status == 0, run.errors
        assert limit.killed() == 0
    assert limit.most_swapped == 0
    assert limit.most_page_cache < 32 * MIB
    assert run.output == plain.stdout
    assert run.engines() == {engine}
    run.assert_paged(4 * 2 * 72 * MIB, budget)
    assert run.total("blocks_twice_out") >= 4 * 2 * 72 * 4 * 3 // 4  # all but what stays of sweeps again and again


def test_as_an_ordinary_user(mpi, tmp_path):
    """Without privileges: engine userfaultfd-user (or sigsegv), the library's cross-memory attach off, everything right."""
    need("root")
    program = compile_program(mpi, "out_of_core.c")
    make_public(tmp_path)
    env = environment() | {"HOME": "/tmp", "TMPDIR": "/tmp"}
    started = [*ORDINARY_USER, *mpi.command(3)]
    run = headroom_run([program, 24, 2], tmp_path, before=started, memory="64M", storage="/var/tmp", env=env)
    assert run.status == 0, run.errors
    assert "wrong 0" in run.output
    assert run.engines() == {"userfaultfd" if lack("userfaultfd that is refused to some") else "userfaultfd-user"}
    run.assert_paged(3 * 2 * 24 * MIB, 64 * MIB)


def test_without_userfaultfd_and_io_uring(mpi, tmp_path):
    """As in a container whose seccomp profile forbids both: the fall-backs serve, and say so."""
    program = compile_program(None, "deny.c")
    job = compile_program(mpi, "out_of_core.c")
    run = headroom_run([job, 16, 2], tmp_path, before=[program, *mpi.command(2)], memory="32M")
    assert run.status == 0, run.errors
    assert run.engines() == {"sigsegv"}
    assert {rank["store"] for rank in run.report["ranks"]} == {"threads"}
    assert "the kernel refuses io_uring here; storage is read and written by threads" in run.errors
    run.assert_paged(2 * 2 * 16 * MIB, 32 * MIB)


def test_several_nodes(tmp_path):
    """Ranks that do not see each other's session are nodes of their own, with budgets and reports of their own; collectives
    between them agree on their form. The launcher is told of two hosts, which are one, so messages take the network."""
    mpi = WHEELS[0]
    program = compile_program(mpi, "out_of_core.c")
    hosts = [*mpi.command(2)[:1], "-launcher", "fork", "-hosts", "localhost,127.0.0.1", "-ppn", 2]
    plain = plain_run([*hosts, "-n", 4, program, 16, 2])
    assert plain.returncode == 0, plain.stderr
    report = tmp_path / "nodes.json"
    under = [HEADROOM, "run", "--memory", "32M", "--json", report, "--", program, 16, 2]
    jobs = [["env", f"HEADROOM_JOB={job}", *under] for job in ("a", "b")]
    with KernelWatch() as kernel:
        done = plain_run([*hosts, "-n", 2, *jobs[0], ":", "-n", 2, *jobs[1]])
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    nodes = [json.loads(report.read_text()), json.loads(next(tmp_path.glob("nodes.json.*")).read_text())]
    for node, ranks in zip(nodes, ({0, 1}, {2, 3}), strict=True):
        assert {rank["rank"] for rank in node["ranks"]} == ranks
        assert node["total"]["messages_direct"] > 0  # inside each node
    run = Run(done, nodes, kernel)
    run.assert_what_it_says_of_shortage()
    run.assert_paged(2 * 2 * 16 * MIB, 32 * MIB)


@pytest.mark.parametrize("memory", ["1G", "24M"])
def test_a_program_that_knows_sessions_only(mpi, memory, tmp_path):
    """No MPI_COMM_WORLD, so nothing is agreed at MPI_Init; ranks, binary interface and modes are known all the same."""
    run = headroom_run([compile_program(mpi, "session.c"), 16], tmp_path, before=mpi.command(3), memory=memory, timeout=100)
    assert run.status == 0, run.errors
    assert run.output == "session ok\n"
    assert sorted(rank["rank"] for rank in run.report["ranks"]) == [0, 1, 2]
    assert {rank["mpi"] for rank in run.report["ranks"]} == {mpi.name}
    assert run.total("collectives_nonblocking") == 0
    if memory == "24M":
        run.assert_paged(2 * 3 * 16 * MIB, 24 * MIB)
        assert run.total("turns") > 0
