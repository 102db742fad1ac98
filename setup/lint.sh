#!/bin/bash
# Formatting, static analysis, the other architecture, and generated docs that must match their tables.
#
#   setup/lint.sh [--without-analyzer]    without what follows paths through functions, which takes four fifths of the time
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/build/venv/bin:$PATH"
mapfile -t native < <(git ls-files '*.cc' '*.h' '*.c' '*.inc')
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
echo "clang-tidy ${checks[*]}"
cmake --preset debug >/dev/null
cmake --build --preset debug --target generated_code >/dev/null
git ls-files 'src/*.cc' | xargs -P 2 -n 6 build/lint/bin/clang-tidy -p build/debug "${checks[@]}" --quiet --warnings-as-errors='*' \
  --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unknown-attributes 2> >(grep -vE 'warnings? generated|Suppressed|Use -header' >&2)

echo "building for AArch64, and running there, emulated, the tests of what differs between processors"
cmake --preset aarch64 >/dev/null
cmake --build --preset aarch64 --target headroom headroom_mpich headroom-supervise headroom-ledger headroom-simulate-io rpipe rpipe_mpich portable_tests | tail -n 1
qemu-aarch64 -L /usr/aarch64-linux-gnu build/aarch64/tests/unit/portable_tests --gtest_brief=1 | tail -n 1
