"""Starting a rank's program: what `headroom run` does under a launcher, without what a command line with help takes.

Settings go into the environment and exec() replaces this process by a small supervisor (src/supervise), which starts the
program, passes signals on, returns its exit status, and says so if a signal ends it. A node may start a hundred ranks at once,
so what takes long to import is imported where it is needed (a test looks).
"""

from __future__ import annotations

import _signal  # the module without the underscore takes longer than all that is done here
import contextlib
import errno
import os
import sys

from headroom import launcher, machine, settings
from headroom.errors import Refused, complain, warn

MOST_DIRECTORIES = 8
LEAST_MEMORY = 16 << 20
PAGE = 4096  # kPageBytes of src/arena/arena.h
LEAST_FOR_A_RANK = 4 << 20  # kFloorBytes of src/pager/pager.h; as much again is in use that cannot move
SHARE_OF_FREE_MEMORY = 0.8


def find_library() -> str:
    """The preloaded library, in the wheel or in the source tree's build."""
    here = os.path.dirname(os.path.abspath(__file__))
    # An editable installation keeps the libraries where they were installed, the modules in the source tree.
    folders = [f"{here}/lib", os.path.abspath(f"{here}/../../build/wheel"), *(f"{entry}/headroom/lib" for entry in sys.path)]
    for folder in folders:
        if os.path.exists(f"{folder}/libheadroom.so"):
            return f"{folder}/libheadroom.so"
    raise Refused("libheadroom.so is not installed; run `make build`, or install the wheel again")


def library_path() -> str:
    """Where it is found; refused if the system's loader could not be told, which separates the names in LD_PRELOAD at both."""
    path = find_library()
    if found := next((name for sign, name in ((" ", "space"), (":", "colon")) if sign in path), None):
        raise Refused(f"{path} has a {found} in its path, which LD_PRELOAD cannot hold; install Headroom in a folder without")
    return path


def check_page_size() -> None:
    if (size := os.sysconf("SC_PAGE_SIZE")) != PAGE:
        raise Refused(f"this kernel has pages of {size >> 10} KiB; Headroom needs pages of 4 KiB; boot a kernel that has them")


def in_binary_units(size: int) -> str:
    """As a person would write it: 512 bytes, 20.0 MiB."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def choose_memory(asked: int | None) -> int:
    if asked is None:
        return int(machine.free_bytes() * SHARE_OF_FREE_MEMORY)
    if asked < LEAST_MEMORY:
        meant = f"; did you mean {asked}M?" if 16 <= asked < 1 << 20 else ""
        raise Refused(f"--memory {in_binary_units(asked)} is too small: at least 16 MiB a node is needed{meant}")
    return asked


def check_share(memory: int, ranks: int) -> None:
    """Refuses to give the ranks of a node less than they can work with."""
    if ranks * LEAST_FOR_A_RANK > memory:
        raise Refused(
            f"--memory {in_binary_units(memory)} is too small for {ranks} ranks on a node, {in_binary_units(memory // ranks)} "
            f"each: a rank needs {LEAST_FOR_A_RANK >> 20} MiB, and as much for what cannot move; raise it to "
            f"{2 * ranks * LEAST_FOR_A_RANK >> 20}M or more, or start fewer ranks"
        )


USED_TO_START = 64 << 20  # by the interpreters of ranks that start at the same time; it is free again once the program runs


def warn_of_too_much_memory(asked: int | None) -> None:
    """Said by one rank, or by who starts the launcher: others may have used some of it already."""
    free = machine.free_bytes()
    if asked is not None and asked > free + USED_TO_START:
        warn(
            f"--memory {in_binary_units(asked)} is more than the {in_binary_units(free)} that are free on this node (or in its "
            "cgroup) now; if the program uses it all, the kernel ends it"
        )


def make_nameless_file(folder: str) -> None:
    """As storage will be; where the file system has none, one with a name for a moment."""
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600))
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
        import tempfile

        tempfile.TemporaryFile(dir=folder).close()


WHY_NO_FILE = {errno.EACCES: "this user may not write there", errno.EROFS: "its file system can only be read"}


def check_storage(asked: str, option: str = "--storage ") -> str:
    """The directory's absolute path; an error, about what `option` names, that says why memory cannot go there."""
    path = os.path.abspath(asked)
    if not os.path.isdir(path):
        if os.path.exists(path):
            raise Refused(f"{option}{asked}: is a file; name a directory")
        hint = "; several directories are separated by colons" if "," in asked else "; make it, or choose another"
        raise Refused(f"{option}{asked}: no such directory{hint}")
    try:
        make_nameless_file(path)
    except OSError as error:
        reason = WHY_NO_FILE.get(error.errno, f"no file can be made there ({error.strerror})")
        raise Refused(f"{option}{asked}: {reason}; choose another") from None
    if machine.file_system_of(path) in machine.MEMORY_FILE_SYSTEMS:
        raise Refused(
            f"{option}{asked} is in memory ({machine.file_system_of(path)}): nothing would be gained; choose a directory on a "
            "disk, /var/tmp say"
        )
    check_room(path, machine.free_in(path))
    return path


