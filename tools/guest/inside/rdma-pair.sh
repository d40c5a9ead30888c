#!/usr/bin/env bash
# In one of two guests that name the same --peer: makes it a soft RDMA node.   usage: rdma-pair.sh [rxe|siw]
#
#   the guest that came first has address 10.0.1.1, the other one 10.0.1.2, on interface node1; the device is rxe1
#   (RoCE v2: GID index 1) or siw1 (iWARP). Prints the own number, 1 or 2, once the other one answers.
set -euo pipefail
kind="${1:-rxe}"
side="${INCAST_GUEST_SIDE:-0}" # 0 without --peer
if [ "$side" = 0 ]; then
    echo "rdma-pair.sh: this guest has no cable: name a --peer" >&2
    exit 2
fi
case "$kind" in
    rxe) modprobe -a virtio_net rdma_rxe rdma_ucm sch_netem ;;
    siw)
        modprobe -a virtio_net rdma_ucm iw_cm libcrc32c ib_core sch_netem
        insmod "/lib/modules/$(uname -r)/siw.ko"
        ;;
    *)
        echo "rdma-pair.sh: '$kind' is no kind of node: rxe or siw" >&2
        exit 2
        ;;
esac
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
shopt -s nullglob
until cards=(/sys/bus/virtio/drivers/virtio_net/*/net/*) && [ "${#cards[@]}" -gt 0 ]; do sleep 0.05; done
ip link set "${cards[0]##*/}" name node1
ip address add "10.0.1.$side/24" dev node1
ip link set node1 up mtu 4200
rdma link add "${kind}1" type "$kind" netdev node1
until [[ "$(<"/sys/class/infiniband/${kind}1/ports/1/state")" = "4: ACTIVE" ]]; do sleep 0.05; done
until ping -q -c 1 -W 1 "10.0.1.$((3 - side))" >/dev/null; do :; done
echo "$side"
