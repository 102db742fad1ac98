"""What the benchmarks share: the MPI that is measured, compiling a program with it, running it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click

from headroom import launcher
from headroom.errors import Refused
from headroom.rank import check_output, library_path

OUTPUT = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
# The libraries' settings that may be best where there are more ranks than cores: giving the processor away, one copy.
CROWDED = {
    "mpich": [
        {},
        {"MPIR_CVAR_POLLS_BEFORE_YIELD": "0"},
        {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"},
        {"MPIR_CVAR_CH4_CMA_ENABLE": "1"},
    ],
    "openmpi": [{}, {"OMPI_MCA_mpi_yield_when_idle": "1"}],
}


def default_prefix() -> Path:
    compiler = shutil.which("mpicc")
    if compiler is None:
        raise Refused("no mpicc in PATH; name an MPI with --mpi FOLDER (it has bin/mpicc and bin/mpiexec)")
    return Path(compiler).parent.parent


def compile_program(prefix: Path, source: Path, folder: Path, libraries: list[str] | None = None) -> Path:
    """Compiles `source` with that MPI into `folder`, under a name of its own; `libraries`: what the linker is told."""
    compiler, program = prefix / "bin/mpicc", folder / f"{source.stem}-{len(list(folder.iterdir()))}"
    if not compiler.exists():
        raise Refused(f"{compiler} is not there: --mpi names a folder with bin/mpicc and bin/mpiexec")
    # Headroom's headers, where it is installed or in the source tree.
    headers = [f"-I{place}" for place in (Path(library_path()).parents[1] / "include", source.parents[3] / "include")]
    command = [compiler, "-O2", "-pthread", *headers, "-o", program, source, *(libraries or []), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise click.ClickException(f"{compiler} failed (is a C compiler installed?):\n{done.stderr}")
    return program


def launcher_of(program: Path) -> launcher.Launcher:
    """That of the MPI which it was compiled with."""
    try:
        return launcher.find(str(program))
    except launcher.NotFound:
        raise Refused(
            "no mpiexec, neither beside the MPI library that mpicc links nor in PATH; install it, or name an MPI with --mpi "
            "FOLDER (it has bin/mpicc and bin/mpiexec)"
        ) from None


def check_outputs(json_file: Path | None, plot_file: Path | None) -> None:
    """Refuses now what could not be written at the end."""
    if plot_file and importlib.util.find_spec("matplotlib") is None:
        raise Refused("--plot needs matplotlib: pip install matplotlib")
    for file, option in ((json_file, "--json"), (plot_file, "--plot")):
        if file:
            check_output(file, option)


def write_figures(path: Path, rows: list) -> None:
    """All that is known so far: what comes later may fail, hours later."""
    path.write_text(json.dumps([row._asdict() for row in rows], indent=2) + "\n")


@contextlib.contextmanager
def ended_in_order():
    """Whoever is told to end (a connection is lost, a job stopped) undoes what it has set up for everybody."""

    def leave(number, _frame):
        sys.exit(128 + number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def output_of(command: list, environment: dict[str, str]) -> str:
    """What it prints; ends with what it said if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=dict(os.environ) | environment)
    if done.returncode != 0:
        raise click.ClickException(f"{' '.join(words)} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout
