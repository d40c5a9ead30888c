"""One reading of the ZeroMQ bridge: two processes of bridges/zmq/measure.c, which knows nothing of Incast.

The same program measures every way: only the address differs, and for rio the fabric in the environment.
"""

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.bridges.machine import Build, why_busy
from incast.engine.idle import Snapshot, Window

BRIDGE_VARIABLE = "INCAST_ZMQ"  # a folder that bridges/zmq/build.sh has made
_PROGRAM = Path("bin/zmq_measure")
_BUILD = Build("ZeroMQ", "zmq", BRIDGE_VARIABLE, _PROGRAM, "docs/zeromq.md")
# A reading takes its time, and what two processes need to begin and end; none of them hangs longer.
_PATIENCE_S = 60.0
LATENCY, STREAM = "latency", "stream"


class ReadingError(Exception):
    """A reading failed; one line."""


@dataclass(frozen=True)
class Way:
    """How messages travel: the address that `serve` binds to, and the fabric of rio."""

    name: str
    address: str
    what: str
    fabric: str = ""  # {id}: something of its own for each reading; {net}: addresses of this process alone
    has_rings: bool = True  # it goes by channels


WAYS = {
    way.name: way
    for way in (
        Way("tcp", "tcp://127.0.0.1:*", "tcp://, loopback", has_rings=False),
        Way("ipc", "ipc://*", "ipc://, a Unix socket", has_rings=False),
        Way("shm", "shm://*", "shm://, shared memory"),
        Way("rio", "rio://*:*", "rio://, fabric in shared memory, bare", "shm:{id}"),
        Way("rio-tsi721", "rio://*:*", "rio://, the same with an emulated Tsi721", "shm:{id}?link=tsi721"),
        Way("rio-udp", "rio://*:*", "rio://, fabric over UDP on loopback", "udp:{net}:7500"),
    )
}


@dataclass(frozen=True)
class Ring:
    """The shape of a channel's rings; 0: automatic (docs/channel.md). tcp and ipc have none."""

    buffers: int = 0
    buffer_bytes: int = 0


@dataclass(frozen=True)
class Case:
    """What is measured."""

    way: str
    kind: str  # latency or stream
    message_bytes: int
    ring: Ring = Ring()
    pause_us: int = 0  # between the messages of a stream
    has_stages: bool = False


@dataclass(frozen=True)
class Reading:
    """What came of it. Stages: nanoseconds of each for one message, by stage."""

    messages_per_s: float
    cpu_s_per_message: float  # both processes
    round_trip_ns: Mapping[str, float] = field(default_factory=dict)
    send: Mapping[str, float] = field(default_factory=dict)
    receive: Mapping[str, float] = field(default_factory=dict)
    window: Window | None = None  # of the machine, within the measured time

    @property
    def busy(self) -> str | None:
        """Why the machine was not idle; None: it was, or that is not known."""
        return why_busy(self.window)


def find_bridge(given: Path | None) -> Path:
    """The folder of build.sh: as given, of INCAST_ZMQ, or build/zmq. OneLineError if the program is not there."""
    return _BUILD.find(given)


def parse_ways(text: str) -> list[Way]:
    """`tcp,shm,rio`: each once."""
    names = [word.strip() for word in text.split(",")]
    wrong = [name for name in names if name not in WAYS]
    if wrong or len(set(names)) < len(names):
        raise OneLineError(f"--over {text}: allowed: a list of {', '.join(WAYS)}, each at most once", EXIT_BAD_CONFIG)
    return [WAYS[name] for name in names]


