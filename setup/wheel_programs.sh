#!/bin/bash
# Runs inside the system that setup/check_wheel.sh has made: installs the wheel there, and runs programs with both MPI libraries.
#
# usage: run.sh install | run.sh programs "ENGINE..."
set -euo pipefail
cd /opt/check
headroom=/opt/headroom/bin/headroom
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader
fail() { echo "check-wheel: $*"; exit 1; }

if [ "$1" = install ]; then
  python3 -m venv /opt/headroom
  /opt/headroom/bin/pip install -q --no-index --find-links /opt/wheels headroom
  PATH=/opt/headroom/bin:$PATH
  headroom --version
  headroom run --help >/dev/null
  headroom doctor || fail "doctor says that no program can run"
  man -P cat headroom-run | grep memory >/dev/null || fail "no manual page of headroom-run"
  man -P cat rpipe_alloc | grep raddr_t >/dev/null || fail "no manual page of rpipe_alloc"
  headroom where include >/dev/null
  for mpi in mpich openmpi; do
    "mpicc.$mpi" -std=gnu11 -O2 -o "pagerank-$mpi" ./*graph*.c file_edges.c kronecker.c pagerank.c -lm
    # shellcheck disable=SC2046
    PKG_CONFIG_PATH=$(headroom where pkgconfig) "mpicc.$mpi" -std=gnu11 -O2 -o "halo-$mpi" halo.c \
      $(PKG_CONFIG_PATH=$(headroom where pkgconfig) pkg-config --cflags --libs rpipe)
  done
  exit 0
fi

work=$(mktemp -d -p /var/tmp) # the rest may not be writable
cd "$work"
programs=/opt/check
graph="--kronecker 17 --per-vertex 32 --tolerance 1e-10"
for mpi in mpich openmpi; do
  # shellcheck disable=SC2086
  plain=$("mpiexec.$mpi" -n 2 "$programs/pagerank-$mpi" $graph | grep -o 'checksum: .*')
  for engine in $2; do
    # shellcheck disable=SC2086
    "mpiexec.$mpi" -n 2 $headroom run --memory 96M --engine "$engine" --storage /var/tmp --json figures \
      "$programs/pagerank-$mpi" $graph >output 2>errors || { cat output errors; fail "$mpi, $engine: ended with an error"; }
    [ "$(grep -o 'checksum: .*' output)" = "$plain" ] || fail "$mpi, $engine: another result: $(cat output)"
    python3 - "$mpi" "$engine" <<'PYTHON'
import json, sys
figures = json.load(open("figures"))
total = figures["total"]
engines = {rank["engine"] for rank in figures["ranks"]}
assert total["bytes_written"] > 0 and total["bytes_read"] > 0, "nothing was moved"
messages = total["messages_direct"] + total["messages_collective"]
assert messages > 0, "no message was direct"
print(f"  {sys.argv[1]}, {', '.join(sorted(engines))}: right; {total['bytes_written'] >> 20} MiB written, "
      f"{messages} direct messages")
PYTHON
  done
  by_messages=$("mpiexec.$mpi" -n 2 $headroom run --summary off "$programs/halo-$mpi" messages 64 200 2>/dev/null)
  by_pipes=$("mpiexec.$mpi" -n 2 $headroom run --summary off "$programs/halo-$mpi" pipes 64 200 2>/dev/null)
  started=$($headroom run -n 2 --mpi "$mpi" --summary off "$programs/halo-$mpi" messages 64 200 2>/dev/null)
  [ "$started" = "$by_messages" ] || fail "$mpi: headroom run -n: '$started', not '$by_messages'"
  [ -n "$by_pipes" ] && [ "$by_pipes" = "$by_messages" ] || fail "$mpi: pipes: '$by_pipes', messages: '$by_messages'"
  echo "  $mpi: pipes and messages agree"
done
