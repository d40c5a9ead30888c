#!/usr/bin/env bash
# In a guest: what happens to the packets that nodes send.   usage: netem.sh NODE... -- cut | none | NETEM_WORDS
#
#   netem.sh 1 2 -- loss 1%
#   netem.sh all -- delay 1ms
#   netem.sh all -- delay 1ms reorder 25% 50%
#   netem.sh 3 -- cut       nothing passes either way; after `ip link set down` a soft device would be of no more use
#   netem.sh all -- none    neither
set -euo pipefail
nodes=()
while [ "$#" -gt 0 ] && [ "$1" != -- ]; do
    nodes+=("$1")
    shift
done
if [ "${#nodes[@]}" -eq 0 ] || [ "$#" -lt 2 ]; then
    echo "usage: netem.sh NODE... -- cut | none | NETEM_WORDS" >&2
    exit 2
fi
shift
if [ "${nodes[0]}" = all ]; then
    nodes=()
    for path in /sys/class/net/node*; do nodes+=("${path#*/node}"); done
fi
# What comes in is held up where it leaves the bridge; a guest's own cable to another guest has no such end here.
commands=()
for node in "${nodes[@]}"; do
    for end in "node$node" "cable$node"; do
        [ -e "/sys/class/net/$end" ] || continue
        case "$1" in
            none) commands+=("qdisc replace dev $end root pfifo limit 1000") ;;
            cut) commands+=("qdisc replace dev $end root netem loss 100%") ;;
            *) [ "$end" != "node$node" ] || commands+=("qdisc replace dev $end root netem limit 100000 $*") ;;
        esac
    done
done
[ "${#commands[@]}" -eq 0 ] || printf '%s\n' "${commands[@]}" | tc -batch -