def choose_storage(asked: str | None) -> str:
    if asked is not None:
        directories = [check_storage(directory) for directory in asked.split(":") if directory]
        if not 1 <= len(directories) <= MOST_DIRECTORIES:
            raise Refused(f'--storage "{asked}": name one to {MOST_DIRECTORIES} directories, separated by colons')
        return ":".join(directories)
    chosen = machine.best_storage()
    if chosen is None:
        raise Refused("no writable local directory for storage found; name one with --storage")
    check_room(chosen.path, chosen.free)
    return chosen.path


LEAST_LARGE = 64 << 10  # kLeastLarge in src/heap/heap.cc
MOST_READAHEAD = 1 << 30
MOST_PROCESSES = 1024  # kMaxMembers in src/node/ledger.h


def check_sizes(values: dict) -> None:
    """Sizes that cannot be meant."""
    large, readahead, processes = values.get("large"), values.get("readahead"), values.get("processes")
    if large is not None and large < LEAST_LARGE:
        raise Refused(f"--large {large}: allocations of less than 64K move with --small only; name 64K or more")
    if readahead is not None and readahead > MOST_READAHEAD:
        raise Refused(
            f"--readahead {in_binary_units(readahead)}: it is read into the budget at each fault; name at most "
            f"{in_binary_units(MOST_READAHEAD)} (8M is usual, 0 reads nothing ahead)"
        )
    if processes is not None and processes > MOST_PROCESSES:
        raise Refused(f"--processes {processes}: there can be {MOST_PROCESSES} on a node at most; use more nodes, or threads")


def check_latency(chosen: str | None) -> None:
    refused = machine.wake_latency_refused() if chosen == "low" else None
    if refused:
        raise Refused(f"--latency low: {refused}; leave it out, or see `headroom doctor`")


NOT_SETTINGS = {"HEADROOM_ACTIVE", "HEADROOM_FIGURES", "HEADROOM_SUITES"}  # the supervisor's, the tests'


def warn_of_unknown_variables() -> None:
    known = {settings.environment_name(setting) for setting in settings.table()}
    for name in sorted(os.environ):
        if name.startswith("HEADROOM_") and name not in known | NOT_SETTINGS:
            import difflib

            meant = difflib.get_close_matches(name, known, n=1)
            warn(f"{name} is no setting" + (f"; did you mean {meant[0]}?" if meant else " (see `headroom run --help`)"))


def check_room(path: str, free: int) -> None:
    if free < machine.LEAST_ROOM:
        raise Refused(
            f"storage in {path} has {free / 2**20:.1f} MiB free: too little for anything (what does not fit in memory goes "
            "there); make room, or choose another directory"
        )


def prepare_trace(directory: str) -> str:
    """Makes the directory, which takes the events and the figures of the run."""
    path = os.path.abspath(directory)
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):  # else another rank was faster
            raise Refused(f"--trace {directory}: is a file; name a directory") from None
    except FileNotFoundError:
        raise Refused(f"--trace {directory}: {os.path.dirname(path)}: no such directory; make it, or choose another") from None
    except OSError as error:
        raise Refused(f"--trace {directory}: {error.strerror}; choose another directory") from None
    return path


