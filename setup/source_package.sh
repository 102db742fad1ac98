#!/bin/bash
# Downloads the source of a package of the system's own package archive into a folder: source_package.sh PACKAGE FOLDER.
# Needs no privileges: apt-get keeps its lists under build/. Fails, and says why, where the archive has no sources.
set -euo pipefail
cd "$(dirname "$0")/.."
package=$1
folder=$2
apt=$PWD/build/apps/apt
mkdir -p "$apt/sources" "$apt/lists/partial" "$apt/cache/archives/partial" "$folder"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
  case $file in # the archives that the system knows, asked for sources
    *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" >"$apt/sources/$(basename "$file")" ;;
    *.list) [ ! -e "$file" ] || sed 's/^deb /deb-src /' "$file" >"$apt/sources/$(basename "$file")" ;;
  esac
done
options=(-q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$apt/sources" -o Dir::State::Lists="$apt/lists"
  -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=)
cd "$folder"
rm -rf "${package}"_* incomplete && mkdir incomplete
# An update that fails for one of several archives may have what is needed.
apt-get "${options[@]}" update >log 2>&1 || true
(cd incomplete && apt-get "${options[@]}" source --download-only --tar-only "$package" >>../log 2>&1) || {
  tail -n 5 log
  exit 1
}
mv incomplete/* . && rmdir incomplete
