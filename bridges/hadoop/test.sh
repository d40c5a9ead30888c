#!/usr/bin/env bash
# Gets Hadoop into OUT and runs the tests of it, which take some minutes.
#
#   bridges/hadoop/test.sh OUT
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
[ $# -eq 1 ] || { echo "usage: test.sh OUT" >&2 && exit 2; }
for tool in java mvn; do
    command -v "$tool" >/dev/null || { echo "SKIPPED: Hadoop, as there is no $tool here" && exit 0; }
done
"$here/run.sh" "$1" --get
INCAST_HADOOP="$(realpath "$1")" "$root/.venv/bin/python" -m pytest --quiet "$root/tests/process/test_hadoop.py"
