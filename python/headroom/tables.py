"""The tables that code, docs and command share: settings.toml and counters.toml."""

import tomllib
from importlib import resources
from pathlib import Path


def read_table(source: str) -> dict:
    """A table of the source tree's, `source` being where it lies under src/."""
    packaged = resources.files("headroom") / Path(source).name
    if packaged.is_file():
        return tomllib.loads(packaged.read_text())
    # An editable installation runs from the source tree.
    return tomllib.loads((Path(__file__).parents[2] / "src" / source).read_text())
