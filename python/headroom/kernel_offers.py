"""What the kernel lets this user have: each offer is tried, and given back. Without Headroom's core, so that tests can ask
whether that finds the same."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import struct
from pathlib import Path
from typing import NamedTuple

SYS_PROCESS_VM_READV = {"x86_64": 310, "aarch64": 270}
PR_SET_PTRACER = 0x59616D61
SYS_USERFAULTFD = {"x86_64": 323, "aarch64": 282}
SYS_IO_URING_SETUP = 425
SYS_FSOPEN, SYS_FSCONFIG, SYS_FSMOUNT = 430, 431, 432
UFFDIO_API = 0xC018AA3F
# Missing and minor faults and write protection of shared memory, populated or not, and whose fault it is: kFeatures of
# src/pager/engine_userfaultfd.cc.
USERFAULTFD_FEATURES = 1 << 0 | 1 << 5 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 13
USERFAULTFD_IOC_NEW = 0xAA00


def _system_call(number: int, *arguments) -> int:
    """The result, or -errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(number, *arguments)
    return result if result >= 0 else -ctypes.get_errno()


def _userfaultfd_suffices(descriptor: int) -> bool:
    """Whether this userfaultfd can do what Headroom needs; closes it."""
    try:
        fcntl.ioctl(descriptor, UFFDIO_API, struct.pack("QQQ", 0xAA, USERFAULTFD_FEATURES, 0))
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _open_userfaultfd_device() -> int:
    try:
        device = os.open("/dev/userfaultfd", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        return fcntl.ioctl(device, USERFAULTFD_IOC_NEW, os.O_CLOEXEC)
    except OSError:
        return -1
    finally:
        os.close(device)


class UserfaultfdOffer(NamedTuple):
    device: bool
    serves_kernel: bool
    in_user_mode: bool
    too_old: bool  # there is one, but it cannot do what is needed


def userfaultfd() -> UserfaultfdOffer:
    """What the kernel lets this user have of userfaultfd."""
    number = SYS_USERFAULTFD.get(platform.machine())
    descriptors = [_open_userfaultfd_device()]
    descriptors += [_system_call(number, flags | os.O_CLOEXEC) if number else -1 for flags in (0, 1)]
    device, served, user_mode = [descriptor >= 0 and _userfaultfd_suffices(descriptor) for descriptor in descriptors]
    too_old = any(descriptor >= 0 for descriptor in descriptors) and not (device or served or user_mode)
    return UserfaultfdOffer(device, device or served, user_mode, too_old)


def io_uring() -> bool:
    descriptor = _system_call(SYS_IO_URING_SETUP, 4, ctypes.create_string_buffer(120))
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0


def siblings_may() -> tuple[bool, bool]:
    """Whether a process may map the memory file of another one with the same parent, and read its memory by cross-memory
    attach: what ranks do with each other."""
    words = ctypes.create_string_buffer(b"headroom")
    memory = os.memfd_create("headroom-doctor")
    ready_reader, ready_writer = os.pipe()
    end_reader, end_writer = os.pipe()
    owner = os.fork()
    if owner == 0:
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)  # as ranks do, where Yama restricts attaching
        os.close(end_writer)
        os.write(ready_writer, b"x")
        os.read(end_reader, 1)
        os._exit(0)
    os.read(ready_reader, 1)
    reader = os.fork()
    if reader == 0:
        answer = 0
        try:
            os.close(os.open(f"/proc/{owner}/fd/{memory}", os.O_RDWR))
            answer |= 1
        except OSError:
            pass
        found = ctypes.create_string_buffer(len(words))
        here, there = (struct.pack("NN", ctypes.addressof(buffer), len(buffer)) for buffer in (found, words))
        number = SYS_PROCESS_VM_READV.get(platform.machine(), -1)
        count = _system_call(number, owner, here, ctypes.c_ulong(1), there, ctypes.c_ulong(1), ctypes.c_ulong(0))
        os._exit(answer | (2 if count == len(words) and found.raw == words.raw else 0))
    answer = os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1])
    os.close(end_reader)
    os.close(end_writer)
    os.waitpid(owner, 0)
    for descriptor in (memory, ready_reader, ready_writer):
        os.close(descriptor)
    return bool(answer & 1), bool(answer & 2)


def _mounts_huge_page_file() -> bool:
    """Whether this process may enter a user namespace and mount a tmpfs with huge pages there (src/arena/huge_page_file.cc)."""
    new_user, new_mounts, string, create = 0x10000000, 0x00020000, 1, 6
    user, group = os.geteuid(), os.getegid()
    if ctypes.CDLL(None).unshare(new_user | new_mounts) != 0:
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    context = _system_call(SYS_FSOPEN, b"tmpfs", 0)
    return (
        context >= 0
        and _system_call(SYS_FSCONFIG, context, string, b"huge", b"advise", 0) >= 0
        and _system_call(SYS_FSCONFIG, context, create, None, None, 0) >= 0
        and _system_call(SYS_FSMOUNT, context, 0, 0) >= 0
    )


def huge_pages() -> bool:
    """Whether memory that may be moved to storage can have huge pages."""
    child = os.fork()
    if child == 0:
        answer = 1
        with contextlib.suppress(OSError):
            answer = 0 if _mounts_huge_page_file() else 1
        os._exit(answer)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def direct_io(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
    except OSError:
        return False
    os.close(descriptor)
    return True
