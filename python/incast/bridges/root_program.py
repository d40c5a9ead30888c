"""The programs of the ROOT experiments: bridges/root/experiment.cpp, one process for the server, one for each client.

All of them are ROOT programs that send by TSocket::SendRaw and receive by RecvRaw. A group has the processes of one way
and one version, and takes readings one after the other; connections are made anew for each.
"""

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.bridges.machine import Build, why_busy
from incast.bridges.namespaces import SUBNET, address_of
from incast.engine.idle import Snapshot, Window

BRIDGE_VARIABLE = "INCAST_ROOT_BRIDGE"  # a folder that bridges/root/build.sh has made
_PROGRAM = Path("bin/root_experiment")
_BUILD = Build("ROOT", "root", BRIDGE_VARIABLE, _PROGRAM, "docs/root.md")
_PATIENCE_S = 60.0
HALF, FULL = "half", "full"  # duplex
_PORT = 7500


class ReadingError(Exception):
    """A reading failed; one line."""


@dataclass(frozen=True)
class Way:
    """What connections go over: the transport, and the fabric of rio."""

    name: str
    transport: str
    what: str
    fabric: str = ""  # {id}: something of its own for each group
    has_hosts: bool = False  # each process is in a network namespace of its own
    has_messages: bool = False  # of CM

    @property
    def has_channels(self) -> bool:
        """Else sockets of the kernel."""
        return self.transport != _KERNEL


_KERNEL = "tcp"
_UDP = f"udp:{SUBNET}.0/24:{_PORT}"
WAYS = {
    way.name: way
    for way in (
        Way("tcp", _KERNEL, "sockets of the kernel, loopback"),
        Way("shm", "shm", "channels in shared memory"),
        Way("rio", "rio", "RapidIO in shared memory, bare", "shm:{id}", has_messages=True),
        Way("rio-tsi721", "rio", "the same with an emulated Tsi721", "shm:{id}?link=tsi721", has_messages=True),
        Way("tcp-hosts", _KERNEL, "sockets of the kernel, between network namespaces", has_hosts=True),
        Way("rio-udp", "rio", "RapidIO over UDP, between network namespaces", _UDP, has_hosts=True, has_messages=True),
    )
}


@dataclass(frozen=True)
class Version:
    """How data goes and is acknowledged: the ring of INCAST_ROOT_RING, or none."""

    name: str
    what: str
    source: str
    ring: str = ""  # but for the shape of the buffers
    buffers: int = 0
    buffer_bytes: int = 0

    def first(self, buffer_bytes: int) -> int:
        """So many buffers of a client are not measured: they touch the memory of a ring for the first time."""
        return 1 if self.name == CM else 4 if buffer_bytes < _HUGE else 2

    def ring_for(self, buffer_bytes: int) -> str:
        """INCAST_ROOT_RING; buffers of that many bytes if that is not 0, fewer of them if they are huge."""
        if not self.ring:
            return ""
        shape = (self.buffers, self.buffer_bytes)
        if buffer_bytes:
            # The header of a buffer has 16 bytes: a whole buffer of the program is one write. A credit for each.
            shape = (min(self.buffers, 4 if buffer_bytes < _HUGE else 2), buffer_bytes + 64)
        batch = f",batch={max(1, shape[0] // 4)}"
        return f"buffers={shape[0]},buffer_bytes={shape[1]}{batch},{self.ring}"


