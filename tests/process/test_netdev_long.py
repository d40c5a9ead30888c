"""Network devices under mixed traffic for long (docs/netdev.md).

INCAST_NETDEV_SECONDS=3600: for so long. It runs where INCAST_NETDEV_ALL is set, as `make test-all` does.
"""

import os
import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from netdev_support import WAYS, Network, network, transfer
from support import must

SECONDS = float(os.environ.get("INCAST_NETDEV_SECONDS", "20"))
SAMPLES = 50
MIB_EACH = 8
MOST_GROWTH_BYTES = 8 << 20  # within half of the time: rings and queues are touched by and by

pytestmark = pytest.mark.skipif("INCAST_NETDEV_ALL" not in os.environ, reason="INCAST_NETDEV_ALL is not set")


@pytest.mark.parametrize("name", ["shm", "rio-shm", "tcp"])
def test_memory_stays_and_every_byte_arrives(engine: Path, tmp_path: Path, name: str) -> None:
    """Three devices: connections of IPv4 and IPv6 with digests, floods of pings, small and large, all at once."""
    with network(engine, tmp_path, WAYS[name], count=3, queues=2) as net:
        first, second, third = net.names
        until = time.monotonic() + SECONDS
        works: list[Callable[[], None]] = [
            lambda: transfer([first, second], "10.9.0.2", MIB_EACH),
            lambda: transfer([third, second], "fd09::2", MIB_EACH),
            lambda: transfer([second, third], "10.9.0.3", MIB_EACH),
            lambda: flood(first, "10.9.0.3", 56),
            lambda: flood(third, "fd09::1", 8000),
        ]
        with ThreadPoolExecutor(len(works)) as pool:
            running = [pool.submit(again, work, until) for work in works]
            sizes = [memory_bytes(net)]
            while not has_ended(running, SECONDS / SAMPLES):
                sizes.append(memory_bytes(net))
        assert all(work.result() > 0 for work in running)
        half = len(sizes) // 2
        for device in range(3):
            early, late = (max(size[device] for size in part) for part in (sizes[:half], sizes[half:]))
            assert late <= early + MOST_GROWTH_BYTES, [size[device] for size in sizes]
        for index in range(3):
            assert net.total(index, "received_faulty", "received_refused") == 0, net.status(index)


def again(work: Callable[[], None], until: float) -> int:
    """How often it was done."""
    count = 0
    while time.monotonic() < until:
        work()
        count += 1
    return count


def has_ended(running: list[Future[int]], patience_s: float) -> bool:
    return not wait(running, patience_s).not_done


def flood(host: str, target: str, size: int) -> None:
    must("ip", "netns", "exec", host, "ping", "-f", "-q", "-n", "-c", "200", "-s", str(size), target)


def memory_bytes(net: Network) -> list[int]:
    """Of each device's process."""
    found = []
    for process in net.running.values():
        line = re.search(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        assert line is not None, f"{process.pid} is gone"
        found.append(1024 * int(line[1]))
    return found
