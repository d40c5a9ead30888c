"""What `incast info` says of memory nodes, caches and links, on trees of /sys."""

from pathlib import Path

from incast.doctor.host import Host
from incast.doctor.topology import topology

from tests.conftest import Incast
from tests.test_doctor import infiniband, planted

NODE, CACHE = "sys/devices/system/node/node{}", "sys/devices/system/cpu/cpu{}/cache/index{}"
TREE = {
    **{f"{NODE.format(n)}/cpulist": f"{2 * n}-{2 * n + 1}" for n in range(2)},
    **{f"{NODE.format(n)}/meminfo": f"Node {n} MemTotal:       1024 kB\nNode {n} MemFree: 1 kB\n" for n in range(2)},
    **{f"{CACHE.format(c, 0)}/level": "1" for c in range(4)},
    **{f"{CACHE.format(c, 0)}/shared_cpu_list": str(c) for c in range(4)},
    **{f"{CACHE.format(c, 3)}/level": "3" for c in range(4)},
    **{f"{CACHE.format(c, 3)}/shared_cpu_list": "0-1" if c < 2 else "2-3" for c in range(4)},
    "sys/class/net/lo/flags": "0x9",
    "sys/class/net/eth0/flags": "0x1003",
    "sys/class/net/eth0/operstate": "up",
    "sys/class/net/eth0/speed": "25000",
    "sys/class/net/eth0/mtu": "9000",
    "sys/class/net/eth0/device/numa_node": "1",
    "sys/class/net/eth1/flags": "0x1002",
    "sys/class/net/eth1/operstate": "down",
    "sys/class/net/eth1/speed": "-1",
    "sys/class/net/eth1/mtu": "1500",
    "sys/class/net/eth1/device/numa_node": "-1",
    "sys/class/infiniband/mlx5_0/device/numa_node": "0",
}


def test_two_memory_nodes_and_their_links(tmp_path: Path) -> None:
    found = topology(planted(tmp_path, {**infiniband(), **TREE}))
    assert found["numa_nodes"] == [
        {"node": 0, "cores": "0-1", "memory_bytes": 1 << 20},
        {"node": 1, "cores": "2-3", "memory_bytes": 1 << 20},
    ]
    assert found["shared_caches"] == ["0-1", "2-3"]
    links = [tuple(link.values()) for link in found["links"]]
    assert links == [
        ("eth0", "interface", "up", 25_000_000_000, 9000, 1),
        ("eth1", "interface", "down", None, 1500, None),
        ("mlx5_0 port 1", "RDMA", "active", 100_000_000_000, None, 0),
    ]


def test_what_the_kernel_does_not_say_is_not_there(tmp_path: Path) -> None:
    assert topology(Host(tmp_path)) == {"numa_nodes": [], "shared_caches": [], "links": []}


def test_info_prints_those_of_this_host(incast: Incast) -> None:
    here = topology(Host())
    done = incast("info")
    assert done.returncode == 0
    for link in here["links"]:
        assert link["name"] in done.stdout
