"""A hard memory limit for a command: a memory cgroup, version 1 or 2, with or without swap. Needs root.

`HardLimit(512 << 20, swap=False)` is a context manager; `.wrap(command)` gives the command that runs inside,
`.swapped()` and `.killed()` what the kernel counted, `.most_page_cache` and `.most_swapped` the most that was seen at one time.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from pathlib import Path

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


def available() -> str | None:
    """None if limits can be set, else why not."""
    try:
        with HardLimit(64 << 20, swap=False):
            return None
    except OSError as error:
        return f"no memory cgroup can be made here: {error}"


def _left_behind(folder: Path, prefix: str) -> list[Path]:
    """What is called `prefix`-PID... there, by a process that was killed before it could clean up."""
    pids = ((path, path.name.removeprefix(prefix).split("-")[0]) for path in folder.glob(f"{prefix}*"))
    return [path for path, pid in pids if pid.isdigit() and not Path(f"/proc/{pid}").exists()]


class HardLimit:
    def __init__(self, limit: int, swap: bool):
        self.limit = limit
        self.swap = swap
        self.most_page_cache = 0
        self.most_swapped = 0
        self.version1 = (V1 / "memory.limit_in_bytes").exists()
        self.folder = (V1 if self.version1 else V2) / f"headroom-{os.getpid()}-{time.monotonic_ns()}"

    def __enter__(self):
        if not self.version1 and "memory" not in (V2 / "cgroup.subtree_control").read_text():
            (V2 / "cgroup.subtree_control").write_text("+memory")
        for left in _left_behind(self.folder.parent, "headroom-"):
            with contextlib.suppress(OSError):  # somebody is still in it
                left.rmdir()
        self.folder.mkdir()
        try:
            self._set_limits()
        except OSError:
            self.folder.rmdir()
            raise
        self._stop = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def _sample(self) -> None:
        while not self._stop.wait(0.05):
            with contextlib.suppress(OSError):
                self.most_page_cache = max(self.most_page_cache, self.page_cache())
                self.most_swapped = max(self.most_swapped, self.swapped())

    def _set_limits(self) -> None:
        if self.version1:
            (self.folder / "memory.limit_in_bytes").write_text(str(self.limit))
            (self.folder / "memory.swappiness").write_text("60" if self.swap else "0")
            with contextlib.suppress(OSError):  # kernels without swap accounting
                (self.folder / "memory.memsw.limit_in_bytes").write_text("-1" if self.swap else str(self.limit))
        else:
            (self.folder / "memory.max").write_text(str(self.limit))
            with contextlib.suppress(OSError):
                (self.folder / "memory.swap.max").write_text("max" if self.swap else "0")

    def wrap(self, command: list[str]) -> list[str]:
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh", *command]

    def _read(self, name1: str, name2: str) -> int:
        return int((self.folder / (name1 if self.version1 else name2)).read_text())

    def statistics(self) -> dict[str, int]:
        lines = (self.folder / "memory.stat").read_text().splitlines()
        return {name: int(value) for name, value in (line.split() for line in lines)}

    def page_cache(self) -> int:
        statistics = self.statistics()
        # Shared memory counts as cache; what matters is file pages.
        if self.version1:
            return statistics["cache"] - statistics.get("shmem", 0)
        return statistics["file"] - statistics["shmem"]

    def swapped(self) -> int:
        return self.statistics().get("swap", 0) if self.version1 else self._read("", "memory.swap.current")

    def killed(self) -> int:
        text = (self.folder / ("memory.oom_control" if self.version1 else "memory.events")).read_text()
        return int(dict(line.split() for line in text.splitlines()).get("oom_kill", "0"))

    def __exit__(self, *_):
        self._stop.set()
        self._sampler.join()
        for _ in range(100):
            try:
                self.folder.rmdir()
                return
            except OSError:
                time.sleep(0.05)


class SwapFile:
    """A swap file for the time of a comparison. Needs root; `OSError` if the system will not have it."""

    def __init__(self, size: int, folder: str | Path = "/var/tmp"):
        self.path = Path(folder) / f"headroom-swap-{os.getpid()}"
        self.size = size

    def __enter__(self):
        for left in _left_behind(self.path.parent, "headroom-swap-"):
            subprocess.run(["swapoff", str(left)], capture_output=True, check=False)
            left.unlink(missing_ok=True)
        try:
            with self.path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, self.size)
            self.path.chmod(0o600)
            for command in (["mkswap", str(self.path)], ["swapon", str(self.path)]):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise OSError(f"{command[0]}: {done.stderr.strip()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if str(self.path) in Path("/proc/swaps").read_text():
            subprocess.run(["swapoff", str(self.path)], check=False)
        self.path.unlink(missing_ok=True)


@contextlib.contextmanager
def _set_to(path: str, value: str):
    setting = Path(path)
    before = setting.read_text()
    setting.write_text(value)
    try:
        yield
    finally:
        setting.write_text(before)


def swap_cluster(logarithm: int):
    """The kernel swaps in 2**`logarithm` pages at once meanwhile. Needs root; `OSError` if it will not have it."""
    return _set_to("/proc/sys/vm/page-cluster", str(logarithm))


def without_zswap():
    """The kernel does not keep swapped pages in memory, compressed, meanwhile: with cgroups of version 1 it charges that memory
    to nobody, so that a limit would mean nothing. Root."""
    setting = "/sys/module/zswap/parameters/enabled"
    return _set_to(setting, "N") if Path(setting).exists() else contextlib.nullcontext()
