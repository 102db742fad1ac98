"""What the kernel itself counts while a command runs: bytes to and from the disk, swapping, and what of the store's files it
keeps in the page cache.

The counters of Headroom's store say what it asked for; these say what happened. Disk traffic is counted twice: for the
command's processes alone (getrusage: exact, other programs do not disturb it), and for the disk (/proc/diskstats: at
least that much must have passed through the device, or it was some cache). Of the page cache only the store's files are looked
at, while they are open: how much there is of others changes with whatever else the machine does.
"""

import contextlib
import ctypes
import os
import re
import resource
import threading
import time
from pathlib import Path

MIB = 1 << 20
FIRST_OWN_DESCRIPTOR = 256  # of Headroom's (src/base/own_descriptors.cc)
CACHESTAT = 451  # the system call's number, everywhere

# What the kernel counts beside the store, for which there must be room, since it does not tell files apart. Reading: programs
# and libraries that are not in the page cache. conftest.py reads the build's once a session, after which it was less than 1 MiB
# in all runs that were looked at; but others may drive some out meanwhile, and the system's own may be new to this machine.
# Writing: what is written as files: the report, the trace, and the launcher's folder (for 4 ranks 0.3 to 1 MiB with Open MPI 5,
# 8 MiB with Open MPI 4.1).
OTHERS_READ = 16 * MIB
OTHERS_WRITTEN = 16 * MIB

libc = ctypes.CDLL(None, use_errno=True)


def table(path: str) -> dict[str, int]:
    lines = Path(path).read_text().replace(":", " ").splitlines()
    return {fields[0]: int(fields[1]) for fields in (line.split() for line in lines)}


def swapped_pages() -> int:
    events = table("/proc/vmstat")
    return events["pswpin"] + events["pswpout"]


def device_bytes(device: int) -> tuple[int, int] | None:
    """Bytes read from and written to the device; None if it is not a disk (a file system without one, a container's)."""
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if (int(fields[0]), int(fields[1])) == (os.major(device), os.minor(device)):
            return int(fields[5]) * 512, int(fields[9]) * 512
    return None


def pages_by_cachestat(file: int) -> int | None:
    """None before Linux 6.5, which cannot say it."""
    everything, counts = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    return counts[0] if libc.syscall(CACHESTAT, file, everything, counts, 0) == 0 else None


def pages_by_mincore(file: int, first_byte: int = 0) -> int:
    """Of the file, from that byte on, which begins a page."""
    size = os.fstat(file).st_size
    if size == 0:
        return 0
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    place = libc.mmap(None, size, 1, 1, file, 0)  # PROT_READ, MAP_SHARED
    there = (ctypes.c_ubyte * -(-size // resource.getpagesize()))()
    libc.mincore(ctypes.c_void_p(place), ctypes.c_size_t(size), there)
    libc.munmap(ctypes.c_void_p(place), ctypes.c_size_t(size))
    return sum(byte & 1 for byte in bytes(there)[first_byte // resource.getpagesize() :])


def cached_bytes(path: str) -> int:
    """Of a file, in the page cache."""
    file = os.open(path, os.O_RDONLY)
    try:
        pages = pages_by_cachestat(file)
        return (pages_by_mincore(file) if pages is None else pages) * resource.getpagesize()
    finally:
        os.close(file)


class Descendants:
    """The processes that come from this one. Each is looked at once, while its parent is likely to be there."""

    def __init__(self):
        self.known: dict[int, bool] = {os.getpid(): True}

    def _is_ours(self, process: int) -> bool:
        if process not in self.known:
            self.known[process] = False  # for whatever ends meanwhile
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{process}/stat").read_text(errors="replace")  # a name may be cut within a letter
                parent = int(stat.rpartition(")")[2].split()[1])
                self.known[process] = parent > 0 and self._is_ours(parent)
        return self.known[process]

    def now(self) -> list[int]:
        there = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [process for process in there if self._is_ours(process) and process != os.getpid()]


class KernelWatch:
    """`with KernelWatch(directories) as kernel:` run something; afterwards the attributes say what it did."""

    def __init__(self, storage: str = "/var/tmp"):
        self.directories = {os.path.realpath(directory) for directory in storage.split(":")}
        devices = {os.stat(directory).st_dev for directory in self.directories if os.path.exists(directory)}
        self.device = devices.pop() if len(devices) == 1 else None
        self.store_files_seen = 0
        self.store_bytes_cached = 0  # at most, all together

    def __enter__(self):
        self._began = time.monotonic()
        self._usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._swapped = swapped_pages()
        self._device = device_bytes(self.device) if self.device else None
        self._descendants = Descendants()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def _sample(self) -> None:
        # A nameless file's pages leave the cache with it, so the end of the run would show nothing. Some runs have theirs for
        # little more than 50 ms; to look takes half a millisecond and more.
        while not self._stop.wait(0.05 if self.store_files_seen else 0.02):
            self.look_at_store()

    def look_at_store(self) -> None:
        cached = files = 0
        for process in self._descendants.now():
            with contextlib.suppress(OSError):  # it has ended
                for name in os.listdir(f"/proc/{process}/fd"):
                    path = f"/proc/{process}/fd/{name}"
                    if int(name) >= FIRST_OWN_DESCRIPTOR and self._is_store(os.readlink(path)):
                        cached += cached_bytes(path)
                        files += 1
        self.store_files_seen = max(self.store_files_seen, files)
        self.store_bytes_cached = max(self.store_bytes_cached, cached)

    def _is_store(self, file: str) -> bool:
        nameless = re.fullmatch(r"(.*)/#\d+ \(deleted\)", file)
        # What comes before is of a root that is not ours: the process may have mounts of its own.
        return nameless is not None and any(nameless[1].endswith(directory) for directory in self.directories)

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self.seconds = time.monotonic() - self._began
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.read_bytes = (usage.ru_inblock - self._usage.ru_inblock) * 512
        self.written_bytes = (usage.ru_oublock - self._usage.ru_oublock) * 512
        self.swapped_pages = swapped_pages() - self._swapped
        after = device_bytes(self.device) if self._device else None
        self.device_read_bytes = after[0] - self._device[0] if after else None
        self.device_written_bytes = after[1] - self._device[1] if after else None

    def assert_agrees(self, read: int, written: int, files: int = 0) -> None:
        """The kernel counted what the store did, but for what programs are made of, and `files` bytes at most that the command
        reads, and writes, as files; and so did the disk."""
        for what, ours, kernels, disks, others in (
            ("read", read, self.read_bytes, self.device_read_bytes, OTHERS_READ),
            ("written", written, self.written_bytes, self.device_written_bytes, OTHERS_WRITTEN),
        ):
            counted = f"{what}: the kernel counted {kernels / MIB:.1f} MiB, the store {ours / MIB:.1f}"
            assert ours <= kernels <= ours + files + others, counted
            assert disks is None or ours <= disks, f"{what}: the disk counted {disks / MIB:.1f} MiB, the store {ours / MIB:.1f}"

    def assert_past_caches(self) -> None:
        """Nothing went to swap, and nothing of the store's files into the page cache. (Of a run that was over at once, they may
        not have been seen: memory is short at its end only.)"""
        assert self.swapped_pages == 0
        assert self.store_files_seen > 0 or self.seconds < 1, "no file of the store was seen"
        assert self.store_bytes_cached == 0, f"{self.store_bytes_cached / MIB:.1f} MiB of the store are in the page cache"
