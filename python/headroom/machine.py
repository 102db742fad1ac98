"""What this machine has: memory that is free, storage with room, the launcher's job, the program's MPI library."""

from __future__ import annotations

import contextlib
import os
import stat

from headroom.elf import Program

WAKE_LATENCY = "/dev/cpu_dma_latency"  # in us: how long processors may take to wake, as long as it is open (kernel PM QoS)


def _read(path: str) -> str | None:
    try:
        with open(path, errors="surrogateescape") as file:  # the kernel cuts names anywhere
            return file.read()
    except OSError:
        return None


class WakeLatency:
    """Why idle processors cannot be kept from sleeping."""

    ONE_WAY = "this kernel has one way to be idle only"
    ABSENT = f"there is no {WAKE_LATENCY}"
    FORBIDDEN = f"this user may not write {WAKE_LATENCY}"


def wake_latency_refused() -> str | None:
    """None if they can be kept from it."""
    if (_read("/sys/devices/system/cpu/cpuidle/current_driver") or "").strip() == "none":
        return WakeLatency.ONE_WAY
    if not os.path.exists(WAKE_LATENCY):
        return WakeLatency.ABSENT
    return None if os.access(WAKE_LATENCY, os.W_OK) else WakeLatency.FORBIDDEN


@contextlib.contextmanager
def fast_wakeups():
    """Idle processors do not sleep meanwhile. `OSError` if this user may not ask for that (wake_latency_refused())."""
    with open(WAKE_LATENCY, "wb", buffering=0) as device:
        device.write(bytes(4))
        yield


def which(name: str) -> str | None:
    """The program that a shell would start."""
    for path in [name] if "/" in name else [os.path.join(folder, name) for folder in os.get_exec_path()]:
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return None


