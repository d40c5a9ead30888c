#!/bin/sh
# How much buffer a switch needs for event building of 16 hosts, and whether fewer packets in flight need less of it.
# All of it is simulated: VIRTUAL TIME, some seconds on any machine.
#
#     examples/switch_buffer.sh [OPTION...]
#
# The network is a file: `incast fabric list` names those that come with Incast, and docs/fabrics.md says how to write
# one of your own. Every value of it can be swept as fabric.KEY.
set -eu
results=${RESULTS:-switch-buffer}

incast sim --fabric one-switch-64 --set run.nodes=16 --set protocol.mfp_size=64KiB \
    --sweep fabric.switches.lossless.input_buffer=8KiB,32KiB,128KiB --sweep protocol.credits=1,2,4 \
    --output "$results" "$@"
incast report "$results" --output "$results-page"
