#!/usr/bin/env bash
# Where the CPU time of a run goes (docs/measuring.md): perf samples all nodes of a run while it measures, and says
# which functions took how much; with inferno (cargo install inferno) beside it a flame graph.
# usage: tools/profile.sh FOLDER [OPTION...]   options of `incast-node`; --set KEY=VALUE. FOLDER gets functions.txt,
#        flame.svg, the run's result and what it was asked for. INCAST_PROFILE_SECONDS: 5
set -euo pipefail
# shellcheck source=tools/setup.sh
# shellcheck disable=SC2119
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
[ "$#" -ge 1 ] || die "usage: tools/profile.sh FOLDER [OPTION...]"
folder="$1"
shift
seconds="${INCAST_PROFILE_SECONDS:-5}"
engine="$INCAST_BUILD/bin/incast-node"
command -v perf >/dev/null || die "needs perf (Debian: linux-perf)"
[ -x "$engine" ] || die "needs the engine: ./run builds it"
mkdir -p "$folder"

"$engine" --output "$folder/result" --progress json --set run.warm_up=1s --set "run.duration=$((seconds + 2))s" "$@" \
    >"$folder/progress.jsonl" &
run=$!
deadline=$((SECONDS + 60))
until grep -q '"phase":"measuring"' "$folder/progress.jsonl"; do
    kill -0 "$run" 2>/dev/null || die "the run ended before it measured; see $folder/progress.jsonl"
    [ "$SECONDS" -lt "$deadline" ] || die "the run does not begin to measure"
    sleep 0.1
done
# The coordinator and the nodes that it started.
nodes="$(ps -eo pid=,ppid= | awk -v run="$run" '$1 == run || $2 == run { printf "%s%s", comma, $1; comma = "," }')"
perf record -q -e cpu-clock -F 1999 -g -p "$nodes" -o "$folder/perf.data" -- sleep "$seconds" 2>/dev/null
wait "$run"
perf report -i "$folder/perf.data" --no-children -g none --percent-limit 0.5 --sort dso,symbol 2>/dev/null |
    grep -v '^#' | sed '/^$/d; s/ *$//' >"$folder/functions.txt"
if command -v inferno-collapse-perf >/dev/null; then
    perf script -i "$folder/perf.data" 2>/dev/null | inferno-collapse-perf 2>/dev/null |
        inferno-flamegraph --title "incast-node $*" >"$folder/flame.svg" 2>/dev/null
else
    say "no flame graph: inferno is not installed (cargo install inferno)"
fi
head -n 30 "$folder/functions.txt"
