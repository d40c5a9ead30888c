"""The programs of the comparisons: how each is started, when its steady phase begins, and what it says of its rate."""

import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import Reading, Snapshot, Window, find_bench_program

_STARTING_S = 120.0  # nothing here takes longer to be ready
# The snapshots lie this share of the measured time inside of it.
_MARGIN = 0.05


class ProgramError(Exception):
    """A program failed, or what it did is no measurement; one line."""


class Running:
    """A started program, whose output is read as it comes: a full pipe would stop it."""

    def __init__(self, command: Sequence[str], mark: Callable[[str], bool], folder: Path) -> None:
        self._command = command
        self._log = (folder / f"{Path(command[0]).name}.{time.monotonic_ns()}.stderr").open("w+", encoding="utf-8")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        self._lines: list[str] = []
        self._marked = threading.Event()
        self._mark = mark
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def failed(self) -> bool:
        return self._process.poll() not in (None, 0)

    @property
    def first_line(self) -> str:
        """Once it has written one."""
        return self._lines[0]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)
            if not self._marked.is_set() and self._mark(line):
                self._marked.set()
        self._marked.set()  # it has ended: nobody should wait for a mark that does not come

    def wait_for_mark(self) -> None:
        if not self._marked.wait(_STARTING_S) or self.failed:
            self.finish(1)

    def finish(self, timeout_s: float) -> list[str]:
        """What it wrote; an error if it failed."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._stop()
            status = -1
        self._reader.join(10)
        self._log.seek(0)
        said = [line for line in (*self._log.read().split("\n"), *self._lines[-3:]) if line.strip()]
        if status != 0:
            raise ProgramError(f"{' '.join(self._command)}: status {status}: {' | '.join(said[-3:])[:600]}")
        return self._lines

    def _stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def end(self) -> None:
        self._stop()
        self._reader.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


@contextmanager
def _started(command: Sequence[str], mark: Callable[[str], bool], folder: Path) -> Iterator[Running]:
    running = Running(command, mark, folder)
    try:
        yield running
    finally:
        running.end()


def watch(roots: Sequence[int], seconds: float) -> Window:
    """From now on the programs are in their steady phase for `seconds`."""
    time.sleep(_MARGIN * seconds)
    first = Snapshot.take(roots)
    time.sleep((1 - 2 * _MARGIN) * seconds)
    return Window.between(first, Snapshot.take(roots))


def _end_with_failed(others: Sequence[Running]) -> None:
    """What the engine says after one of them has failed is only what came of it."""
    for other in others:
        if other.failed:
            other.finish(0)


def _run_marked(
    command: Sequence[str], seconds: float, mark: Callable[[str], bool], beside: Sequence[Sequence[str]] = ()
) -> tuple[Window, list[str], list[dict[str, Any]]]:
    """Its output, and the last line of JSON of each of the programs beside it, which end by themselves."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = stack.enter_context(_started(command, mark, folder))
        others = [stack.enter_context(_started(other, lambda _line: False, folder)) for other in beside]
        try:
            running.wait_for_mark()
        except ProgramError:
            _end_with_failed(others)
            raise
        window = watch([each.pid for each in (running, *others)], seconds)
        _end_with_failed(others)
        lines = running.finish(60)
        return window, lines, [_last_json(other.finish(60)) for other in others]


# --- Incast


