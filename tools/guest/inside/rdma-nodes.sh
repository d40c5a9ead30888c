#!/usr/bin/env bash
# In a guest: makes N soft RDMA nodes of one host, joined by a bridge.   usage: rdma-nodes.sh [rxe|siw] [N]
#
#   node I    address 10.0.0.I on interface nodeI, RDMA device rxeI (RoCE v2: GID index 1) or siwI (iWARP)
#   its cable ends at the bridge as cableI; netem.sh loses, delays and reorders what a node sends, and cuts cables
#
# All are in one network namespace. The kernel would hand packets between its own addresses over without a wire; soft
# RoCE sends by the interface of its device, and with the settings below the other interface takes them.
set -euo pipefail
kind="${1:-rxe}"
nodes="${2:-4}"
case "$kind" in
    rxe) modprobe -a rdma_rxe rdma_ucm veth bridge sch_netem ;;
    siw)
        modprobe -a rdma_ucm iw_cm libcrc32c ib_core veth bridge sch_netem
        insmod "/lib/modules/$(uname -r)/siw.ko"
        ;;
    *)
        echo "rdma-nodes.sh: '$kind' is no kind of node: rxe or siw" >&2
        exit 2
        ;;
esac

echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
# One process for all commands: to start one takes 40 ms here.
{
    echo "link add bridge0 type bridge forward_delay 0 mcast_snooping 0"
    echo "link set bridge0 up"
    for ((i = 1; i <= nodes; i++)); do
        echo "link add node$i mtu 4200 type veth peer name cable$i mtu 4200"
        echo "link set cable$i master bridge0 up"
        echo "address add 10.0.0.$i/24 dev node$i"
    done
} | ip -batch -
for ((i = 1; i <= nodes; i++)); do
    for where in all "node$i"; do
        echo 1 >"/proc/sys/net/ipv4/conf/$where/accept_local"
        echo 0 >"/proc/sys/net/ipv4/conf/$where/rp_filter"
        echo 1 >"/proc/sys/net/ipv4/conf/$where/arp_ignore"
        echo 2 >"/proc/sys/net/ipv4/conf/$where/arp_announce"
    done
    echo "link set node$i up" >&3
    echo "link add $kind$i type $kind netdev node$i" >&4
done 3>/run/guest-ip 4>/run/guest-rdma
ip -batch /run/guest-ip
rdma -b /run/guest-rdma

# Until every device has its address: what asks earlier finds no path.
for ((i = 1; i <= nodes; i++)); do
    port="/sys/class/infiniband/$kind$i/ports/1"
    until [[ "$(<"$port/state")" = "4: ACTIVE" ]]; do sleep 0.05; done
    until [[ "$kind" = siw || "$(<"$port/gids/1")" = *:ffff:0a00:* ]]; do sleep 0.05; done
done
