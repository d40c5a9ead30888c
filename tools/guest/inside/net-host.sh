#!/usr/bin/env bash
# In a guest with --udp or --peer: brings its cards up.   usage: net-host.sh [CARDS]
#
#   host0   with --udp: address 10.0.2.15; this host is 10.0.2.2
#   pair0   with --peer: address 10.0.1.1 in the guest that came first, 10.0.1.2 in the other
set -euo pipefail
[ -e /sys/bus/virtio/drivers/virtio_net ] || modprobe -a virtio_net
if [ -e /proc/sys/net/ipv6 ]; then echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; fi
shopt -s nullglob
wanted="${1:-1}"
until cards=(/sys/bus/virtio/drivers/virtio_net/*/net/*) && [ "${#cards[@]}" -ge "$wanted" ]; do sleep 0.05; done
for card in "${cards[@]}"; do
    case "$(<"$card/address")" in
        52:54:00:00:01:*) name=host0 address=10.0.2.15/24 ;;
        *) name=pair0 address="10.0.1.$INCAST_GUEST_SIDE/24" ;;
    esac
    ip link set "${card##*/}" name "$name"
    ip address add "$address" dev "$name"
    ip link set "$name" up
done
