"""Manual pages of the public C headers: one for each function, and one for each header with what holds of all.

usage: library_pages.py VERSION FOLDER HEADER...

A header says everything once: the comment above a declaration, or behind it, is that function's description (a comment goes for
all declarations up to the next one), and the comment at the head of the file is the page of the header: rpipe(3),
headroom_memory(3).
"""

import re
import sys
from pathlib import Path

FUNCTION = re.compile(
    r"(?P<result>int|void\*|rpipe_t|const char\*) (?P<name>(?:rpipe|headroom)_\w+)\((?P<arguments>[^;]*)\);"
    r"(?: /\* (?P<behind>.*?) \*/)?",
    re.S,
)
OVERVIEWS = {  # the name of a header's page, what it is for, and the manual it belongs to
    "rpipe.h": ("rpipe", "memory on another rank, handed over without fences, epochs or locks", "Pipes between ranks"),
    "memory.h": ("headroom_memory", "what a program may tell Headroom of its memory", "Headroom for programs"),
    "headroom.h": ("headroom_statistics", "what a program may ask when it runs under headroom run", "Headroom for programs"),
}


def plain(comment: str) -> str:
    """The text of a C comment."""
    body = comment.strip().removeprefix("/*").removesuffix("*/")
    return "\n".join(re.sub(r"^ \* ?", "", line) for line in body.splitlines()).strip()


# Terminals without UTF-8 have no such characters.
DRAWING = str.maketrans({"─": "-", "│": "|", "►": ">", "└": "+", "┘": "+", "┌": "+", "┐": "+"})


def roff(text: str) -> str:
    escaped = text.translate(DRAWING).replace("\\", "\\e").replace("-", "\\-")
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


def write_pages(path: Path, version: str, folder: Path) -> None:
    header = path.read_text()
    overview_name, purpose, manual = OVERVIEWS[path.name]

    def page(name: str, sections: dict[str, str]) -> None:
        head = f'.TH {name.upper()} 3 "" "Headroom {version}" "{manual}"\n'
        (folder / f"{name}.3").write_text(head + "".join(f".SH {title}\n{text}\n" for title, text in sections.items()))

    include = f".B #include <headroom/{path.name}>"
    found = functions(header)
    names = ", ".join(f"{name}(3)" for name, _, _ in found)
    sections = {"NAME": f"{overview_name} \\- {roff(purpose)}", "SYNOPSIS": include}
    sections |= {"DESCRIPTION": f".nf\n{roff(plain(header[: header.index('*/') + 2]))}\n.fi", "SEE ALSO": roff(names)}
    page(overview_name, sections)
    for name, declaration, description in found:
        said = re.sub(r"^[A-Z' ]+ -> [A-Z' ]+[.:;]\s+", "", description.replace("\n", " "))  # without the change of owner
        first = re.split(r"(?<=[.:;])\s", said, maxsplit=1)[0].rstrip(".:;")
        others = ", ".join([*(f"{other}(3)" for other, _, _ in found if other != name), f"{overview_name}(3)"])
        sections = {"NAME": f"{name} \\- {roff(first)}", "SYNOPSIS": f"{include}\n.PP\n.B {roff(declaration)}"}
        sections |= {"DESCRIPTION": roff(description)}
        sections |= {"ERRORS": f"Those of any function, and who may call it: {overview_name}(3).", "SEE ALSO": roff(others)}
        page(name, sections)


def main() -> None:
    version, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for header in sys.argv[3:]:
        write_pages(Path(header), version, folder)


if __name__ == "__main__":
    main()
