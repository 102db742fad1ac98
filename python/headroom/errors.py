"""What the command says on standard error, and how it refuses: one line, "headroom: error: ...", and exit status 2.

Under a launcher the command of each rank finds the same wrong, but it is to be said once a node. Who is first to bind a socket
whose name is the job and the text speaks, and keeps the socket for a moment, while the others come and end without a word; not
at once, since some launchers end all ranks when one ends.
"""

import os
import sys
import time
import zlib

from headroom import launcher, machine

KEPT_S = 1.0
QUIET_S = 0.2


class Refused(Exception):
    """Headroom cannot do what was asked, and nothing has run yet."""

    exit_code = 2


def warn(text: str) -> None:
    sys.stderr.write(f"headroom: warning: {text}\n")


def complain(text: str) -> None:
    line = f"headroom: error: {text}\n"
    if not any(name in os.environ for name in launcher.RANKS):
        sys.stderr.write(line)
        return
    import socket

    with socket.socket(socket.AF_UNIX) as said:
        try:
            said.bind(f"\0headroom-said-{os.getuid()}-{machine.job_name()}-{zlib.crc32(line.encode())}")
        except OSError:
            time.sleep(QUIET_S)
            return
        sys.stderr.write(line)
        time.sleep(KEPT_S)
