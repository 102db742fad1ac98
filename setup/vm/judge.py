"""Whether the runs of setup/check_vm.sh are as they must be; says which are not.

usage: judge.py RESULT"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ENGINES = ("userfaultfd", "userfaultfd-user", "sigsegv")
# Of the user's, and what they must become.
SETTINGS = ("UCX_TLS=rc,sm -> ", "UCX_RCACHE_ENABLE=y -> n", "UCX_ZCOPY_THRESH=0 -> inf", "UCX_RNDV_SCHEME=get_zcopy -> am")
# That the cards send at least, of the content alone.
PACKETS = {"messages": 8192, "window": 2048, "attached": 2048, "kept": 250_000, "waiting": 12288, "beyond": 28672, "large": 0}
BUFFER = 8 << 20  # of each message and window of the program
OF_LIBRARY = 16 << 20  # what the library may keep for connections that it makes later


@dataclass
class Case:
    text: str = ""
    wrong: int = 0
    ranks: int = 0
    packets: int = 0  # that both cards sent
    status: int = -1
    counted: tuple[int, ...] = ()


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text, flags=re.M)
    return int(found[1]) if found else -1


def read(result: str) -> dict[str, Case]:
    cases = {}
    for part in re.split(r"^case ", result, flags=re.M)[1:]:
        name, _, text = part.partition("\n")
        found = re.findall(r"rank (\d) \w+: wrong (\d+), pinned (-?\d+)", text)
        cases[name] = Case(
            text=text,
            wrong=sum(int(wrong) for _, wrong, _ in found),
            ranks=len({rank for rank, _, _ in found}),
            packets=number(r"^packets (\d+)", text),
            status=number(r"^status (\d+)", text),
            counted=tuple(int(count) for count in re.findall(r'"pinned_bytes_peak": (\d+)', text)),
        )
    return cases


cases = read(Path(sys.argv[1]).read_text(errors="replace"))
bad = []


def must(holds: bool, what: str) -> None:
    if not holds:
        bad.append(what)


def judge(name: str) -> Case:
    case = cases.get(name, Case("did not run"))
    must(case.ranks == 2 and case.status == 0, f"{name}: ended with {case.status}:\n{case.text[-1500:]}")
    must(case.packets >= PACKETS[name.split()[-1]], f"{name}: the cards sent {case.packets} packets: others were used")
    return case


for mpi in ("mpich", "openmpi"):
    for way in (*ENGINES, "pinning"):
        messages, window = judge(f"{mpi} {way} messages"), judge(f"{mpi} {way} window")
        must(messages.wrong + window.wrong == 0, f"{mpi} {way}: {messages.wrong} and {window.wrong} samples are wrong")
        counted = window.counted
        must(len(counted) == 2 and min(counted) >= BUFFER, f"{mpi} {way} window: {counted} bytes pinned")
        # Open MPI makes connections of their own for a window.
        must(mpi == "openmpi" or max(counted, default=0) <= BUFFER + OF_LIBRARY, f"{mpi} {way} window: {counted} bytes pinned")
        if way == "pinning":
            for setting in SETTINGS:
                must(setting in messages.text and setting in window.text, f"{mpi} {way}: does not say {setting}")
    for what in ("attached", "large", "kept", "waiting", "beyond"):
        wrong = judge(f"{mpi} default {what}").wrong
        must(wrong == 0, f"{mpi} {what}: {wrong} wrong")
    large = cases.get(f"{mpi} default large", Case()).text
    must("MPI_ERR_NO_MEM" in large, f"{mpi} large: does not say why the window is refused")
    for what in ("messages", "window"):
        must(
            judge(f"{mpi} unguarded {what}").wrong > 0, f"{mpi} unguarded {what}: nothing is wrong, so the others show nothing"
        )


def counted(name: str, text: str) -> int:
    return sum(int(each) for each in re.findall(rf'"{name}": (\d+)', text))


READ_BY_CARD = [(scheme, "userfaultfd", "400M", "aligned") for scheme in ("optimal", "enhanced", "native", "pinned")]
READ_BY_CARD += [("optimal", engine, "180M", "anywhere") for engine in ENGINES]
for scheme, engine, budget, where in READ_BY_CARD:
    name = f"card {scheme} {engine} {budget} {where}"
    case = cases.get(name, Case())
    messages = number(r"^ok (\d+) ", case.text)
    must(case.status == 0 and messages > 0, f"{name}: ended with {case.status}:\n{case.text[-1500:]}")
    # The figures of a node whose MPI_Finalize did not end may be missing; each has received half of the messages.
    must(counted("rdma_messages", case.text) >= messages // 2, f"{name}: not read by cards")
    must(counted("between_pieces", case.text) == 0, f"{name}: the library carried content")
    must(counted("rdma_failures", case.text) == 0, f"{name}: the card failed")
    faults = number(r"^faults (\d+)", case.text)
    if scheme == "native":
        must(faults > 100, f"{name}: {faults} faults, so the others' show nothing")
    elif budget == "400M":
        must(faults == 0, f"{name}: {faults} faults")
    must((counted("blocks_evicted", case.text) > 0) == (budget == "180M"), f"{name}: memory was not as short as it should be")
    pinned = counted("rdma_pinned_bytes", case.text), counted("pinned_bytes_peak", case.text)
    must((pinned[0] > 0) if scheme == "pinned" else pinned == (0, 0), f"{name}: {pinned} bytes pinned")
failing = cases.get("card optimal userfaultfd 400M anywhere HEADROOM_RDMA_FAULT=17", Case())
must(failing.status == 0 and "ok " in failing.text, f"a card that fails: ended with {failing.status}:\n{failing.text[-1500:]}")
for name in ("rdma_failures", "rdma_connections_failed", "between_pieces", "rdma_messages"):
    must(counted(name, failing.text) > 0, f"a card that fails: no {name}")
for what in ("cancel", "buffered", "wanted"):
    case = cases.get(f"promise {what}", Case())
    must(case.status == 0 and f"ok {what}" in case.text, f"promise {what}: ended with {case.status}:\n{case.text[-1500:]}")
    must(counted("rdma_failures", case.text) == 0, f"promise {what}: the card failed")
LIMIT = 192 << 20
plain = cases.get("limit plain memory.max", Case())
must(plain.status > 0 and number(r"oom_kill (\d+)", plain.text) > 0, f"plain was not ended by its limit:\n{plain.text}")
for name in ("memory.max", "memory.high"):
    case = cases.get(f"limit {name}", Case())
    must(case.status == 0 and "wrong 0" in case.text, f"{name}: ended with {case.status}:\n{case.text[-1500:]}")
    must(number(r"oom_kill (\d+)", case.text) == 0, f"{name}: the kernel ended processes")
    must(
        0 < number(r'"budget_bytes": (\d+)', case.text) < LIMIT,
        f"{name}: the budget is not within the limit:\n{case.text[-1500:]}",
    )
    must(0 < number(r"memory.peak:(\d+)", case.text) < LIMIT, f"{name}: what the kernel counted reached the limit")

print("\n".join(bad) if bad else f"network cards and limits: {len(cases)} cases are as they must be")
sys.exit(1 if bad else 0)
