"""The settings, from the same table as the library's (settings.toml), as environment variables and words of a command line.
options.py makes options of them.
"""

from headroom.tables import settings_table as table


def environment_name(setting: dict) -> str:
    return "HEADROOM_" + setting["name"].upper()


def to_environment(values: dict) -> dict[str, str]:
    """Environment variables for the settings that have a value."""
    known = {setting["name"]: setting for setting in table()}
    return {
        environment_name(known[name]): str(value) for name, value in values.items() if name in known and value not in (None, "")
    }


def _written(value: object, kind: str) -> str:
    """As a person would write it."""
    return f"{value >> 20}M" if kind == "bytes" and value and value % (1 << 20) == 0 else str(value)


def to_options(values: dict) -> list[str]:
    """Options of `headroom run` for the settings that have a value."""
    kinds = {setting["name"]: setting["kind"] for setting in table()}
    return [
        f"--{name.replace('_', '-')}={_written(value, kinds[name])}"
        for name, value in values.items()
        if name in kinds and value not in (None, "")
    ]
