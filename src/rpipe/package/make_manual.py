"""Manual pages of librpipe from its header: one for each function, and rpipe(3) with what holds of all.

usage: make_manual.py HEADER VERSION FOLDER

The header says everything once: the comment above a declaration, or behind it, is that function's description (a comment goes
for all declarations up to the next one), and the comment at the head of the file is rpipe(3).
"""

import re
import sys
from pathlib import Path

FUNCTION = re.compile(
    r"(?P<result>int|void\*|rpipe_t|const char\*) (?P<name>rpipe_\w+)\((?P<arguments>[^;]*)\);(?: /\* (?P<behind>.*?) \*/)?",
    re.S,
)


def plain(comment: str) -> str:
    """The text of a C comment."""
    body = comment.strip().removeprefix("/*").removesuffix("*/")
    return "\n".join(re.sub(r"^ \* ?", "", line) for line in body.splitlines()).strip()


def roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in escaped.splitlines())


def functions(header: str) -> list[tuple[str, str, str]]:
    """(name, declaration, description) of each."""
    found = []
    comment = ""
    at = 0
    while at < len(header):
        if header.startswith("/*", at):
            end = header.index("*/", at) + 2
            text = header[at:end]
            if not text.startswith("/* ----"):
                comment = text
            at = end
            continue
        function = FUNCTION.match(header, at) if at == 0 or header[at - 1] == "\n" else None
        if function:
            declaration = re.sub(r"\s+", " ", f"{function['result']} {function['name']}({function['arguments']});")
            found.append((function["name"], declaration, plain(function["behind"] or comment)))
            at = function.end()
            continue
        at += 1
    return found


def page(name: str, version: str, sections: dict[str, str]) -> str:
    head = f'.TH {name.upper()} 3 "" "Headroom {version}" "Pipes between ranks"\n'
    return head + "".join(f".SH {title}\n{text}\n" for title, text in sections.items())


def main() -> None:
    header, version, folder = Path(sys.argv[1]).read_text(), sys.argv[2], Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    overview = plain(header[: header.index("*/") + 2])
    found = functions(header)
    names = ", ".join(f"{name}(3)" for name, _, _ in found)
    sections = {"NAME": "rpipe \\- memory on another rank, handed over without fences, epochs or locks"}
    sections |= {
        "SYNOPSIS": ".B #include <headroom/rpipe.h>",
        "DESCRIPTION": f".nf\n{roff(overview)}\n.fi",
        "SEE ALSO": roff(names),
    }
    (folder / "rpipe.3").write_text(page("rpipe", version, sections))
    for name, declaration, description in found:
        first = re.split(r"(?<=[.:;])\s", description.replace("\n", " "), maxsplit=1)[0].rstrip(".:;")
        sections = {
            "NAME": f"{name} \\- {roff(first)}",
            "SYNOPSIS": f".B #include <headroom/rpipe.h>\n.PP\n.B {roff(declaration)}",
        }
        sections |= {"DESCRIPTION": roff(description), "ERRORS": "Those of any function, and who may call it: rpipe(3)."}
        sections |= {"SEE ALSO": roff(", ".join(f"{other}(3)" for other, _, _ in found if other != name)) + ", rpipe(3)"}
        (folder / f"{name}.3").write_text(page(name, version, sections))


if __name__ == "__main__":
    main()
