"""Hosts on this host: network namespaces with two interfaces each, one for management and one that is the fabric.

All of it is made within namespaces of this process (run.py), so that nothing is left of it when this process ends,
however it ends.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

MANAGEMENT, FABRIC = "mgmt0", "rio0"  # names of the interfaces, the same in each host
RIO, VETH = "rio", "veth"
NETWORKS = (RIO, VETH)
_FIRST_ID = 1001  # of destination ids: SoftRIO gives the low ones to endpoints for data
_PATIENCE_S = 30.0


class HadoopError(Exception):
    """One line."""


def must(*words: str) -> str:
    """What a command printed; HadoopError if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise HadoopError(f"{' '.join(words)}: {said[-1]}")
    return done.stdout


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = _PATIENCE_S, step_s: float = 0.1) -> None:
    """Polls; HadoopError if it takes longer."""
    until = monotonic() + patience_s
    while not condition():
        if monotonic() > until:
            raise HadoopError(f"not within {patience_s:g} s: {what}")
        sleep(step_s)


@dataclass(frozen=True)
class Host:
    """Number 0 is for the name node and the clients; the others are for data nodes."""

    index: int

    @property
    def namespace(self) -> str:
        """Of its network."""
        return f"host{self.index}"

    @property
    def fabric_name(self) -> str:
        """By which all others know it."""
        return f"fabric{self.index}"

    @property
    def own_name(self) -> str:
        """By which it knows itself: the trap. Whatever asks for it ends on the management interface."""
        return f"node{self.index}"

    @property
    def fabric_address(self) -> str:
        return f"10.9.0.{self.index + 1}"

    @property
    def management_address(self) -> str:
        return f"10.99.0.{self.index + 1}"

    def inside(self, *words: str) -> list[str]:
        """A command there, with the host's own name."""
        rename = 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"'
        return ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", rename, self.own_name, *words]

    def counters(self, interface: str) -> dict[str, int]:
        """Bytes and drops of an interface, from the kernel."""
        found = json.loads(must("ip", "-n", self.namespace, "-json", "-s", "link", "show", "dev", interface))[0]
        of = found["stats64"]
        return {
            "sent_bytes": of["tx"]["bytes"],
            "received_bytes": of["rx"]["bytes"],
            "dropped": of["tx"]["dropped"] + of["rx"]["dropped"],
        }

    def fetch(self, url: str) -> str:
        """By HTTP, from there; nothing if it does not answer."""
        script = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())"
        words = self.inside(sys.executable, "-c", script, url)
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout


@dataclass
class Network:
    """Hosts whose fabric interfaces are connected."""

    kind: str
    hosts: Sequence[Host]
    devices: dict[int, subprocess.Popen[str]] = field(default_factory=dict)
    program: Path = Path()

    def management_bytes(self) -> dict[str, int]:
        """Both ways, of each host."""
        taken = {}
        for host in self.hosts:
            found = host.counters(MANAGEMENT)
            taken[host.own_name] = found["sent_bytes"] + found["received_bytes"]
        return taken

    def fabric_sent_bytes(self) -> int:
        """By all hosts, since they were made."""
        return sum(host.counters(FABRIC)["sent_bytes"] for host in self.hosts)

    def limit(self, megabits: float | None) -> None:
        """What each host may send to the fabric, in Mbit/s; None: what it can."""
        for host in self.hosts:
            of = ("-n", host.namespace, "qdisc")
            if megabits is None:
                subprocess.run(["tc", *of, "del", "dev", FABRIC, "root"], capture_output=True, check=False)
            else:
                shape = ("tbf", "rate", f"{megabits}mbit", "burst", "128kb", "latency", "50ms")
                must("tc", *of, "replace", "dev", FABRIC, "root", *shape)

    def set_link(self, host: Host, state: str) -> None:
        """`up` or `down`: the fabric interface of a host."""
        must("ip", "-n", host.namespace, "link", "set", FABRIC, state)

    def device_counters(self) -> dict[str, Any] | None:
        """What `incast netdev status` has of each host, summed over peers; None: other networks have none."""
        if self.kind != RIO:
            return None
        found: dict[str, int] = {}
        for host in self.hosts:
            for peer in self._status(host)["peers"]:
                for name, value in peer.items():
                    if name.startswith(("dropped_", "marked_", "received_faulty", "received_refused")):
                        found[name] = found.get(name, 0) + value
        return found

    def _status(self, host: Host) -> dict[str, Any]:
        said = must("ip", "netns", "exec", host.namespace, str(self.program), "status", FABRIC, "--json")
        status: dict[str, Any] = json.loads(said)
        return status

    def is_connected(self) -> bool:
        return all(peer["queues_up"] > 0 for host in self.hosts for peer in self._status(host)["peers"])


