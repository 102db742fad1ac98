#!/bin/bash
# All tests: the unit tests (also with sanitizers; the thread sanitizer for what processes share), then everything that runs the command.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/build/venv/bin:$PATH"
# Where /tmp is in memory (Debian 13) the folders that pytest makes there could not serve as storage, as many tests want. Headroom
# takes TMPDIR before other places: without --storage it then chooses the directory that the tests watch (tests/kernel_watch.py).
export TMPDIR=/var/tmp

setup/test_tools.sh

declare -A folders=([release]=build/wheel [sanitize]=build/sanitize [threads]=build/threads) # as in CMakePresets.json

# Runs unit tests; prints the summary, and all that failing tests said.
run_ctest() { # preset, folder, arguments of ctest
  local log="build/unit_tests-$1.log"
  if ctest --test-dir "$2" --output-on-failure -j 4 --output-junit "$PWD/build/unit_tests-$1.xml" "${@:3}" >"$log" 2>&1; then
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
  # Some that take long touch one mapping that the sanitizer knows nothing of.
  if [ $preset = sanitize ]; then without=(-E 'KilledAnywhere|MemoryOfClosedPipes|RecordsOfPipesThatNeverMet|HeapOf.PlacesAs'); fi
  run_ctest $preset "${folders[$preset]}" "${without[@]}"
done

echo "unit tests: threads"
fixed_addresses=() # the thread sanitizer of GCC 12 does not bear addresses that are as random as newer kernels make them
if setarch -R true 2>/dev/null; then fixed_addresses=(setarch -R); fi
cmake --preset threads >/dev/null
"${fixed_addresses[@]}" cmake --build --preset threads --target unit_tests | tail -n 1
export -f run_ctest
# Long ones of which each process has one thread say nothing here.
"${fixed_addresses[@]}" bash -c "run_ctest threads ${folders[threads]} -E 'RpipeWith|MemoryOfClosedPipes|PipesThatNeverMet|WhatIsNotRead|TwoNodes.Random'"

echo "tests of the command, with MPI"
pytest -q --durations=25 "$@"
