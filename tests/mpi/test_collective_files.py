"""Collective access to files (MPI_File_write_all and its kin): right whatever the views, on one node and several, while memory
is short, when the disk is full; and left to the library where it must be."""

import re

import pytest

from conftest import WHEELS, compile_program, environment, headroom_run, on_nodes, plain_run
from kernel_watch import pages_by_mincore
from small_disk import small_disk
from variants import any_of, only_in_suites

MIB = 1 << 20
REASONS = (
    "for_file_system",
    "for_mode",
    "for_representation",
    "for_datatypes",
    "for_arguments",
    "for_communicator",
    "as_asked",
)


def passed(run) -> set[str]:
    return {why for why in REASONS if run.total(f"io_passed_{why}") > 0}


def random_views(mpi, tmp_path, ranks: int, nodes: int, seed: int, rounds: int, *hints, **settings):
    program = compile_program(mpi, "collective_files.c")
    before = [*mpi.command(ranks), *(on_nodes(nodes) if nodes > 1 else [])]
    run = headroom_run([program, tmp_path / "file", seed, rounds, *hints], tmp_path, before=before, **settings)
    assert run.status == 0, run.errors
    assert run.output == f"right: {rounds} rounds of {ranks} ranks\n"
    return run


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=only_in_suites)])
@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (5, 1), (4, 2), (7, 3)])
def test_random_views_and_memory_types(mpi, ranks, nodes, seed, tmp_path):
    rounds = 50 if nodes < 3 else 15  # in which ranks that share processors wait for each other as the library does
    run = random_views(mpi, tmp_path, ranks, nodes, seed, rounds, memory="1G")
    assert run.total("io_writes") == run.total("io_reads") == rounds * ranks
    assert passed(run) == set()
    assert 0 < run.total("io_apart") < 2 * rounds * ranks
    assert run.total("io_windows_read_first") > 0
    assert run.total("io_aggregated") > 0


