#!/bin/bash
# Formatting, static analysis, the other architecture, and generated docs that must match their tables.
#
#   setup/lint.sh [--without-analyzer]    without what follows paths through functions, which takes four fifths of the time
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/build/venv/bin:$PATH"
mapfile -t native < <(git ls-files '*.cc' '*.h' '*.c')
if [ ${#native[@]} = 0 ]; then # in an unpacked archive, say; all that follows would then pass or wait for input
  echo "git lists no source files here: run this in a git checkout"
  exit 1
fi
setup/lint_tools.sh
echo "clang-format: ${#native[@]} files"
build/lint/bin/clang-format --dry-run -Werror "${native[@]}"
echo "ruff"
build/lint/bin/ruff check -q .
build/lint/bin/ruff format -q --check .

build/venv/bin/python setup/check_links.py
for table in base/generate_settings.py:base/settings.toml:docs/user/settings.md trace/generate_counters.py:trace/counters.toml:docs/user/counters.md; do
  IFS=: read -r script source page <<<"$table"
  build/venv/bin/python "src/$script" markdown "src/$source" build/page.md
  cmp -s build/page.md "$page" || { echo "$page does not match src/$source: make docs"; exit 1; }
done

checks=() # those of .clang-tidy
if [ "${1:-}" = --without-analyzer ]; then checks=('--checks=-clang-analyzer-*'); fi
cmake --preset debug >/dev/null
cmake --build --preset debug --target generated_code >/dev/null

echo "every header by itself"
# -w: the compiler warns of #pragma once in what it takes for a source.
compile_header() {
  g++ -std=gnu++20 -fsyntax-only -x c++ -w -DHEADROOM_ABI_NAME='"mpich"' -Isrc -Iinclude -Ibuild/debug/generated \
    -isystem build/mpi/mpich/include "$1" || { echo "$1 does not compile by itself"; exit 1; }
}
export -f compile_header
# A source that includes its own header first shows the same each time it is compiled.
is_first_in_its_source() { [ -e "${1%.h}.cc" ] && grep -m 1 '^#include' "${1%.h}.cc" | grep -qF "\"${1#src/}\""; }
for header in $(git ls-files 'src/*.h'); do is_first_in_its_source "$header" || echo "$header"; done |
  xargs -r -P 2 -n 1 bash -c 'compile_header "$0"'

echo "clang-tidy ${checks[*]}"
# Once a source: the backends' are compiled against each MPI library, which tells clang-tidy nothing new.
mkdir -p build/lint/once
build/venv/bin/python - <<'PYTHON'
import json
commands = {command["file"]: command for command in reversed(json.load(open("build/debug/compile_commands.json")))}
json.dump(list(commands.values()), open("build/lint/once/compile_commands.json", "w"))
PYTHON
git ls-files 'src/*.cc' | xargs -P 2 -n 6 build/lint/bin/clang-tidy -p build/lint/once "${checks[@]}" --quiet --warnings-as-errors='*' \
  --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unknown-attributes 2> >(grep -vE 'warnings? generated|Suppressed|Use -header' >&2)

echo "building for AArch64, and running there, emulated, the tests of what differs between processors"
cmake --preset aarch64 >/dev/null
cmake --build --preset aarch64 --target headroom headroom_mpich headroom-supervise headroom-ledger headroom-simulate-io rpipe rpipe_mpich portable_tests | tail -n 1
echo "knots of sources"
build/venv/bin/python setup/knots.py build/aarch64/src/CMakeFiles/headroom_core.dir
qemu-aarch64 -L /usr/aarch64-linux-gnu build/aarch64/tests/unit/portable_tests --gtest_brief=1 | tail -n 1
