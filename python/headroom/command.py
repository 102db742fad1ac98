"""The command `headroom`: one sub-command a module."""

import click

from headroom import __version__
from headroom.bench import bench
from headroom.doctor import doctor
from headroom.errors import Program
from headroom.report import report
from headroom.run import run
from headroom.storage import storage
from headroom.top import top


class InOrder(Program):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # as they are added below, not by the alphabet


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="headroom")
def main() -> None:
    """A memory layer for MPI programs: unmodified programs may use more memory than the node has."""


for command in (run, doctor, report, top, storage, bench):
    main.add_command(command)

if __name__ == "__main__":
    main()
