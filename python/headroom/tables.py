"""The tables that code, docs and command share: settings.toml and counters.toml."""

import os

HERE = os.path.dirname(os.path.abspath(__file__))


def read_table(source: str) -> dict:
    """A table of the source tree's, `source` being where it lies under src/."""
    try:
        import tomllib
    except ImportError:  # before Python 3.11
        import tomli as tomllib

    packaged = os.path.join(HERE, os.path.basename(source))
    # An editable installation runs from the source tree.
    path = packaged if os.path.isfile(packaged) else os.path.join(HERE, "../../src", source)
    with open(path, "rb") as file:
        return tomllib.load(file)


def settings_table() -> list[dict]:
    """The settings: as the build has written them for Python, who reads that ten times as fast; else the table itself."""
    try:
        from headroom.settings_table import SETTINGS
    except ImportError:
        return read_table("base/settings.toml")["setting"]
    return SETTINGS
