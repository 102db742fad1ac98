"""What a run's figures mean, in words: at most a handful of sentences, the most costly first."""

from headroom.report.messages import advise_on_messages
from headroom.report.trace import COMPUTES, READY, Node, Process

MIB = 1 << 20
# What moving memory costs beside waiting for it (docs/results/paging.md: 70 to 85 us a block of 256 KiB, 5 to 18 us a fault).
MOVED_A_SECOND = 3000  # MiB that a processor moves
FAULT_S = 10e-6
LITTLE = 0.05  # of the processes' time


def needed_bytes(total: dict) -> int:
    """What --memory must hold for nothing to move: what was touched of what can move, and what cannot move."""
    return total["touched_bytes_peak"] + total["other_bytes_peak"]


def allocated_bytes(total: dict) -> int:
    """The same, touched or not."""
    return total["allocated_bytes_peak"] + total["static_bytes"] + total["other_bytes_peak"]


def seconds_in(process: Process, wanted: int) -> float:
    """How long the process was in a run state. Before its first change it computes."""
    total = 0.0
    since, state = process.began, COMPUTES
    for at, after in [*process.states, (process.end, -1)]:
        total += at - since if state == wanted else 0
        since, state = at, after
    return total


def waited_for_storage(process: Process) -> float:
    return process.samples[-1].waited if process.samples else 0.0


def shares(node: Node) -> dict[str, float]:
    """Of all processes' time together, what part went where; more than one thread may wait at a time."""
    whole = sum(process.end - process.began for process in node.processes) or 1.0
    storage = sum(waited_for_storage(process) for process in node.processes)
    computing = sum(seconds_in(process, COMPUTES) for process in node.processes)
    ready = sum(seconds_in(process, READY) for process in node.processes)
    blocked = max(whole - computing - ready, 0.0)
    storage = min(storage, computing)
    return {
        "computing": (computing - storage) / whole,
        "waiting for storage": storage / whole,
        "waiting for a turn": ready / whole,
        "waiting in MPI": blocked / whole,
    }


def advise(node: Node, limit: dict[str, float]) -> list[str]:
    if not node.figures.get("total"):
        return ["The run left no figures (it was killed, or is still running): only the drawings tell about it."]
    return _advise_on_memory(node, limit) + advise_on_messages(node)


def _advise_on_memory(node: Node, limit: dict[str, float]) -> list[str]:
    total = node.figures["total"]
    said: list[tuple[float, str]] = []
    where = shares(node)
    budget = node.figures["budget_bytes"]
    needed, allocated = needed_bytes(total), allocated_bytes(total)
    if not node.figures["short_of_memory"]:
        untouched = f" ({allocated / MIB:.0f} MiB were allocated)" if allocated > 1.1 * needed else ""
        return [
            f"Memory was enough: {needed / MIB:.0f} MiB of {budget / MIB:.0f} MiB were used{untouched}, and nothing was moved."
        ]
    seconds = node.end or 1.0
    read, written = total["bytes_read"] / MIB, total["bytes_written"] / MIB
    moved = read + written
    missing = max(needed - budget, 0) / MIB
    more = f" With {missing:.0f} MiB more of --memory nothing would have to be moved." if missing else ""
    whole = sum(process.end - process.began for process in node.processes) or 1.0
    busy = min((moved / MOVED_A_SECOND + total["faults"] * FAULT_S) / whole, 1.0)
    processes = "1 process" if len(node.processes) == 1 else f"{len(node.processes)} processes"
    if where["waiting for storage"] > 0.1:
        text = (
            f"{processes} waited for storage {where['waiting for storage']:.0%} of the time, while it "
            f"moved {moved / seconds:.0f} MiB/s on average"
        )
        if limit:
            text += f" (it can read {limit['read']:.0f} MiB/s)"
        said.append((where["waiting for storage"], f"{text}.{more}"))
        if limit and moved / seconds < 0.3 * limit["read"] and total["bytes_read"] > 4 * needed:
            said.append(
                (
                    where["waiting for storage"] / 2,
                    "The storage was not busy and yet waited for: accesses jump about. headroom_will_need() "
                    "(headroom/memory.h) lets the program say ahead what it will use.",
                )
            )
    elif busy > LITTLE:
        text = (
            f"{read:.0f} MiB were read and {written:.0f} MiB written in {seconds:.0f} s ({moved / seconds:.0f} MiB/s): little "
            f"of it was waited for, but moving it took about {busy:.0%} of the processes' time."
        )
        if written > 2 * (read + missing):
            text += " The same memory was written again and again."
        said.append((busy, text + more))
    if where["waiting for a turn"] > 0.1:
        text = f"Ranks waited {where['waiting for a turn']:.0%} of the time for their turn to compute"
        if total.get("turns_put_off", 0) > total["turns"] / 4:
            text += ", often because their memory would not have fitted beside that of those who computed"
        elif node.figures["slots"] < node.figures["cores"]:
            text += f"; {node.figures['cores']} cores are there, --slots is {node.figures['slots']}"
        said.append((where["waiting for a turn"], text + ". More --memory lets more of them compute at once."))
    if stood := total.get("storage_full_ns", 0) / 1e9:
        said.append(
            (1.0, f"Storage was full: processes stood still for {stood:.1f} s together. Give it more room (--storage).")
        )
    if total["other_bytes_peak"] > budget / 4:
        said.append(
            (
                total["other_bytes_peak"] / budget / 2,
                f"{total['other_bytes_peak'] / MIB:.0f} MiB of the budget cannot leave memory: what the MPI and C libraries "
                "allocate"
                + ("" if total["small_object_bytes"] else ", and small allocations (see --small)")
                + ". Add as much to --memory, or start fewer ranks.",
            )
        )
    if total["evictions_given_up"] > total["blocks_evicted"] / 10:
        said.append(
            (0.1, "Many blocks were in use again while they were being written out: the budget is tight, raise --memory.")
        )
    if total["turns_overdue"]:
        said.append(
            (
                0.05,
                f"{total['turns_overdue']} times a rank had waited 5 s and computed without a slot: turns are "
                "long, raise --slots or --memory.",
            )
        )
    said.sort(reverse=True)
    return [text for _, text in said] or [
        f"Memory was short, and it cost little: {read:.0f} MiB were read and {written:.0f} MiB written, and processes waited "
        f"for storage {where['waiting for storage']:.0%} of the time."
    ]
