"""What a host is made of, as far as placement goes: memory nodes with their cores, and links beside them."""

import re
from typing import Any

from incast.doctor.host import Host
from incast.doctor.ports import ports

_NODES = "sys/devices/system/node"
_CPUS = "sys/devices/system/cpu"
_NET = "sys/class/net"
_LOOPBACK = 0x8  # IFF_LOOPBACK


def topology(host: Host) -> dict[str, Any]:
    """Memory nodes, caches that cores share, links. What the kernel does not say is None, or not there."""
    return {"numa_nodes": _memory_nodes(host), "shared_caches": _shared_caches(host), "links": _links(host)}


def _memory_nodes(host: Host) -> list[dict[str, Any]]:
    found = []
    for name in host.names(_NODES):
        if number := re.fullmatch(r"node(\d+)", name):
            memory = re.search(r"MemTotal:\s*(\d+) kB", host.text(f"{_NODES}/{name}/meminfo") or "")
            found.append(
                {
                    "node": int(number[1]),
                    "cores": host.text(f"{_NODES}/{name}/cpulist") or "",
                    "memory_bytes": int(memory[1]) << 10 if memory else None,
                }
            )
    return sorted(found, key=lambda each: each["node"])


def _shared_caches(host: Host) -> list[str]:
    """Of the last level: for each the cores that share it."""
    found = set()
    for cpu in host.names(_CPUS):
        if not re.fullmatch(r"cpu\d+", cpu):
            continue
        levels = {
            host.number(f"{_CPUS}/{cpu}/cache/{index}/level") or 0: f"{_CPUS}/{cpu}/cache/{index}"
            for index in host.names(f"{_CPUS}/{cpu}/cache")
            if index.startswith("index")
        }
        if levels and (cores := host.text(f"{levels[max(levels)]}/shared_cpu_list")):
            found.add(cores)
    return sorted(found, key=lambda cores: int(re.split(r"[-,]", cores)[0]))


def _links(host: Host) -> list[dict[str, Any]]:
    found = []
    for name in host.names(_NET):
        flags = host.text(f"{_NET}/{name}/flags") or "0x0"
        if int(flags, 16) & _LOOPBACK:
            continue
        megabits = host.number(f"{_NET}/{name}/speed")  # where it has none, or is down: -1, or an error
        found.append(
            {
                "name": name,
                "kind": "interface",
                "state": host.text(f"{_NET}/{name}/operstate") or "unknown",
                "rate_bits_per_s": megabits * 1_000_000 if megabits else None,
                "mtu": host.number(f"{_NET}/{name}/mtu"),
                "numa_node": host.number(
                    f"{_NET}/{name}/device/numa_node"
                ),  # -1, which is no number here: none in particular
            }
        )
    for port in ports(host):
        gigabits = re.match(r"([\d.]+) Gb/sec", port.rate)
        found.append(
            {
                "name": port.name,
                "kind": "RDMA",
                "state": port.state.lower() or "unknown",
                "rate_bits_per_s": round(float(gigabits[1]) * 1e9) if gigabits else None,
                "mtu": None,
                "numa_node": host.number(f"sys/class/infiniband/{port.device}/device/numa_node"),
            }
        )
    return found