@contextmanager
def network(kind: str, count: int, program: Path, log: Path) -> Iterator[Network]:
    """So many hosts. `program`: incast-netdev. HadoopError: why not."""
    made = Network(kind, [Host(index) for index in range(count)], program=program)
    must("ip", "link", "set", "lo", "up")
    _without_ipv6()
    _bridge("management")
    if kind == VETH:
        _bridge("fabric")
    for host in made.hosts:
        must("ip", "netns", "add", host.namespace)
        _without_ipv6("ip", "netns", "exec", host.namespace)
        must("ip", "-n", host.namespace, "link", "set", "lo", "up")
        _cable(host, "management", MANAGEMENT, host.management_address)
        if kind == VETH:
            _cable(host, "fabric", FABRIC, host.fabric_address)
    with ExitStack() as stack:
        if kind == RIO:
            said = stack.enter_context(log.open("w"))
            for host in made.hosts:
                _start_device(made, host, said)
            wait_until(made.is_connected, f"the devices find each other: {log}")
        _show_that_both_work(made)
        yield made


def _without_ipv6(*prefix: str) -> None:
    """Its solicitations of routers and reports of multicast would be bytes on the management interfaces."""
    for which in ("all", "default"):
        words = [*prefix, "sysctl", "-qw", f"net.ipv6.conf.{which}.disable_ipv6=1"]
        subprocess.run(words, capture_output=True, check=False)  # a kernel without IPv6 has no such setting


def _bridge(name: str) -> None:
    must("ip", "link", "add", name, "type", "bridge", "mcast_snooping", "0")
    must("ip", "link", "set", name, "up")


def _cable(host: Host, bridge: str, interface: str, address: str) -> None:
    port = f"{bridge[:4]}{host.index}"
    must("ip", "link", "add", port, "type", "veth", "peer", "name", interface, "netns", host.namespace)
    must("ip", "link", "set", port, "master", bridge, "up")
    must("ip", "-n", host.namespace, "address", "add", f"{address}/24", "dev", interface)
    must("ip", "-n", host.namespace, "link", "set", interface, "up")


def _start_device(made: Network, host: Host, log: Any) -> None:
    last = _FIRST_ID + len(made.hosts) - 1
    command = [str(made.program), "up", FABRIC, "--foreground", "--transport", "rio", "--fabric", "shm:hadoop"]
    command += ["--id", str(_FIRST_ID + host.index), "--peers", f"{_FIRST_ID}-{last}"]
    command += ["--netns", host.namespace, "--address", f"{host.fabric_address}/24"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
    made.devices[host.index] = process
    assert process.stdout is not None
    if not process.stdout.readline().startswith(f"{FABRIC}: up"):
        raise HadoopError(f"incast netdev did not start: {log.name}")


def _show_that_both_work(made: Network) -> None:
    """Else a counter that stays at 0 would show nothing."""
    first = made.hosts[0]
    for host in made.hosts[1:]:
        for address in (host.management_address, host.fabric_address):
            must(*first.inside("ping", "-n", "-q", "-c", "1", "-W", "5", address))
    if silent := [name for name, count in made.management_bytes().items() if count == 0]:
        raise HadoopError(f"the management interface of {silent[0]} does not count")
    for host in made.hosts:  # else addresses would be asked for again later
        must("ip", "-n", host.namespace, "neighbour", "flush", "dev", MANAGEMENT)
