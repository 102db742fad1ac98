"""Generates counter_table.h (C++) or the counter part of docs/user/counters.md from counters.toml.

usage: generate_counters.py cpp|markdown counters.toml OUTPUT
"""

import sys

try:
    import tomllib
except ImportError:  # before Python 3.11
    import tomli as tomllib
from pathlib import Path


def enum_constant(name: str) -> str:
    return "k" + "".join(part.capitalize() for part in name.split("_"))


def cpp(counters: list[dict]) -> str:
    lines = [
        "// Generated from counters.toml; do not edit.",
        "#pragma once",
        "",
        "namespace headroom::trace {",
        "",
        "enum class Counter : int {",
    ]
    lines += [f"  {enum_constant(c['name'])},  // {c['unit']}: {c['meaning']}" for c in counters]
    lines += [
        "};",
        "",
        f"inline constexpr int kCounterCount = {len(counters)};",
        "",
        "inline constexpr const char* kCounterNames[] = {",
    ]
    lines += [f'    "{c["name"]}",' for c in counters]
    lines += ["};", "", "}  // namespace headroom::trace", ""]
    return "\n".join(lines)


def markdown(counters: list[dict]) -> str:
    lines = [
        "# Counters",
        "",
        "Generated from `src/trace/counters.toml`; these are the fields of each rank in the JSON report.",
        "",
    ]
    lines += ["| counter | unit | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{c['name']}` | {c['unit']} | {c['meaning']} |" for c in counters]
    return "\n".join(lines) + "\n"


def main() -> None:
    kind, source, output = sys.argv[1:4]
    counters = tomllib.loads(Path(source).read_text())["counter"]
    Path(output).write_text(cpp(counters) if kind == "cpp" else markdown(counters))


if __name__ == "__main__":
    main()
