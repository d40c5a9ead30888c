"""Network devices over Incast's channels, in network namespaces that are gone with the test."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import must, said_by, wait_until

DEVICE = "rio0"
PORT = 7000
_MIB = 1 << 20


@dataclass(frozen=True)
class Way:
    """What frames travel by."""

    name: str
    transport: str
    at: str  # {id}: of the device; {folder}: of the test
    fabric: str = ""
    first_id: int = 1
    step: int = 1  # between ids
    inside: bool = True  # programs are in the namespaces of their devices, else all together

    def ids(self, count: int) -> list[int]:
        return [self.first_id + self.step * index for index in range(count)]


WAYS = {
    way.name: way
    for way in (
        Way("shm", "shm", "shm://{folder}/{id}"),
        Way("tcp", "tcp", f"tcp://10.0.0.{{id}}:{PORT}", step=8),
        Way("udp", "udp", f"udp://10.0.0.{{id}}:{PORT}", step=8),
        # Endpoints for data get the lowest ids that are free; names of SoftRIO are those of a network namespace.
        Way("rio-shm", "rio", "rio://{id}:700", "shm:netdev-{pid}", first_id=1001, inside=False),
        # Of each host the first address is for messages, the others for data: one for each queue.
        Way("rio-udp", "rio", "rio://{id}:700", f"udp:10.0.0.0/24:{PORT}", step=8),
    )
}


@dataclass
class Network:
    """Devices named DEVICE, one in each namespace: number i has 10.9.0.(i+1) and fd09::(i+1)."""

    program: Path
    way: Way
    names: Sequence[str]
    folder: Path
    mtu: int = 1500
    queues: int = 1
    more: Sequence[str] = ()
    running: dict[int, subprocess.Popen[str]] = field(default_factory=dict)

    @property
    def ids(self) -> list[int]:
        return self.way.ids(len(self.names))

    def up(self, index: int) -> None:
        identity, name = self.ids[index], self.names[index]
        command = [str(self.program), "up", DEVICE, "--foreground", "--transport", self.way.transport]
        command += ["--id", str(identity), "--peers", ",".join(map(str, self.ids))]
        command += ["--at", self.way.at.replace("{folder}", str(self.folder))]
        command += ["--mtu", str(self.mtu), "--queues", str(self.queues)]
        command += ["--address", f"10.9.0.{index + 1}/24", "--address", f"fd09::{index + 1}/64"]
        if self.way.fabric:
            command += ["--fabric", self.way.fabric.format(pid=os.getpid())]
        prefix = ["ip", "netns", "exec", name] if self.way.inside else []
        command += [] if self.way.inside else ["--netns", name]
        log = (self.folder / f"log-{index}").open("a")
        process = subprocess.Popen(
            [*prefix, *command, *self.more], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
        )
        log.close()
        self.running[index] = process
        assert process.stdout is not None
        with process.stdout as said:
            line = said.readline()
        assert line.startswith(f"{DEVICE}: up"), self.story()

    def story(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()}" for path in sorted(self.folder.glob("log-*")))

    def status(self, index: int) -> dict[str, Any]:
        words = ["ip", "netns", "exec", self.names[index], str(self.program), "status", DEVICE, "--json"]
        said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout
        found: dict[str, Any] = json.loads(said)
        return found

    def total(self, index: int, *counters: str) -> int:
        return sum(peer[counter] for peer in self.status(index)["peers"] for counter in counters)

    def has_peers(self, index: int) -> bool:
        """All that run, with all queues."""
        up = [peer["queues_up"] for peer in self.status(index)["peers"]]
        return up.count(self.queues) >= len(self.running) - 1

    def wait_for_peers(self) -> None:
        for index in self.running:
            wait_until(partial(self.has_peers, index), f"device {index} has all its peers: {self.story()}")

    def ping(self, source: int, target: str, *words: str) -> None:
        must("ip", "netns", "exec", self.names[source], "ping", "-n", "-c", "1", "-W", "5", *words, target)

    def exists(self, index: int) -> bool:
        return not said_by("ip", "-n", self.names[index], "link", "show", DEVICE)

    def kill(self, index: int) -> None:
        process = self.running.pop(index)
        process.kill()
        process.wait()

    def end(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(timeout=20)


@contextmanager
def namespaces(count: int) -> Iterator[list[str]]:
    """So many, around a switch; host i has 10.0.0.(1 + 8 i) and the seven addresses behind it. Skips if it cannot."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("this host has no /dev/net/tun")
    names = [f"incast-netdev-{os.getpid()}-{index}" for index in range(count)]
    switch = f"incast-netdev-{os.getpid()}-switch"
    try:
        if why := said_by("ip", "netns", "add", switch):
            pytest.skip(f"this host gives no network namespace: {why}")
        if why := said_by("ip", "-n", switch, "link", "add", "switch", "type", "bridge"):
            pytest.skip(f"this host has no bridges: {why}")
        must("ip", "-n", switch, "link", "set", "switch", "up")
        for index, name in enumerate(names):
            must("ip", "netns", "add", name)
            # Whoever waits for an address of IPv6 to be found unique waits for more than a second.
            must("ip", "netns", "exec", name, "sysctl", "-q", "net.ipv6.conf.default.accept_dad=0")
            cable = ("type", "veth", "peer", "name", "cable", "netns", name)
            must("ip", "link", "add", f"port{index}", "netns", switch, *cable)
            must("ip", "-n", switch, "link", "set", f"port{index}", "master", "switch", "up")
            for number in range(8):
                must("ip", "-n", name, "address", "add", f"10.0.0.{1 + 8 * index + number}/24", "dev", "cable")
            must("ip", "-n", name, "link", "set", "cable", "up")
            must("ip", "-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in (*names, switch):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@contextmanager
def network(
    engine: Path, folder: Path, way: Way, count: int = 2, *, mtu: int = 1500, queues: int = 1, more: Sequence[str] = ()
) -> Iterator[Network]:
    """Devices that are up, each with all its peers."""
    with ExitStack() as stack:
        names = stack.enter_context(namespaces(count))
        made = Network(engine.with_name("incast-netdev"), way, names, folder, mtu, queues, more)
        stack.callback(made.end)
        for index in range(count):
            made.up(index)
        made.wait_for_peers()
        yield made


# What the two programs of a transfer run: bytes of a seed, and their digest at the other end.
SINK = """
import hashlib, socket, sys
listener = socket.create_server((sys.argv[1], 0), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
print(listener.getsockname()[1], flush=True)
connection = listener.accept()[0]
digest, count = hashlib.sha256(), 0
while block := connection.recv(1 << 20):
    digest.update(block)
    count += len(block)
print(count, digest.hexdigest(), flush=True)
"""
SOURCE = """
import random, socket, sys
block = random.Random(7).randbytes(1 << 20)
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60)
for _ in range(int(sys.argv[3])):
    connection.sendall(block)
connection.close()
"""


def expected_digest(mebibytes: int) -> str:
    block = random.Random(7).randbytes(_MIB)
    digest = hashlib.sha256()
    for _ in range(mebibytes):
        digest.update(block)
    return digest.hexdigest()


@contextmanager
def in_namespace(name: str, script: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program there, ended with the block."""
    command = ["ip", "netns", "exec", name, sys.executable, "-c", script, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def transfer(names: Sequence[str], target: str, mebibytes: int) -> None:
    """From the first namespace to the second, which has that address: every byte, by its digest."""
    with in_namespace(names[1], SINK, target) as sink:
        assert sink.stdout is not None
        port = sink.stdout.readline().strip()
        with in_namespace(names[0], SOURCE, target, port, str(mebibytes)) as source:
            _, errors = source.communicate(timeout=120)
            assert source.returncode == 0, errors
        count, digest = sink.stdout.readline().split()
        assert (int(count), digest) == (mebibytes * _MIB, expected_digest(mebibytes))
