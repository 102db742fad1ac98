#!/usr/bin/env python3
"""Which sources of the core are tied to each other, as the linker sees them.

A source uses another if its object file needs a symbol that the other's defines, be it a function or data; inline ones are
nobody's. A knot is a set of sources that all reach each other in that way: who changes one must have understood them all. This
script fails where a knot is larger than that of its layer may be, or goes through several layers.

    setup/knots.py OBJECTS [--uses SOURCE]    OBJECTS: a folder of object files, build/wheel/src/CMakeFiles/headroom_core.dir
                                              for instance; --uses: which symbols tie the knot that this source is in
"""

import argparse
import pathlib
import subprocess
import sys

LARGEST = 5  # sources
LARGEST_IN = {"direct": 12}  # class Endpoint, whose functions are in many sources


def uses_of(objects):
    """source -> {other source: symbols that it uses of that}."""
    paths = sorted(map(str, pathlib.Path(objects).rglob("*.o")))
    if not paths:
        sys.exit(f"{objects} holds no object files")
    names = {path: str(pathlib.Path(path).relative_to(objects)).removesuffix(".o") for path in paths}
    listing = subprocess.run(["nm", "-A", "--extern-only", *paths], check=True, capture_output=True, text=True).stdout
    owners, needed = {}, []
    for line in listing.splitlines():
        path, _, rest = line.rpartition(":")
        kind, symbol = rest.split()[-2:]
        if kind == "U":
            needed.append((names[path], symbol))
        elif kind not in "WwVvu":  # an inline function's copies are nobody's
            owners[symbol] = names[path]
    if not owners:
        sys.exit(f"nm finds no symbols in {objects}")
    uses = {name: {} for name in names.values()}
    for name, symbol in needed:
        if symbol in owners:
            uses[name].setdefault(owners[symbol], set()).add(symbol)
    return uses


def knots_of(uses):
    """Sets of at least two sources that all reach each other, the largest first."""

    def reached_from(name):
        reached, left = set(), [name]
        while left:
            for other in uses[left.pop()]:
                if other not in reached:
                    reached.add(other)
                    left.append(other)
        return reached

    reached = {name: reached_from(name) for name in uses}
    knots = {frozenset(other for other in reached[name] if name in reached[other]) for name in uses}
    return sorted((knot for knot in knots if len(knot) > 1), key=lambda knot: (-len(knot), sorted(knot)))


def print_uses(uses, knot):
    for name in sorted(knot):
        for other in sorted(knot & uses[name].keys()):
            demangled = subprocess.run(["c++filt", "-p", *uses[name][other]], capture_output=True, text=True).stdout.split()
            print(f"  {name} uses {other}: {' '.join(sorted(part.rpartition('::')[2] for part in demangled))}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("objects")
    parser.add_argument("--uses", metavar="SOURCE")
    arguments = parser.parse_args()
    uses = uses_of(arguments.objects)
    knots = knots_of(uses)
    failed = False
    for knot in knots:
        layers = {name.partition("/")[0] for name in knot}
        limit = LARGEST if len(layers) > 1 else LARGEST_IN.get(next(iter(layers)), LARGEST)
        allowed = f"at most {limit}" if len(layers) == 1 else "none may go through several layers"
        print(f"{len(knot)} sources that all reach each other ({allowed}): {' '.join(sorted(knot))}")
        failed = failed or len(knot) > limit or len(layers) > 1
        if arguments.uses in knot:
            print_uses(uses, knot)
    if failed:
        sys.exit("a knot is too large, or goes through several layers: --uses SOURCE shows what ties it")


if __name__ == "__main__":
    main()
