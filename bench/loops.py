"""The references on RDMA, libfabric, MPI and UCX: plain loops, perftest's `ib_write_bw`, and `ucx_perftest`."""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import Reading, Window
from programs import (
    Incast,
    ProgramError,
    Running,
    event_building,
    free_port,
    perftest_rate,
    source_bytes,
    watch,
)

_IN_FLIGHT_BYTES = 16 << 20  # of a plain loop, and what a readout unit beside it cycles through, at most
_UCX_TRIAL = 2000  # messages
_UCX_FIELDS = 8  # of the line with its results


def one_way(
    arguments: argparse.Namespace, transport: str, mfp_bytes: int, cache: int, settings: dict[str, str]
) -> Incast:
    """What a plain loop is compared with: one readout unit writes MFPs to one builder unit with a null sink."""
    building = event_building(
        transport=transport, scheme="push", mfp_bytes=mfp_bytes, nodes=2, cache=cache, self_traffic="pointer"
    )
    return Incast(
        engine=arguments.engine,
        seconds=arguments.seconds,
        warm_up=arguments.warm_up,
        settings=building
        | {
            "run.roles": "split",
            "run.readout_units": "1",
            "run.builder_units": "1",
            "run.em": "shared",
            "source.prefill_size": f"{min(source_bytes(cache, 2), _IN_FLIGHT_BYTES)}B",
        }
        | settings,
        overrides=tuple(arguments.overrides),
        copies=False,
    )


