"""The settings, from the same table as the library's (settings.toml), as options and environment variables."""

import os
from collections.abc import Callable

import click

from headroom.tables import read_table


class Bytes(click.ParamType):
    """A size such as 512M, 4G or 1048576; binary units."""

    name = "size"

    def convert(self, value, param, ctx):
        if isinstance(value, int):
            return value
        return parse_bytes(value) if parse_bytes(value) is not None else self.fail(f"{value!r} is not a size; write 512M or 4G")


def parse_bytes(text: str) -> int | None:
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    factor = 1
    if number and number[-1] in "KMGT":
        factor = 1024 ** ("KMGT".index(number[-1]) + 1)
        number = number[:-1]
    try:
        value = float(number) * factor
    except ValueError:
        return None
    return int(value) if 0 <= value < 1e18 else None


def table() -> list[dict]:
    return read_table("base/settings.toml")["setting"]


def environment_name(setting: dict) -> str:
    return "HEADROOM_" + setting["name"].upper()


def _type_of(setting: dict):
    if setting["kind"] == "choice":
        return click.Choice(setting["choices"])
    return {"bytes": Bytes(), "count": click.IntRange(min=0)}.get(setting["kind"], str)


def options(command: Callable) -> Callable:
    """Adds an option for each setting that is shown; the environment variable of the same name is its default."""
    for setting in reversed(table()):
        if not setting.get("shown", True):
            continue
        default = setting.get("default_text") or setting["default"]
        command = click.option(
            "--" + setting["name"].replace("_", "-"),
            setting["name"],
            type=_type_of(setting),
            envvar=environment_name(setting),
            help=f"{setting['meaning']} [default: {default}]" if default else setting["meaning"],
        )(command)
    return command


def to_environment(values: dict) -> dict[str, str]:
    """Environment variables for the settings that have a value."""
    known = {setting["name"]: setting for setting in table()}
    return {
        environment_name(known[name]): str(value) for name, value in values.items() if name in known and value not in (None, "")
    }


def from_environment(name: str) -> str | None:
    return os.environ.get("HEADROOM_" + name.upper()) or None
