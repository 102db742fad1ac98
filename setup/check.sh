#!/bin/bash
# All tests: the unit tests (also with sanitizers; the thread sanitizer for what processes share), then everything that runs the command.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/build/venv/bin:$PATH"

setup/test_tools.sh

for preset in release sanitize; do
  echo "unit tests: $preset"
  cmake --preset $preset >/dev/null
  cmake --build --preset $preset --target unit_tests | tail -n 1
  # Under the address sanitizer malloc is its own and fork is watched; the tests with children run without.
  ctest --test-dir build/$preset --output-on-failure -j 1 --output-junit unit_tests.xml | tail -n 8
done

echo "unit tests: threads"
fixed_addresses=() # the thread sanitizer of GCC 12 does not bear addresses that are as random as newer kernels make them
if setarch -R true 2>/dev/null; then fixed_addresses=(setarch -R); fi
cmake --preset threads >/dev/null
"${fixed_addresses[@]}" cmake --build --preset threads --target unit_tests | tail -n 1
"${fixed_addresses[@]}" ctest --test-dir build/threads --output-on-failure -j 1 -R '^(Endpoints|Channel)' | tail -n 8

echo "tests of the command, with MPI"
pytest -q "$@"
