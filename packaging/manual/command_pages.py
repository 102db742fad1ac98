"""Manual pages of the command and its sub-commands, and their completion in shells, from the commands themselves.

usage: command_pages.py VERSION FOLDER    (makes FOLDER/man1, FOLDER/bash, FOLDER/zsh, FOLDER/fish)
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from click.shell_completion import get_completion_class  # noqa: E402

from headroom.command import MODULES, main  # noqa: E402

SHELLS = {"bash": "headroom", "zsh": "_headroom", "fish": "headroom.fish"}


def roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in escaped.splitlines())


def paragraphs(text: str) -> str:
    r"""Help as click has it: empty lines between paragraphs, those that begin with \b as they are."""
    shown = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if paragraph.startswith("\b"):
            shown.append(f".PP\n.nf\n{roff(paragraph.removeprefix(chr(8)).strip(chr(10)))}\n.fi")
        else:
            shown.append(f".PP\n{roff(' '.join(paragraph.split()))}")
    return "\n".join(shown)


def options_of(command: click.Command, context: click.Context) -> str:
    options = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    records = [record for option in options if (record := option.get_help_record(context))]
    return "\n".join(f".TP\n.B {roff(names)}\n{roff(' '.join(text.split()))}" for names, text in records)


def write_page(command: click.Command, context: click.Context, version: str, folder: Path) -> None:
    name = context.command_path.replace(" ", "-")
    usage = " ".join(command.collect_usage_pieces(context))
    children = sorted(command.commands) if isinstance(command, click.Group) else []
    if command is main:
        children = list(MODULES)
    sections = {
        "NAME": f"{roff(name)} \\- {roff(command.get_short_help_str(200).rstrip('.'))}",
        "SYNOPSIS": f".B {roff(context.command_path)}\n{roff(usage)}",
        "DESCRIPTION": paragraphs(command.help or ""),
        "OPTIONS": options_of(command, context),
    }
    if children:
        sections["COMMANDS"] = "\n".join(
            f".TP\n.B {roff(f'{name}-{child}')}(1)\n{roff(command.get_command(context, child).get_short_help_str(200))}"
            for child in children
        )
    others = ["headroom(1)"] if command is not main else ["rpipe(3), headroom_memory(3)"]
    sections["SEE ALSO"] = roff(", ".join(others))
    head = f'.TH {name.upper()} 1 "" "Headroom {version}" "Headroom"\n'
    text = head + "".join(f".SH {title}\n{text}\n" for title, text in sections.items() if text)
    (folder / f"{name}.1").write_text(text)
    for child in children:
        below = command.get_command(context, child)
        write_page(below, click.Context(below, info_name=child, parent=context), version, folder)


def make(version: str, folder: Path) -> None:
    manual = folder / "man1"
    manual.mkdir(parents=True, exist_ok=True)
    write_page(main, click.Context(main, info_name="headroom", **main.context_settings), version, manual)
    for shell, file in SHELLS.items():
        (folder / shell).mkdir(exist_ok=True)
        completion = get_completion_class(shell)(main, {}, "headroom", "_HEADROOM_COMPLETE")
        # Not source(): it asks which bash there is, which is another one where this is used.
        (folder / shell / file).write_text(completion.source_template % completion.source_vars())


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
