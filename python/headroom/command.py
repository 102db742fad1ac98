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


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="headroom")
def main() -> None:
    """A memory layer for MPI programs: unmodified programs may use more memory than the node has."""


main.add_command(run)
main.add_command(doctor)
main.add_command(bench)
main.add_command(report)
main.add_command(top)
main.add_command(storage)

if __name__ == "__main__":
    main()