@dataclass(frozen=True)
class Incast:
    """Event building by `incast-node`; `settings` by key."""

    engine: Path
    seconds: float
    warm_up: float
    settings: dict[str, str]
    overrides: tuple[str, ...] = ()
    # What the rate is: bytes of fragments with or without self traffic, or MFPs that crossed processes.
    quantity: str = "total_without_self"
    copies: bool = True  # every byte of goodput has to have been copied at least once
    beside: tuple[tuple[str, ...], ...] = ()  # commands of programs that take part, and their CPU time counts

    def command(self, folder: str) -> list[str]:
        """Its command line; the result goes to `folder`."""
        settings = {"run.duration": f"{self.seconds}s", "run.warm_up": f"{self.warm_up}s", **self.settings}
        command = [str(self.engine), "--output", folder, "--progress", "json"]
        for setting in (*(f"{key}={value}" for key, value in settings.items()), *self.overrides):
            command += ["--set", setting]
        return command

    def result(self) -> tuple[Window, dict[str, Any]]:
        """Runs it once."""
        with tempfile.TemporaryDirectory() as folder:
            command = self.command(folder)
            window, _lines, said = _run_marked(command, self.seconds, _is_measuring, self.beside)
            result = json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))
        self._check(result)
        return window, result | {"beside": said}

    def probe(self) -> dict[str, Any]:
        """The sizes that follow from the settings, of a run too short to measure anything."""
        _window, result = replace(self, seconds=0.5, warm_up=0.1).result()
        sizes: dict[str, Any] = result["sizes"]
        return sizes

    def _check(self, result: dict[str, Any]) -> None:
        for name in ("lost_events", "incomplete_events", "verify_errors"):
            if result[name] != 0:
                raise ProgramError(f"{name} is {result[name]}: not a measurement")
        built = sum(node["totals"]["built_goodput_bytes"] for node in result["nodes"])
        if self.copies and result["copied_bytes"] < built - pointer_bytes(result):
            raise ProgramError(f"{result['copied_bytes']} bytes were copied for {built} bytes of goodput")

    def __call__(self) -> Reading:
        """Runs it once and says what it reached."""
        window, result = self.result()
        return Reading(rate_of(result, self.quantity), window, details_of(result))


def event_building(
    *, transport: str, scheme: str, mfp_bytes: int, nodes: int, cache: int, self_traffic: str, sink: str = "null"
) -> dict[str, str]:
    """Settings that all comparisons have in common: sources that cycle through four times the cache (M4), all together.

    Headers count as no goodput, so fragments are not much smaller than they have to be (see fragment_bytes). Scheme
    `views` is pull-read whose events stay in the readout units' memory.
    """
    kind, _, verify = sink.partition(":")
    return {
        "run.nodes": str(nodes),
        "transport.name": transport,
        **(
            {"protocol.scheme": "pull-read", "protocol.views": "true"}
            if scheme == "views"
            else {"protocol.scheme": scheme}
        ),
        "protocol.mfp_size": f"{mfp_bytes}B",
        "protocol.self_traffic": self_traffic,
        "source.fragment_size": f"{fragment_bytes(mfp_bytes)}B",
        "source.prefill_size": f"{source_bytes(cache, nodes)}B",
        "sink.kind": kind,
        **({"sink.verify": verify} if verify else {}),
    }


