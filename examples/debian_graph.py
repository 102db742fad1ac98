"""Writes the dependency graph of the machine's Debian or Ubuntu packages as an edge list.

usage: debian_graph.py EDGES NAMES

An edge "a b" says that package a depends on b (Depends and Pre-Depends, every alternative, versions ignored; virtual packages
are nodes too). Line n of NAMES is the name of vertex n. The package lists are those of `apt-get update`.
"""

import re
import subprocess
import sys
from pathlib import Path


def stanzas():
    listing = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    for stanza in listing.split("\n\n"):
        yield dict(line.split(": ", 1) for line in stanza.splitlines() if re.match(r"(Package|Depends|Pre-Depends): ", line))


def dependencies(fields: dict[str, str]) -> set[str]:
    text = ", ".join(fields.get(name, "") for name in ("Depends", "Pre-Depends"))
    return {match for match in (re.split(r"[ :(]", part.strip())[0] for part in re.split(r"[,|]", text)) if match}


def main() -> None:
    numbers: dict[str, int] = {}
    edges = set()
    for fields in stanzas():
        if "Package" not in fields:
            continue
        package = numbers.setdefault(fields["Package"], len(numbers))
        for needed in sorted(dependencies(fields)):
            edges.add((package, numbers.setdefault(needed, len(numbers))))
    if not edges:
        sys.exit("debian_graph: no package lists; run `apt-get update` first")
    Path(sys.argv[1]).write_text("".join(f"{a} {b}\n" for a, b in sorted(edges)))
    Path(sys.argv[2]).write_text("\n".join(numbers) + "\n")
    print(f"{len(numbers)} packages, {len(edges)} dependencies")


if __name__ == "__main__":
    main()
