"""What a test may need of the machine. tests/skips.toml lists which tests may be skipped for the lack of which; a session fails
if the tests that were skipped are not just those (tests/conftest.py)."""

import functools
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from headroom import kernel_offers, machine

BUILD = Path(__file__).resolve().parent.parent / "build"
HEADROOM = BUILD / "venv/bin/headroom"
MPICH_TESTS = BUILD / "apps/mpich-tests"
FILE_LIBRARIES = BUILD / "apps/file-libraries"
SCALAPACK = Path(f"/usr/lib/{os.uname().machine}-linux-gnu/scalapack")


def no_root() -> str | None:
    return None if os.geteuid() == 0 else "needs root"


def no_hard_limit() -> str | None:
    from headroom import hard_limit

    return no_root() or hard_limit.available()


def no_restricted_userfaultfd() -> str | None:
    everybody = Path("/proc/sys/vm/unprivileged_userfaultfd").read_text().strip() == "1"
    device = Path("/dev/userfaultfd")
    everybody = everybody or (device.exists() and device.stat().st_mode & 0o006 == 0o006)
    return no_root() or ("this machine lets everybody use userfaultfd" if everybody else None)


def cannot_use(offer):
    """Whether the kernel refuses what an engine or store needs. Asked without Headroom's core: were that broken, its tests must
    fail, not be skipped."""
    return lambda: None if offer() else "the kernel refuses it here"


def no_loop_devices() -> str | None:
    asked = subprocess.run(["losetup", "-f"], capture_output=True, text=True, check=False)
    return no_root() or (None if asked.returncode == 0 else f"no loop device: {asked.stderr.strip()}")


def no_large_pages() -> str | None:
    # Whether there are any is seen in /proc/kpageflags.
    release = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
    old = None if release >= (6, 14) else "Linux 6.14 makes large pages of large writes, this is older"
    return no_root() or old or cannot_use(kernel_offers.huge_pages)()


def little_memory() -> str | None:
    free = machine.free_bytes() >> 20
    return None if free >= 5 << 10 else f"{free} MiB are free"


def no_fast_wakeups() -> str | None:
    refused = machine.wake_latency_refused()
    if refused:
        return refused
    with open(machine.WAKE_LATENCY, "rb", buffering=0) as device:  # what is wished for now
        return "somebody else asks for them" if int.from_bytes(device.read(4), "little") == 0 else None


def no_core_files() -> str | None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    return None if pattern.startswith("core") else f"core dumps go elsewhere: {pattern}"


def no_hpcc() -> str | None:
    built = all((BUILD / f"apps/hpcc-{mpi}").exists() for mpi in ("mpich", "openmpi"))
    return None if built else "setup/hpcc.sh could not build it"


def no_slurm() -> str | None:
    programs = ("munged", "slurmctld", "slurmd", "srun")
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    gone = [program for program in programs if shutil.which(program, path=path) is None]
    return no_root() or (f"{gone[0]} is not installed" if gone else None)


def no_cgroups_of_slurm() -> str | None:
    # With version 2 slurmd wants systemd to give it one.
    folders = [Path("/sys/fs/cgroup") / controller / "cgroup.procs" for controller in ("memory", "freezer")]
    return no_root() or (None if all(os.access(folder, os.W_OK) for folder in folders) else "no cgroups of version 1")


def no_tracing() -> str | None:
    if shutil.which("strace") is None:
        return "strace is not installed"
    asked = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
    return None if asked.returncode == 0 else asked.stderr.strip()


def no_network_namespaces() -> str | None:
    asked = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return None if asked.returncode == 0 else asked.stderr.strip()


def no_bridges() -> str | None:
    """Network namespaces that reach each other."""
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    pair = ["unshare", "--net", "ip", "link", "add", "one", "type", "veth", "peer", "name", "other"]
    asked = subprocess.run(pair, capture_output=True, text=True, check=False)
    return None if asked.returncode == 0 else asked.stderr.strip()


def missing(*names: str):
    return lambda: None if any(shutil.which(name) for name in names) else f"{names[0]} is not installed"


CAVITY = Path("/usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity")

LACKS = {
    "root": no_root,
    "a hard memory limit": no_hard_limit,
    "loop devices": no_loop_devices,
    "userfaultfd that is refused to some": no_restricted_userfaultfd,
    "io_uring": cannot_use(kernel_offers.io_uring),
    "the engine userfaultfd": cannot_use(lambda: kernel_offers.userfaultfd().serves_kernel),
    "the engine userfaultfd-user": cannot_use(lambda: kernel_offers.userfaultfd().in_user_mode),
    "fast wake-ups": no_fast_wakeups,
    "core files": no_core_files,
    "5 GiB of memory": little_memory,
    "huge pages": cannot_use(kernel_offers.huge_pages),
    "files with large pages": no_large_pages,
    "Intel MPI": lambda: None if (BUILD / "mpi/intel/bin/mpiexec").exists() else "setup/test_tools.sh could not install it",
    "LAMMPS": missing("lmp"),
    "OpenFOAM": lambda: missing("icoFoam")() or (None if CAVITY.is_dir() else "openfoam-examples is not installed"),
    "HPCC": no_hpcc,
    "MPICH's tests": lambda: None if any(MPICH_TESTS.glob("source/mpich_*.orig.tar.*")) else "MPICH's source cannot be had",
    "tests of file libraries": lambda: None
    if (FILE_LIBRARIES / ".built").exists()
    else "their packages or sources cannot be had",
    "PT-Scotch": missing("dgord"),
    "Slurm": no_slurm,
    "Slurm's cgroups": no_cgroups_of_slurm,
    "traced processes": no_tracing,
    "gdb": missing("gdb"),
    "network namespaces": no_network_namespaces,
    "network namespaces that reach each other": no_bridges,
    "ScaLAPACK": lambda: None if SCALAPACK.exists() else "scalapack-mpi-test is not installed",
}


@functools.cache
def lack(need: str) -> str | None:
    """Why the machine does not have it, or None."""
    return LACKS[need]()


def need(*needs: str) -> None:
    """Skips the calling test if the machine lacks one of these."""
    for name in needs:
        if lack(name) is not None:
            pytest.skip(f"{name}: {lack(name)}")


def may_be_skipped(test: str) -> bool:
    """Whether tests/skips.toml lists this test for something that this machine lacks."""
    entries = tomllib.loads((Path(__file__).parent / "skips.toml").read_text())["skip"]
    return any(re.search(entry["test"], test) and lack(entry["needs"]) is not None for entry in entries)
