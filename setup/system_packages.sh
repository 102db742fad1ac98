#!/bin/bash
# Installs the Debian or Ubuntu packages that a make target needs: with apt-get as root or with passwordless sudo, else it
# prints one line to copy and stops. Says nothing when everything is there.
#
# usage: setup/system_packages.sh build|demo|check|suites|check-vm|check-wheel|wheel|lint|bench
set -euo pipefail

declare -A packages=(
  [build]="g++ binutils libjemalloc-dev libxxhash-dev libibverbs-dev libfabric-dev python3 python3-venv libc6-dev ca-certificates procps"
  [demo]="util-linux"
  [check]="libgtest-dev gfortran mpich libmpich-dev openmpi-bin libopenmpi-dev lammps libblas3 ptscotch scotch scalapack-mpi-test e2fsprogs xz-utils strace gdb iproute2 slurm-client slurmctld slurmd munge pkg-config cmake"
  [suites]="openfoam openfoam-examples libhdf5-mpich-dev libhdf5-openmpi-dev libpnetcdf-dev"
  [check-vm]="qemu-system-x86 busybox-static kmod cpio xz-utils iproute2 rdma-core ibverbs-providers rdmacm-utils e2fsprogs"
  [check-wheel]="debootstrap qemu-system-x86 busybox-static kmod cpio xz-utils e2fsprogs"
  [wheel]="libxxhash-dev libibverbs-dev libfabric-dev make binutils bzip2 xz-utils"
  [lint]="libgtest-dev gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user"
  [bench]="lammps"
)
target=$1
missing=()
for package in ${packages[$target]}; do
  dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ]; then
  as_root=()
elif sudo -n true 2>/dev/null; then
  as_root=(sudo -n)
else
  echo "These packages are missing; install them and run make again:"
  echo "  sudo apt-get install -y ${missing[*]}"
  exit 1
fi
echo "installing system packages: ${missing[*]}"
log=$(mktemp)
if ! { "${as_root[@]}" apt-get update -q &&
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log"
  exit 1
fi
rm -f "$log"
