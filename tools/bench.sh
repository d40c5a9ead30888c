#!/usr/bin/env bash
# Builds and runs the benchmarks (bench/). usage: tools/bench.sh [NAME...]   default: all of them
set -euo pipefail
# shellcheck source=tools/setup.sh
# shellcheck disable=SC2119
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$INCAST_ROOT"

incast_packages run bench
incast_configure bench
logged cmake --build --preset bench -j "$INCAST_JOBS"
if [ "$#" -eq 0 ]; then
    mapfile -t programs < <(find build/bench/bench-bin -maxdepth 1 -type f -perm -u+x | sort)
else
    programs=("${@/#/build/bench/bench-bin/}")
fi
[ "${#programs[@]}" -gt 0 ] || die "no benchmark was built"
for program in "${programs[@]}"; do
    printf '\n=== %s\n' "$(basename "$program")"
    "$program"
done