def _memory_cgroups() -> list[str]:
    """The memory cgroup of this process and its ancestors, version 1 or 2, as far as they can be seen."""
    folders = []
    for line in (_read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("memory", ""):
            continue
        root = "/sys/fs/cgroup/memory" if controllers else "/sys/fs/cgroup"
        folder = root + path.rstrip("/")
        while folder.startswith(root):
            folders.append(folder)
            folder = folder.rpartition("/")[0]
    return folders


def limit_of(folder: str) -> int | None:
    """The bytes that a memory cgroup may use: where the kernel ends its processes, or from where on it slows them down; None
    without a limit."""
    version1 = os.path.exists(f"{folder}/memory.limit_in_bytes")
    names = ["memory.limit_in_bytes"] if version1 else ["memory.max", "memory.high"]  # version 1's soft limit binds nobody
    texts = [(_read(f"{folder}/{name}") or "max").strip() for name in names]
    return min((int(text) for text in texts if text != "max" and int(text) <= 1 << 60), default=None)


def cgroup_free_bytes() -> int | None:
    """What the tightest memory cgroup leaves, page cache not counted as used; None without a limit."""
    tightest = None
    for folder in _memory_cgroups():
        version1 = os.path.exists(f"{folder}/memory.limit_in_bytes")
        limit = limit_of(folder)
        used = _read(f"{folder}/memory.usage_in_bytes" if version1 else f"{folder}/memory.current")
        if limit is None or used is None:
            continue
        counted = ("total_inactive_file", "total_active_file") if version1 else ("inactive_file", "active_file")
        rows = (line.partition(" ") for line in (_read(f"{folder}/memory.stat") or "").splitlines())
        cache = sum(int(value) for name, _, value in rows if name in counted)
        free = max(0, limit - int(used) + cache)
        tightest = free if tightest is None else min(tightest, free)
    return tightest


def available_bytes() -> int:
    """What the node can give without swapping, as the kernel estimates it."""
    for line in (_read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def free_bytes() -> int:
    free = available_bytes()
    limited = cgroup_free_bytes()
    return free if limited is None else min(free, limited)


class Directory:
    def __init__(self, path: str, file_system: str, free: int):
        self.path = path
        self.file_system = file_system
        self.free = free


MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs", "devtmpfs"}
USUAL_PLACES = ("/local", "/scratch", "/localscratch", "/var/tmp", "/tmp")
NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "fuse.sshfs", "afs"}


def file_system_of(path: str) -> str:
    best, kind = "", "unknown"
    real = os.path.realpath(path)
    for line in (_read("/proc/mounts") or "").splitlines():
        _, mount, name, *_ = line.split()
        mount = mount.replace("\\040", " ")
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, name
    return kind


def free_in(path: str) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def is_rotating(path: str) -> bool:
    """Whether the directory lies on a disk with moving parts; False if the system does not say."""
    device = os.stat(path).st_dev
    folder = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"
    text = _read(f"{folder}/queue/rotational") or _read(f"{folder}/../queue/rotational")  # a partition's disk is one up
    return text is not None and text.strip() == "1"


def storage_candidates() -> list[Directory]:
    """Writable local directories, never in memory, the likely fastest first: on disks without moving parts, then on others,
    then on the network; in each of these job-local ones, then the usual places."""
    found = []
    names = [os.environ.get(name, "") for name in ("SLURM_TMPDIR", "PBS_JOBDIR", "TMPDIR")]
    names += [*USUAL_PLACES, os.getcwd()]
    for path in dict.fromkeys(name for name in names if name):
        if not os.path.isdir(path) or not os.access(path, os.W_OK | os.X_OK):
            continue
        kind = file_system_of(path)
        if kind in MEMORY_FILE_SYSTEMS:
            continue
        found.append(Directory(path, kind, free_in(path)))
    return sorted(found, key=lambda directory: (directory.file_system in NETWORK_FILE_SYSTEMS, is_rotating(directory.path)))


LEAST_ROOM = 64 << 20  # storage is set aside in pieces of this size while there is much


def best_storage() -> Directory | None:
    """Where memory goes if nobody says: the likely fastest with a GiB free, or the roomiest."""
    candidates = storage_candidates()
    roomy = [directory for directory in candidates if directory.free >= 1 << 30]
    return roomy[0] if roomy else max(candidates, key=lambda directory: directory.free, default=None)


# Where no known launcher is an ancestor, what a resource manager calls the step that all its processes belong to.
STEP_NAMES = [("PALS_APID",), ("FLUX_JOB_ID",), ("SLURM_JOB_ID", "SLURM_STEP_ID"), ("LSB_JOBID", "LS_JOBPID"), ("PBS_JOBID",)]
FIRST_SPECIAL_STEP = 0xFFFF_FFF0  # of Slurm's: batch scripts and interactive shells
LAUNCHERS = frozenset(
    "flux-shell jsrun hydra_pmi_proxy mpiexec mpirun orterun prterun prted orted pbs_tmrsh aprun srun".split()
)


def is_launcher(name: str) -> bool:
    return name in LAUNCHERS or name.startswith(("mpiexec.", "mpirun."))


def process_above(pid: int) -> tuple[str, int, int] | None:
    """Of a process: what it is called, its parent, and when it began, in ticks; None if it is gone."""
    text = _read(f"/proc/{pid}/stat")
    if not text:
        return None
    begin, end = text.index("("), text.rindex(")")  # names may have any letters
    fields = text[end + 2 :].split()
    return text[begin + 1 : end], int(fields[1]), int(fields[19])


def in_slurm_step() -> bool:
    """Whether srun started us: what a batch script starts are jobs of their own, although one daemon started them all."""
    step = os.environ.get("SLURM_STEP_ID", "")
    return step.isdigit() and int(step) < FIRST_SPECIAL_STEP


def job_name() -> str:
    """A name that all processes of this job on this node derive alike: the launcher that is their common ancestor.

    From the environment only if no launcher is found: a shell wrapper carries a rank's environment without being that rank, and
    processes started later by MPI_Comm_spawn have another one but share the node's memory with us.
    """
    own = os.getpid()
    top = step = None
    pid = os.getppid()
    while pid > 0 and (found := process_above(pid)):
        name, parent, _ = found
        if is_launcher(name):
            top = pid
        elif name == "slurmstepd" and step is None and in_slurm_step():
            step = pid
        pid = parent
    if top is None and step is None:
        for names in STEP_NAMES:
            if all(os.environ.get(name) for name in names) and ("SLURM_STEP_ID" not in names or in_slurm_step()):
                values = ("".join(c if c.isalnum() else "_" for c in os.environ[name]) for name in names)
                return ".".join([names[0].lower(), *values])
    chosen = top or step or own
    found = process_above(chosen)
    return f"{chosen}.{found[2] if found else 0}"


def why_not_preloaded(program: str) -> str | None:
    """Why the system's loader would start this file without our library; None if it would not, or cannot be told (scripts)."""
    with contextlib.suppress(OSError, ValueError):
        found = Program(program)
        if not found.is_elf:
            return None
        if not found.is_for_this_processor:
            return f"it is built for another processor, or has {found.bits} bits; build it for this one"
        if not found.has_interpreter:
            return "it is linked statically; link it dynamically, MPI at least"
        status = os.stat(program)
        if (status.st_mode & stat.S_ISUID and status.st_uid != os.getuid()) or (
            status.st_mode & stat.S_ISGID and status.st_gid != os.getgid()
        ):
            return "it runs with other privileges (set-user-ID or set-group-ID); start a copy without these bits"
        with contextlib.suppress(OSError):
            if os.getuid() != 0:  # to root they give nothing
                os.getxattr(program, "security.capability")
                return "it runs with other privileges (capabilities of its file); start a copy without them"
        if name := next((name for name in found.needed if name.startswith("libasan.so")), None):
            return f"it is built with AddressSanitizer ({name}), which suffers no library before it; build it without"
        return None
    return None


def script_interpreter(program: str) -> str | None:
    """The program that the first line of a script names, through env too; None if it is no script."""
    with contextlib.suppress(OSError, ValueError):
        with open(program, "rb") as file:
            head = file.read(256)
        if head.startswith(b"#!"):
            words = head[2:].split(b"\n")[0].decode().split()
            if words and os.path.basename(words[0]) == "env":
                words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
            return which(words[0]) if words else None
    return None


def program_libraries(program: str) -> list[str]:
    """The shared libraries that the program names, its dependencies' included."""
    import subprocess

    try:
        listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    except OSError:
        return []
    return [line.strip() for line in listing.splitlines()]


def mpi_library_of(program: str) -> str | None:
    """The path of the MPI library that the program is linked with; None if it names none."""
    import re

    for line in program_libraries(program):
        found = re.match(r"libmpi(?:_abi|ch|_cray|_intel)?\.so\.\d+ => (\S+)", line)
        if found:
            return found[1]
    return None
