# Sourced inside the virtual machine: two nodes, n0 (10.0.0.1) and n1 (10.0.0.2), each a network namespace with an RDMA card that is
# made of software. A launcher reaches them by setup/vm/node_shell, with -hosts n0,n1 -localhost 10.0.0.254.
export PATH=/usr/sbin:/sbin:/usr/bin:/bin HOME=/run TMPDIR=/run
ulimit -l unlimited
rdma system set netns shared 2>/dev/null
ip link add br0 type bridge
ip addr add 10.0.0.254/24 dev br0
ip link set br0 mtu 4500 up
ip link set lo up
for node in 0 1; do
  ip netns add "n$node"
  ip link add "v$node" type veth peer name "p$node"
  ip link set "v$node" mtu 4500
  ip link set "p$node" mtu 4500 master br0 up
  ip link set "v$node" netns "n$node"
  ip -n "n$node" link set lo up
  ip -n "n$node" addr add "10.0.0.$((node + 1))/24" dev "v$node"
  ip -n "n$node" link set "v$node" up
  ip netns exec "n$node" rdma link add "rxe$node" type rxe netdev "v$node"
done
for device in /sys/class/infiniband_verbs/uverbs*; do
  name=${device##*/}
  if [ ! -e "/dev/infiniband/$name" ]; then
    numbers=$(cat "$device/dev")
    mknod "/dev/infiniband/$name" c "${numbers%:*}" "${numbers#*:}"
  fi
done
sleep 2
