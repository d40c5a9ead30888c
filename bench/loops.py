"""The references on RDMA and libfabric: plain loops of writes, and perftest's `ib_write_bw`."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import Reading
from programs import Running, perftest_rate, watch


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
                rate = float(client.finish(60)[0])
                server.finish(20)
            finally:
                for each in (server, client):
                    if each is not None:
                        each.end()
        return Reading(rate, window, {"length": self.length, "depth": self.depth})


@dataclass(frozen=True)
class OfiLoop:
    """`ofi_loop`: libfabric writes with completion data from one process to another, and nothing else."""

    program: Path
    seconds: float
    warm_up: float
    provider: str
    length: int  # of a write
    depth: int  # writes under way

    def __call__(self) -> Reading:
        """Runs both ends once."""
        options = {"depth": self.depth, "warm-up": self.warm_up, "seconds": self.seconds}
        words = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
        with tempfile.TemporaryDirectory() as name:
            command = [str(self.program), self.provider, str(self.length), *words]
            loop = Running(command, lambda line: line.startswith("writer "), Path(name))
            try:
                loop.wait_for_mark()
                time.sleep(self.warm_up)  # it says nothing when it begins to measure
                window = watch([loop.pid, int(loop.first_line.split()[1])], self.seconds)
                rate = float(loop.finish(60)[-1])
            finally:
                loop.end()
        return Reading(rate, window, {"length": self.length, "depth": self.depth})


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
