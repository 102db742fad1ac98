#!/bin/bash
# Boots a virtual machine, emulated in software, with this machine's files read-only inside, so that everything installed here is
# there; runs a script in it, and ends with the script's status. A boot that does not get as far as the script is tried again
# (about one in ten panics). Times in there mean nothing.
#
# usage: setup/vm/boot.sh SCRIPT [SECONDS]
#
# VM_SUITE: the Debian release whose kernel it has (trixie-backports); VM_ROOT: the folder with the files of another system, to be
# used instead of this machine's. SCRIPT is then a path inside.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=${VM_ROOT:-/}
suite=${VM_SUITE:-trixie-backports}
script=$1
[ -n "${VM_ROOT:-}" ] || script=$(readlink -f "$1")
seconds=${2:-600}
modules=$(setup/vm/kernel.sh "$suite")
work=build/vm
image=$work/initramfs-$suite.gz
disk=$work/disk-$suite.img

if [ ! -e "$image" ] || [ "$image" -ot setup/vm/boot.sh ] || [ "$image" -ot setup/vm/init ] || [ "$image" -ot "$modules/modules.dep" ]; then
  made=$(mktemp -d)
  mkdir -p "$made"/{bin,proc,sys,dev,mods,host}
  cp -L "$(command -v busybox)" "$made/bin/"
  for name in sh mount insmod poweroff mkdir chroot sed; do ln -s busybox "$made/bin/$name"; done
  version=$(basename "$modules")
  for module in virtio_pci virtio_net 9p 9pnet_virtio rdma_rxe ib_uverbs rdma_ucm veth bridge virtio_blk ext4 crc32c_generic; do
    modprobe -d "build/vm/kernel-$suite/root" -S "$version" --show-depends "$module" 2>/dev/null || true
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r file; do
    name=$(basename "${file%.xz}")
    case $file in *.xz) xz -dc "$file" ;; *) cat "$file" ;; esac >"$made/mods/$name"
    echo "$name" >>"$made/mods/order"
  done
  cp setup/vm/init "$made/init"
  chmod +x "$made/init"
  (cd "$made" && find . | cpio -o -H newc --quiet | gzip -1) >"$image.new"
  mv "$image.new" "$image"
  rm -rf "$made"
fi
# Storage must not be in memory.
rm -f "$disk"
truncate -s 3G "$disk"
mkfs.ext4 -q -E lazy_itable_init=1 "$disk"

for attempt in 1 2 3 4 5; do
  log=$work/console-$suite-$attempt.log
  timeout "$seconds" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m 3G \
    -kernel "$modules/vmlinuz" -initrd "$image" -append "console=ttyS0 quiet panic=-1 script=$script" \
    -nographic -no-reboot -nodefaults -serial stdio -drive file="$disk",format=raw,if=virtio \
    -fsdev local,id=host,path="$root",security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=host,mount_tag=host </dev/null 2>&1 | sed -u 's/\r//' >"$log" || true
  if grep -q '^EXIT=' "$log"; then
    sed -n '/READY$/,/^EXIT=/p' "$log" | sed -E '/READY$|^EXIT=/d' # the firmware clears the screen on the first line
    exit "$(sed -n 's/^EXIT=//p' "$log" | tail -n 1)"
  fi
  if grep -q 'READY$' "$log" && ! grep -q 'Kernel panic' "$log"; then
    tail -n 40 "$log"
    echo "the script did not end within $seconds s" >&2
    exit 1
  fi
done
tail -n 20 "$log" >&2
echo "the virtual machine did not boot in 5 attempts" >&2
exit 3
