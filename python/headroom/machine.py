"""What this machine has: memory that is free, storage with room, the launcher's job, the program's MPI library."""

import contextlib
import os
import re
import shutil
import stat
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

import psutil


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _memory_cgroups() -> list[Path]:
    """The memory cgroup of this process and its ancestors, version 1 or 2, as far as they can be seen."""
    folders = []
    for line in (_read(Path("/proc/self/cgroup")) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            root = Path("/sys/fs/cgroup/memory")
        elif controllers == "":
            root = Path("/sys/fs/cgroup")
        else:
            continue
        folder = root / path.lstrip("/")
        while folder != root.parent:
            folders.append(folder)
            folder = folder.parent
    return folders


def cgroup_free_bytes() -> int | None:
    """What the tightest memory cgroup leaves, page cache not counted as used; None without a limit."""
    tightest = None
    for folder in _memory_cgroups():
        version1 = (folder / "memory.limit_in_bytes").exists()
        limit = _read(folder / ("memory.limit_in_bytes" if version1 else "memory.max"))
        used = _read(folder / ("memory.usage_in_bytes" if version1 else "memory.current"))
        if limit is None or used is None or limit.strip() == "max" or int(limit) > 1 << 60:
            continue
        cache = 0
        for line in (_read(folder / "memory.stat") or "").splitlines():
            if re.match(r"(total_)?(in)?active_file ", line):
                cache += int(line.split()[1]) if line.startswith("total_") or not version1 else 0
        free = max(0, int(limit) - int(used) + cache)
        tightest = free if tightest is None else min(tightest, free)
    return tightest


def free_bytes() -> int:
    free = psutil.virtual_memory().available
    limited = cgroup_free_bytes()
    return free if limited is None else min(free, limited)


class Directory(NamedTuple):
    path: str
    file_system: str
    free: int


PROGRAM_INTERPRETER = 3  # PT_INTERP of elf(5)
MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs", "devtmpfs"}
USUAL_PLACES = ("/local", "/scratch", "/localscratch", "/var/tmp", "/tmp")
NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "fuse.sshfs", "afs"}


def file_system_of(path: str) -> str:
    best, kind = "", "unknown"
    real = os.path.realpath(path)
    for line in (_read(Path("/proc/mounts")) or "").splitlines():
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
    folder = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    text = _read(folder / "queue/rotational") or _read(folder / "../queue/rotational")  # a partition's disk is one up
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
LAUNCHERS = re.compile(
    r"^(flux-shell|jsrun|hydra_pmi_proxy|mpiexec(\.\w+)?|mpirun(\.\w+)?|orterun|prterun|prted|orted|pbs_tmrsh|aprun|srun)$"
)


def in_slurm_step() -> bool:
    """Whether srun started us: what a batch script starts are jobs of their own, although one daemon started them all."""
    step = os.environ.get("SLURM_STEP_ID", "")
    return step.isdigit() and int(step) < FIRST_SPECIAL_STEP


def job_name() -> str:
    """A name that all processes of this job on this node derive alike: the launcher that is their common ancestor.

    From the environment only if no launcher is found: a shell wrapper carries a rank's environment without being that rank, and
    processes started later by MPI_Comm_spawn have another one but share the node's memory with us.
    """
    top = None
    step = None
    process = psutil.Process()
    for ancestor in process.parents():
        try:
            name = ancestor.name()
            if LAUNCHERS.match(name):
                top = ancestor
            elif name == "slurmstepd" and step is None and in_slurm_step():
                step = ancestor
        except psutil.Error:
            break
    if top is None and step is None:
        for names in STEP_NAMES:
            if all(os.environ.get(name) for name in names) and ("SLURM_STEP_ID" not in names or in_slurm_step()):
                return ".".join([names[0].lower(), *(re.sub(r"\W", "_", os.environ[name]) for name in names)])
    chosen = top or step or process
    return f"{chosen.pid}.{int(chosen.create_time() * 100) % 10**9}"


def why_not_preloaded(program: str) -> str | None:
    """Why the system's loader would start this file without our library; None if it would not, or cannot be told (scripts)."""
    with contextlib.suppress(OSError, struct.error):
        status = os.stat(program)
        with open(program, "rb") as file:
            head = file.read(64)
            if head[:4] != b"\x7fELF":
                return None
            with open("/proc/self/exe", "rb") as own:
                ours = own.read(64)
            if head[4] != ours[4] or head[18:20] != ours[18:20]:
                return f"it is built for another processor, or has {32 * head[4]} bits; build it for this one"
            at, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
            file.seek(at)
            table = file.read(size * count)
        kinds = {struct.unpack_from("<I", table, size * index)[0] for index in range(count)}
        if PROGRAM_INTERPRETER not in kinds:
            return "it is linked statically; link it dynamically, MPI at least"
        if (status.st_mode & stat.S_ISUID and status.st_uid != os.getuid()) or (
            status.st_mode & stat.S_ISGID and status.st_gid != os.getgid()
        ):
            return "it runs with other privileges (set-user-ID or set-group-ID); start a copy without these bits"
    for line in program_libraries(program):
        if found := re.match(r"libasan\.so\S*", line):
            return f"it is built with AddressSanitizer ({found[0]}), which suffers no library before it; build it without"
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
            return shutil.which(words[0]) if words else None
    return None


def program_libraries(program: str) -> list[str]:
    """The shared libraries that the program names, its dependencies' included."""
    try:
        listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    except OSError:
        return []
    return [line.strip() for line in listing.splitlines()]


def mpi_library_of(program: str) -> str | None:
    """The path of the MPI library that the program is linked with; None if it names none."""
    for line in program_libraries(program):
        found = re.match(r"libmpi(?:_abi|ch)?\.so\.\d+ => (\S+)", line)
        if found:
            return found[1]
    return None
