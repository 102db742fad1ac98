"""`headroom run` as a rank's launcher starts it: quickly, since a node may start a hundred at once.

What is usual is understood here, without the modules that a command line with help and hints takes (click alone costs as much
as starting Python three times). Whatever else is there - another command, -n, a word that is no option - is left to command.py,
which says what is wrong in one place. This module imports nothing but what Python itself has loaded by then.
"""

from __future__ import annotations

import os
import sys

DIGITS = frozenset("0123456789")


def parse_bytes(text: str) -> int | None:
    """As settings.parse_bytes() for what is plain: digits, and one of K, M, G, T; None for everything else, right or wrong."""
    if not text:
        return None
    number, unit = (text[:-1], " KMGT".find(text[-1].upper())) if text[-1:].upper() in "KMGT" else (text, 0)
    if not number or not DIGITS.issuperset(number) or len(number) > 15 or unit < 0:
        return None
    value = int(number) << 10 * unit
    return value if value < 10**18 else None


def value_of(setting: dict, text: str):
    """None if it is not plain, or wrong."""
    kind = setting["kind"]
    if kind == "bytes":
        return parse_bytes(text)
    if kind == "count":
        return int(text) if text and DIGITS.issuperset(text) else None
    if kind == "choice":
        return text if text in setting["choices"] else None
    return text or None


def understand(words: list[str], table: list[dict], environment) -> tuple[dict, list[str]] | None:
    """The settings and the program of `headroom run WORDS`, or None if that is for command.py to say."""
    shown = {setting["name"]: setting for setting in table if setting.get("shown", True)}
    options = {"--" + name.replace("_", "-"): name for name in shown}
    given: dict[str, str] = {}
    at = 0
    while at < len(words) and len(words[at]) > 1 and words[at][0] == "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        option, has_value, text = word.partition("=")
        if option not in options:
            return None
        if not has_value:
            if at == len(words):
                return None
            text = words[at]
            at += 1
        given[options[option]] = text
    if at == len(words):
        return None
    values: dict[str, object] = {}
    for name, setting in shown.items():
        text = given.get(name)
        if text is None:
            text = environment.get("HEADROOM_" + name.upper(), "") or None
        values[name] = None if text is None else value_of(setting, text)
        if text is not None and values[name] is None:
            return None
    return values, words[at:]


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["run"]:
        from headroom.tables import settings_table

        if (understood := understand(words[1:], settings_table(), os.environ)) is not None:
            from headroom.rank import run_rank

            sys.exit(run_rank(*understood))
    from headroom.command import main as slow

    slow()


if __name__ == "__main__":
    main()
