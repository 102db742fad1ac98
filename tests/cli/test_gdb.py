"""gdb's commands of setup/headroom_gdb.py, on a live process."""

import re
import subprocess

from conditions import need
from conftest import HEADROOM, ROOT, compile_program, environment


def test_what_gdb_shows(mpi):
    need("gdb")
    need("traced processes")
    program = compile_program(mpi, "waits_for_debugger.c")
    words = [*mpi.command(2), HEADROOM, "run", "--memory", "96M", "--direct", "on", "--summary", "off", "--", program]
    pipe = subprocess.PIPE
    with subprocess.Popen([str(word) for word in words], stdout=pipe, stderr=pipe, text=True, env=environment()) as job:
        try:
            assert job.stdout.readline() == "ready\n"
            found = subprocess.run(["pgrep", "-fx", str(program)], capture_output=True, text=True, check=True)
            shown = [what_is_shown(process) for process in found.stdout.split()]
        finally:
            job.terminate()
    assert len(shown) == 2
    for text in shown:
        assert re.search(r"budget 96\.0 MiB, free -?[\d.]+ MiB, 2 alive\nmemory is short\n", text), text
        assert {"0", "1"} == set(re.findall(r"^ +\d+ +\d+ +(\d) +alive", text, re.M)), text
        assert re.search(r"\d+ blocks of 256 KiB: .*\b[1-9]\d* stored", text), text
        assert re.search(r"^block 8: \w+, \d+ holds, .*\(0x[0-9a-f]+\)$", text, re.M), text
    waits = next(text for text in shown if "receives that wait: 2\n" in text)
    assert "source 1, tag 7\n" in waits and "source -1, tag 9 any source\n" in waits, waits
    assert re.search(r"nobody asked for yet:\n  communicator \S+, source 1, tag 5\n", waits), waits


def what_is_shown(process: str) -> str:
    commands = ["headroom-symbols", "headroom-ledger", "headroom-blocks", "headroom-blocks 8", "headroom-messages"]
    words = ["gdb", "-batch", "-nx", "-p", process, "-x", ROOT / "setup/headroom_gdb.py"]
    for command in commands:
        words += ["-ex", command]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=100).stdout
