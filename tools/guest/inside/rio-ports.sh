#!/usr/bin/env bash
# In a guest: RapidIO master ports of software, enumerated.   usage: rio-ports.sh MODULES [PORTS] [WORD=VALUE]...
#
#   MODULES   the folder that tools/guest/rapidio.py made
#   PORTS     2 to 8 (default 2): two are joined back to back, more by a switch
#   words behind them are parameters of rio_soft
#
# Port I is /dev/rio_mportI, and an interface of the driver rionet; messages go by /dev/rio_cm. Port 0 is the host:
# it has destination id 1 and gives the others 0, 2, 3 and so on. Ends once all ports have found each other.
set -euo pipefail
modules="$1"
ports="${2:-2}"
shift "$(($# < 2 ? $# : 2))"
insmod "$modules/rapidio.ko" hdid=1
insmod "$modules/rio_soft.ko" ports="$ports" "$@"
for driver in rio_mport_cdev rio_cm rionet; do insmod "$modules/$driver.ko"; done
insmod "$modules/rio-scan.ko" scan=1
for ((port = 0; port < ports; port++)); do
    peers=(/sys/bus/rapidio/devices/"$(printf %02x "$port")":e:*)
    if [ "${#peers[@]}" -ne "$((ports - 1))" ]; then
        echo "rio-ports.sh: port $port has found ${#peers[@]} endpoints" >&2
        exit 1
    fi
done
