#!/bin/bash
# Installs what formats and looks through the sources into build/lint, unless it is there.
set -euo pipefail
cd "$(dirname "$0")/.."
[ ! -x build/lint/bin/clang-tidy ] || exit 0
echo "installing the lint tools into build/lint"
python3 -m venv build/lint
build/lint/bin/pip install -q ruff==0.8.4 clang-format==19.1.5 clang-tidy==19.1.0
