#!/bin/bash
# All tests: the unit tests (also with sanitizers; the thread sanitizer for what processes share), then everything that runs the command.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/build/venv/bin:$PATH"

setup/test_tools.sh

# Runs unit tests; prints the summary, and all that failing tests said.
run_ctest() { # build directory, arguments of ctest
  local log="$1/unit_tests.log"
  if ctest --test-dir "$1" --output-on-failure -j 2 "${@:2}" >"$log" 2>&1; then
    tail -n 3 "$log"
  else
    grep -vE '^ *Start |  Passed  ' "$log"
    return 1
  fi
}

for preset in release sanitize; do
  echo "unit tests: $preset"
  cmake --preset $preset >/dev/null
  cmake --build --preset $preset --target unit_tests | tail -n 1
  # Under the address sanitizer malloc is its own and fork is watched; the tests with children run without.
  # A test that steps through instructions would step through the sanitizer's, too, for minutes.
  without=()
  if [ $preset = sanitize ]; then without=(-E KilledAnywhere); fi
  run_ctest build/$preset --output-junit unit_tests.xml "${without[@]}"
done

echo "unit tests: threads"
fixed_addresses=() # the thread sanitizer of GCC 12 does not bear addresses that are as random as newer kernels make them
if setarch -R true 2>/dev/null; then fixed_addresses=(setarch -R); fi
cmake --preset threads >/dev/null
"${fixed_addresses[@]}" cmake --build --preset threads --target unit_tests | tail -n 1
export -f run_ctest
"${fixed_addresses[@]}" bash -c "run_ctest build/threads"

echo "tests of the command, with MPI"
pytest -q --durations=25 "$@"
