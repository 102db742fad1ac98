#!/bin/bash
# Builds the test programs that come with MPICH's source against an MPI library, from the source package of the system's own
# package archive: build/apps/mpich-tests/LIBRARY. They are plain MPI programs, which say "No Errors" if all is well.
#
#   mpich_tests.sh LIBRARY [FOLDER [PROGRAM...]]     LIBRARY is mpich or openmpi, FOLDER one of theirs (pt2pt, coll, ...)
#
# Without programs all of a folder's; without a folder none, but the lists of tests are there.
set -euo pipefail
cd "$(dirname "$0")/.."
library=$1
shift
source=$PWD/build/apps/mpich-tests/source
folder=$PWD/build/apps/mpich-tests/$library
mpi=$PWD/build/mpi/$library
if [ $# -gt 0 ] && [ -e "$folder/$1/.built" ]; then exit 0; fi
if [ $# = 0 ] && [ -e "$folder/util/.built" ]; then exit 0; fi

echo "building MPICH's own tests for $library: $*"
if ! ls "$source"/mpich_*.orig.tar.* >/dev/null 2>&1; then
  setup/source_package.sh mpich "$source" || {
    echo "MPICH's source cannot be had; its tests will be skipped"
    exit 0
  }
fi
if [ ! -e "$folder/util/.built" ]; then
  rm -rf "$folder" && mkdir -p "$folder"
  # -m: as old as each other, or make would want to make its own makefiles again.
  tar xmf "$source"/mpich_*.orig.tar.* -C "$folder" --strip-components=3 --wildcards '*/test/mpi/*'
fi
cd "$folder"
as_root=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
build() { # folder, programs
  # With -k everything else is there; that there is enough is asserted by the tests (tests/apps/test_mpich_suite.py).
  make -k -j "$(nproc)" -C "$1" CFLAGS="-O1 -g -w" AUTOCONF=: AUTOHEADER=: AUTOMAKE=: ACLOCAL=: "${@:2}" >>log 2>&1 ||
    echo "some of $1 could not be built for $library" >>log
  if [ $# = 1 ]; then touch "$1/.built"; fi
}
if [ ! -e config.status ]; then
  env "${as_root[@]}" ./configure --with-mpi="$mpi" CC="$mpi/bin/mpicc" MPICC="$mpi/bin/mpicc" --disable-fortran --disable-cxx \
    --disable-spawn --enable-threads=multiple --enable-strictmpi >log 2>&1 || {
    tail -n 20 log
    exit 1
  }
fi
[ -e util/.built ] || { build dtpools && build util; }
if [ $# -gt 0 ]; then build "$@"; fi
