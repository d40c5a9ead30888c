#!/usr/bin/env bash
# In a guest: one RapidIO master port of software that is an endpoint of a fabric of UDP.
#   usage: rio-link.sh MODULES SOFTRIO FABRIC DESTID [PEER]...
#
#   MODULES   the folder that tools/guest/rapidio.py made
#   SOFTRIO   the program `softrio`, whose `link` carries the packets
#   FABRIC    as RIO_FABRIC names it, udp:...
#   PEER      destination ids: ends once these are there
#
# The port is /dev/rio_mport0. What `softrio link` says is in /run/rio-link.
set -euo pipefail
modules="$1" softrio="$2" fabric="$3" destid="$4"
shift 4
insmod "$modules/rapidio.ko" hdid="$destid"
insmod "$modules/rio_soft.ko" ports=1 linked=1
for driver in rio_mport_cdev rio_cm rionet; do insmod "$modules/$driver.ko"; done
RIO_FABRIC="$fabric" RIO_DEBUG=1 "$softrio" link 0 >/run/rio-link 2>&1 &
for peer in "$@"; do
    until grep -qx "endpoint $peer is there" /run/rio-link; do
        kill -0 $! || {
            cat /run/rio-link >&2
            exit 1
        }
        sleep 0.1
    done
done
