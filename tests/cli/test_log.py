"""What HEADROOM_LOG chooses is what is said: each decision at debug, each fault at trace, of the parts that were named."""

import re

import pytest

from conftest import compile_program, environment, headroom_run

LINE = re.compile(r"headroom: (info|debug|trace): (\w+): (?:rank|process) \d+: (.*)")


def said(run) -> set[tuple[str, str]]:
    """Levels and parts."""
    return {(found[1], found[2]) for found in map(LINE.match, run.errors.splitlines()) if found}


def short_run(mpi, tmp_path, log: str, ranks: int = 2, **settings):
    program = compile_program(mpi, "out_of_core.c")
    arguments = [program, 24 * 2 // ranks, 1]
    run = headroom_run(arguments, tmp_path, before=mpi.command(ranks), memory="64M", env=environment(log=log), **settings)
    assert run.status == 0 and run.short_of_memory, run.errors
    return run


def test_every_decision_is_said(mpi, tmp_path):
    run = short_run(mpi, tmp_path, "debug")
    assert {("info", "pager"), *(("debug", part) for part in ("node", "pager", "heap", "sched", "mpi"))} <= said(run)
    texts = {
        "engine": r"engine \w[\w-]*, storage in /\S* by \w+, (past|through) the page cache",
        "session": r"member \d+ of job '.*', budget 64\.0 MiB",
        "library": r"MPI library /\S+libmpi\S* \(\w+\): ",
        "messages": r"messages inside the node: direct",
        "mode": r"mode turns: room is short, 2 ranks on \d+ cores",
        "shortage": r"memory is short; \d+ MiB resident",
    }
    for what, text in texts.items():
        assert re.search(text, run.errors), what


def test_parts_have_levels_of_their_own(mpi, tmp_path):
    run = short_run(mpi, tmp_path, "pager:trace,mpi:debug", ranks=1)  # launchers may mix lines of several
    assert said(run) == {("info", "pager"), ("debug", "pager"), ("trace", "pager"), ("debug", "mpi")}
    faults = len(re.findall(r"trace: pager: .*fault in block \d+, page -?\d+; the block is", run.errors))
    assert faults == run.total("faults")


@pytest.mark.parametrize("log", ["warn", "error"])
def test_nothing_is_said_unasked(mpi, tmp_path, log):
    run = short_run(mpi, tmp_path, log, summary="off")
    assert not said(run)
    assert log == "warn" or run.errors == ""


def test_what_is_no_level_is_refused(mpi, tmp_path):
    run = headroom_run(["true"], tmp_path, memory="64M", env=environment(log="pager:loud"))
    assert run.status == 2
    assert "HEADROOM_LOG=pager:loud is unknown" in run.errors
