"""Whether each link of a page of the documentation leads somewhere: to a file, and to a heading in it. Run by `make lint`."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Those that sites make of headings: lower case, spaces are hyphens, nothing else but letters and digits."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def main() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True, cwd=ROOT, check=True)
    wrong = []
    for page in (ROOT / name for name in listed.stdout.split()):
        for target in LINK.findall(page.read_text()):
            if "://" in target:
                continue
            file, _, anchor = target.partition("#")
            found = (page.parent / file).resolve() if file else page
            if not found.exists():
                wrong.append(f"{page.relative_to(ROOT)}: {target} is not there")
            elif anchor and anchor not in anchors(found):
                wrong.append(f"{page.relative_to(ROOT)}: {found.relative_to(ROOT)} has no heading {anchor}")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
