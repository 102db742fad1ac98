"""One self-contained page of a run: drawings, where the time went, faults by who allocated the memory, advice, all figures."""

import html
from datetime import datetime
from pathlib import Path

from headroom.report import messages, sites
from headroom.report.advice import advise, allocated_bytes, needed_bytes, seconds_in, shares, waited_for_storage
from headroom.report.progress import progress_of
from headroom.report.trace import BLOCKED, COMPUTES, READY, Node

MIB = 1 << 20
MOST_SITES = 15
MOST_DRAWINGS = 4  # of a node

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d0d7de; --paper: #ffffff; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --paper: #0d1117; --card: #151b23; }
  .light { display: none; }
}
@media (prefers-color-scheme: light) { .dark { display: none; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
h1 + p { color: var(--soft); margin: .2rem 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .7rem; margin: 1rem 0; }
.facts div { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .8rem; }
.facts b { display: block; font-size: 1.15rem; } .facts span { color: var(--soft); font-size: .85rem; }
ul.advice { background: var(--card); border: 1px solid var(--line); border-left: .3rem solid #e69f00; border-radius: .5rem;
  padding: .7rem 1rem .7rem 2rem; margin: 1rem 0; }
svg { width: 100%; height: auto; display: block; } svg text { font-family: system-ui, sans-serif !important; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
td { white-space: pre; } td:first-child { white-space: normal; min-width: 6rem; }
.said td { white-space: nowrap; } .said td:last-child { white-space: normal; min-width: 20rem; }
.said td:last-child { color: var(--soft); font-size: .85rem; }
.said td:first-child, .said td:last-child, .said th:last-child { text-align: left; }
.said tbody + tbody::before { content: ""; display: block; height: .6rem; }
.wide { overflow-x: auto; } summary { cursor: pointer; color: var(--soft); }
"""


def size(count: float) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} B"


PLAIN = {"bytes", "ns"}  # shown with a unit of their own


def in_unit(count: int, unit: str) -> str:
    return size(count) if unit == "bytes" else f"{count / 1e9:.3f} s" if unit == "ns" else str(count)


def line(cells: list[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def table(header: list[str], rows: list[list[str]]) -> str:
    body = "".join(line(row, "td") for row in rows)
    return f'<div class="wide"><table><thead>{line(header, "th")}</thead><tbody>{body}</tbody></table></div>'


def cards(shown: list[tuple[str, str]]) -> str:
    """Figures to be seen at a glance, and what they are."""
    return '<div class="facts">' + "".join(f"<div><b>{value}</b><span>{what}</span></div>" for value, what in shown) + "</div>"


def facts(node: Node) -> str:
    total, figures = node.figures.get("total"), node.figures
    shown = [(f"{node.end:.1f} s", "from first to last event")]
    if total:
        needed, allocated = needed_bytes(total), allocated_bytes(total)
        shown += [
            (size(figures["budget_bytes"]), "budget of the node"),
            (size(needed), "needed: touched, the most of each process added up"),
            (size(allocated), "allocated, the most of each process added up"),
            (
                size(figures["peak_resident_bytes"]),
                "peak: most at one time, " + ("resident" if figures["watched"] else "allocated"),
            ),
            (size(total["bytes_read"]), "read from storage"),
            (size(total["bytes_written"]), "written to it"),
            (f"{total['faults']}", "page faults served"),
            (f"{shares(node)['waiting for storage']:.0%}", "of the time waiting for storage"),
        ]
    return cards(shown)


def what_memory_shows(node: Node) -> str:
    if node.armed is None:
        return "What was allocated, touched or not: memory was enough, so that nobody watched what was resident."
    return (
        "Up to the dotted line what was allocated, touched or not; from then on, since memory had become short (or a process "
        "had forked) and was watched, what was resident."
    )


def times(node: Node) -> str:
    rows = []
    for process in node.processes:
        storage = waited_for_storage(process)
        last = process.samples[-1] if process.samples else None
        rows.append(
            [
                process.name,
                f"{max(seconds_in(process, COMPUTES) - storage, 0):.2f} s",
                f"{storage:.2f} s",
                f"{seconds_in(process, READY):.2f} s",
                f"{seconds_in(process, BLOCKED):.2f} s",
                size(last.read) if last else "",
                size(last.written) if last else "",
                f"{last.faults}" if last else "",
            ]
        )
    header = ["", "computing", "waiting for storage", "for its turn", "in MPI", "read", "written", "faults"]
    return (
        "<p>Waits in MPI that last less than 0.05 ms count as computing, and so does looking again and again (MPI_Test in a "
        "loop) where ranks do not take turns.</p>" + table(header, rows)
    )


def allocation_sites(node: Node, names: dict) -> str:
    rows = [
        [where, size(allocated), str(faults), f"{waited:.2f} s"]
        for where, faults, waited, allocated in sites.by_site(node, names)[:MOST_SITES]
    ]
    return table(["allocated in", "allocated, in all", "faults from storage", "waited"], rows)


def message_cards(node: Node) -> str:
    total = node.figures["total"]
    queue, rank = messages.longest_queue(node)
    windows = total["windows_direct"] + total["windows_passed"]
    past_the_library = (
        (total["messages_direct"], messages.all_messages(total), "messages"),
        (total["collectives_direct"], messages.all_calls(total), "calls of collectives"),
        (total["windows_direct"], windows, "windows, counted by each rank,"),
    )
    shown = [(f"{direct}", f"of {whole} {what} bypassed the MPI library") for direct, whole, what in past_the_library if whole]
    shown += [
        (size(total["messages_direct_bytes"] + total["messages_collective_bytes"]), "in these messages and collectives"),
        (f"{total['messages_aside']}", "messages copied aside"),
        (f"{total['blocks_brought_for_messages']}", "blocks brought in to be sent"),
        (f"{queue}", "longest queue of messages not asked for" + (f", rank {rank}" if queue else "")),
        (f"{total['direct_sleeps']} / {total['bells_rung']}", "sleeps of waiting ranks / bells rung"),
    ]
    return cards(shown)


def message_ways(node: Node) -> str:
    """How many messages of each rank went which way, and who copied."""
    total, used = node.figures["total"], messages.ways_used(node)
    if not used:
        return ""

    def cell(number: int, content: int) -> str:
        return "" if number == 0 else f"{number}\n{size(content)}"

    def row(name: str, counted: dict) -> list[str]:
        shown = messages.ways(counted)
        return [name, *(cell(*shown[way]) for way in used)]

    rows = [row("all ranks", total), *(row(f"rank {rank['rank']}", rank) for rank in messages.ranks_of(node))]
    copied = messages.copied_by(total)
    whole = sum(content for _, content in copied.values()) or 1
    by = [[who, f"{number}", size(content), f"{content / whole:.0%}"] for who, (number, content) in copied.items() if number]
    return (
        "<p>Each message is shown at the rank that counted it: its receiver where it was fetched or attached, else its "
        "sender.</p>"
        + table(["", *used], rows)
        + (("<h3>Who copied</h3>" + table(["", "messages", "content", "of all"], by)) if by else "")
    )


def message_counters(node: Node) -> str:
    """What is counted of messages, with what it means in the words of the table of counters."""
    total, meanings = node.figures["total"], messages.meanings()
    groups = []
    for group, names in messages.GROUPS.items():
        rows = []
        for name in names:
            number, content = messages.number(total, name), messages.content(total, name)
            if number or content:
                shown = ["" if number is None else f"{number}", "" if content is None else size(content)]
                rows.append(line([name, *shown, meanings[name]], "td"))
        if rows:
            groups.append(f"<tbody>{line([group, 'number', 'content', 'what is counted'], 'th')}{''.join(rows)}</tbody>")
    return f'<div class="wide"><table class="said">{"".join(groups)}</table></div>'


def message_section(node: Node, drawn: str) -> str:
    """Empty if the run had no messages."""
    if not messages.has_messages(node):
        return ""
    parts = ["<h2>Messages</h2>", message_cards(node), drawn, message_ways(node), "<h3>All that is counted of messages</h3>"]
    return "\n".join([*parts, message_counters(node)])


def counters(node: Node) -> str:
    ranks = node.figures.get("ranks", [])
    if not ranks:
        return ""
    totals = node.figures["total"]
    shown = [name for name, value in totals.items() if value]
    units = messages.units()
    rows = [
        [name, *(in_unit(each[name], units[name]) for each in (totals, *ranks)), "" if units[name] in PLAIN else units[name]]
        for name in shown
    ]
    names = [f"rank {rank['rank']}" if rank["rank"] >= 0 else f"process {rank['process']}" for rank in ranks]
    return f"<details><summary>All counters</summary>{table(['', 'total', *names, 'unit'], rows)}</details>"


def title(node: Node) -> str:
    """The program, how many there were, and when it began."""
    program = (node.figures.get("ranks") or [{}])[0].get("program", "a program")
    ranks = sum(rank["rank"] >= 0 for rank in node.figures.get("ranks", []))
    count, noun = (ranks, "rank") if ranks else (len(node.processes), "process")
    plural = "" if count == 1 else "s" if ranks else "es"
    began = datetime.fromtimestamp(min(process.real_began for process in node.processes) / 1e9)
    return f"{program}, {count} {noun}{plural}, {began:%Y-%m-%d %H:%M}"


def section(node: Node, drawn: dict[str, dict[str, str]], names: dict, limit: dict[str, float], command: str) -> str:
    lost = sum(process.lost for process in node.processes)

    def picture(what: str) -> str:
        return "".join(f'<div class="{theme}">{svg}</div>' for theme, svg in drawn[what].items())

    parts = [
        f"<h1>{html.escape(title(node))} on {html.escape(node.name)}</h1>",
        f"<p>{html.escape(command)}</p>" if command else "",
        f"<p>Storage: {html.escape(node.figures.get('storage', 'not known'))}"
        + (f", which can read {limit['read']:.0f} and write {limit['write']:.0f} MiB/s" if limit else "")
        + "</p>",
        facts(node),
        '<ul class="advice">' + "".join(f"<li>{html.escape(text)}</li>" for text in advise(node, limit)) + "</ul>",
        "<h2>Memory</h2>",
        f"<p>{what_memory_shows(node)}</p>",
        picture("memory"),
        "<h2>Who computed, who waited</h2>",
        picture("turns"),
        "<h2>Storage (read above, written below)</h2>",
        picture("storage"),
        "<h2>Where the time went</h2>",
        times(node),
        message_section(node, picture("messages") if "messages" in drawn else ""),
        "<h2>Memory that had to be waited for, by who allocated it</h2>",
        allocation_sites(node, names),
        counters(node),
    ]
    if lost:
        parts.append(f"<p>{lost} events came faster than they could be written, and are missing.</p>")
    return "<section>" + "\n".join(parts) + "</section>"


def write_page(nodes: list[Node], limits: dict[str, dict], path: Path, command: str = "") -> None:
    from headroom.report import drawings

    sections = []
    with progress_of("drawing", 1 + MOST_DRAWINGS * len(nodes)) as done:
        names = sites.resolve(nodes)
        done(1)
        for node in nodes:
            limit = limits.get(node.name, {})
            wanted = {
                "memory": (drawings.memory, node),
                "turns": (drawings.turns, node),
                "storage": (drawings.storage, node, limit),
            }
            if messages.has_messages(node) and messages.ways_used(node):
                wanted["messages"] = (drawings.message_ways, node)
            drawn = {}
            for what, arguments in wanted.items():
                drawn[what] = drawings.in_both_themes(*arguments)
                done(1)
            done(MOST_DRAWINGS - len(wanted))
            sections.append(section(node, drawn, names, limit, command))
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Headroom: {html.escape(title(nodes[0]))}</title><style>{STYLE}</style></head><body>"
        + "<hr>".join(sections)
        + "</body></html>\n"
    )
    path.write_text(page, encoding="utf-8")
