"""`headroom bench`: what Headroom gains and costs on this machine, measured side by side."""

import click

from headroom.bench.files import io
from headroom.bench.messages import messages
from headroom.bench.paging import paging
from headroom.bench.rpipe import rpipe


@click.group(short_help="Measure with and without Headroom.")
def bench() -> None:
    """Measure with and without Headroom, side by side, on this machine."""


bench.add_command(messages)
bench.add_command(io)
bench.add_command(paging)
bench.add_command(rpipe)
