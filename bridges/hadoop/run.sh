#!/usr/bin/env bash
# Runs Hadoop over network devices of RapidIO, and over veth beside it: docs/hadoop.md.
#
#   bridges/hadoop/run.sh OUT [--network rio|veth] [--yarn] [--scale tiny|trial|small] [--faults] [--rates MBIT,...]
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/run.py" "$@"
