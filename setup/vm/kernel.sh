#!/bin/bash
# Unpacks a Debian kernel under build/vm/kernel-SUITE, for a virtual machine: the newest of SUITE (trixie-backports, which is newer
# than the system's) that has both its image and its modules. Nothing is installed, and apt's own lists are not
# touched. Once: what is there is used again. Prints the folder of its modules.
#
# usage: setup/vm/kernel.sh [SUITE]
set -euo pipefail
cd "$(dirname "$0")/../.."
suite=${1:-trixie-backports}
place=$PWD/build/vm/kernel-$suite
root=$place/root

unpacked() { ls -d "$root"/usr/lib/modules/*/ 2>/dev/null | tail -n 1; }
complete() { [ -n "$(unpacked)" ] && [ -e "$(unpacked)vmlinuz" ] && [ -e "$(unpacked)modules.dep" ]; }

if ! complete; then
  rm -rf "$place"
  mkdir -p "$place/apt/lists/partial" "$place/apt/cache/archives/partial"
  architecture=$(dpkg --print-architecture)
  archive=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' 'Created-By: Packages' | awk '$2 == "Debian" && $3 == "Debian" && !n++ {print $1}')
  [ -n "$archive" ] || { echo "no Debian archive is among this system's package sources; the kernel cannot be fetched" >&2; exit 1; }
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $suite main" >"$place/apt/sources.list"
  options=(-qq -o Dir::Etc::sourcelist="$place/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::State::lists="$place/apt/lists" -o Dir::Cache="$place/apt/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none)
  apt-get "${options[@]}" update >&2
  found=
  while read -r version; do
    for package in "linux-binary-$version" "linux-binary-unsigned-$version" "linux-image-$version" "linux-image-$version-unsigned"; do
      if [ -z "$found" ] && apt-cache "${options[@]}" show "$package" >/dev/null 2>&1; then found="$version $package"; fi
    done
  done < <(apt-cache "${options[@]}" pkgnames linux- | sed -nE "s/^linux-(modules|image)-([0-9].*-$architecture)$/\2/p" |
    grep -vE 'cloud|rt-|dbg' | sort -Vru)
  read -r version package <<<"$found"
  [ -n "$package" ] || { echo "no kernel found in $suite" >&2; exit 1; }
  wanted=("$package")
  if apt-cache "${options[@]}" show "linux-modules-$version" >/dev/null 2>&1; then wanted+=("linux-modules-$version"); fi
  (cd "$place" && apt-get "${options[@]}" download "${wanted[@]}" >&2 && for file in *.deb; do dpkg-deb -x "$file" root; done && rm -f ./*.deb)
  modules=$root/usr/lib/modules/$version
  if [ -d "$root/lib" ] && [ ! -L "$root/lib" ]; then # releases before Debian 12 have it there
    mkdir -p "$root/usr" && cp -r "$root/lib" "$root/usr/" && rm -r "$root/lib"
  fi
  ln -sfn usr/lib "$root/lib"
  for image in "$modules/vmlinuz" "$modules/vmlinuz.unsigned" "$root/boot/vmlinuz-$version"; do
    if [ -e "$image" ] && [ ! -e "$modules/vmlinuz" ]; then ln -s "$image" "$modules/vmlinuz"; fi
  done
  depmod -b "$root" "$version"
fi
complete || { echo "the kernel under $place is not complete; remove it, and try again" >&2; exit 1; }
unpacked