@pytest.mark.parametrize("nodes", [1, 2])
def test_random_views_while_memory_is_short(mpi, engine, nodes, tmp_path):
    """What the calls access is on storage when they begin; irregular views and memory types among it."""
    hints = ("pressure=40",)
    run = random_views(mpi, tmp_path, 4, nodes, 5, 12, *hints, memory=f"{96 // nodes}M", engine=engine)
    assert run.engines() == {engine}
    assert run.total("io_writes") == run.total("io_reads") == 12 * 4
    run.assert_paged(4 // nodes * 40 * MIB, 96 // nodes * MIB)


def test_small_windows_and_one_aggregator(mpi, tmp_path):
    """As hints say: many windows a call, and only one rank has any."""
    run = random_views(mpi, tmp_path, 4, 2, 3, 20, "cb_buffer_size=16384", "cb_nodes=1", memory="1G")
    ranks = [rank for report in run.reports for rank in report["ranks"]]
    aggregated = [rank["io_aggregated"] for rank in ranks if rank["io_aggregated"] > 0]
    assert run.total("io_windows") > 5 * sum(aggregated) / 2
    assert max(rank["io_window_bytes_peak"] for rank in ranks) <= 8192
    assert sum(aggregated) + run.total("io_apart") / 4 <= 40  # one rank a call


def test_hints_of_a_file(mpi, tmp_path):
    """As ROMIO has it, for both libraries; what the program says counts more."""
    (tmp_path / "hints").write_text("# the site's\ncb_buffer_size 16384\n  cb_nodes\t1\nromio_cb_write disable\n")
    env = environment() | {"ROMIO_HINTS": str(tmp_path / "hints")}
    hints = ("romio_cb_write=automatic", "cb_nodes=2")
    run = random_views(mpi, tmp_path, 4, 2, 3, 10, *hints, memory="1G", env=env)
    assert run.total("io_windows") > 5 * run.total("io_aggregated") / 2
    ranks = [rank for report in run.reports for rank in report["ranks"]]
    assert max(rank["io_window_bytes_peak"] for rank in ranks) <= 8192
    assert sum(rank["io_aggregated"] > 0 for rank in ranks) == 2
    assert passed(run) == set()


@pytest.mark.parametrize(
    "mpi", WHEELS[1:], ids=lambda mpi: mpi.name
)  # ROMIO wants one list of all ranks, and has one host here
def test_hosts_that_may_not_aggregate(mpi, tmp_path):
    run = random_views(mpi, tmp_path, 4, 2, 3, 10, "first:cb_config_list=nowhere:1,elsewhere:4", memory="1G")
    ranks = {rank["rank"]: rank["io_aggregated"] for report in run.reports for rank in report["ranks"]}
    assert ranks[0] == 0 and ranks[1] > 0
    assert random_views(mpi, tmp_path, 2, 1, 3, 5, "cb_config_list=nowhere:1", memory="1G").total("io_aggregated") > 0


@pytest.mark.parametrize("piece", [4096, 40, 1 << 19, 40 * MIB])
def test_arrays_larger_than_memory(mpi, engine, piece, tmp_path):
    """The last is one piece, which goes to the file and comes from it without a window. In windows nothing is read ahead that
    the file has behind what is read."""
    program = compile_program(mpi, "collective_arrays.c")
    each = 20 if piece == 40 else 40
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate((4 * each + 64) * MIB)
    run = headroom_run(
        [program, path, each, piece],
        tmp_path,
        before=mpi.command(4),
        memory="64M",
        engine=engine,
        files=4 * each * MIB * 2,
    )
    assert run.status == 0, run.errors
    assert run.output == "right\n"
    assert run.engines() == {engine}
    assert run.short_of_memory
    assert (run.total("io_writes"), run.total("io_reads")) == (4, 4)
    is_whole = piece == each * MIB
    assert (run.total("io_windows_dropped") > 0) == (not is_whole)
    assert run.total("io_apart") == (8 if is_whole else 0)
    if not is_whole:
        with path.open("rb") as file:
            assert pages_by_mincore(file.fileno(), 4 * each * MIB) == 0
    assert run.total("io_windows") == 0 if is_whole else run.total("io_windows") >= 2 * 4 * each // 2
    assert run.total("io_windows_read_first") == 0


@pytest.mark.parametrize("nodes", [1, 2])
def test_promises(mpi, nodes, tmp_path):
    """Positions, modes, offsets beyond 4 GiB, a file that is renamed, and a rank that leaves a call and writes at once."""
    program = compile_program(mpi, "file_promises.c")
    before = [*mpi.command(4), *(on_nodes(nodes) if nodes > 1 else [])]
    run = headroom_run([program, tmp_path], tmp_path, before=before, memory="1G")
    assert (run.status, run.output) == (0, "right\n"), run.errors
    assert passed(run) == set()
    assert run.total("io_writes") > 4 * 40 and run.total("io_windows_read_first") >= 30


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("driver", ["posix", "library"])
def test_a_full_disk_is_everybodys_error(mpi, driver, nodes, tmp_path):
    """No rank waits for another one, and each hears of it."""
    program = compile_program(mpi, "collective_arrays.c")
    with small_disk(tmp_path, 24) as disk:
        command = [program, disk / "file", 16, 4096, f"headroom_driver={driver}"]
        before = [*mpi.command(4), *(on_nodes(nodes) if nodes > 1 else [])]
        run = headroom_run(command, tmp_path, before=before, memory="1G")
    assert run.status == 0, run.errors
    # ROMIO calls it an error of the disk's.
    what = "io" if "write: io" in run.output and driver == "library" else "no space"
    assert sorted(run.output.splitlines()) == [f"rank {rank}: write: {what}" for rank in range(4)]
    assert run.total("io_errors") >= 1


def test_left_to_the_library(mpi, tmp_path):
    """All ranks alike, with the same result, and it is counted why."""
    program = compile_program(mpi, "collective_arrays.c")

    def why(*hints, file=tmp_path / "file", env=None, **settings):
        run = headroom_run([program, file, 1, 4096, *hints], tmp_path, before=mpi.command(2), env=env, memory="1G", **settings)
        assert (run.status, run.output) == (0, "right\n"), run.errors
        assert (run.total("io_writes") == 0) == (passed(run) != set())
        return passed(run)

    assert why() == set()
    assert why("headroom_driver=posix") == set()
    assert why("headroom_driver=off") == {"as_asked"}
    assert why("romio_cb_write=disable", "romio_cb_read=disable") == {"as_asked"}
    assert why(collective_io="off") == {"as_asked"}
    assert why(direct="off") == {"for_communicator"}
    assert why(env={**environment(), "ATOMIC": "1"}) == {"for_mode"}


def test_what_is_demanded_and_cannot_be_had_is_refused(mpi, tmp_path):
    program = compile_program(mpi, "collective_arrays.c")
    for settings, env, why in (
        ({"collective_io": "off"}, None, "--collective-io is off"),
        ({}, {**environment(), "ROMIO_FSTYPE_FORCE": "ufs:"}, "its name has a prefix"),
    ):
        run = headroom_run(
            [program, tmp_path / "file", 1, 4096, "headroom_driver=posix"],
            tmp_path,
            before=mpi.command(2),
            env=env,
            memory="1G",
            **settings,
        )
        assert run.output.count("cannot open") == 2
        assert re.search(f"headroom_driver=posix cannot be had for .*{why}", run.errors)


def test_results_are_the_librarys(mpi, tmp_path):
    """What a file has in it after the library's own calls, and after ours."""
    program = compile_program(mpi, "collective_arrays.c")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    run = headroom_run([program, ours, 2, 64], tmp_path, before=mpi.command(3), memory="1G")
    assert run.total("io_writes") == 3
    plain = plain_run([*mpi.command(3), program, theirs, 2, 64])
    assert run.output == plain.stdout == "right\n"
    assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("calls", ["together", "alone"])
def test_random_views_that_the_library_does_not_have(mpi, calls, nodes, tmp_path):
    """On no rank, if one would rather keep its view; calls of one rank walk the views, too."""
    alone = ("alone=1",) if calls == "alone" else ()
    run = random_views(mpi, tmp_path, 4, nodes, 7, 40, *alone, "first:headroom_view=late", memory="1G")
    assert run.total("io_views_withheld") == 40 * 4 and run.total("io_views_given") == 0
    assert run.total("io_alone") == (2 * 40 * 4 if alone else 0)
    assert run.total("io_writes") == run.total("io_reads") == (0 if alone else 40 * 4)
    assert passed(run) == set()


@any_of("mpi")
@pytest.mark.parametrize("nodes", [1, 2])
def test_files_that_the_library_writes_while_memory_is_short(mpi, engine, nodes, tmp_path):
    """It reads into memory of the program's, and writes from it, where a part is without gaps."""
    hints = ("pressure=40", "headroom_driver=library")
    run = random_views(mpi, tmp_path, 4, nodes, 13, 12, *hints, memory=f"{96 // nodes}M", engine=engine)
    assert run.engines() == {engine}
    assert run.total("io_by_library") == 2 * 12 * 4
    run.assert_paged(4 // nodes * 40 * MIB, 96 // nodes * MIB)


def test_random_views_that_the_library_does_not_have_while_memory_is_short(mpi, engine, tmp_path):
    hints = ("pressure=40", "alone=1", "headroom_view=late")
    run = random_views(mpi, tmp_path, 4, 1, 9, 12, *hints, memory="96M", engine=engine)
    assert run.engines() == {engine}
    assert run.total("io_alone") == 2 * 12 * 4
    run.assert_paged(4 * 40 * MIB, 96 * MIB)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("hint", ["", "headroom_view=now"])
def test_a_view_of_many_pieces_takes_no_memory(mpi, hint, nodes, tmp_path):
    """Everything that depends on the view goes on; what is the library's gets it first."""
    program = compile_program(mpi, "withheld_views.c")
    before = [*mpi.command(3), *(on_nodes(nodes) if nodes > 1 else [])]
    run = headroom_run([program, tmp_path / "file", 500_000, *[hint] * bool(hint)], tmp_path, before=before, memory="1G")
    assert run.status == 0, run.errors + run.output
    kib, shared = re.fullmatch(r"grew by (\d+) KiB; shared position (\w+); right\n", run.output).groups()
    assert int(kib) > 4096 if hint else int(kib) < 1024
    assert (shared, run.total("io_views_withheld")) == (("works", 0) if hint else ("refused", 9))
    assert run.total("io_views_given") == (0 if hint else 6)
    assert (run.total("io_alone") > 0) == (not hint)
    assert ("headroom_view=now" in run.errors) == (not hint)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("calls", ["together", "alone"])
def test_random_views_of_files_that_the_library_writes(mpi, calls, nodes, tmp_path):
    """Headroom gathers and hands out, the library moves whole windows."""
    alone = ("alone=1", "headroom_view=late") if calls == "alone" else ()
    run = random_views(mpi, tmp_path, 4, nodes, 11, 30, *alone, "headroom_driver=library", memory="1G")
    assert run.total("io_alone") == (2 * 30 * 4 if alone else 0)
    assert run.total("io_by_library") == (0 if alone else 2 * 30 * 4)
    assert passed(run) == set()


@pytest.mark.parametrize("why", ["forced", "prefix"])
def test_file_systems_that_the_library_knows_better(why, tmp_path):
    """ROMIO takes its functions for NFS, which lock what they read and write."""
    program = compile_program(WHEELS[0], "collective_arrays.c")
    file = tmp_path / "file"
    env = environment() | ({"ROMIO_FSTYPE_FORCE": "nfs:"} if why == "forced" else {})
    name = f"nfs:{file}" if why == "prefix" else file
    command = [program, name, 4, 64, "headroom_driver=auto"]
    run = headroom_run(command, tmp_path, before=[*WHEELS[0].command(4), *on_nodes(2)], env=env, memory="1G")
    assert (run.status, run.output) == (0, "right\n"), run.errors
    assert run.total("io_by_library") == 2 * 4 and run.total("io_aggregated") > 0
    assert passed(run) == set()
    by_hand = tmp_path / "by_hand"
    plain_run([*WHEELS[0].command(4), program, by_hand, 4, 64])
    assert file.read_bytes() == by_hand.read_bytes()
