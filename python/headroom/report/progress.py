"""How far work is that takes long, on a terminal; work that does not take long shows nothing."""

import sys
import time
from contextlib import contextmanager

import click

LONG_S = 1.5


@contextmanager
def progress_of(label: str, length: int):
    """A function to be called with how much more of `length` is done."""
    began = time.monotonic()
    bar = None
    undrawn = 0

    def done(more: int) -> None:
        nonlocal bar, undrawn
        undrawn += more
        if bar is None and sys.stderr.isatty() and time.monotonic() - began > LONG_S:
            bar = click.progressbar(length=length, label=label, file=sys.stderr)
            bar.__enter__()
        if bar is not None:
            bar.update(undrawn)
            undrawn = 0

    try:
        yield done
    finally:
        if bar is not None:
            bar.__exit__(None, None, None)
