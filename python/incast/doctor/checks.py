"""THE list of checks, in the order in which one should mend what they find."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from incast.doctor import counters, limits, rdma, system
from incast.doctor.host import Finding, Host


@dataclass(frozen=True)
class Check:
    """One thing to look at."""

    name: str
    about: str
    look: Callable[[Host], Iterator[Finding]]


CHECKS = (
    Check("engine", "the engine, and libraries that its transports need", system.engine),
    Check("libraries", "Python's libraries of the extras", system.libraries),
    Check("governor", "clocks of cores that follow the load", system.governors),
    Check("busy cores", "what others take of the cores", system.busy_cores),
    Check("cores", "cores that this shell may use", limits.cores),
    Check("memory", "memory that this shell may use", limits.memory),
    Check("shaping", "queues that slow down or lose what leaves", limits.shaping),
    Check("huge pages", "large pages for memory that asks for them", system.big_pages),
    Check("nofile", "how many files may be open, connections among them", system.open_files),
    Check("socket buffers", "how much sockets may hold", system.socket_buffers),
    Check("memlock", "memory that may be locked, which registered memory is", rdma.memlock),
    Check("drivers", "adapters that have a driver, and devices that programs can open", rdma.drivers),
    Check("states", "ports that are up", rdma.states),
    Check("gids", "RoCE: addresses of version 2, and which type rdma_cm takes", rdma.gids),
    Check("mtus", "RoCE: MTU of the interface, and the active MTU of the port", rdma.mtus),
    Check("flow control", "RoCE: PFC and ECN", rdma.flow_control),
    Check("counters", "errors and waits that grow while one looks", counters.growing),
)


def findings(host: Host) -> list[Finding]:
    """Of all checks."""
    return [finding for check in CHECKS for finding in check.look(host)]
