"""What a run's counters say of its messages: how they went, who copied, what was left to the MPI library, and advice.

What a counter means is written in counters.toml alone; the page shows its words. A message that was sent went one of four ways:
within a record, fetched by its receiver, copied aside, or through a ring. The first is counted by the sender, as are the last
two, and fetching by the receiver, so the ways of all ranks together make up what was sent, those of one rank need not.
"""

from __future__ import annotations

from headroom.report.trace import Node
from headroom.tables import read_table

REASONS = ("other_nodes", "communicator", "arguments", "partitions")
REASONS_OF_COLLECTIVES = ("other_nodes", "communicator", "operation")
PASSED = tuple(f"passed_for_{why}" for why in REASONS)
PASSED_COLLECTIVES = tuple(f"collectives_passed_for_{why}" for why in REASONS_OF_COLLECTIVES)
REASONS_OF_FILES = ("file_system", "mode", "representation", "datatypes", "arguments", "communicator")
PASSED_FILES = tuple(f"io_passed_for_{why}" for why in REASONS_OF_FILES)
PASSED_FILES += ("io_passed_as_asked",)
ONE_SIDED = ("puts_direct", "gets_direct", "folds_direct")
# What the page shows, in order. one_sided_bytes is a row of its own; other bytes stand beside the counter that they belong to.
GROUPS = {
    "What was sent": (
        "messages_direct",
        "messages_collective",
        "messages_between",
        "messages_piped",
        *ONE_SIDED,
        "one_sided_bytes",
    ),
    "Calls that did not enter the MPI library": (
        "collectives_direct",
        "collectives_started",
        "collectives_staged",
        "windows_direct",
    ),
    "How it went": (
        "messages_inline",
        "messages_fetched",
        "messages_attached",
        "messages_shared",
        "messages_helped",
        "messages_copied_apart",
        "messages_aside",
        "messages_aside_at_once",
        "messages_aside_streams",
        "messages_streamed",
        "blocks_brought_for_messages",
        "peers_asked_for_blocks",
    ),
    "Between nodes": (
        "messages_between_long",
        "between_pieces",
        "between_pieces_copied",
        "between_records_queued",
        "rdma_messages",
        "rdma_prefetched_bytes",
        "rdma_pinned_bytes",
        "rdma_pages_bounced",
        "rdma_failures",
    ),
    "Collective calls on files": (
        "io_writes",
        "io_reads",
        "io_apart",
        "io_aggregated",
        "io_by_library",
        "io_windows",
        "io_windows_read_first",
        "io_windows_dropped",
        "io_errors",
        "io_views_withheld",
        "io_views_given",
        "io_alone",
        "io_alone_bytes",
    ),
    "Left to the MPI library": (*PASSED, *PASSED_COLLECTIVES, "windows_passed", *PASSED_FILES),
    "Waiting": (
        "messages_unexpected",
        "messages_unexpected_peak",
        "receives_on_both_ways",
        "direct_sleeps",
        "bells_rung",
        "direct_pokes",
        "helped_while_away",
    ),
}
BYTES_ALONE = ("one_sided_bytes", "rdma_prefetched_bytes", "rdma_pinned_bytes")
MANY = 100  # fewer cost nobody anything
PART = 0.1  # of all, from which on they are worth a word
LONG_QUEUE = 1000
# Instead of what the table of counters says at length.
WHAT_HELPS = {
    "collectives_passed_for_operation": "; reductions bypass it with --reductions direct, which folds in another order"
}


def meanings() -> dict[str, str]:
    return {counter["name"]: counter["meaning"] for counter in read_table("trace/counters.toml")["counter"]}


def units() -> dict[str, str]:
    return {counter["name"]: counter["unit"] for counter in read_table("trace/counters.toml")["counter"]}


def all_calls(counted: dict) -> int:
    """Collective calls, direct or not."""
    return counted["collectives_direct"] + sum(counted[name] for name in PASSED_COLLECTIVES)


def all_messages(counted: dict) -> int:
    """Messages of the program's, direct or not. What MPI forbids was not sent; requests with partitions are not messages."""
    ours = counted["messages_direct"] + counted["messages_between"]
    return ours + counted["passed_for_other_nodes"] + counted["passed_for_communicator"]


def has_messages(node: Node) -> bool:
    total = node.figures.get("total", {})
    if not {name for group in GROUPS.values() for name in group} <= total.keys():
        return False  # it left no figures, or is of a version that counted less
    names = ("messages_direct", "messages_collective", "messages_between", "windows_direct", "windows_passed", *PASSED)
    return any(total[name] for name in names) or all_calls(total) > 0


def number(counted: dict, name: str) -> int | None:
    return None if name in BYTES_ALONE else counted[name]


def content(counted: dict, name: str) -> int | None:
    """The bytes that belong to a counter, if they are counted."""
    if name == "messages_inline":
        return counted["messages_direct_bytes"] + counted["messages_collective_bytes"] - counted["messages_long_bytes"]
    return counted[name] if name in BYTES_ALONE else counted.get(f"{name}_bytes")


def ranks_of(node: Node) -> list[dict]:
    """What each process counted that called MPI_Init, by rank."""
    return sorted((rank for rank in node.figures["ranks"] if rank["rank"] >= 0), key=lambda rank: rank["rank"])


