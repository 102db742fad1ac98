"""`headroom doctor`: what this machine offers, what is missing, what that costs, and what to do about it."""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import click

from headroom import kernel_offers, machine
from headroom.errors import Refused

USER_NAMESPACES = "as root: sysctl kernel.unprivileged_userns_clone=1, or sysctl kernel.apparmor_restrict_unprivileged_userns=0"


OK, SO_SO, NO = "ok", "so-so", "no"
NEEDED = {"library", "storage"}  # topics without which nothing works


class Finding(NamedTuple):
    topic: str
    level: str
    what: str
    cost: str = ""
    remedy: str = ""


def _userfaultfd() -> Finding:
    offer = kernel_offers.userfaultfd()
    if offer.serves_kernel:
        where = " (/dev/userfaultfd)" if offer.device else ""
        return Finding("page faults", OK, f"userfaultfd, kernel accesses served{where}")
    if offer.in_user_mode:
        return Finding(
            "page faults",
            SO_SO,
            "userfaultfd, accesses of the program only",
            "allocations under 128 KiB stay in memory; system calls that Headroom does not know fail with EFAULT on memory "
            "that is on storage; the MPI library's own cross-memory attach is off",
            "as root: sysctl vm.unprivileged_userfaultfd=1, or chmod a+rw /dev/userfaultfd",
        )
    return Finding(
        "page faults",
        SO_SO,
        f"userfaultfd {'of this kernel is too old' if offer.too_old else 'is refused'}; mprotect and SIGSEGV are used",
        "scattered access is slower and bounded by vm.max_map_count",
        "a kernel from 6.4 on" + ("" if offer.too_old else "; in a container, a seccomp profile that allows userfaultfd"),
    )


def _io_uring() -> Finding:
    if kernel_offers.io_uring():
        return Finding("storage transfers", OK, "io_uring")
    return Finding(
        "storage transfers",
        SO_SO,
        "io_uring is refused; threads are used",
        "some processor time per transfer",
        "as root: sysctl kernel.io_uring_disabled=0; in a container, a seccomp profile that allows io_uring",
    )


def _messages() -> list[Finding]:
    maps, attaches = kernel_offers.siblings_may()
    if not maps:
        refused = "ranks may not open each other's memory files (/proc/PID/fd)"
        remedy = "start all ranks as one user, in one container, from programs that this user may read"
        cost = "messages and collectives go through the MPI library"
        windows = "MPI_Put, MPI_Get and MPI_Accumulate go through the MPI library"
        return [Finding("messages", NO, refused, cost, remedy), Finding("one-sided", NO, refused, windows, remedy)]
    one_sided = Finding(
        "one-sided", OK, "direct in windows of evictable memory; others, dynamic and shared ones are the library's"
    )
    if not attaches:
        refused = "direct; cross-memory attach (process_vm_readv) is refused"
        cost = "messages from stacks and small allocations are copied twice"
        remedy = "as root: sysctl kernel.yama.ptrace_scope=1; in a container: docker run --cap-add SYS_PTRACE"
        return [Finding("messages", SO_SO, refused, cost, remedy), one_sided]
    return [Finding("messages", OK, "direct inside the node, cross-memory attach allowed"), one_sided]


def _huge_pages(offered: bool) -> Finding | None:
    try:
        chosen = re.search(r"\[(\w+)\]", Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text())
    except OSError:
        return None
    where = {"always": "everywhere", "madvise": "where the program asks"}.get(chosen[1] if chosen else "", "nowhere")
    if where == "nowhere" or offered:
        return Finding("huge pages", OK, f"{where}, as transparent_hugepage/enabled says, while memory is enough")
    return Finding(
        "huge pages",
        SO_SO,
        f"none for memory that may be moved to storage: user namespaces are refused (the system gives them {where})",
        "programs that use memory at random are slower",
        USER_NAMESPACES,
    )