CM = "cm"
_HUGE = 32 << 20
SOCKET = Version("socket", "as the kernel does it", "")
VERSIONS = {
    version.name: version
    for version in (
        Version(CM, "messages of CM alone, each acknowledged before the next goes", "[S2]"),
        Version("cm-ack", "rDMA, one buffer of 2 MB, announced and acknowledged by CM", "[S2]",
                "announce=message,acknowledge=message", 1, 2_000_000),
        Version("polled", "a ring of rDMA buffers, memory is polled", "[S1]",
                "announce=memory,acknowledge=memory", 32, 64 << 10),
        Version("doorbell", "a ring of rDMA buffers, doorbells", "[S1]",
                "announce=doorbell,acknowledge=doorbell", 32, 64 << 10),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One point of an experiment. `ring_bytes`: of a ring's buffer; 0: as the version has it."""

    way: str
    version: str
    clients: int
    buffer_bytes: int
    duplex: str = HALF
    ring_bytes: int = 0

    @property
    def group(self) -> tuple[str, str, int]:
        """Cases of one group have the same processes."""
        return self.way, self.version, self.ring_bytes


@dataclass(frozen=True)
class Reading:
    """What came of it: of each client, or of each direction, and processor seconds of all processes for each byte."""

    bytes_per_s: Sequence[float]
    cpu_s_per_byte: float
    window: Window | None = None

    @property
    def busy(self) -> str | None:
        """Why the machine was not idle; None: it was, or that is not known."""
        return why_busy(self.window)


def find_bridge(given: Path | None) -> Path:
    """The folder of build.sh: as given, of INCAST_ROOT_BRIDGE, or build/root. OneLineError if nothing is there."""
    return _BUILD.find(given)


def parse_names(option: str, text: str, known: Mapping[str, Any]) -> list[str]:
    """`tcp,shm`: each once."""
    names = [word.strip() for word in text.split(",")]
    if any(name not in known for name in names) or len(set(names)) < len(names):
        raise OneLineError(
            f"{option} {text}: allowed: a list of {', '.join(known)}, each at most once", EXIT_BAD_CONFIG
        )
    return names


class Measuring:
    """Starts groups with the programs of one folder. `hosts`: network namespaces, the server's first."""

    def __init__(self, bridge: Path, seconds: float, warm_up: float, hosts: Sequence[str] = ()) -> None:
        self._bridge = bridge
        self._seconds = seconds
        self._warm_up = warm_up
        self._hosts = hosts
        self._groups = 0

    @contextmanager
    def group(self, first: Case, clients: int) -> "Iterator[Group]":
        """The processes for that case and its like. ReadingError, one line, if they do not start."""
        self._groups += 1
        with ExitStack() as stack:
            errors = stack.enter_context(tempfile.TemporaryFile("a+", encoding="utf-8"))
            environment = self._environment(first)
            running = []
            for number in range(clients + 1):
                words = [str(self._bridge / _PROGRAM)]
                if WAYS[first.way].has_hosts:
                    words = ["ip", "netns", "exec", self._hosts[number], *words]
                running.append(_Running(words, environment, errors))
                stack.callback(running[-1].end)
            yield Group(first, running, self._seconds, self._warm_up)

    def _environment(self, case: Case) -> dict[str, str]:
        way, version = WAYS[case.way], version_of(case)
        own = f"root-{os.getpid()}-{self._groups}"
        chosen = {
            "INCAST_ROOT": CM if version.name == CM else way.transport,
            "INCAST_ROOT_RING": version.ring_for(case.ring_bytes),
            "RIO_FABRIC": way.fabric.format(id=own),
        }
        without = {*chosen, "RIO_DESTID", "INCAST_ROOT_HOSTS", "LD_PRELOAD"}
        kept = {key: value for key, value in os.environ.items() if key not in without}
        return kept | {key: value for key, value in chosen.items() if value}


def version_of(case: Case) -> Version:
    """Sockets of the kernel have none of the versions."""
    return SOCKET if case.version == SOCKET.name else VERSIONS[case.version]


class Group:
    """A server and its clients, which wait for what to do."""

    def __init__(self, first: Case, running: "Sequence[_Running]", seconds: float, warm_up: float) -> None:
        self._server, *self._clients = running
        self._seconds = seconds
        self._warm_up = warm_up
        way = WAYS[first.way]
        transport = CM if first.version == CM else way.transport
        wanted = {"tcp": "tcp://*", "shm": "shm://*"}.get(transport, f"{transport}://*:*")
        address = str(self._server.ask(f"listen {wanted}")["address"])
        self._address = address.replace("HOST", address_of(0) if way.has_hosts else "127.0.0.1")

    def take(self, case: Case) -> Reading:
        """One reading. ReadingError, one line, if a process fails."""
        clients = self._clients[: case.clients]
        first = version_of(case).first(case.buffer_bytes)
        both = f"{case.buffer_bytes} {self._seconds + self._warm_up} {self._warm_up}"
        before = Snapshot.take([each.pid for each in (self._server, *clients)])
        if case.duplex == FULL:
            self._server.tell(f"exchange {first} {both}")
            clients[0].tell(f"exchange-with {first} {self._address} {both}")
        else:
            self._server.tell(f"take {first} {case.clients} {self._warm_up}")
            for client in clients:
                client.tell(f"send {first} {self._address} {case.buffer_bytes} {self._seconds + self._warm_up}")
        patience = _PATIENCE_S + 2 * (self._seconds + self._warm_up)
        answers = [each.answer(patience) for each in (self._server, *clients)]
        window = Window.between(before, Snapshot.take([each.pid for each in (self._server, *clients)]))
        return reading_of(case, answers, window)


def reading_of(case: Case, answers: Sequence[Mapping[str, Any]], window: Window | None = None) -> Reading:
    """Of what the server said, then the clients. In both directions at once, each side says what it received."""
    heard = answers if case.duplex == FULL else answers[:1]
    rates = [float(rate) for one in heard for rate in one["bytes_per_s"]]
    n_bytes = sum(one["bytes"] for one in heard)
    return Reading(rates, sum(one["cpu_s"] for one in answers) / n_bytes, window)


class _Running:
    """One process that is told lines and answers each with a line of JSON; a timer ends it if it does not."""

    def __init__(self, command: list[str], environment: Mapping[str, str], errors: IO[str]) -> None:
        self._errors = errors
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=dict(environment)
            )
        except OSError as error:
            raise ReadingError(f"{command[0]}: {error.strerror}") from error
        self.pid = self._process.pid

    def tell(self, line: str) -> None:
        """It does not wait."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ReadingError(self._trouble()) from error

    def answer(self, patience_s: float = _PATIENCE_S) -> dict[str, Any]:
        """To what it was told last."""
        assert self._process.stdout is not None
        timer = threading.Timer(patience_s, self._process.kill)
        timer.start()
        try:
            said = self._process.stdout.readline()
        finally:
            timer.cancel()
        try:
            found: dict[str, Any] = json.loads(said)
        except ValueError as error:
            raise ReadingError(self._trouble()) from error
        return found

    def ask(self, line: str) -> dict[str, Any]:
        """Both."""
        self.tell(line)
        return self.answer()

    def _trouble(self) -> str:
        self._process.kill()
        status = self._process.wait()
        self._errors.seek(0)
        said = [line for line in self._errors.read().splitlines() if line.strip()]
        # ROOT's own lines say why; another process of the group may have failed first.
        whys = [line for line in said if line.startswith(("Error in", "SysError in", _PROGRAM.name))] or said[-1:]
        return "; ".join(dict.fromkeys(whys)) or f"{_PROGRAM.name} ended with status {status} with no message"

    def end(self) -> None:
        """It is gone."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()
