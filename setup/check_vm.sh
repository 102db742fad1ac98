#!/bin/bash
# What network cards do with memory that moves: in a virtual machine with two nodes, each with an RDMA card that is made of software,
# MPICH over UCX exchanges messages and makes windows while memory is short. Nothing may be wrong, with any engine, whatever the
# user has set; what happens with Headroom's settings taken away is shown beside.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
mkdir -p build/vm build/tests
build/mpi/mpich/bin/mpicc -O2 -g -o build/tests/card_messages-mpich tests/programs/card_messages.c
cat >build/vm/job.sh <<JOB
. $root/setup/vm/two_nodes.sh
cd /var/tmp
launch="$root/build/mpi/mpich/bin/mpiexec -launcher ssh -launcher-exec $root/setup/vm/node_shell -localhost 10.0.0.254 -hosts n0,n1 -ppn 1 -n 2"
headroom="$root/build/venv/bin/headroom run --memory 96M --storage /var/tmp --summary off"
run() { # name, variables, options, case
  echo "case \$1"
  timeout 170 env \$2 \$launch \$headroom \$3 $root/build/tests/card_messages-mpich \$4 2>&1
  echo "status \$?"
}
pins="UCX_TLS=rc,sm UCX_RCACHE_ENABLE=y UCX_ZCOPY_THRESH=0 UCX_RNDV_SCHEME=get_zcopy"
for engine in userfaultfd userfaultfd-user sigsegv; do
  run "\$engine messages" "A=b" "--engine \$engine" messages
  run "\$engine window" "A=b" "--engine \$engine" window
done
run "pinning messages" "\$pins" "" messages
run "pinning window" "\$pins" "" window
run "attached" "A=b" "" attached
run "large" "A=b" "" large
run "kept" "A=b" "" kept
run "beyond" "A=b" "" beyond
echo "case unguarded"
timeout 170 env UCX_TLS=rc,sm HEADROOM_TRANSPORTS=as-they-are \$launch \$headroom $root/build/tests/card_messages-mpich messages 2>&1
echo "status \$?"
JOB
setup/vm/boot.sh build/vm/job.sh 1500 | tee build/vm/result.log | sed -u 's/^/  /'
build/venv/bin/python setup/vm/judge.py build/vm/result.log