def loop_depth(depth: int, length: int) -> int:
    """How many messages of a plain loop are under way: as asked for, as far as they fit into what it cycles through."""
    return min(depth, _IN_FLIGHT_BYTES // length)


def last_number(lines: Sequence[str]) -> float:
    """The rate that a loop printed at its end. Libraries that it uses may print warnings beside it."""
    for line in reversed(lines):
        try:
            return float(line)
        except ValueError:
            continue
    raise ProgramError(f"a plain loop printed no rate, but: {' / '.join(lines) or 'nothing'}")


@dataclass(frozen=True)
class VerbsLoop:
    """`verbs_loop`: RDMA writes with immediate from one address to another, and nothing else."""

    program: Path
    seconds: float
    warm_up: float
    addresses: tuple[str, str]  # from, to
    length: int  # of a write
    depth: int  # writes under way

    def __call__(self) -> Reading:
        """Runs both ends once."""
        here, there = self.addresses
        with tempfile.TemporaryDirectory() as name:
            server = Running([str(self.program), "--listen", there], lambda line: line.startswith("port "), Path(name))
            client: Running | None = None
            try:
                server.wait_for_mark()
                options = {
                    "connect": there,
                    "port": server.first_line.split()[1],
                    "from": here,
                    "bytes": self.length,
                    "depth": self.depth,
                    "warm-up": self.warm_up,
                    "seconds": self.seconds,
                }
                words = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
                client = Running([str(self.program), *words], lambda _line: False, Path(name))
                time.sleep(self.warm_up)  # it says nothing when it begins to measure
                window = watch([server.pid, client.pid], self.seconds)
                rate = last_number(client.finish(60))
                server.finish(20)
            finally:
                for each in (server, client):
                    if each is not None:
                        each.end()
        return Reading(rate, window, {"length": self.length, "depth": self.depth})


@dataclass(frozen=True)
class LibraryLoop:
    """`ofi_loop` or `ucx_loop`: a library's writes and notices from one process to another, and nothing else."""

    program: Path
    seconds: float
    warm_up: float
    way: str  # the provider of libfabric, or UCX's transports
    length: int  # of a write
    depth: int  # writes under way

    def __call__(self) -> Reading:
        """Runs both ends once."""
        options = {"depth": self.depth, "warm-up": self.warm_up, "seconds": self.seconds}
        words = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
        with tempfile.TemporaryDirectory() as name:
            command = [str(self.program), self.way, str(self.length), *words]
            loop = Running(command, lambda line: line.startswith("writer "), Path(name))
            try:
                loop.wait_for_mark()
                time.sleep(self.warm_up)  # it says nothing when it begins to measure
                window = watch([loop.pid, int(loop.first_line.split()[1])], self.seconds)
                rate = last_number(loop.finish(60))
            finally:
                loop.end()
        return Reading(rate, window, {"length": self.length, "depth": self.depth})


# What starts processes of each MPI, on a host with fewer cores than processes, none of them bound.
MPI_LAUNCHERS = {
    "openmpi": ("mpirun.openmpi", "--oversubscribe", "--bind-to", "none"),
    "mpich": ("mpiexec.mpich",),
}


@dataclass(frozen=True)
class MpiLoop:
    """`mpi_loop`: non-blocking MPI messages, or puts, from one process to another, and nothing else."""

    program: Path
    seconds: float
    warm_up: float
    flavour: str  # one of MPI_LAUNCHERS
    way: str  # send or put
    length: int  # of a message
    depth: int  # messages under way

    def __call__(self) -> Reading:
        """Runs both ends once."""
        options = {"depth": self.depth, "warm-up": self.warm_up, "seconds": self.seconds}
        words = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
        launcher = list(MPI_LAUNCHERS[self.flavour])
        if self.flavour == "openmpi" and os.geteuid() == 0:
            launcher.append("--allow-run-as-root")
        with tempfile.TemporaryDirectory() as name:
            command = [*launcher, "-n", "2", str(self.program), self.way, str(self.length), *words]
            loop = Running(command, lambda line: line.strip() == "ready", Path(name))
            try:
                loop.wait_for_mark()
                time.sleep(self.warm_up)  # it says nothing when it begins to measure
                window = watch([loop.pid], self.seconds)
                rate = last_number(loop.finish(60))
            finally:
                loop.end()
        return Reading(rate, window, {"way": self.way, "length": self.length, "depth": self.depth})


@dataclass(frozen=True)
class IbWriteBw:
    """perftest's `ib_write_bw`, from one device to another of this host."""

    seconds: float
    devices: tuple[str, str]  # from, to
    gid_index: int
    address: str  # of the other end
    length: int

    def __call__(self) -> Reading:
        """Runs both ends once; its duration has whole seconds."""
        here, there = self.devices
        measured = max(1, round(self.seconds))
        program = ["stdbuf", "-oL", "ib_write_bw"]  # it says that it waits, and keeps that to itself in a pipe
        common = ["-F", "-D", str(measured), "-s", str(self.length), "-x", str(self.gid_index)]
        with tempfile.TemporaryDirectory() as name:
            server = Running([*program, "-d", there, *common], lambda line: "Waiting" in line, Path(name))
            client: Running | None = None
            try:
                server.wait_for_mark()
                client = Running([*program, "-d", here, *common, self.address], lambda _line: False, Path(name))
                window = watch([server.pid, client.pid], self.seconds)
                lines = client.finish(60)
                server.finish(20)
            finally:
                for each in (server, client):
                    if each is not None:
                        each.end()
        return Reading(perftest_rate(lines), window, {"length": self.length})


@dataclass(frozen=True)
class UcxPerftest:
    """A test of `ucx_perftest` between two processes of this host, each with a core."""

    seconds: float
    warm_up: float
    test: str  # ucp_put_bw, ucp_put_lat, tag_lat, ...
    length: int
    cores: tuple[int, int]
    transports: str  # UCX_TLS

    def __call__(self) -> Reading:
        """Runs both ends twice: a number of messages is what it takes, which a short run gives."""
        _window, per_s = self._run(_UCX_TRIAL, 0)
        _window, per_s = self._run(round(per_s * 0.5), 0)
        window, per_s = self._run(max(_UCX_TRIAL, round(per_s * (self.seconds + self.warm_up))), self.seconds)
        assert window is not None
        details = {"test": self.test, "length": self.length, "UCX_TLS": self.transports}
        return Reading(per_s if self.test.endswith("_lat") else per_s * self.length, window, details)

    def _run(self, messages: int, seconds: float) -> tuple[Window | None, float]:
        """What it does to the machine in the last `seconds`, and messages per second; of a ping-pong those one way."""
        environment = ["env", f"UCX_TLS={self.transports}", "UCX_WARN_UNUSED_ENV_VARS=n"]
        # It says that it waits, and would keep that to itself in a pipe.
        program = [*environment, "stdbuf", "-oL", "ucx_perftest"]
        port = ["-p", str(free_port())]
        sizes = ["-t", self.test, "-s", str(self.length), "-n", str(messages), "-f"]
        there, here = (["-c", str(core)] for core in self.cores)
        with tempfile.TemporaryDirectory() as name:
            server = Running([*program, *port, *there], lambda line: "Waiting" in line, Path(name))
            client: Running | None = None
            try:
                server.wait_for_mark()
                client = Running([*program, "127.0.0.1", *port, *sizes, *here], lambda _line: False, Path(name))
                window = None
                if seconds > 0:
                    time.sleep(self.warm_up)  # it says nothing when it begins to measure
                    window = watch([server.pid, client.pid], seconds)
                lines = client.finish(120)
                server.finish(20)
            finally:
                for each in (server, client):
                    if each is not None:
                        each.end()
        return window, ucx_rate(lines, self.test)


def ucx_rate(lines: Sequence[str], test: str) -> float:
    """Messages per second over all of a test: what it says of the rate, or the inverse of the time one way in us."""
    # UCX 1.13: messages, then times in us (a percentile, means of late and of all), MiB/s and messages per s of late
    # and of all.
    found = [words for line in lines if len(words := line.split()) == _UCX_FIELDS and words[0].isdecimal()]
    if not found:
        raise ProgramError(f"ucx_perftest -t {test}: no line of results in what it wrote")
    return 1e6 / float(found[-1][3]) if test.endswith("_lat") else float(found[-1][7])
