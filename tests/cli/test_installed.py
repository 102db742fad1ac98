"""What an installation brings beside the command: manual pages, completion in shells, and where compilers find things."""

import os
import subprocess
from pathlib import Path

import pytest

from conftest import HEADROOM, environment, plain_run
from headroom.command import MODULES

SHARE = HEADROOM.parent.parent / "share"


def test_each_command_has_a_manual_page():
    """It is found beside the command, as man(1) does, and has each option of the help."""
    names = {path.name for path in (SHARE / "man/man1").glob("headroom*")}
    assert {"headroom.1", "headroom-storage-add.1", "headroom-bench-io.1"} | {f"headroom-{name}.1" for name in MODULES} <= names
    page = (SHARE / "man/man1/headroom-run.1").read_text()
    for line in plain_run([HEADROOM, "run", "--help"]).stdout.splitlines():
        if line.strip().startswith("--"):
            assert f".B {line.split()[0].rstrip(',')}".replace("-", "\\-") in page, line


def test_each_function_for_programs_has_a_manual_page():
    names = {path.stem for path in (SHARE / "man/man3").glob("headroom*")}
    assert names >= {"headroom_memory", "headroom_will_need", "headroom_hold", "headroom_statistics"}
    assert "-ENOENT" in (SHARE / "man/man3/headroom_memory.3").read_text().replace("\\", "")


@pytest.mark.parametrize("words, expected", [("headroom r", {"run", "report"}), ("headroom bench p", {"paging"})])
def test_words_are_completed(words, expected):
    """As bash asks, by the function that is installed."""
    script = (SHARE / "bash-completion/completions/headroom").read_text()
    *before, last = words.split()
    array = " ".join([*before, last])
    ask = f"{script}\nCOMP_WORDS=({array}); COMP_CWORD={len(before)}\n_headroom_completion headroom\necho ${{COMPREPLY[@]}}"
    env = environment() | {"PATH": f"{HEADROOM.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, env=env, check=True)
    assert set(done.stdout.split()) == expected, done.stderr


def test_places_of_what_compilers_need():
    def where(what: str) -> Path:
        return Path(plain_run([HEADROOM, "where", what]).stdout.strip())

    assert (where("lib") / "librpipe.so.1").is_file() and (where("include") / "headroom/rpipe.h").is_file()
    assert (where("pkgconfig") / "rpipe.pc").is_file() and (where("cmake") / "rpipe/rpipe-config.cmake").is_file()
    assert where("man") == SHARE / "man"
    refused = plain_run([HEADROOM, "where", "elsewhere"])
    assert refused.returncode == 2 and "'elsewhere' is not one of" in refused.stderr
