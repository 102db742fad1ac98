"""`headroom where`: where the installed libraries, headers and manual pages lie, for compilers, module files and scripts."""

from __future__ import annotations

import os

import click

from headroom.errors import Refused
from headroom.rank import library_path

PLACES = ("lib", "include", "pkgconfig", "cmake", "man", "python")


def place_of(what: str) -> str:
    libraries = os.path.dirname(library_path())
    package = os.path.dirname(libraries)
    if what == "lib":
        return libraries
    if what in ("pkgconfig", "cmake"):
        return os.path.join(libraries, what)
    if what == "include":
        return os.path.join(package, "include")
    if what == "python":
        return os.path.join(package, "import_path")
    # A wheel puts manual pages where the environment has those of others: PREFIX/lib/python3.X/site-packages/headroom/lib.
    above = package
    while os.path.dirname(above) != above:
        above = os.path.dirname(above)
        manual = os.path.join(above, "share/man")
        if any(os.path.exists(os.path.join(manual, "man3", name)) for name in ("rpipe.3", "rpipe.3.gz")):
            return manual
    raise Refused(f"no manual pages lie beside {package}; install the wheel again")


@click.command(short_help="Say where libraries, headers and manual pages lie.")
@click.argument("what", type=click.Choice(PLACES))
def where(what: str) -> None:
    """Print where WHAT lies.

    \b
    lib        librpipe.so.1, to link with, and what `headroom run` loads
    include    the C headers: #include <headroom/rpipe.h>
    pkgconfig  for PKG_CONFIG_PATH
    cmake      for CMAKE_PREFIX_PATH
    man        for man -M
    python     for PYTHONPATH of a Python that Headroom is not installed for

    \b
    export PKG_CONFIG_PATH=$(headroom where pkgconfig)
    mpicc app.c $(pkg-config --cflags --libs rpipe)
    """
    place = place_of(what)
    if not os.path.isdir(place):
        raise Refused(f"{place} is not there; install the wheel again")
    click.echo(place)
