"""Which launcher starts a program: the one that belongs to the program's MPI.

A program linked with libmpi names it, and that library's installation has its mpiexec beside it. A Python, or a script of
Python's, says through mpi4py which library it would load. If neither helps, --mpi says of which kind the mpiexec in PATH is to
be; without it the first one is taken, which is a guess.
"""

from __future__ import annotations

import os
import sys

from headroom import machine

NAMES = {"mpich": "MPICH", "openmpi": "Open MPI"}


def own_command() -> list[str]:
    """What starts this same `headroom`, without what lies in the current folder before the modules that it imports."""
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", "-m", "headroom.start"]
    return [sys.executable, "-c", "import sys; del sys.path[0]; from headroom.start import main; main()"]


class Launcher:
    """`kind` is one of NAMES; `is_guessed`: nothing said which MPI is meant."""

    def __init__(self, command: list[str], kind: str, environment: dict[str, str], is_guessed: bool = False):
        self.command = command
        self.kind = kind
        self.environment = environment
        self.is_guessed = is_guessed


class NotFound(Exception):
    """No launcher for this program; the text says why."""


# As in src/base/launchers.h, in the same order.
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "PALS_RANKID", "FLUX_TASK_RANK")


def is_first_rank(environment: dict[str, str]) -> bool:
    """Whether no launcher known here says that this is another one."""
    return next((environment[name] for name in RANKS if name in environment), "0") == "0"


LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID")


def is_first_of_node(environment: dict[str, str]) -> bool:
    """Whether no launcher known here says that this is another rank than the first one of this node."""
    names = LOCAL_RANKS if any(name in environment for name in RANKS) else ()
    return next((environment[name] for name in names if name in environment), "0") == "0"


def started_ranks(environment: dict[str, str]) -> int:
    """How many processes the launcher that started us started with us; 1 if none did. A batch script is no rank, though Slurm
    and Flux tell it how many tasks its job may have."""
    names = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PALS_SIZE"]
    names += ["SLURM_STEP_NUM_TASKS"] if machine.in_slurm_step() else []
    names += ["FLUX_JOB_SIZE"] if "FLUX_TASK_RANK" in environment else []
    found = next((environment[name] for name in names if name in environment), "1")
    return int(found) if found.isdigit() else 1


def ranks_on_node(environment: dict[str, str]) -> int:
    """How many of them the launcher that started us started on this node; 0 if it does not say."""
    names = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PALS_LOCAL_SIZE")
    said = next((int(environment[name]) for name in names if environment.get(name, "").isdigit()), 0)
    return said or (_tasks_on_slurm_node(environment) if machine.in_slurm_step() else 0)


def _tasks_on_slurm_node(environment: dict[str, str]) -> int:
    """SLURM_STEP_TASKS_PER_NODE has the counts of all nodes in order, "4(x2),1" for 4, 4 and 1; SLURM_NODEID is one of them."""
    counts: list[int] = []
    for part in environment.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        tasks, _, nodes = part.removesuffix(")").partition("(x")
        counts += [int(tasks)] * int(nodes or 1) if tasks.isdigit() and (nodes or "1").isdigit() else []
    node = environment.get("SLURM_NODEID", "")
    return counts[int(node)] if node.isdigit() and int(node) < len(counts) else 0


def processes_on_node(environment: dict[str, str]) -> int:
    """For how many processes of a job there is to be room on this node, since ranks may start others. Where a launcher does not
    say how many ranks there are, there may be one for each processor."""
    is_launched = any(name in environment for name in RANKS)
    ranks = ranks_on_node(environment) or ((os.cpu_count() or 1) if is_launched else 1)
    return ranks + ranks // 4


def may_have_other_nodes(environment: dict[str, str]) -> bool:
    """Whether a launcher may spread ranks over the nodes of a batch job."""
    return any(name in environment for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "PE_HOSTFILE"))


def kind_of(mpiexec: str) -> str:
    """ "openmpi" or "mpich", by what this mpiexec says of itself."""
    import subprocess

    output = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False)
    said = output.stdout + output.stderr
    return "openmpi" if any(name in said for name in ("Open MPI", "OpenRTE", "PRRTE")) else "mpich"