def moves_blocks_as_pages(version: tuple[int, ...], offered: bool) -> Finding:
    """Whether a block can be one page of its size (src/arena/whole_blocks.h); `offered`: whether user namespaces are."""
    cost = "moving memory to storage and back costs the processors about twice the time"
    if version < (6, 14):
        return Finding("blocks", SO_SO, "move in pages of 4 KiB: the kernel is older than 6.14", cost, "a newer kernel")
    if not offered:
        return Finding("blocks", SO_SO, "move in pages of 4 KiB: user namespaces are refused", cost, USER_NAMESPACES)
    return Finding("blocks", OK, "move as pages of 256 KiB")


def _storage() -> Finding:
    best = machine.best_storage()
    if best is None:
        return Finding(
            "storage", NO, "no writable local directory", "no program starts", "headroom run --storage DIRECTORY ..."
        )
    text = f"{best.path} ({best.file_system}, {best.free / 2**30:.1f} GiB free)"
    if best.free < machine.LEAST_ROOM:
        return Finding(
            "storage", NO, text, "no program starts: too little room", "make room, or headroom run --storage DIRECTORY ..."
        )
    if not kernel_offers.direct_io(best.path):
        return Finding(
            "storage",
            SO_SO,
            text + ", no direct I/O",
            "storage goes through the page cache",
            "headroom run --storage DIRECTORY_ON_A_LOCAL_DISK ...",
        )
    return Finding("storage", OK, text + ", direct I/O")


def _memory() -> Finding:
    free = machine.free_bytes()
    limit = machine.cgroup_free_bytes()
    where = "the cgroup" if limit is not None and limit <= free else "the node"
    return Finding("memory", OK, f"{free / 2**30:.1f} GiB free by {where}; --memory defaults to {0.8 * free / 2**30:.1f} GiB")


def _idle_processors() -> Finding:
    refused = machine.wake_latency_refused()
    if refused is None:
        return Finding("idle processors", OK, "can be kept from sleeping while single pages are awaited (--latency low)")
    if refused == machine.WakeLatency.ONE_WAY:
        return Finding("idle processors", OK, f"sleep as they do: {refused}, so --latency low cannot be had")
    remedies = {
        machine.WakeLatency.ABSENT: f"in a container: docker run --device {machine.WAKE_LATENCY}",
        machine.WakeLatency.FORBIDDEN: f"as root: chmod a+w {machine.WAKE_LATENCY} (any user may then make it draw more power)",
    }
    return Finding(
        "idle processors",
        SO_SO,
        f"cannot be kept from sleeping (--latency low): {refused}",
        "programs that jump about in memory on storage were seen to take 1.3 to 1.6 times as long",
        remedies[refused],
    )


def _limits() -> list[Finding]:
    findings = []
    for name, what, needed, remedy in (
        (resource.RLIMIT_NOFILE, "open files", 256, "ulimit -n 4096"),
        (resource.RLIMIT_AS, "addresses", 1 << 32, "ulimit -v unlimited"),
        (resource.RLIMIT_FSIZE, "file size", 1 << 34, "ulimit -f unlimited"),
    ):
        soft, _ = resource.getrlimit(name)
        if soft != resource.RLIM_INFINITY and soft < needed:
            findings.append(Finding("limits", SO_SO, f"{what}: at most {soft}", "large allocations may stay in memory", remedy))
    maps = int(Path("/proc/sys/vm/max_map_count").read_text())
    if maps < 65530:
        what, remedy = f"vm.max_map_count is {maps}", "as root: sysctl vm.max_map_count=262144"
        findings.append(Finding("limits", SO_SO, what, "the sigsegv engine may run out", remedy))
    return findings or [Finding("limits", OK, "open files, addresses, file size and mappings suffice")]


def _swap() -> Finding:
    swaps = Path("/proc/swaps")  # not there if the kernel was built without
    used = swaps.read_text().splitlines()[1:] if swaps.exists() else []
    text = f"{len(used)} area(s)" if used else "none"
    return Finding("kernel swap", OK, f"{text}; Headroom does not use it")


