#!/usr/bin/env bash
# In a guest: makes N nodes that reach each other by RDS.   usage: rds-nodes.sh [tcp|rdma] [N]
#
#   tcp     node I is the network namespace nodeI, with address 10.0.0.I: `ip netns exec nodeI COMMAND`. Within one
#           namespace the kernel would hand messages over without TCP.
#   rdma    node I is the soft-RoCE device rxeI with address 10.0.0.I, as rdma-nodes.sh makes it
set -euo pipefail
carrier="${1:-tcp}"
nodes="${2:-4}"
case "$carrier" in
    tcp) modprobe -a rds rds_tcp veth bridge ;;
    rdma)
        rdma-nodes.sh rxe "$nodes"
        exec modprobe -a rds rds_rdma
        ;;
    *)
        echo "rds-nodes.sh: '$carrier' carries no RDS: tcp or rdma" >&2
        exit 2
        ;;
esac
# One process for all commands: to start one takes 40 ms here.
{
    echo "link add bridge0 type bridge forward_delay 0 mcast_snooping 0"
    echo "link set bridge0 up"
    for ((i = 1; i <= nodes; i++)); do
        echo "netns add node$i"
        echo "link add node$i netns node$i type veth peer name cable$i"
        echo "link set cable$i master bridge0 up"
    done
} | ip -batch -
for ((i = 1; i <= nodes; i++)); do
    printf '%s\n' "link set lo up" "address add 10.0.0.$i/24 dev node$i" "link set node$i up" | ip -n "node$i" -batch -
done
