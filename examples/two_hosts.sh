#!/bin/sh
# How much of a network two hosts turn into built events: event building, then raw traffic of the same shape.
#
#     examples/two_hosts.sh HOST,HOST [OPTION...]
#
# Both hosts need ssh without a password and this version of Incast; with --deploy it is copied there. OPTIONs go to
# both commands: --transport verbs, --interface ib0, ... docs/clusters.md has all of them.
set -eu
hosts=$1
shift
results=${RESULTS:-two-hosts}
duration=${DURATION:-10s}

incast run --hosts "$hosts" --nodes 4 --duration "$duration" --output "$results/events" "$@"
incast net --hosts "$hosts" --like "$results/events" --duration "$duration" --output "$results/raw" "$@"
incast report "$results/events" "$results/raw" --output "$results/page"