def longest_queue(node: Node) -> tuple[int, int]:
    """The most messages that had come before they were asked for, and the rank where."""
    longest = max(ranks_of(node), key=lambda rank: rank["messages_unexpected_peak"])
    return longest["messages_unexpected_peak"], longest["rank"]


def ways(counted: dict) -> dict[str, tuple[int, int]]:
    """(messages, bytes) by the way they went: each in one of them."""

    def both(name: str) -> tuple[int, int]:
        return number(counted, name), content(counted, name)

    fetched, attached = both("messages_fetched"), both("messages_attached")
    return {
        "in one record": both("messages_inline"),
        "fetched": (fetched[0] - attached[0], fetched[1] - attached[1]),
        "attached": attached,
        "copied aside": both("messages_aside"),
        "streamed": both("messages_streamed"),
        "between nodes": both("messages_between"),
        "one-sided": (sum(counted[name] for name in ONE_SIDED), counted["one_sided_bytes"]),
        "the MPI library's": (sum(counted[name] for name in PASSED), sum(content(counted, name) or 0 for name in PASSED)),
    }


def ways_used(node: Node) -> list[str]:
    return [way for way, (messages, _) in ways(node.figures["total"]).items() if messages]


def copied_by(total: dict) -> dict[str, tuple[int, int]]:
    """(messages, bytes) by who copied, over all ranks: who took part in what another fetched has counted that himself."""
    twice = [(total[name], content(total, name)) for name in ("messages_inline", "messages_aside", "messages_streamed")]
    helped = total["messages_helped"], total["messages_helped_bytes"]
    fetched = total["messages_fetched"], total["messages_fetched_bytes"]
    return {
        "the receiver": (fetched[0] - helped[0], fetched[1] - helped[1]),
        "both sides at once": helped,
        "the sender, then the receiver": (sum(each[0] for each in twice), sum(each[1] for each in twice)),
        "the origin, one-sided": ways(total)["one-sided"],
    }


def figures(node: Node) -> dict:
    """For machines, what the page shows."""
    total = node.figures["total"]

    def named(parts: dict[str, tuple[int, int]]) -> dict:
        return {name: {"messages": messages, "bytes": size} for name, (messages, size) in parts.items()}

    return {
        "ways": named(ways(total)),
        "copied_by": named(copied_by(total)),
        "ranks": {rank["rank"]: named(ways(rank)) for rank in ranks_of(node)},
        "longest_queue": longest_queue(node)[0],
    }


def _advise_on_what_was_passed(total: dict) -> list[str]:
    said = []
    sent, called = all_messages(total) + total["passed_for_arguments"], all_calls(total)
    # Nothing can be done about messages to other nodes.
    for name, whole in (
        ("passed_for_communicator", sent),
        ("passed_for_arguments", sent),
        ("collectives_passed_for_communicator", called),
        ("collectives_passed_for_operation", called),
    ):
        if total[name] >= MANY and total[name] > PART * whole:
            why, _, at_length = meanings()[name].replace(" left ", " were left ", 1).partition(":")
            said.append(f"{total[name]} of {whole} {why}{WHAT_HELPS.get(name, ':' + at_length if at_length else '')}.")
    to_other_nodes = total["passed_for_other_nodes"] + total["collectives_passed_for_other_nodes"] > 0
    if total["windows_passed"] and not to_other_nodes:
        part = total["windows_passed"] / (total["windows_passed"] + total["windows_direct"])
        said.append(
            f"{part:.0%} of the windows for one-sided communication are the MPI library's. Those whose memory is all of "
            "MPI_Win_allocate or MPI_Alloc_mem, or of large allocations, would not be, unless they are shared or dynamic."
        )
    return said


def advise_on_messages(node: Node) -> list[str]:
    if not has_messages(node):
        return []
    total = node.figures["total"]
    said = _advise_on_what_was_passed(total)
    attached, aside, at_once = (total[f"messages_{way}"] for way in ("attached", "aside", "aside_at_once"))
    long = total["messages_direct"] + total["messages_collective"] - total["messages_inline"]
    evictable = "with --large 64K, or from MPI_Alloc_mem, they would lie in evictable memory, which ranks share"
    if attached >= MANY and total["messages_attached_bytes"] > PART * total["messages_long_bytes"]:
        said.append(
            f"{attached} messages were read by cross-memory attach, the slower way, since their buffers are on stacks or in "
            f"small allocations; {evictable}."
        )
    if at_once >= MANY and at_once > PART * long:
        said.append(
            f"{at_once} of {long} messages that do not fit a record were copied aside as they were sent, one copy more, since "
            "their receivers could not read them where they were"
            + (", or had no room for them while memory was short" if node.figures["short_of_memory"] else "")
            + f". If they are on stacks or in small allocations: {evictable}."
        )
    if (late := aside - at_once - total["messages_aside_streams"]) >= MANY and late > PART * long:
        said.append(
            f"{late} of {long} messages that do not fit a record were copied aside, one copy more, since their receivers did "
            "not come for them for longer than copying takes. MPI_Isend leaves them where they are for as long as the sender "
            "has other things to do."
        )
    queue, rank = longest_queue(node)
    if queue >= LONG_QUEUE:
        said.append(
            f"{queue} messages waited at rank {rank} at one time before they were asked for, and took memory meanwhile: "
            "receives that are posted earlier spare that."
        )
    return said