COMMAND_FILE = "command"  # in the directory of a trace


def note_command(directory: str, program: list[str], values: dict) -> None:
    """For the page of the report: how the program was started, with the memory that it had."""
    import shlex

    words = ["headroom", "run", *settings.to_options(values), *program]
    with contextlib.suppress(OSError), open(os.path.join(directory, COMMAND_FILE), "w") as file:
        file.write(shlex.join(words) + "\n")


def check_output(file: str | os.PathLike, option: str) -> str:
    """The file's absolute path; an error now, about `option`, if it could not be written at the end."""
    path = os.path.abspath(file)
    folder = os.path.dirname(path)
    target = path if os.path.exists(path) else folder
    if not os.path.isdir(folder) or os.path.isdir(path) or not os.access(target, os.W_OK):
        reason = (
            "is a directory" if os.path.isdir(path) else "cannot be written" if os.path.isdir(folder) else "no such directory"
        )
        raise Refused(f"{option} {file}: {reason}; name a file that can be written")
    return path


def with_checked_files(values: dict) -> dict:
    """The settings, with the files and directories that the run's figures go to made or checked, by their absolute names."""
    checks = {"trace": prepare_trace, "json": lambda file: check_output(file, "--json")}
    return values | {name: check(values[name]) for name, check in checks.items() if values.get(name)}


def find_program(name: str) -> str:
    path = machine.which(name)
    if path is not None:
        return path
    status, what = 127, "not found"
    if os.path.isdir(name) and "/" in name:
        status, what = 126, "is a directory"
    elif os.path.exists(name) and "/" in name:
        status, what = 126, "is not executable"
    elif os.path.isfile(name):
        what = f"not found in PATH; did you mean ./{name}?"
    complain(f"{name}: {what}")
    sys.exit(status)  # a shell's


def places(asked: int) -> int:
    """For how many processes there is to be room; what an outer run has found says nothing of the ranks of an inner one."""
    found = launcher.processes_on_node(os.environ)
    return max(asked or 0, found) if "HEADROOM_ACTIVE" in os.environ else asked or found


def become(program: list[str], values: dict) -> None:
    """Replaces this process by the supervisor of the program, which has the library preloaded."""
    check_page_size()
    path = find_program(program[0])
    why_not = machine.why_not_preloaded(path)
    if launcher.is_first_of_node(os.environ):
        warn_of_too_much_memory(values["memory"])
        warn_of_unknown_variables()
        if why_not:
            warn(f"{path} runs without Headroom: {why_not}")
    check_latency(values["latency"])
    values = with_checked_files(values)
    check_share(choose_memory(values["memory"]), launcher.ranks_on_node(os.environ) or 1)
    values |= {"memory": choose_memory(values["memory"]), "storage": choose_storage(values["storage"])}
    if values["trace"] and launcher.is_first_rank(os.environ):
        note_command(values["trace"], program, values)
    environment = dict(os.environ) | settings.to_environment(values | {"processes": places(values["processes"])})

    if "HEADROOM_JOB" not in environment or "HEADROOM_ACTIVE" in os.environ:  # what an outer run set does not count
        environment["HEADROOM_JOB"] = machine.job_name()
    environment["HEADROOM_ACTIVE"] = "1" if why_not is None else "not"  # then the supervisor need not say it again
    library = library_path()
    preloaded = ":".join([library, *(part for part in environment.pop("LD_PRELOAD", "").split(":") if part)])
    supervisor = f"{os.path.dirname(library)}/headroom-supervise"
    sys.stdout.flush()
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # which Python ignores, and so would the program
        _signal.signal(number, _signal.SIG_DFL)
    os.execve(supervisor, [supervisor, preloaded, path, *program[1:]], environment)


def run_rank(values: dict, program: list[str]) -> int:
    """Becomes the program; the exit status if that is refused."""
    try:
        check_sizes(values)
        become(program, values)
    except Refused as error:
        complain(str(error))
        return error.exit_code
