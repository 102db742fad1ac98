"""One page with a picture for each part of the demo: build/demo/index.html."""

from __future__ import annotations

import html
from pathlib import Path

from headroom.report.page import STYLE
from steps import Part

BARS = """
.bars { display: grid; grid-template-columns: max-content 1fr; gap: .3rem .8rem; align-items: center; margin: .8rem 0; }
.bars span { color: var(--soft); } .bars div { display: flex; align-items: center; gap: .5rem; }
.bars i { display: block; height: 1.1rem; background: #d55e00; border-radius: .2rem; } .bars .ours i { background: #0072b2; }
"""
OURS = ("Headroom", "pipes")


def bars(part: Part) -> str:
    most = max((value for _, value in part.bars), default=0) or 1
    shown = []
    for name, value in part.bars:
        kind = ' class="ours"' if name.startswith(OURS) else ""
        digits = 1 if value >= 10 else 2
        bar = f'<i style="width: {70 * value / most:.1f}%"></i>{value:.{digits}f} {part.unit}'
        shown.append(f"<span>{html.escape(name)}</span><div{kind}>{bar}</div>")
    return f'<div class="bars">{"".join(shown)}</div>'


def section(number: int, part: Part) -> str:
    shown = [f"<h2>{number}. {html.escape(part.title)}</h2>", f"<p>{html.escape(part.text)}</p>"]
    shown += [bars(part)] if part.bars else []
    shown += [f'<div class="{theme}">{svg}</div>' for theme, svg in part.pictures.items()]
    shown += [f'<p><a href="{part.link}">The report of this run</a></p>'] if part.link and part.pictures else []
    shown += [] if part.good else ["<p><b>It failed, or its results differ: something is wrong.</b></p>"]
    return "\n".join(shown)


def write(parts: list[Part], machine: str, path: Path) -> None:
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Headroom: the demo</title><style>{STYLE}{BARS}</style></head><body>"
    )
    intro = f"<h1>Headroom: the demo</h1><p>{html.escape(machine)}. Shorter bars are faster; blue is Headroom.</p>"
    body = "\n".join(section(number, part) for number, part in enumerate(parts, 1))
    path.write_text(f"{head}{intro}{body}</body></html>\n")