def _mpi() -> list[Finding]:
    findings = []
    for name in dict.fromkeys(["mpiexec", "mpiexec.mpich", "mpiexec.openmpi"]):
        path = shutil.which(name)
        if path:
            from headroom import launcher

            findings.append(Finding("MPI", OK, f"{path}: {'Open MPI' if launcher.kind_of(path) == 'openmpi' else 'MPICH'}"))
    return findings or [Finding("MPI", OK, "no mpiexec in PATH; the one beside a program's own MPI library is used")]


def _library() -> Finding:
    from headroom.rank import check_page_size, library_path

    try:
        check_page_size()
        path = library_path()
    except Refused as error:
        what, _, remedy = str(error).rpartition("; ")
        return Finding("library", NO, what, "nothing works", remedy)
    backends = {"mpich": "MPICH", "openmpi": "Open MPI", "standard": "the standard ABI"}
    there = [name for abi, name in backends.items() if os.path.exists(f"{os.path.dirname(path)}/libheadroom_{abi}.so")]
    lacks = [name for name in backends.values() if name not in there]
    if not there:
        return Finding("library", NO, f"{path}: no backend for any MPI", "no MPI program runs", "install Headroom again")
    if lacks:
        what = f"libheadroom.so, without backends for {' and '.join(lacks)}"
        remedy = "build with their headers (the standard ABI: mpi_abi.h, which MPICH 5 has)"
        return Finding("library", SO_SO, what, "programs of these MPIs do not run under Headroom", remedy)
    return Finding("library", OK, "libheadroom.so with backends for MPICH, Open MPI and the standard ABI")


def findings() -> list[Finding]:
    kernel = platform.release()
    version = tuple(int(part) for part in re.findall(r"\d+", kernel)[:2])
    offered = kernel_offers.huge_pages()
    return [
        Finding("system", OK, f"Linux {kernel}, {platform.machine()}, {len(os.sched_getaffinity(0))} cores"),
        _library(),
        _memory(),
        _storage(),
        _userfaultfd(),
        _io_uring(),
        *_messages(),
        *filter(None, [_huge_pages(offered)]),
        moves_blocks_as_pages(version, offered),
        _idle_processors(),
        *_limits(),
        _swap(),
        *_mpi(),
        *([] if version >= (5, 1) else [Finding("system", SO_SO, "the kernel is older than 5.1", "slow storage", "upgrade")]),
    ]


def usable(found: list[Finding]) -> bool:
    return not any(finding.level == NO and finding.topic in NEEDED for finding in found)


def summed_up(found: list[Finding]) -> str:
    short = list(dict.fromkeys(finding.topic for finding in found if finding.level != OK))
    if not usable(found):
        return f"Headroom cannot run programs here: {', '.join(topic for topic in short if topic in NEEDED)}"
    return "Headroom works here" + (f", but see: {', '.join(short)}" if short else ", and nothing is missing")


@click.command(short_help="Say what this machine offers, what is missing, what that costs, what to do.")
@click.option("--json", "as_json", is_flag=True, help="print the findings as JSON")
def doctor(as_json: bool) -> None:
    """Say what this machine offers, what is missing, what that costs and what to do.

    \b
    ok     all of it is there
    so-so  programs run, at the cost that is named
    no     something does not work at all

    The exit status is 1 if no program could be run: without the library, or a directory for storage.
    """
    found = findings()
    if as_json:
        click.echo(json.dumps([finding._asdict() for finding in found], indent=2))
    else:
        width = max(len(finding.topic) for finding in found)
        for finding in found:
            click.echo(f"{finding.level:<5}  {finding.topic:<{width}}  {finding.what}")
            if finding.cost:
                click.echo(f"       {'':<{width}}  costs: {finding.cost}")
            if finding.remedy:
                click.echo(f"       {'':<{width}}  to do: {finding.remedy}")
        click.echo(summed_up(found))
    sys.exit(0 if usable(found) else 1)
