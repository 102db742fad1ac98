#!/bin/bash
# Every variant of every test, MPICH's, HDF5's and PnetCDF's own tests, and the virtual machine; then build/suites.txt says what was run, of which
# commit, and how it ended. What fails does not keep the rest from running.
set -uo pipefail
cd "$(dirname "$0")/.."
summary=build/suites.txt
began=$(date -u '+%F %H:%M')
failed=0
results=()
part() { # name, pattern of the lines that say how it ended, command
  local log="build/suites-$1.log"
  local seconds=$SECONDS
  if "${@:3}" 2>&1 | tee "$log"; then how=passed; else
    how=FAILED
    failed=1
  fi
  results+=("$1: $how, $(((SECONDS - seconds + 59) / 60)) min" "$(grep -E "$2" "$log" | sed 's/^ */    /')")
}
part tests ' tests passed|[0-9]+ passed' env HEADROOM_SUITES=all setup/check.sh
part virtual-machine 'cases are as they must be' make check-vm
{
  echo "commit $(git describe --always --dirty), begun $began UTC, Linux $(uname -r), $(nproc) cores"
  printf '%s\n' "${results[@]}"
} | tee "$summary"
exit $failed