def _abi_of(library: str) -> str:
    """As --mpi has it."""
    name = os.path.basename(library)
    return "openmpi" if "libmpi.so.40" in name else "standard" if "libmpi_abi" in name else "mpich"


def _names(kind: str) -> list[str]:
    return [f"mpiexec.{kind}", *(["mpiexec.hydra"] if kind == "mpich" else []), "mpiexec"]


def _beside(library: str) -> str | None:
    """mpiexec of the installation that `library` belongs to: PREFIX/lib[/ARCH]/libmpi.so.N has PREFIX/bin/mpiexec."""
    from pathlib import Path

    real = Path(os.path.realpath(library))
    kind = "openmpi" if _abi_of(library) == "openmpi" else "mpich"
    for folder in [Path(library).parent, real.parent]:
        for prefix in list(folder.parents)[:4]:
            for name in _names(kind):
                # The folder's real path: on systems where /lib is a link, "/bin/mpiexec" would tell Open MPI a wrong prefix.
                candidate = Path(os.path.realpath(prefix / "bin")) / name
                if candidate.exists() and kind_of(str(candidate)) == kind:
                    return str(candidate)
    return None


def _in_path(kind: str) -> str | None:
    """The first mpiexec of this kind in PATH, which may have others before it."""
    for name in _names(kind):
        for folder in os.get_exec_path():
            candidate = os.path.join(folder, name)
            if machine.which(candidate) and kind_of(candidate) == kind:
                return candidate
    return None


def _python_mpi(program: str) -> str | None:
    """The MPI library that mpi4py loads under this interpreter, if the program is a Python."""
    name = os.path.basename(os.path.realpath(program))
    if not name.startswith("python") or name.removeprefix("python").strip("0123456789."):
        return None
    import subprocess

    script = (
        "import os, mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI\n"
        "print(next(l.split()[-1] for l in open('/proc/self/maps') if '/libmpi' in l and '.so' in l))"
    )
    output = subprocess.run([program, "-c", script], capture_output=True, text=True, check=False)
    return output.stdout.strip() or None


def _mpiexec_for(program: str, library: str | None, wanted: str) -> tuple[str, bool]:
    """The mpiexec, and whether it is a guess."""
    if library and wanted not in ("auto", _abi_of(library)):
        raise NotFound(
            f"--mpi {wanted}: {program} uses {library}, which is {_abi_of(library)}; leave --mpi out, or start a program that "
            f"was built with {wanted}"
        )
    if library and (beside := _beside(library)):
        return beside, False
    if wanted in NAMES:
        if mpiexec := _in_path(wanted):
            return mpiexec, False
        raise NotFound(
            f"--mpi {wanted}: no mpiexec of {NAMES[wanted]} in PATH; put it there, or start the program with it: mpiexec -n N "
            "headroom run PROGRAM"
        )
    if mpiexec := machine.which("mpiexec"):
        return mpiexec, library is None
    raise NotFound(
        f"no mpiexec found for {program}: neither beside its MPI library ({library or 'it names none'}) nor in PATH; start it "
        "with your launcher: mpiexec -n N headroom run PROGRAM"
    )


def find(program: str, wanted: str = "auto") -> Launcher:
    """The launcher for `program`, with what it needs in its environment. `wanted`: as --mpi has it."""
    library = machine.mpi_library_of(program) or _python_mpi(machine.script_interpreter(program) or program)
    mpiexec, is_guessed = _mpiexec_for(program, library, wanted)
    kind = kind_of(mpiexec)
    environment = {}
    command = [mpiexec]
    if kind == "openmpi":
        # Open MPI 5 would then fill the first node of a batch job: there it is its affair how many ranks a node has.
        if not may_have_other_nodes(os.environ):
            command.append("--oversubscribe")
        if os.geteuid() == 0:
            environment = {
                f"{prefix}_ALLOW_RUN_AS_ROOT{suffix}": "1" for prefix in ("OMPI", "PRTE") for suffix in ("", "_CONFIRM")
            }
    return Launcher(command, kind, environment, is_guessed)
