#!/bin/bash
# Boots a virtual machine, emulated in software, with this machine's files read-only inside, so that everything installed here is
# there; runs a script in it, and ends with the script's status. A boot that does not get as far as the script is tried again
# (about one in ten panics). Times in there mean nothing.
#
# usage: setup/vm/boot.sh SCRIPT [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/../.."
script=$(readlink -f "$1")
seconds=${2:-600}
modules=$(setup/vm/kernel.sh)
work=build/vm
image=$work/initramfs.gz
disk=$work/disk.img

if [ ! -e "$image" ] || [ "$image" -ot setup/vm/boot.sh ] || [ "$image" -ot setup/vm/init ]; then
  root=$(mktemp -d)
  mkdir -p "$root"/{bin,proc,sys,dev,mods,host}
  cp -L "$(command -v busybox)" "$root/bin/"
  for name in sh mount insmod poweroff mkdir chroot sed; do ln -s busybox "$root/bin/$name"; done
  version=$(basename "$modules")
  for module in virtio_net 9p 9pnet_virtio rdma_rxe ib_uverbs rdma_ucm veth bridge virtio_blk ext4 crc32c_generic; do
    modprobe -d build/vm/kernel/root -S "$version" --show-depends "$module" 2>/dev/null || true
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r file; do
    name=$(basename "${file%.xz}")
    case $file in *.xz) xz -dc "$file" ;; *) cat "$file" ;; esac >"$root/mods/$name"
    echo "$name" >>"$root/mods/order"
  done
  cp setup/vm/init "$root/init"
  chmod +x "$root/init"
  (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$image"
  rm -rf "$root"
fi
# Storage must not be in memory.
rm -f "$disk"
truncate -s 3G "$disk"
mkfs.ext4 -q -E lazy_itable_init=1 "$disk"

for attempt in 1 2 3 4 5; do
  log=$work/console-$attempt.log
  timeout "$seconds" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m 3G \
    -kernel "$modules/vmlinuz" -initrd "$image" -append "console=ttyS0 quiet panic=-1 script=$script" \
    -nographic -no-reboot -nodefaults -serial stdio -drive file="$disk",format=raw,if=virtio \
    -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap \
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