class Measuring:
    """Takes readings with the programs of one folder."""

    def __init__(self, bridge: Path, seconds: float, warm_up: float, spin_us: int = 0) -> None:
        self._bridge = bridge
        self._seconds = seconds
        self._warm_up = warm_up
        self._spin_us = spin_us
        self._taken = 0

    def take(self, case: Case) -> Reading:
        """One reading. ReadingError, one line, if a process fails or says nothing."""
        self._taken += 1
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="incast-zmq-")))
            environment = self._environment(case)
            size = str(case.message_bytes)
            way = WAYS[case.way]
            server = stack.enter_context(
                self._started("serve", [case.kind, way.address, size], environment, folder, case)
            )
            address = server.line().strip()
            length = [str(self._seconds), str(self._warm_up), str(case.pause_us)]
            asker = stack.enter_context(
                self._started("ask", [case.kind, address, size, *length], environment, folder, case)
            )
            if asker.line().strip() != "measuring":
                raise ReadingError(f"{way.name}: {asker.trouble()}")
            roots = [server.pid, asker.pid]
            before = Snapshot.take(roots)
            time.sleep(0.8 * self._seconds)
            window = Window.between(before, Snapshot.take(roots))
            said, heard = asker.result(), server.result()
            stages = [each.stages(said["all_messages"]) for each in (asker, server)] if case.has_stages else [{}, {}]
        return reading_of(case, said, heard, stages, window)

    def _environment(self, case: Case) -> dict[str, str]:
        own = os.getpid()
        network = f"127.{(own >> 8) % 126 + 1}.{own & 255}.0/24"
        chosen = {
            "RIO_FABRIC": WAYS[case.way].fabric.format(id=f"zmq-{own}-{self._taken}", net=network),
            "INCAST_ZMQ_BUFFERS": str(case.ring.buffers),
            "INCAST_ZMQ_BUFFER_BYTES": str(case.ring.buffer_bytes),
            "INCAST_ZMQ_SPIN_US": str(self._spin_us),
        }
        without = ("RIO_FABRIC", "RIO_DESTID", "INCAST_ZMQ_BATCH", "INCAST_ZMQ_STAGES")
        kept = {key: value for key, value in os.environ.items() if key not in without}
        return kept | {key: value for key, value in chosen.items() if value}

    @contextmanager
    def _started(  # type: ignore[no-untyped-def]
        self, role: str, words: list[str], environment: Mapping[str, str], folder: Path, case: Case
    ):
        more = {"INCAST_ZMQ_STAGES": str(folder / f"{role}.stages")} if case.has_stages else {}
        with (folder / f"{role}.errors").open("w+", encoding="utf-8") as errors:
            command = [str(self._bridge / _PROGRAM), role, *words]
            running = _Running(command, {**environment, **more}, errors, self._warm_up + self._seconds + _PATIENCE_S)
            try:
                yield running
            finally:
                running.end()


class _Running:
    """One of the two processes; a timer ends it if it hangs."""

    def __init__(self, command: list[str], environment: Mapping[str, str], errors: IO[str], patience_s: float) -> None:
        self._name = f"zmq_measure {command[1]}"
        self._errors = errors
        self._stages = environment.get("INCAST_ZMQ_STAGES", "")
        try:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=dict(environment)
            )
        except OSError as error:
            raise ReadingError(f"{command[0]}: {error.strerror}") from error
        self.pid = self._process.pid
        self._timer = threading.Timer(patience_s, self._process.kill)
        self._timer.start()

    def line(self) -> str:
        """The next one that it says."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            raise ReadingError(self.trouble())
        return said

    def result(self) -> dict[str, Any]:
        """The line of JSON it ends with."""
        said = self.line()
        if self._process.wait() != 0:
            raise ReadingError(self.trouble())
        try:
            found: dict[str, Any] = json.loads(said)
        except ValueError as error:
            raise ReadingError(f"{self._name} said no result: {said.strip()[:200]}") from error
        return found

    def trouble(self) -> str:
        """What it says went wrong, once it has ended."""
        status = self._process.wait()
        self._errors.seek(0)
        said = [line for line in self._errors.read().splitlines() if line.strip()]
        return said[-1] if said else f"{self._name} ended with status {status} with no message"

    def stages(self, messages: int) -> dict[str, float]:
        """Nanoseconds of each stage for a message, of all its I/O threads that had channels."""
        try:
            lines = Path(self._stages).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ReadingError(f"{self._name} left no stages: is that bridge older than this front end?") from error
        return stages_of([json.loads(line) for line in lines], messages)

    def end(self) -> None:
        """It is gone."""
        self._timer.cancel()
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def stages_of(threads: list[dict[str, Any]], messages: int) -> dict[str, float]:
    """`wait_cpu` is what epoll_wait took of a core, `wait` how long it slept, too."""
    names = dict.fromkeys(name for thread in threads for name in thread)
    return {name: sum(thread[name]["ns"] for thread in threads if name in thread) / messages for name in names}


def reading_of(
    case: Case,
    said: Mapping[str, Any],
    heard: Mapping[str, Any],
    stages: list[dict[str, float]],
    window: Window | None = None,
) -> Reading:
    """Of what the two sides said. Of a stream, the rate is the receiver's; a stream of one message has none."""
    counted = said if case.kind == LATENCY else heard
    if counted["messages"] < 1 or counted["seconds"] <= 0:
        raise ReadingError("too short: no message came while it was measured; allowed: more --seconds")
    cpu = sum(side["cpu_s"] / max(1, side["messages"]) for side in (said, heard))
    round_trips = said.get("round_trip_ns", {})
    return Reading(counted["messages"] / counted["seconds"], cpu, round_trips, stages[0], stages[1], window)
