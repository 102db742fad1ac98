"""`headroom simulate`: what plans of Headroom's would do on machines that are not there."""

import subprocess
from pathlib import Path

import click

from headroom.errors import Refused
from headroom.rank import library_path

PLANS = {
    "even parts": "even parts, buffers of 16 MiB",
    "bisected": "bisected and merged (the paper)",
    "by weight": "dealt by weight (Headroom)",
}


@click.group(short_help="What plans would do on machines that are not there.")
def simulate() -> None:
    """What plans would do on machines that are not there."""


@simulate.command("io", short_help="Collective access to files on many nodes.")
@click.option("--nodes", default=90, show_default=True, type=click.IntRange(1, 10_000_000), help="how many there are")
@click.option("--each", default=256, show_default=True, type=click.IntRange(1, 65536), help="MiB that each node accesses")
@click.option(
    "--pattern",
    default="interleaved",
    show_default=True,
    type=click.Choice(["interleaved", "segmented"]),
    help="where in the file",
)
@click.option("--left", "median", default=20.0, show_default=True, type=click.FloatRange(min=0.01), help="MiB left, the median")
@click.option("--spread", default=1.0, show_default=True, type=click.FloatRange(0, 5), help="deviation of its logarithm")
@click.option("--seed", default=1, show_default=True, type=int, help="of what each node has left")
def io(nodes, each, pattern, median, spread, seed) -> None:
    """How long a collective call would take, by three plans, on nodes that have different memory left.

    The plans are computed by the functions that calls use. Times are relative: 1 is a MiB with endless windows. Assumed: a
    round costs as much as 0.25 MB, a buffer that does not fit is swapped at a tenth of the speed, networks and disks are alike.
    """
    program = Path(library_path()).parent / "headroom-simulate-io"
    done = subprocess.run(
        [program, *map(str, (nodes, each, pattern, median, spread, seed))], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Refused(f"{program.name}: {done.stderr.strip() or done.returncode}")
    click.echo(f"{nodes} nodes, {each} MiB each, {pattern}; {median:g} MiB left at the median")
    click.echo(f"{'':<32} {'slowest':>10} {'/ mean':>7} {'aggregators':>12} {'short':>8} {'plan':>10} {'memory':>11}")
    for line in done.stdout.splitlines():
        plan, *numbers = line.split("\t")
        slowest, mean, aggregators, short, taken, kept = map(float, numbers)
        planned = f"{taken / 1000:>7.1f} ms {kept / 2**20:>7.1f} MiB" if kept else ""
        click.echo(
            f"{PLANS[plan]:<32} {slowest:>10.1f} {slowest / max(mean, 1e-9):>7.2f} {aggregators:>12.0f} {short:>8.0f} {planned}"
        )
