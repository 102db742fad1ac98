#!/bin/bash
# Whether a change is worth a longer look: the unit tests of the release build, and the tests of tests/quick.txt, in three minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/build/venv/bin:$PATH" TMPDIR=/var/tmp
setup/test_tools.sh
echo "unit tests"
cmake --preset release >/dev/null
cmake --build --preset release --target unit_tests >build/quick.log || {
  cat build/quick.log
  exit 1
}
ctest --test-dir build/wheel --output-on-failure -j 2 | grep -vE '^ *Start |  Passed  '
echo "tests of the command, with MPI"
mapfile -t tests < <(grep -v '^#' tests/quick.txt)
pytest -q "${tests[@]}"
