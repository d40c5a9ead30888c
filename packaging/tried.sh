#!/bin/sh
# What an installed package must do, in a root without compiler: events over three transports, in virtual time, into
# files and to a consumer. usage: tried.sh PYTHON
set -e
python="$1"
cd "$(mktemp -d)"
if command -v cc || command -v g++; then
    echo "there is a compiler here"
    exit 1
fi
incast -V
incast info | head -n 40
quick="--duration 500ms --warm-up 100ms"
for transport in inproc shm tcp; do
    # shellcheck disable=SC2086
    incast run --nodes 2 --transport "$transport" $quick --output "$transport" 2>/dev/null | tail -n 3
done
incast run --nodes 8 --fabric ib-qdr-8 --duration 2ms --warm-up 1ms --output sim >/dev/null 2>&1
incast run --nodes 2 --events 1000 --sink mep:built --output files >/dev/null 2>&1
incast mep check built
incast run --nodes 2 --events 2000 --sink consumer:tried --output consumer >/dev/null 2>&1 &
"$python" -c 'from incast.consumer import Consumers
with Consumers("tried", [0, 1]) as consumers:
    print(sum(event.n_events for event in consumers), "events taken by a consumer")'
wait
incast --help >/dev/null
incast man run | head -n 1
echo "all of it works"
