#!/bin/bash
# Whether the wheel of `make wheel` works where it must: in a newly made system of the oldest Debian that the package archive has
# (its C library, its Python, its MPI libraries), under this kernel with each engine, and under that system's own kernel, in a
# virtual machine. Nothing is built there but the test programs. Needs root, since it makes a system in a folder.
#
# usage: setup/check_wheel.sh [--without-vm]
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "check-wheel makes a system in a folder, which needs root"; exit 1; }
wheel=$(ls build/dist/headroom-*manylinux*.whl)
suites="bullseye bookworm" # oldest first
architecture=$(dpkg --print-architecture)
archive=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' 'Created-By: Packages' | awk '$2 == "Debian" && $3 == "Debian" && !n++ {print $1}')
[ -n "$archive" ] || { echo "no Debian archive is among this system's package sources"; exit 1; }
mkdir -p build/old

for suite in $suites; do
  place=$PWD/build/old/$suite
  [ -e "$place/.ready" ] && break
  rm -rf --one-file-system "$place"
  echo "making a system of Debian's $suite in build/old/$suite"
  if debootstrap --variant=minbase --arch="$architecture" "$suite" "$place" "$archive" >"build/old/$suite.log" 2>&1 &&
    chroot "$place" apt-get install -y -q --no-install-recommends python3 python3-venv gcc g++ libc6-dev mpich libmpich-dev \
      openmpi-bin libopenmpi-dev man-db pkg-config procps iproute2 >>"build/old/$suite.log" 2>&1; then
    touch "$place/.ready"
    break
  fi
  tail -n 1 "build/old/$suite.log"
done
[ -e "$place/.ready" ] || { echo "no such system could be made"; exit 1; }

# What the wheel depends on, for that system's Python; nothing is downloaded inside. (That tomli is needed there pip does not see.)
version=$(chroot "$place" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
rm -rf "$place/opt/wheels" "$place/opt/headroom" "$place/opt/check"
mkdir -p "$place/opt/wheels" "$place/opt/check"
cp "$wheel" "$place/opt/wheels/"
build/venv/bin/pip download -q --only-binary=:all: --python-version "$version" --platform manylinux_2_28_x86_64 \
  --platform manylinux2014_x86_64 -d "$place/opt/wheels" "$wheel" tomli
cp examples/pagerank/*.[ch] examples/rpipe/halo.c "$place/opt/check/"
cp setup/wheel_programs.sh "$place/opt/check/run.sh"

echo "127.0.0.1 localhost $(hostname) machine" >"$place/etc/hosts" # MPICH looks its machine's name up

in_system() { # command...: with the kernel's file systems, in a namespace of its own
  unshare -m -p -f --propagation private bash -c 'place=$1; shift
    mount -t proc proc "$place/proc"; mount --rbind /sys "$place/sys"; mount --rbind /dev "$place/dev"
    mount -t tmpfs -o mode=1777 shm "$place/dev/shm"
    exec chroot "$place" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' _ "$place" "$@"
}
echo "Debian's $suite, Python $version, $(in_system getconf GNU_LIBC_VERSION)"
in_system bash /opt/check/run.sh install
echo "under Linux $(uname -r)"
in_system bash /opt/check/run.sh programs "userfaultfd userfaultfd-user sigsegv"
[ "${1:-}" != --without-vm ] || exit 0
echo "under the kernel of $suite, in a virtual machine"
cat >"$place/opt/check/vm.sh" <<'VM'
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
hostname machine
ip link set lo up
uname -r
bash /opt/check/run.sh programs "auto sigsegv"
VM
VM_SUITE=$suite VM_ROOT=$place setup/vm/boot.sh /opt/check/vm.sh 900
