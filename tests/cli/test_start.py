"""How a rank starts: a node may start a hundred at once, so what costs time is left out where a launcher does."""

import os
import statistics
import subprocess
import sys
import time

import click
import pytest

from conftest import HEADROOM, environment, plain_run
from headroom import machine, options
from headroom.run import run
from headroom.start import understand
from headroom.tables import read_table, settings_table

SLOW = {"click", "psutil", "tomllib", "pathlib", "subprocess", "tempfile", "re", "importlib.resources"}


def test_what_a_rank_imports():
    command = [sys.executable, "-P", "-X", "importtime", "-m", "headroom.start", "run", "--memory", "64M", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert {"headroom.rank", "headroom.machine"} <= imported
    assert not imported & SLOW, imported & SLOW


def test_settings_for_python_are_the_table():
    assert settings_table() == read_table("base/settings.toml")["setting"]


def by_click(words: list[str], environment: dict[str, str]) -> tuple[dict, list[str]] | None:
    """What the slow way makes of a command line; None: it refuses."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        context = run.make_context("run", list(words))
    except click.ClickException:
        return None
    finally:
        os.environ.clear()
        os.environ.update(before)
    values = dict(context.params)
    program = list(values.pop("program"))
    return None if values.pop("ranks") is not None else (values, program)


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (["true"], {}),
        (["--memory", "64M", "true", "--memory", "1G"], {}),
        (["--memory=64M", "--engine", "sigsegv", "--", "-x", "y"], {}),
        (["--memory", "1", "--memory", "2K", "true"], {}),
        (["--storage-wait", "5", "--json", "a b", "--", "--"], {}),
        (["true"], {"HEADROOM_MEMORY": "3G", "HEADROOM_SUMMARY": "off"}),
        (["--memory", "1G", "true"], {"HEADROOM_MEMORY": "3G", "HEADROOM_LARGE": ""}),
    ],
)
def test_the_quick_way_understands_what_the_slow_one_does(words, variables):
    quick = understand(words, settings_table(), variables)
    assert quick is not None and quick == by_click(words, variables)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["-n", "2", "true"],
        ["--memory"],
        ["--memory", "much", "true"],
        ["--memory=", "true"],
        ["--memory", "1.5G", "true"],  # right, and left to the slow way
        ["--engine", "steam", "true"],
        ["--nonsense", "true"],
        ["--storage-wait", "-1", "true"],
    ],
)
def test_what_is_unusual_is_left_to_the_slow_way(words):
    assert understand(words, settings_table(), {}) is None


def test_a_rank_starts_quickly():
    """Beside a bare interpreter, on the same machine in the same moment."""

    def seconds(command: list) -> float:
        begin = time.monotonic()
        subprocess.run(command, check=True, env=environment(summary="off"))
        return time.monotonic() - begin

    rank, bare = [], []
    for _ in range(15):
        rank.append(seconds([HEADROOM, "run", "--memory", "64M", "true"]))
        bare.append(seconds([sys.executable, "-c", "import os"]))
    assert statistics.median(rank) < 5 * statistics.median(bare), (rank, bare)


def test_help_and_errors_come_the_slow_way():
    assert "--memory" in plain_run([HEADROOM, "run", "--help"]).stdout
    done = plain_run([HEADROOM, "run", "--memory", "much", "true"])
    assert done.returncode == 2 and done.stderr.startswith("headroom: error: "), done.stderr
    done = plain_run([HEADROOM, "run", "--memory=", "true"])
    assert done.returncode == 2 and done.stderr.startswith("headroom: error: "), done.stderr
    done = plain_run([HEADROOM, "run", "--memory", "4K", "true"])
    assert done.returncode == 2 and done.stderr.startswith("headroom: error: --memory 4.0 KiB is too small"), done.stderr
    assert options.parse_bytes("1.5G") == 3 << 29


def test_processes_above_may_have_any_name():
    """The kernel cuts a name after 15 bytes, which may be within a letter."""
    program = "import ctypes, os, subprocess, sys; ctypes.CDLL(None).prctl(15, b'fourteen-bytes\\xc3'); "
    program += "sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    done = plain_run([sys.executable, "-c", program, HEADROOM, "run", "--memory", "64M", "true"])
    assert done.returncode == 0, done.stderr


def test_the_tighter_of_a_cgroups_limits_counts(tmp_path):
    """Beyond memory.high the kernel slows processes down, which is a limit, too."""
    for high, most, expected in (("max", "max", None), ("max", "300", 300), ("200", "300", 200), ("400", "300", 300)):
        (tmp_path / "memory.high").write_text(f"{high}\n")
        (tmp_path / "memory.max").write_text(f"{most}\n")
        assert machine.limit_of(str(tmp_path)) == expected
    (tmp_path / "memory.limit_in_bytes").write_text("100\n")
    assert machine.limit_of(str(tmp_path)) == 100
