#!/bin/bash
# Installs what formats and looks through the sources into build/lint, unless it is there.
set -euo pipefail
cd "$(dirname "$0")/.."
build/lint/bin/clang-tidy --version 2>/dev/null | grep -q 22.1.8 && exit 0
echo "installing the lint tools into build/lint"
python3 -m venv build/lint
build/lint/bin/pip install -q ruff==0.8.4 clang-format==19.1.5 clang-tidy==22.1.8
