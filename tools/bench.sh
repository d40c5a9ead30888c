#!/usr/bin/env bash
# Builds and runs the benchmarks (bench/, docs/measuring.md).
# usage: tools/bench.sh [--build | NAME [OPTION...]]
#   nothing         protocol_cost, ingest_cost, every comparison with its defaults: about 45 minutes on an idle machine
#   --build         only builds
#   NAME OPTION...  one program of bench/ or one script of it, without its ending: shm_vs_copy --pairs 3
set -euo pipefail
# shellcheck source=tools/setup.sh
# shellcheck disable=SC2119
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$INCAST_ROOT"

# long_run takes an hour, and variants has to be told of what.
comparisons=(shm_vs_copy shm_vs_mpi rio_vs_shm tcp_vs_iperf3 tcp_vs_mpi)

run_one() {
    local name="$1"
    shift
    printf '\n=== %s\n' "$name"
    if [ -f "bench/$name.py" ]; then
        # The engine of the same build as the reference programs. Consumers need numpy, the others nothing.
        local python="$INCAST_VENV/bin/python"
        [ -x "$python" ] || python="$(python_command)"
        "$python" "bench/$name.py" --engine build/bench/bin/incast-node "$@"
    elif [ -x "build/bench/bench-bin/$name" ]; then
        "build/bench/bench-bin/$name" "$@"
    else
        die "no such benchmark: $name; there are: ${comparisons[*]} long_run variants $(ls build/bench/bench-bin)"
    fi
}

incast_packages run bench
incast_configure bench
logged cmake --build --preset bench -j "$INCAST_JOBS"
if [ "${1:-}" = --build ]; then exit 0; fi
if [ "$#" -gt 0 ]; then
    run_one "$@"
    exit 0
fi
run_one protocol_cost
run_one ingest_cost
status=0
for name in "${comparisons[@]}"; do
    # A machine that was not idle is no reason to leave out the rest.
    run_one "$name" || status=$?
done
exit "$status"
