#!/usr/bin/env bash
# Runs small inputs that once failed, and says for each what was expected and what came (tools/cases.toml).
# usage: tools/run_cases.sh FOLDER [NAME...]
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/python" "$(dirname "${BASH_SOURCE[0]}")/run_cases.py" "$@"
