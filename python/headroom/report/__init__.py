"""`headroom report`: one page about a run that was traced with `headroom run --trace DIRECTORY`."""

from __future__ import annotations

import contextlib
import json
import socket
from importlib.util import find_spec
from pathlib import Path

import click

from headroom.errors import Refused, warn
from headroom.rank import COMMAND_FILE, check_output
from headroom.report.advice import advise, shares
from headroom.report.messages import figures, has_messages
from headroom.report.progress import progress_of
from headroom.report.trace import read_run, trace_files


def command_of(directory: Path) -> str:
    """How the run was started, if it has said."""
    with contextlib.suppress(OSError):
        return (directory / COMMAND_FILE).read_text().strip()
    return ""


@click.command(short_help="Draw a run that was traced.")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="the page [default: DIRECTORY/report.html]")
@click.option("--measure/--no-measure", default=True, help="whether to measure what the storage can do, for a second or two")
@click.option(
    "--json", "as_json", is_flag=True, help="print where the time and the messages went and the advice as JSON; draw nothing"
)
def report(directory: Path, output: Path | None, measure: bool, as_json: bool) -> None:
    """Draw the run whose trace is in DIRECTORY.

    \b
    headroom run -n 4 --memory 512M --trace run1 ./app args
    headroom report run1
    """
    if as_json and output:
        raise Refused(f"--output {output}: --json draws no page and prints to standard output; leave out one of the two")
    path = output or directory / "report.html"
    if not as_json:
        if find_spec("matplotlib") is None:
            raise Refused("the drawings need matplotlib: pip install matplotlib, or --json for words only")
        check_output(path, "--output")
    try:
        with progress_of("reading the trace", sum(path.stat().st_size for path in trace_files(directory))) as done:
            nodes = read_run(directory, warn=warn, done=done)
    except (FileNotFoundError, ValueError) as error:
        raise Refused(str(error)) from None
    limits: dict[str, dict] = {}
    for node in nodes:
        if measure and node.name == socket.gethostname() and node.figures.get("storage"):
            from headroom.report import disk

            limits[node.name] = disk.measure(node.figures["storage"])
    if as_json:
        said = [
            {
                "node": node.name,
                "time": shares(node),
                "storage": limits.get(node.name, {}),
                "messages": figures(node) if has_messages(node) else {},
                "advice": advise(node, limits.get(node.name, {})),
            }
            for node in nodes
        ]
        click.echo(json.dumps(said, indent=2))
        return
    from headroom.report import page

    try:
        page.write_page(nodes, limits, path, command_of(directory))
    except OSError as error:
        raise Refused(f"the page cannot be written to {path}: {error.strerror}; name another file with --output") from None
    for node in nodes:
        for text in advise(node, limits.get(node.name, {})):
            click.echo(f"{node.name}: {text}")
    click.echo(f"drawn: {path}")
