#!/bin/bash
# Builds HPCC (the HPC Challenge benchmark) against both MPI libraries, from the source package of the system's own package
# archive: build/apps/hpcc-mpich and build/apps/hpcc-openmpi.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/build/apps
[ ! -e "$folder/hpcc-mpich" ] || [ ! -e "$folder/hpcc-openmpi" ] || exit 0

echo "building HPCC for both MPI libraries"
setup/source_package.sh hpcc "$folder/hpcc" || {
  echo "HPCC's source cannot be had; its tests will be skipped"
  exit 0
}
cd "$folder/hpcc"

for mpi in mpich openmpi; do
  rm -rf "$mpi" && mkdir "$mpi"
  tar xf hpcc_*.orig.tar.* -C "$mpi" --strip-components=1
  # One of the examples that come with it, with the compiler's own idea of where MPI is, and whatever BLAS the system has.
  sed -e 's/^MPdir.*/MPdir=/' -e 's/^MPinc.*/MPinc=/' -e 's/^MPlib.*/MPlib=/' -e 's/^LAlib.*/LAlib=-l:libblas.so.3/' \
    -e "s#^CC .*#CC=$PWD/../../mpi/$mpi/bin/mpicc#" -e "s#^LINKER.*#LINKER=$PWD/../../mpi/$mpi/bin/mpicc#" \
    -e 's/^CCFLAGS.*/CCFLAGS=$(HPL_DEFS) -O2 -w/' "$mpi/hpl/setup/Make.Linux_PII_FBLAS" >"$mpi/hpl/Make.headroom"
  make -C "$mpi" -j "$(nproc)" arch=headroom >"log-$mpi" 2>&1 || {
    tail -n 20 "log-$mpi"
    echo "HPCC does not compile with $mpi (build/apps/hpcc/log-$mpi); its tests will be skipped"
    exit 0
  }
  mv "$mpi/hpcc" "$folder/hpcc-$mpi"
done
