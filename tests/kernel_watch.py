"""What the kernel itself counts while a command runs: bytes to and from the disk, swapping, and the page cache.

The counters of Headroom's store say what it asked for; these say what happened. Disk traffic is counted twice: for the
command's processes alone (getrusage: exact, other programs do not disturb it), and for the disk (/proc/diskstats: at
least that much must have passed through the device, or it was some cache).
"""

import os
import resource
import threading
from pathlib import Path

MIB = 1 << 20


def table(path: str) -> dict[str, int]:
    lines = Path(path).read_text().replace(":", " ").splitlines()
    return {fields[0]: int(fields[1]) for fields in (line.split() for line in lines)}


def page_cache() -> int:
    """Bytes of files that the kernel keeps in memory; shared memory counts as cached, but is not that."""
    memory = table("/proc/meminfo")
    return (memory["Cached"] + memory["Buffers"] - memory["Shmem"]) << 10


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


class KernelWatch:
    """`with KernelWatch(directory) as kernel:` run something; afterwards the attributes say what it did."""

    def __init__(self, storage: str = "/var/tmp"):
        self.device = os.stat(storage).st_dev

    def __enter__(self):
        self._usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._swapped = swapped_pages()
        self._device = device_bytes(self.device)
        self._cache = page_cache()
        self.page_cache_growth = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def _sample(self) -> None:
        # A nameless file's pages leave the cache with it, so the end of the run would show nothing.
        while not self._stop.wait(0.05):
            self.page_cache_growth = max(self.page_cache_growth, page_cache() - self._cache)

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.read_bytes = (usage.ru_inblock - self._usage.ru_inblock) * 512
        self.written_bytes = (usage.ru_oublock - self._usage.ru_oublock) * 512
        self.swapped_pages = swapped_pages() - self._swapped
        after = device_bytes(self.device)
        self.device_read_bytes = after[0] - self._device[0] if after else None
        self.device_written_bytes = after[1] - self._device[1] if after else None

    def assert_agrees(self, read: int, written: int, files: int = 0) -> None:
        """The kernel counted what the store did, but for what programs are made of and read and write as files."""
        for ours, kernels, programs in (read, self.read_bytes, 192 * MIB), (written, self.written_bytes, 32 * MIB):
            counted = f"the kernel counted {kernels / MIB:.1f} MiB, the store {ours / MIB:.1f}"
            assert ours <= kernels <= ours + files + programs, counted

    def assert_moved(self, read: int, written: int, files: int = 0) -> None:
        """At least so many bytes were read from and written to the disk, without swap, without the page cache; but for `files`
        bytes that the command itself reads and writes as files."""
        least = min(read, written)
        assert self.read_bytes >= read, f"the kernel counted {self.read_bytes / MIB:.1f} MiB read"
        assert self.written_bytes >= written, f"the kernel counted {self.written_bytes / MIB:.1f} MiB written"
        if self.device_read_bytes is not None:
            assert self.device_read_bytes >= read, f"the disk read {self.device_read_bytes / MIB:.1f} MiB"
            assert self.device_written_bytes >= written, f"the disk wrote {self.device_written_bytes / MIB:.1f} MiB"
        assert self.swapped_pages == 0
        # Other programs' files come and go; what was moved would show.
        assert (
            self.page_cache_growth < least / 2 + 16 * MIB + files
        ), f"the page cache grew by {self.page_cache_growth / MIB:.1f} MiB"
