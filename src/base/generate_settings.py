"""Generates settings_table.h (C++), settings_table.py and docs/user/settings.md from settings.toml.

usage: generate_settings.py cpp|python|markdown settings.toml OUTPUT
"""

import sys

try:
    import tomllib
except ImportError:  # before Python 3.11
    import tomli as tomllib
from pathlib import Path


def enum_constant(choice: str) -> str:
    return "k" + "".join(part.capitalize() for part in choice.replace("-", "_").split("_"))


def type_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_")) + "Choice"


def cpp(settings: list[dict]) -> str:
    lines = [
        "// Generated from settings.toml; do not edit.",
        "#pragma once",
        "#include <cstdint>",
        "",
        "namespace headroom::base {",
        "",
    ]
    for setting in settings:
        if setting["kind"] == "choice":
            constants = ", ".join(enum_constant(choice) for choice in setting["choices"])
            lines.append(f"enum class {type_name(setting['name'])} : int {{ {constants} }};")
    lines += ["", "struct Settings {"]
    for setting in settings:
        types = {"bytes": "uint64_t", "count": "uint64_t", "path": "const char*", "text": "const char*"}
        kind = types.get(setting["kind"], type_name(setting["name"]))
        lines.append(f"  {kind} {setting['name']};  // {setting['meaning']}")
    lines += ["};", "", "enum class SettingKind { kBytes, kCount, kPath, kText, kChoice };", ""]
    lines += ["struct SettingRow {", "  const char* name;", "  const char* environment;", "  SettingKind kind;"]
    lines += [
        "  const char* default_value;",
        "  const char* choices;  // separated by spaces",
        "  uint32_t offset;      // in Settings",
        "};",
        "",
    ]
    lines.append("inline constexpr SettingRow kSettingRows[] = {")
    for setting in settings:
        choices = " ".join(setting.get("choices", []))
        kind = "k" + setting["kind"].capitalize()
        lines.append(
            f'    {{"{setting["name"]}", "HEADROOM_{setting["name"].upper()}", SettingKind::{kind}, '
            f'"{setting["default"]}", "{choices}", __builtin_offsetof(Settings, {setting["name"]})}},'
        )
    lines += ["};", "", "}  // namespace headroom::base", ""]
    return "\n".join(lines)


def choices_of(setting: dict) -> str:
    if "choices_mean" not in setting:
        return ", ".join(f"`{choice}`" for choice in setting["choices"])
    return "; ".join(f"`{choice}`: {means}" for choice, means in zip(setting["choices"], setting["choices_mean"], strict=True))


def markdown(settings: list[dict]) -> str:
    lines = [
        "# Settings",
        "",
        "Generated from `src/base/settings.toml`. Each setting is an option of `headroom run` and an environment variable;",
    ]
    lines += ["the option wins."]
    about = None
    for setting in settings:
        if setting["about"] != about:
            about = setting["about"]
            lines += [
                "",
                f"## {about.capitalize()}",
                "",
                "| option | environment | default | meaning |",
                "| --- | --- | --- | --- |",
            ]
        default = setting.get("default_text") or setting["default"] or "none"
        meaning = setting["meaning"]
        if setting["kind"] == "choice":
            meaning += ": " + choices_of(setting)
        option = f"`--{setting['name'].replace('_', '-')}`" if setting.get("shown", True) else "(environment only)"
        cells = [option, f"`HEADROOM_{setting['name'].upper()}`", default, meaning]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")  # which would end the cell
    return "\n".join(lines) + "\n"


def python(settings: list[dict]) -> str:
    return f'"""Generated from settings.toml."""\n\nSETTINGS = {settings!r}\n'


def main() -> None:
    kind, source, output = sys.argv[1:4]
    settings = tomllib.loads(Path(source).read_text())["setting"]
    text = {"cpp": cpp, "markdown": markdown, "python": python}[kind](settings)
    Path(output).write_text(text)


if __name__ == "__main__":
    main()
