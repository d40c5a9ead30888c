#!/usr/bin/env bash
# Builds libzmq with the transports of Incast and its own tests, and runs them over shm, all that can be turned.
#
#   bridges/zmq/test.sh OUT [an option of build.sh...]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
[ $# -gt 0 ] || { echo "usage: test.sh OUT" >&2 && exit 2; }
out="$1"
"$here/build.sh" "$@" --tests
python3 "$here/own_tests.py" "$out" --turn shm --known "$here/known.txt"
