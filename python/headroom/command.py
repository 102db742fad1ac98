"""The command `headroom`: one sub-command a module, which is imported when it is wanted. (What launchers start is start.py.)"""

from __future__ import annotations

import importlib
import sys

import click

from headroom.errors import Refused, complain

MODULES = {  # in the order of the help
    "run": "headroom.run",
    "doctor": "headroom.doctor",
    "report": "headroom.report",
    "top": "headroom.top",
    "storage": "headroom.storage",
    "bench": "headroom.bench",
    "simulate": "headroom.simulate",
    "where": "headroom.where",
}


def text_of(error: click.ClickException) -> str:
    text = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        text = f"{text.rstrip('.')}; see `{error.ctx.command_path} --help`"
    return text


class Program(click.Group):
    """One whose errors, click's own too, are said by complain()."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return getattr(importlib.import_module(MODULES[name]), name) if name in MODULES else None

    def main(self, *args, standalone_mode: bool = True, **extra):
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        try:
            status = super().main(*args, standalone_mode=False, **extra)
        except Refused as error:
            complain(str(error))
            status = error.exit_code
        except click.ClickException as error:
            is_help = type(error).__name__ == "NoArgsIsHelpError"  # click 8.2 and later; before it is no error
            error.show() if is_help else complain(text_of(error))
            status = error.exit_code
        except click.Abort:  # Ctrl-C
            status = 130
        sys.exit(status if isinstance(status, int) else 0)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="headroom", prog_name="headroom")
def main() -> None:
    """A memory layer for MPI programs: unmodified programs may use more memory than the node has."""


if __name__ == "__main__":
    main()
