"""Parts 2 to 4: a stencil that exchanges its edges with its neighbours (examples/rpipe/halo.c), by messages inside a node, by
messages between two emulated nodes, and by pipes and windows."""

from __future__ import annotations

import os

from steps import EXAMPLES, HEADROOM, MPIEXEC, Part, in_turn, say, say_bars

RANKS = 2
PROGRAM = EXAMPLES / "halo-mpich"
SIZE = [32, 100000]  # side of the square, iterations
FIGURE = r"([\d.]+) us an iteration"
UNIT = "us"
# Each rank is on a node of its own, as far as Headroom knows, and MPICH reaches it by a network.
NETWORK = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"}
ON_NODE_OF_ITS_OWN = 'export HEADROOM_JOB=$0-$PMI_RANK MPI_LOCALNRANKS=1; exec "$@"'


def part(number: int, title: str, text: str, sides: dict[str, list], environment: dict[str, str] | None = None) -> Part:
    say(f"{number}. {title}: {RANKS} ranks, {SIZE[0]} by {SIZE[0]} points, an iteration takes")
    medians, same = in_turn(sides, FIGURE, environment=environment)
    bars = list(medians.items())
    say_bars(bars, UNIT)
    if not same:
        say("  DIFFERENT results, or a side did not run: something is wrong")
    return Part(title, text, UNIT, bars, good=same)


def messages() -> Part:
    start = [MPIEXEC, "-n", RANKS]
    sides = {
        "MPICH": [*start, PROGRAM, "messages", *SIZE],
        "Headroom": [*start, HEADROOM, "run", "--summary", "off", "--direct", "on", PROGRAM, "messages", *SIZE],
    }
    text = (
        "Two ranks of a node exchange rows of 256 bytes in each iteration, with the same program. Under Headroom a message does"
        " not enter the MPI library: it is a few lines in shared memory."
    )
    return part(2, "Messages inside a node", text, sides)


def between_nodes() -> Part:
    start = [MPIEXEC, "-n", RANKS]
    on_nodes = ["sh", "-c", ON_NODE_OF_ITS_OWN, f"demo-{os.getpid()}"]
    under = [*start, *on_nodes, HEADROOM, "run", "--summary", "off"]
    sides = {
        "MPICH": [*start, PROGRAM, "messages", *SIZE],
        "Headroom": [*under, PROGRAM, "messages", *SIZE],
        "Headroom, --between own": [*under, "--between", "own", PROGRAM, "messages", *SIZE],
    }
    text = (
        "Two emulated nodes, and TCP between them. By default the MPI library carries these messages. With --between own"
        " Headroom matches them, so that no memory is pinned and network cards with on-demand paging may read it; short"
        " messages cost more then."
    )
    return part(3, "Messages between two nodes", text, sides, NETWORK)


def pipes() -> Part:
    start = [MPIEXEC, "-n", RANKS]
    sides = {name: [*start, PROGRAM, way, *SIZE] for name, way in WAYS.items()}
    text = (
        "The same exchange without Headroom, three ways. With a pipe a rank reads its neighbour's row where it lies; there is"
        " no fence, no epoch and no lock."
    )
    return part(4, "Pipes", text, sides)


WAYS = {"MPICH, windows and fences": "windows", "MPICH, messages": "messages", "pipes": "pipes"}
