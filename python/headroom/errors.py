"""What the command says on standard error, and how it refuses: one line, "headroom: error: ...", and exit status 2.

Under a launcher the command of each rank finds the same wrong, but it is to be said once a node. Who is first to bind a socket
whose name is the job and the text speaks, and keeps the socket for a moment, while the others come and end without a word; not
at once, since some launchers end all ranks when one ends.
"""

import os
import socket
import sys
import time
import zlib

import click

from headroom import launcher, machine

KEPT_S = 1.0
QUIET_S = 0.2


class Refused(click.ClickException):
    """Headroom cannot do what was asked, and nothing has run yet."""

    exit_code = 2


def warn(text: str) -> None:
    click.echo(f"headroom: warning: {text}", err=True)


def _text_of(error: click.ClickException) -> str:
    text = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        text = f"{text.rstrip('.')}; see `{error.ctx.command_path} --help`"
    return text


def complain(error: click.ClickException) -> None:
    line = f"headroom: error: {_text_of(error)}"
    if not any(name in os.environ for name in launcher.RANKS):
        click.echo(line, err=True)
        return
    with socket.socket(socket.AF_UNIX) as said:
        try:
            said.bind(f"\0headroom-said-{os.getuid()}-{machine.job_name()}-{zlib.crc32(line.encode())}")
        except OSError:
            time.sleep(QUIET_S)
            return
        click.echo(line, err=True)
        time.sleep(KEPT_S)


class Program(click.Group):
    """One whose errors, click's own too, are said by complain()."""

    def main(self, *args, standalone_mode: bool = True, **extra):
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        try:
            status = super().main(*args, standalone_mode=False, **extra)
        except click.ClickException as error:
            is_help = type(error).__name__ == "NoArgsIsHelpError"  # click 8.2 and later; before it is no error
            error.show() if is_help else complain(error)
            status = error.exit_code
        except click.Abort:  # Ctrl-C
            status = 130
        sys.exit(status if isinstance(status, int) else 0)
