"""iperf3 over devices of `incast netdev`, whose link is an emulated Tsi721 that is some times slower than the adapter.

Sixteen hosts, as in [S1]: network namespaces with a device each. The devices' processes stay in this namespace, where
the endpoints of SoftRIO find each other.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from incast.base.errors import EXIT_BAD_CONFIG, EXIT_PROTOCOL, OneLineError
from incast.bridges.machine import why_busy
from incast.engine.idle import Snapshot, Window
from incast.engine.program import find_program

ONE_TO_ONE, MANY_TO_ONE = "one-to-one", "many-to-one"
HOSTS = 16
_DEVICE = "rio0"
_FIRST_ID = 1001  # SoftRIO gives the low ones to endpoints for data
_PORT = 5201  # in namespaces of our own
_PATIENCE_S = 60.0
_DROPS = ("dropped_full", "dropped_codel", "dropped_lost")


class ReadingError(Exception):
    """A reading failed; one line."""


@dataclass(frozen=True)
class Case:
    """So many connections at once: of pairs of hosts, or of clients to the first host."""

    pattern: str
    streams: int

    @property
    def ends(self) -> list[tuple[int, int]]:
        """Hosts of each connection, who sends and who receives."""
        if self.pattern == ONE_TO_ONE:
            return [(2 * index, 2 * index + 1) for index in range(self.streams)]
        return [(index + 1, 0) for index in range(self.streams)]


@dataclass(frozen=True)
class Stream:
    """What iperf3 says of one connection."""

    bytes_per_s: float  # received
    retransmits: int
    mean_rtt_s: float


@dataclass(frozen=True)
class Reading:
    """All connections of a case at once."""

    streams: Sequence[Stream]
    idle_rtt_s: float  # between the first two hosts, before
    dropped_frames: int  # by the devices, not by the link, which loses none
    marked_frames: int
    window: Window | None = None

    @property
    def busy(self) -> str | None:
        """Why the machine was not idle; None: it was, or that is not known."""
        return why_busy(self.window)


def need_tools() -> None:
    """OneLineError if one is not there."""
    for tool, package in (("iperf3", "iperf3"), ("ping", "iputils-ping")):
        if shutil.which(tool) is None:
            raise OneLineError(f"there is no {tool}; it comes with the package {package}", EXIT_BAD_CONFIG)


class Devices:
    """One in each host, all connected. Readings follow each other."""

    def __init__(self, hosts: Sequence[str], running: "Sequence[_Device]") -> None:
        self._hosts = hosts
        self._running = running

    def take(self, case: Case, seconds: float, warm_up: float) -> Reading:
        """ReadingError, one line, if a connection fails. Times are whole seconds, as iperf3 takes them."""
        idle_rtt_s = self._idle_rtt_s(case)
        counted = self._counters()
        before = Snapshot.take([os.getpid()])
        with ExitStack() as stack:
            clients = []
            for index, (source, target) in enumerate(case.ends):
                port = str(_PORT + index)
                serve = ["iperf3", "-s", "-1", "-p", port, "--forceflush"]
                server = stack.enter_context(_running(self._inside(target, serve)))
                _wait_for_line(server, "listening")
                ask = ["iperf3", "-c", _address_of(target), "-p", port, "-J"]
                ask += ["-t", str(round(seconds)), "-O", str(round(warm_up))]
                clients.append(self._inside(source, ask))
            started = [stack.enter_context(_running(words)) for words in clients]
            streams = [_stream_of(each, seconds + warm_up + _PATIENCE_S) for each in started]
            after = Snapshot.take([os.getpid()])  # and all that it started: iperf3 and the devices
        drops = {name: value - counted[name] for name, value in self._counters().items()}
        return Reading(
            streams,
            idle_rtt_s,
            sum(drops[name] for name in _DROPS),
            drops["marked_codel"],
            Window.between(before, after),
        )

    def _inside(self, host: int, words: list[str]) -> list[str]:
        return ["ip", "netns", "exec", self._hosts[host], *words]

    def _idle_rtt_s(self, case: Case) -> float:
        source, target = case.ends[0]
        words = self._inside(source, ["ping", "-n", "-q", "-c", "5", "-i", "0.2", "-W", "2", _address_of(target)])
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        found = re.search(r"rtt min/avg/max/mdev = ([\d.]+)/", said)
        if found is None:
            raise ReadingError(f"host {target} does not answer host {source}")
        return 1e-3 * float(found[1])

    def _counters(self) -> dict[str, int]:
        total = dict.fromkeys((*_DROPS, "marked_codel"), 0)
        for each in self._running:
            for peer in each.status()["peers"]:
                for name in total:
                    total[name] += peer[name]
        return total


def _address_of(host: int) -> str:
    return f"10.9.0.{host + 1}"


@contextmanager
def devices(hosts: Sequence[str], slowdown: int, mtu: int) -> Iterator[Devices]:
    """One in each of these namespaces. OneLineError: why not. They are gone behind the block."""
    program = find_program("incast-netdev")
    link = "tsi721" if slowdown == 1 else f"tsi721/{slowdown}"
    last = _FIRST_ID + len(hosts) - 1
    shared = ["--transport", "rio", "--fabric", f"shm:iperf-{os.getpid()}?link={link}", "--mtu", str(mtu)]
    shared += ["--peers", f"{_FIRST_ID}-{last}"]
    with ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
        made = []
        for index, name in enumerate(hosts):
            words = [str(program), "up", _DEVICE, "--foreground", *shared, "--id", str(_FIRST_ID + index)]
            words += ["--netns", name, "--address", f"{_address_of(index)}/24"]
            process = stack.enter_context(_running(words, log))
            made.append(_Device(program, name, process))
        for each in made:
            try:
                _wait_for_line(each.process, f"{_DEVICE}: up")
            except ReadingError as error:
                log.seek(0)
                raise OneLineError(f"no device: {log.read().strip() or error}", EXIT_PROTOCOL) from error
        _wait_for_peers(made)
        yield Devices(hosts, made)


def _wait_for_peers(made: "Sequence[_Device]") -> None:
    until = time.monotonic() + _PATIENCE_S
    while not all(peer["queues_up"] for each in made for peer in each.status()["peers"]):
        if time.monotonic() > until:
            raise OneLineError("the devices do not find each other", EXIT_PROTOCOL)
        time.sleep(0.1)


@dataclass(frozen=True)
class _Device:
    program: Path
    host: str
    process: "subprocess.Popen[str]"

    def status(self) -> dict[str, Any]:
        words = ["ip", "netns", "exec", self.host, str(self.program), "status", _DEVICE, "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OneLineError(f"a device is gone: {done.stderr.strip()}", EXIT_PROTOCOL)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@contextmanager
def _running(words: list[str], errors: IO[str] | None = None) -> Iterator["subprocess.Popen[str]"]:
    """Ended with the block."""
    stderr = subprocess.DEVNULL if errors is None else errors
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for_line(process: "subprocess.Popen[str]", words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise ReadingError(f"{process.args!r} ended with no message")


def _stream_of(client: "subprocess.Popen[str]", patience_s: float) -> Stream:
    try:
        said, _ = client.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired as error:
        raise ReadingError(f"iperf3 did not end in {patience_s:g} s") from error
    return stream_of(said)


def stream_of(said: str) -> Stream:
    """Of what iperf3 -J printed. ReadingError: it failed, in its words."""
    try:
        report = json.loads(said)
    except ValueError as error:
        raise ReadingError("iperf3 ended without a report") from error
    if "error" in report:
        raise ReadingError(f"iperf3: {report['error']}")
    end = report["end"]
    return Stream(
        bytes_per_s=end["sum_received"]["bits_per_second"] / 8,
        retransmits=end["sum_sent"]["retransmits"],
        mean_rtt_s=1e-6 * end["streams"][0]["sender"]["mean_rtt"],
    )
