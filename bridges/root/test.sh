#!/usr/bin/env bash
# Builds libIncastRoot.so and runs all of its tests: ROOT's tutorials over each transport, and those of tests/process.
#
#   bridges/root/test.sh OUT [an option of build.sh...]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
[ $# -gt 0 ] || { echo "usage: test.sh OUT" >&2 && exit 2; }
out="$1"
"$here/build.sh" "$@"
python3 "$here/tutorials/run.py" "$out"
INCAST_ROOT_BRIDGE="$(realpath "$out")" "$root/.venv/bin/python" -m pytest --quiet "$root/tests/process/test_root.py"