def fragment_bytes(mfp_bytes: int) -> int:
    """Size of the fragments of which 48 to 64 (below 16 KiB fewer: about 256 B each) make an MFP as large as asked for.

    To a few bytes: what carries messages treats sizes on two sides of a limit differently, and limits are powers of 2.
    """
    most = max(1, min(64, mfp_bytes // 256))

    def largest(fragments: int) -> int:
        return (mfp_bytes - _mfp_prefix_bytes(fragments, mfp_bytes // fragments)) // fragments // 8 * 8

    def packet(fragments: int) -> int:
        size = largest(fragments)
        return _mfp_prefix_bytes(fragments, size) + fragments * size

    return largest(max(range(most, most * 3 // 4, -1), key=packet))


def _mfp_prefix_bytes(fragments: int, size: int) -> int:
    """Header and tables of an MFP (docs/formats.md); the wide layout's from 64 KiB fragments on."""

    def words(count: int) -> int:
        return -(-count // 4) * 4

    return 32 + words(fragments) + 4 * fragments if size > 0xFFFF else 20 + words(fragments) + words(2 * fragments)


def source_bytes(cache: int, nodes: int) -> int:
    """What one node cycles through, in whole MiB."""
    return -(-4 * cache // nodes >> 20) << 20


def pointer_bytes(result: dict[str, Any]) -> int:
    """Goodput that was left where it was: self traffic by pointer."""
    if result["self_traffic"] != "pointer":
        return 0
    return sum(int(node["totals"]["built_self_bytes"]) for node in result["nodes"])


def rate_of(result: dict[str, Any], quantity: str) -> float:
    """Of a result, in the window."""
    if quantity in ("total", "total_without_self"):
        return float(result["goodput_bytes_per_s"][quantity])
    if quantity == "crossing_mfps":
        # With as many MFPs of every source, those that cross processes are the share of the bytes that does.
        window, config = result["window"], result["config"]
        sources = sum("RU" in node["roles"] for node in result["nodes"]) * config["source"]["sources_per_ru"]
        crossing = 1 - window["self_bytes"] / window["goodput_bytes"]
        return float(window["meps"] * sources * crossing / window["seconds"])
    raise ValueError(quantity)


def details_of(result: dict[str, Any]) -> dict[str, Any]:
    """What of a result belongs into the record."""
    window = result["window"]
    return {
        "goodput_bytes_per_s": {k: result["goodput_bytes_per_s"][k] for k in ("total", "total_without_self")},
        "copies_per_goodput_byte": window["copied_bytes"] / window["goodput_bytes"],
        "verified": result["verified"],
        "sizes": result["sizes"],
        "prefill_bytes": result["config"]["source"]["prefill_size"],
        "cpu_in_window": result["cpu"],
        "versions": result["versions"],
    }


def _is_measuring(line: str) -> bool:
    return line.startswith("{") and json.loads(line).get("phase") == "measuring"


# --- streaming copy, MPI


def bench_program(name: str, engine: Path) -> Path:
    """A program of bench/: beside the given engine's build tree, or in build/bench."""
    program = find_bench_program(name, engine)
    if program is None:
        raise ProgramError(f"{name} is not built: tools/bench.sh --build")
    return program


def _last_json(lines: Sequence[str]) -> dict[str, Any]:
    for line in reversed(lines):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise ProgramError("a program said no result")


def _says_measuring(line: str) -> bool:
    return line.strip() == "measuring"


def _words(**options: int | float | str) -> list[str]:
    """`--name value` of each, as the programs of this folder take them."""
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def _read(command: list[str], seconds: float, quantity: str = "bytes_per_s") -> Reading:
    """Runs a program of this folder once; its rate is what it says of that name."""
    window, lines, _ = _run_marked(command, seconds, _says_measuring)
    said = _last_json(lines)
    return Reading(said[quantity], window, said)


@dataclass(frozen=True)
class StreamingCopy:
    """bench/streaming_copy."""

    program: Path
    seconds: float
    warm_up: float
    threads: int
    piece: int
    source_bytes: int
    destination_bytes: int
    stores: str = "streaming"
    turn: int = 0  # pieces after which a thread lets another one run; 0: never

    def __call__(self) -> Reading:
        """Runs it once."""
        words = _words(
            threads=self.threads,
            piece=self.piece,
            source=self.source_bytes,
            destination=self.destination_bytes,
            seconds=self.seconds,
            warm_up=self.warm_up,
            stores=self.stores,
            turn=self.turn,
        )
        return _read([str(self.program), *words], self.seconds)


@dataclass(frozen=True)
class TcpWays:
    """bench/tcp_ways: bytes over TCP in a way of the kernel's, without any protocol."""

    program: Path
    seconds: float
    warm_up: float
    way: str
    nodes: int
    piece: int
    source_bytes: int  # of each node
    options: tuple[tuple[str, int], ...] = ()

    def __call__(self) -> Reading:
        """Runs it once."""
        words = _words(
            way=self.way,
            nodes=self.nodes,
            piece=self.piece,
            source=self.source_bytes,
            seconds=self.seconds,
            warm_up=self.warm_up,
            **dict(self.options),
        )
        return _read([str(self.program), *words], self.seconds)


@dataclass(frozen=True)
class UdpPair:
    """bench/udp_pair: datagrams over UDP on loopback, many per system call, without any protocol."""

    program: Path
    seconds: float
    warm_up: float
    nodes: int
    mtu: int
    source_bytes: int  # of each node
    one_way: bool = False

    def __call__(self) -> Reading:
        """Runs it once."""
        words = _words(
            nodes=self.nodes, mtu=self.mtu, source=self.source_bytes, seconds=self.seconds, warm_up=self.warm_up
        )
        return _read([str(self.program), *(["--one-way"] if self.one_way else []), *words], self.seconds)


@dataclass(frozen=True)
class MpiAlltoall:
    """bench/mpi_alltoall under mpirun, over shared memory (`vader`) or sockets (`tcp`).

    Several ways to run it: the best of them counts, each time, so the reference is never worse than a person would
    have it who tried them all.
    """

    program: Path
    seconds: float
    warm_up: float
    ranks: int
    message: int
    send_set: int  # of each rank
    receive_set: int
    transport: str  # vader or tcp
    quantity: str = "bytes_per_s_without_self"
    yields: tuple[int, ...] = (0, 1)  # mpi_yield_when_idle

    def command(self, yields: int) -> list[str]:
        """Open MPI's command line; ranks are not bound, as the event builder's nodes are not."""
        command = ["mpirun", "-np", str(self.ranks), "--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        options = {"pml": "ob1", "btl": f"{self.transport},self", "mpi_yield_when_idle": str(yields)}
        if self.transport == "tcp":
            options["btl_tcp_if_include"] = "lo"
        for name, value in options.items():
            command += ["--mca", name, value]
        words = _words(
            message=self.message,
            send_set=self.send_set,
            receive_set=self.receive_set,
            seconds=self.seconds,
            warm_up=self.warm_up,
        )
        return [*command, str(self.program), *words]

    def __call__(self) -> Reading:
        """Runs it once in each way; the best."""
        readings = []
        for yields in self.yields:
            reading = _read(self.command(yields), self.seconds, self.quantity)
            reading.details["mpi_yield_when_idle"] = yields
            readings.append(reading)
        best = max(readings, key=lambda reading: reading.rate)
        best.details["tried"] = {str(each.details["mpi_yield_when_idle"]): each.rate for each in readings}
        return replace(best, tried=tuple(each.window for each in readings if each is not best))


# --- iperf3


@dataclass(frozen=True)
class Iperf3:
    """A number of iperf3 servers and clients on loopback; the streams are shared out among them."""

    seconds: float
    warm_up: float
    streams: int
    length: str  # of a write
    processes: int = 1

    def __call__(self) -> Reading:
        """Runs them once, all at a time."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            servers: list[Running] = []
            clients: list[Running] = []
            try:
                ports = [free_port() for _ in range(self.processes)]
                for port in ports:
                    serve = ["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", str(port), "--forceflush"]
                    servers.append(Running(serve, lambda line: "listening" in line, folder))
                for server in servers:
                    server.wait_for_mark()
                for port, streams in zip(ports, _shares(self.streams, self.processes), strict=True):
                    clients.append(Running(self._client(port, streams), lambda _line: False, folder))
                time.sleep(self._omitted)  # iperf3 says nothing when it begins to measure
                window = watch([each.pid for each in (*servers, *clients)], self._measured)
                ends = [json.loads("".join(client.finish(60)))["end"] for client in clients]
                for server in servers:
                    server.finish(20)
            finally:
                for each in (*clients, *servers):
                    each.end()
        rate = sum(end["sum_received"]["bits_per_second"] for end in ends) / 8
        return Reading(rate, window, {"processes": self.processes, "streams": self.streams, "length": self.length})

    @property
    def _omitted(self) -> int:
        return max(1, round(self.warm_up))  # whole seconds are all it takes

    @property
    def _measured(self) -> int:
        return max(1, round(self.seconds))

    def _client(self, port: int, streams: int) -> list[str]:
        arguments = {"-p": port, "-P": streams, "-l": self.length, "-t": self._measured, "-O": self._omitted}
        words = [str(word) for pair in arguments.items() for word in pair]
        return ["iperf3", "-c", "127.0.0.1", *words, "-J"]


def perftest_rate(lines: Sequence[str]) -> float:
    """Bytes per second of what a bandwidth test of perftest wrote: its MB have 2^20 bytes."""
    heads = [index for index, line in enumerate(lines) if line.strip().startswith("#bytes")]
    if not heads or heads[0] + 1 >= len(lines):
        raise ProgramError("ib_write_bw: no table in what it wrote")
    return float(lines[heads[0] + 1].split()[3]) * 2**20


def _shares(streams: int, processes: int) -> list[int]:
    return [streams // processes + (1 if index < streams % processes else 0) for index in range(processes)]


def free_port() -> int:
    """For programs that refuse port 0: asked from the kernel, to be used at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
