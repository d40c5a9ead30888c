"""`incast scan --executor`: simulated points over a cluster, some of whose workers are killed.

INCAST_SCAN_POINTS (12) makes it larger: from 100 on two workers are killed, and the scheduler in a test of its own.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest
from incast.engine.program import ENGINE_VARIABLE
from incast.scan.errand import wrong_engine

from tests.conftest import DEADLINE_S, Incast, require_engine
from tests.lab.conftest import InProcess, WriteScan
from tests.lab.test_scan import journal_lines, rows_of

pytest.importorskip("distributed", reason="needs distributed: pip install 'incast[dask]'")

POINTS = int(os.environ.get("INCAST_SCAN_POINTS", "12"))
LARGE = POINTS >= 100
KILLS = 2 if LARGE else 1
FABRIC = Path(__file__).parents[3] / "fabrics" / "ib-qdr-8.toml"
# What the host did and when: it differs between any two scans, whoever takes them.
OF_THE_HOST = {"cpu_s", "cpu_s_per_gb", "cpu_polling_s", "cpu_sink_s", "peak_rss_bytes", "started_utc", "wall_s"}
HEAD = """
seconds = 0.001
warm_up_seconds = 0
[set]
transport.name = "sim"
run.nodes = 2
source.prefill_size = "256KiB"
protocol.mfp_size = "4KiB"
"""


class DaskHost:
    """A process with workers; without an address it has a scheduler, too."""

    def __init__(self, engine: Path | str, address: str = "", workers: int = 1) -> None:
        program = Path(__file__).with_name("dask_host.py")
        self.process = subprocess.Popen(
            [sys.executable, str(program), address, str(workers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {ENGINE_VARIABLE: str(engine)},
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def executor(self) -> tuple[str, str]:
        """Words of the command line."""
        return "--executor", "dask:" + self.address.removeprefix("tcp://")

    def engines(self) -> list[int]:
        """Those that its workers have started."""
        found = []
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                if f"\0--watched-by\0{self.process.pid}\0".encode() in (process / "cmdline").read_bytes():
                    found.append(int(process.name))
        return found


@pytest.fixture(scope="module")
def host() -> Iterator[DaskHost]:
    """A scheduler with a worker; with two, where there is time."""
    with DaskHost(require_engine(), workers=2 if LARGE else 1) as made:
        yield made


def until(condition: Callable[[], object], what: str) -> None:
    """Polls a condition."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)  # house: allow sleep: polls with a deadline


