"""The settings as options of a command, with their help."""

from __future__ import annotations

import re
from collections.abc import Callable

import click

from headroom.settings import environment_name, table

SIZE = re.compile(r"\s*(\d+\.?\d*|\.\d+)(?:([KMGT])i?B?)?", re.IGNORECASE)


class Bytes(click.ParamType):
    """A size such as 512M, 4G or 1048576; binary units."""

    name = "size"

    def convert(self, value, param, ctx):
        if isinstance(value, int):
            return value
        return (
            parse_bytes(value)
            if parse_bytes(value) is not None
            else self.fail(f"{value!r} is not a size: a number, and K, M, G or T (powers of 1024): 512M, 1.5G")
        )


def parse_bytes(text: str) -> int | None:
    """Like base::parse_bytes (src/base/settings.cc), which reads the same environment variables."""
    found = SIZE.fullmatch(text)
    if found is None:
        return None
    value = float(found[1]) * 1024 ** " KMGT".index((found[2] or " ").upper())
    return int(value) if value < 1e18 else None


def choice_of(name: str) -> click.Choice:
    """The values of a setting that has a few."""
    return click.Choice(next(setting["choices"] for setting in table() if setting["name"] == name))


def _type_of(setting: dict):
    if setting["kind"] == "choice":
        return click.Choice(setting["choices"])
    return {"bytes": Bytes(), "count": click.IntRange(min=0), "path": click.Path(readable=False)}.get(setting["kind"], str)


def meaning_of(setting: dict) -> str:
    """With what its choices mean, where the table says it of each."""
    each = zip(setting.get("choices", []), setting.get("choices_mean", []))
    said = "; ".join(f"{choice}: {means}" for choice, means in each)
    return setting["meaning"] + (f"; {said}" if said else "")


def options(command: Callable) -> Callable:
    """Adds an option for each setting that is shown; the environment variable of the same name is its default."""
    for setting in reversed(table()):
        if not setting.get("shown", True):
            continue
        default = setting.get("default_text") or setting["default"]
        meaning = meaning_of(setting)
        command = click.option(
            "--" + setting["name"].replace("_", "-"),
            setting["name"],
            type=_type_of(setting),
            envvar=environment_name(setting),
            help=f"{meaning} [default: {default}]" if default else meaning,
        )(command)
    return command


class Command(click.Command):
    """One whose help has the settings under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        about = {setting["name"]: setting["about"] for setting in table()}
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                sections.setdefault(about.get(parameter.name, "options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading.capitalize()):
                formatter.write_dl(records)
