"""perftest on this host: `ib_write_bw` and its kin, the programs behind published tables of RDMA operations.

Server and client run here, on one device or on two, as the nodes of `incast net` do. Latencies are those that the
programs print: half a round trip of a write, the whole of a read; `typical` is their median.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

DEVICES = Path("/sys/class/infiniband")
_TIMEOUT_S = 120.0
_SERVER_S = 20.0
_GBIT_BYTES = 1e9 / 8
PROGRAMS = {
    ("write", "bandwidth"): "ib_write_bw",
    ("write", "latency"): "ib_write_lat",
    ("read", "bandwidth"): "ib_read_bw",
    ("read", "latency"): "ib_read_lat",
}


@dataclass(frozen=True)
class Reading:
    """What one program printed: names of its columns, and the figures of its last row; CPU seconds of both its ends."""

    figures: dict[str, float]
    cpu_s: float
    wall_s: float


@dataclass(frozen=True)
class Perftest:
    """On which device, and what each program said; `reason` where there is nothing to run."""

    device: str
    readings: dict[tuple[str, str], Reading] = field(default_factory=dict)
    reason: str = ""


def parse(text: str) -> dict[str, float]:
    """The figures of the last row below ` #bytes #iterations ...`, by column; {} if there is none.

    Names of columns have spaces (`BW peak[Gb/sec]`), and end with their unit in brackets.
    """
    names: list[str] = []
    found: dict[str, float] = {}
    for line in text.splitlines():
        words = line.split()
        if line.strip().startswith("#bytes"):
            names, name = ["bytes", "iterations"], ""
            for word in words[2:]:
                name = f"{name} {word}".strip()
                if word.endswith("]"):
                    names.append(name)
                    name = ""
        elif names and len(words) >= len(names):
            try:
                found = {name: float(word) for name, word in zip(names, words, strict=False)}
            except ValueError:
                continue  # a warning between header and row
    return found


def bytes_per_s(reading: Reading, which: str) -> float | None:
    """`average` or `peak`, whichever unit the program was told to print; its MB are 2^20 bytes."""
    for unit, factor in (("Gb/sec", _GBIT_BYTES), ("MB/sec", float(1 << 20)), ("MiB/sec", float(1 << 20))):
        value = reading.figures.get(f"BW {which}[{unit}]")
        if value is not None:
            return value * factor or None  # a peak of 0 is one that was not looked for
    return None


def latency_ns(reading: Reading, which: str) -> float | None:
    """`min`, `typical` or `max`."""
    value = reading.figures.get(f"t_{which}[usec]")
    return None if value is None else value * 1000


def run_perftest(devices: str | None, sizes: dict[str, int], options: Sequence[str] = ()) -> Perftest:
    """All four programs, one after the other. `devices`: of server and client, else the first one there is."""
    missing = sorted({program for program in PROGRAMS.values() if shutil.which(program) is None})
    there = sorted(path.name for path in DEVICES.iterdir()) if DEVICES.is_dir() else []
    if devices is None and not there:
        return Perftest("", reason=f"no RDMA device: {DEVICES} has none")
    device = devices or there[0]
    if missing:
        return Perftest(device, reason=f"{missing[0]} is not there; install the package perftest")
    server, _, client = device.partition(",")
    readings: dict[tuple[str, str], Reading] = {}
    for (operation, measure), program in PROGRAMS.items():
        # -F: a processor whose frequency changes is no error.
        words = ["-F", "-s", str(sizes[measure]), *(["--report_gbits"] if measure == "bandwidth" else []), *options]
        reading = _pair([program, *words], server, client or server)
        if isinstance(reading, str):
            return Perftest(device, readings, f"{program}: {reading}")
        readings[operation, measure] = reading
    return Perftest(device, readings)


def _pair(command: list[str], server: str, client: str) -> Reading | str:
    """Both ends here; the client tries again until its server listens. An error is one line."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    begun, before = time.monotonic(), os.times()
    with subprocess.Popen(
        [*command, "-d", server, "-p", port], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as serving:
        try:
            done = _client([*command, "-d", client, "-p", port, "127.0.0.1"], serving)
        except subprocess.TimeoutExpired:
            done = None
        said = _last_words(serving, _SERVER_S if done is not None and done.returncode == 0 else 0)
    after = os.times()
    if done is None:
        return f"not done after {_TIMEOUT_S:.0f} s"
    figures = parse(done.stdout)
    if done.returncode != 0 or not figures:
        lines = [line.strip() for line in f"{said}\n{done.stdout}".splitlines() if line.strip()]
        return lines[-1] if lines else f"ended with status {done.returncode} with no message"
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Reading(figures, cpu, time.monotonic() - begun)


def _last_words(serving: "subprocess.Popen[str]", patience_s: float) -> str:
    try:
        return serving.communicate(timeout=patience_s)[0]
    except subprocess.TimeoutExpired:
        serving.kill()
        return serving.communicate()[0]


def _client(command: list[str], serving: "subprocess.Popen[str]") -> "subprocess.CompletedProcess[str]":
    deadline = time.monotonic() + _SERVER_S
    while True:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_TIMEOUT_S, check=False
        )
        listening = "onnect" not in done.stdout  # Couldn't connect to 127.0.0.1:PORT
        if done.returncode == 0 or listening or serving.poll() is not None or time.monotonic() > deadline:
            return done
        time.sleep(0.1)