class Scan:
    """The command, under way."""

    def __init__(self, incast: Incast, *words: str) -> None:
        self.log = incast.folder / "stderr"
        with self.log.open("w") as errors:
            self.process = subprocess.Popen(
                incast.command("scan", *words), cwd=incast.folder, env=incast.full_environment(), stderr=errors
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> int:
        """Its exit status."""
        return self.process.wait(DEADLINE_S * max(1, POINTS // 30))


def until_lines(scan: Scan, folder: Path, lines: int) -> None:
    """That many readings are done, or all."""
    until(lambda: journal_lines(folder) >= lines or scan.process.poll() is not None, "more rows")


def test_the_table_is_that_of_one_host_though_workers_are_killed(
    real_incast: Incast, real: InProcess, write_scan: WriteScan, host: DaskHost
) -> None:
    # A network as it is, and one that the scan changes; both lie where the workers need not see them.
    (real.folder / "net.toml").write_text(FABRIC.read_text())
    file = write_scan(
        f"protocol.credits = 2\n[grid]\nrun.seed = [{', '.join(map(str, range(POINTS // 2)))}]\n"
        '[[points]]\ntransport.sim.fabric = "net.toml"\n'
        '[[points]]\ntransport.sim.fabric = "net.toml"\nfabric.network.seed = 5\n',
        head=HEAD,
    )
    assert real("scan", str(file), "--output", "here").returncode == 0
    there = real.folder / "there"
    with Scan(real_incast, str(file), "--output", "there", *host.executor) as scan:
        for kill in range(KILLS):
            with DaskHost(require_engine(), host.address) as victim:
                until_lines(scan, there, journal_lines(there) + 1)
                # Stopped first: what it has taken stays undone until it is killed.
                victim.process.send_signal(signal.SIGSTOP)
                until_lines(scan, there, POINTS * (kill + 1) // (KILLS + 2))
        assert scan.finish() == 0, scan.log.read_text()
    here_rows, there_rows = (rows_of(real.folder / name) for name in ("here", "there"))
    assert len(here_rows) == len(there_rows) == POINTS // 2 * 2
    for here, far in zip(here_rows, there_rows, strict=True):
        assert {key for key in here if here[key] != far[key]} <= OF_THE_HOST
        # Results come as if they had been written here.
        result = (there / far["directory"] / "result.json").read_text()
        assert str(there / "fabrics") in result


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL] if LARGE else [signal.SIGINT])
def test_a_scan_that_is_stopped_ends_engines_elsewhere(
    real_incast: Incast, write_scan: WriteScan, host: DaskHost, how: signal.Signals
) -> None:
    file = write_scan("[grid]\nprotocol.credits = [1, 2, 3]\n", head=HEAD.replace("0.001", "3600"))
    with Scan(real_incast, str(file), "--output", "out", *host.executor) as scan:
        until(host.engines, "an engine")
        scan.process.send_signal(how)
        assert scan.finish() == (130 if how == signal.SIGINT else -how), scan.log.read_text()
    until(lambda: not host.engines(), "the end of the engines")
    assert journal_lines(real_incast.folder / "out") == 0
    if how == signal.SIGINT:
        assert "to go on: incast scan --resume out" in scan.log.read_text()


@pytest.mark.skipif(not LARGE, reason="only with INCAST_SCAN_POINTS")
def test_the_end_of_the_scheduler_is_one_line(real_incast: Incast, write_scan: WriteScan) -> None:
    file = write_scan("[grid]\nprotocol.credits = [1, 2, 3]\n", head=HEAD.replace("0.001", "3600"))
    with (
        DaskHost(require_engine()) as host,
        Scan(real_incast, str(file), "--output", "out", *host.executor) as scan,
    ):
        until(host.engines, "an engine")
        host.process.kill()
        assert scan.finish() == 1
        until(lambda: not host.engines(), "the end of the engines")
    said = scan.log.read_text().splitlines()
    assert len(said) == 2, said
    assert "the scheduler is gone; what is done is kept: incast scan --resume" in said[1]


def test_a_host_without_the_engine_is_named(real: InProcess, write_scan: WriteScan, host: DaskHost) -> None:
    file = write_scan("[grid]\nprotocol.credits = [1]\n", head=HEAD)
    with DaskHost("/absent", host.address):
        done = real("scan", str(file), *host.executor)
    assert done.returncode == 127
    assert done.stderr.count("\n") == 1, done.stderr
    for word in (f"incast: --executor {host.executor[1]}: worker tcp://", "INCAST_NODE=/absent is not a program"):
        assert word in done.stderr
    assert not (real.folder / "incast-results").exists()


def test_another_version_is_named() -> None:
    assert wrong_engine("0.1.0 (abc)", "", "0.1.0 (abc)") == ""
    assert wrong_engine("9.9 (abc)", "", "0.1.0 (abc)") == "its engine is version 9.9 (abc), this one 0.1.0 (abc)"


def test_a_scheduler_that_is_not_there_is_one_line(real: InProcess, write_scan: WriteScan) -> None:
    file = write_scan("[grid]\nprotocol.credits = [1]\n", head=HEAD)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"dask:127.0.0.1:{taken.getsockname()[1]}"
        done = real("scan", str(file), "--executor", address)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr == f"incast: --executor {address}: the scheduler cannot be reached: Connection refused\n"
    assert not (real.folder / "incast-results").exists()


@pytest.mark.parametrize("executor", ["dask", "dask:", "dask:host", "dask:host:port", "slurm:host:1", "dask::1"])
def test_what_is_no_executor_is_one_line(real: InProcess, write_scan: WriteScan, executor: str) -> None:
    done = real("scan", str(write_scan("[grid]\nprotocol.credits = [1]\n", head=HEAD)), "--executor", executor)
    assert (done.returncode, done.stderr) == (
        2, f"incast: --executor {executor}: allowed: dask:HOST:PORT, the scheduler's address\n",
    )  # fmt: skip
