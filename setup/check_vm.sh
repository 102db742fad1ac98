#!/bin/bash
# What needs a machine with other hardware or another kernel, in a virtual machine; setup/vm/judge.py judges.
#
# Network cards and memory that moves: on two nodes, each with an RDMA card that is made of software, ranks exchange messages and
# make windows over UCX while memory is short. Nothing may be wrong, with any engine, whatever the user has set; with Headroom's
# settings taken away it must be, or else these cases show nothing.
# Long messages that cards read by on-demand paging: right, nothing pinned, and no faults where memory was asked for before; with faults
# where it was not.
# Limits of version 2's memory cgroups: without --memory a job stays within them.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
mkdir -p build/vm build/tests
for mpi in mpich openmpi; do
  "build/mpi/$mpi/bin/mpicc" -O2 -g -Itests/programs/shared -o "build/tests/card_messages-$mpi" tests/programs/vm/card_messages.c
done
build/mpi/mpich/bin/mpicc -O2 -g -Itests/programs/shared -o build/tests/long_messages-mpich tests/programs/mpi/long_messages.c
build/mpi/mpich/bin/mpicc -O2 -g -Itests/programs/shared -o build/tests/between_promises-mpich tests/programs/mpi/between_promises.c
build/mpi/mpich/bin/mpicc -O2 -g -Itests/programs/shared -o build/tests/out_of_core-mpich tests/programs/shared/out_of_core.c
cat >build/vm/job.sh <<JOB
. $root/setup/vm/two_nodes.sh
cd /var/tmp
mpich="$root/build/mpi/mpich/bin/mpiexec -launcher ssh -launcher-exec $root/setup/vm/node_shell -localhost 10.0.0.254 -hosts n0,n1 -ppn 1 -n 2"
openmpi="$root/build/mpi/openmpi/bin/mpirun --allow-run-as-root --prtemca plm_ssh_agent $root/setup/vm/node_shell --host n0,n1 -n 2 \\
  --map-by node --bind-to none --mca pml ucx --mca opal_common_ucx_devices any --mca osc ucx"
headroom="$root/build/venv/bin/headroom run --memory 96M --storage /var/tmp --summary off --json /var/tmp/figures"
packets() { echo \$((\$(cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts) + \$(cat /sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts))); }
run() { # name, case, variables, options
  rm -f /var/tmp/figures*
  echo "case \$mpi \$1 \$2"
  before=\$(packets)
  timeout 300 \${!mpi} env \$3 \$headroom \$4 $root/build/tests/card_messages-\$mpi \$2 2>&1
  echo "status \$?"
  echo "packets \$((\$(packets) - before))"
  grep -ho '"total".*"pinned_bytes_peak": [0-9]*' /var/tmp/figures* | grep -o '"pinned_bytes_peak": [0-9]*'
}
for mpi in mpich openmpi; do
  for engine in userfaultfd userfaultfd-user sigsegv; do
    run "\$engine" messages A=b "--engine \$engine"
    run "\$engine" window A=b "--engine \$engine"
  done
  pins="UCX_TLS=rc,sm UCX_RCACHE_ENABLE=y UCX_ZCOPY_THRESH=0 UCX_RNDV_SCHEME=get_zcopy UCX_RNDV_THRESH=65536"
  run pinning messages "\$pins"
  run pinning window "\$pins"
  for each in attached large kept waiting beyond; do run default \$each A=b; done
  unguarded="HEADROOM_TRANSPORTS=as-they-are UCX_RNDV_THRESH=65536 UCX_RNDV_SCHEME=put_zcopy"
  run unguarded messages "\$unguarded"
  run unguarded window "\$unguarded"
done

# Long messages that the receiver's card reads by on-demand paging. Soft-RoCE counts nothing: how often the card had to have a page
# mapped is traced in the kernel, from where both ranks know each other.
tracing=/sys/kernel/tracing
mount -t tracefs nodev \$tracing 2>/dev/null
echo 'p:odp/map ib_umem_odp_map_dma_and_lock fault=\$arg5:u8 caller=\$stack0:symbol' >>\$tracing/kprobe_events
echo 1 >\$tracing/events/odp/map/enable
echo 20000 >\$tracing/buffer_size_kb
read_by_card() { # scheme, engine, budget, MiB, rounds, where content lies, [a variable]
  rm -f /var/tmp/figures*
  echo case card \$1 \$2 \$3 \$6 \$7
  timeout 300 \$mpich env \${7:-A=b} MOST_SECONDS_TO_END=10 "AT_BEGIN=mount -t tracefs nodev \$tracing; echo >\$tracing/trace" \
    $root/build/venv/bin/headroom run --memory \$3 --engine \$2 --storage /var/tmp --summary off --json /var/tmp/figures \
    --between own --rdma \$1 $root/build/tests/long_messages-mpich \$4 \$5 \$6 2>&1
  echo "status \$?"
  echo "faults \$(grep -c 'map: .*fault=1.*rxe_odp_map_range' \$tracing/trace)"
  sleep 1
  grep -ho '"total".*' /var/tmp/figures* | grep -oE '"(rdma_[a-z_]*|between_pieces|blocks_evicted|pinned_bytes_peak)": [0-9]*'
  pkill -9 -f long_messages
}
for scheme in optimal enhanced native pinned; do read_by_card \$scheme userfaultfd 400M 20 6 aligned; done
for engine in userfaultfd userfaultfd-user sigsegv; do read_by_card optimal \$engine 180M 100 6 anywhere; done
read_by_card optimal userfaultfd 400M 20 12 anywhere HEADROOM_RDMA_FAULT=17
for what in cancel buffered wanted; do
  rm -f /var/tmp/figures*
  echo "case promise \$what"
  timeout 300 \$mpich env MOST_SECONDS_TO_END=10 $root/build/venv/bin/headroom run --memory 180M --storage /var/tmp --summary off \
    --json /var/tmp/figures --between own --rdma optimal $root/build/tests/between_promises-mpich \$what 2>&1
  echo "status \$?"
  sleep 1
  grep -ho '"total".*' /var/tmp/figures* | grep -oE '"rdma_[a-z_]*": [0-9]*'
  pkill -9 -f between_promises
done

mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
limited() { # name, file that takes the limit, command before the program
  group=/sys/fs/cgroup/job
  mkdir \$group
  echo 192M >\$group/\$2
  rm -f /var/tmp/limited
  echo "case limit \$1"
  timeout 300 sh -c "echo \\\$\\\$ >\$group/cgroup.procs; exec env UCX_TLS=posix,self $root/build/mpi/mpich/bin/mpiexec -n 2 \$3 \
    $root/build/tests/out_of_core-mpich 96 2" 2>&1
  echo "status \$?"
  [ ! -e /var/tmp/limited ] || grep -ho '"budget_bytes": [0-9]*' /var/tmp/limited
  grep . \$group/memory.events \$group/memory.peak
  sleep 1
  rmdir \$group
}
limited "plain memory.max" memory.max ""
for name in memory.max memory.high; do
  limited "\$name" \$name "$root/build/venv/bin/headroom run --storage /var/tmp --json /var/tmp/limited"
done
JOB
setup/vm/boot.sh build/vm/job.sh 1500 | tee build/vm/result.log | sed -u 's/^/  /'
build/venv/bin/python setup/vm/judge.py build/vm/result.log
