"""Hosts that have been up for long, as time namespaces (64 bits of picoseconds are full after 106.75 days), processes
that are stopped together, and nodes that join late.
"""

import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
from incast.consumer import BuilderEndedError, Consumer
from support import Run, Start, check_accounting, private_network, process_state, said_by, wait_until
from transports import ONE_THREAD, RAPIDIO, SHARED_MEMORY, SOCKETS

FULL_S = 2**63 / 1e12
TRANSPORTS = [SHARED_MEMORY, SOCKETS, RAPIDIO, ONE_THREAD]
SETTINGS = {
    "run.nodes": 2,
    "run.warm_up": "0s",
    "run.duration": "2s",
    "source.trigger_rate": "1kHz",
    "sink.kind": "verify",
}


def at_uptime(seconds: float) -> list[str]:
    """A prefix that makes a command believe in that age of its host."""
    offset = str(int(seconds - time.monotonic()))
    words = ["unshare", "--time", "--monotonic", offset, "--boottime", offset]
    if os.geteuid() != 0:
        pytest.skip("time namespaces need root")
    if why := said_by(*words, "true"):
        pytest.skip(f"this host gives no time namespace: {why}")
    return words


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_run_in_which_picoseconds_of_uptime_are_full(start: Start, transport: str) -> None:
    run = start({**SETTINGS, "transport.name": transport}, prefix=at_uptime(FULL_S - 1))
    assert run.finish() == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert result["events"] > 0
    assert 0 < result["latency_ns"]["p50"] < 30e9


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_run_after_that(start: Start, transport: str) -> None:
    settings = {**SETTINGS, "transport.name": transport, "run.duration": "100ms"}
    run = start(settings, prefix=at_uptime(2.06 * FULL_S))
    assert run.finish() == 0, run.story()
    check_accounting(run.result())


PAUSE_S = 4  # longer than silence is borne (protocol.detection_deadline, deadline_ms of a fabric)


def test_a_pause_of_all_processes_is_nobodys_silence(start: Start) -> None:
    """As when a virtual machine moves, or a container is frozen. One pause, for a run over each transport."""
    over_udp = {"transport.name": RAPIDIO, f"transport.{RAPIDIO}.fabric": private_network()}
    chosen = [*({"transport.name": name} for name in TRANSPORTS), over_udp]
    runs = [start({**SETTINGS, "run.nodes": 3, "run.duration": "1h", **each}) for each in chosen]
    for run in runs:
        run.wait_for_phase("measuring")
    stopped = [pid for run in runs for pid in (run.process.pid, *run.all_node_pids())]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda pid=pid: process_state(pid) == "T", f"process {pid} to stop")
    time.sleep(PAUSE_S)  # house: allow sleep: the stimulus
    for pid in reversed(stopped):  # the last one has read what the others had sent before, and hears nothing more
        os.kill(pid, signal.SIGCONT)
    text = "this process was stopped for"
    for run in runs:
        run.wait_for(lambda report: report["type"] == "notice" and text in report["text"], "what it noticed")
        events = run.wait_for(lambda report: report["type"] == "sample", "sample")["events"]
        run.wait_for(
            lambda report, before=events: report["type"] == "sample" and report["events"] > before, "further events"
        )
    for run in runs:
        run.process.send_signal(signal.SIGINT)
    for run in runs:
        assert run.finish() == 0, run.story()
        result = run.result()
        assert result["incomplete_events"] == 0
        assert result["accounting"]["evictions"] == 0
        check_accounting(result)


def test_a_node_that_joins_late(start: Start, engine: Path) -> None:
    """Later than silence is borne: those who are there wait, over each transport."""
    token = "0123456789abcdef0123456789abcdef"
    settings = {**SETTINGS, "run.nodes": 3, "run.duration": "100ms", "run.sample_interval": "100ms"}
    runs = [
        start({**settings, "transport.name": transport}, "--spawn", "2", token=token)
        for transport in (SHARED_MEMORY, SOCKETS, RAPIDIO)
    ]
    listening = [run.wait_for(lambda report: report["type"] == "listening", "address") for run in runs]
    time.sleep(PAUSE_S)  # house: allow sleep: the stimulus
    joined = [
        subprocess.Popen([engine, "--join", each["address"]], env={**os.environ, "INCAST_TOKEN": token})
        for each in listening
    ]
    for node, run in zip(joined, runs, strict=True):
        assert run.finish() == 0, run.story()
        assert node.wait(60) == 0
        assert not [line for line in run.notices if "silent" in line]
        check_accounting(run.result())


def times_of(address: str) -> tuple[float, float, float]:
    """Of a node's last sample: by CLOCK_REALTIME, by its clock for the run, and how far off that may be."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        values = dict(re.findall(r"^incast_(\w+_seconds){.*} (.*)$", answer.read().decode(), re.MULTILINE))
    unix, run, error = (
        float(values[key]) for key in ("sample_timestamp_seconds", "run_time_seconds", "clock_error_seconds")
    )
    return unix, run, error


AGES = pytest.mark.parametrize("age_s", [3600, -0.5], ids=["an hour older", "half as old"])


def start_on_two_hosts(
    start: Start, engine: Path, folder: Path, age_s: float, settings: Mapping[str, object]
) -> tuple[Run, "subprocess.Popen[bytes]"]:
    """Node 0 here, which has the run's clock, and one on a host that has been up longer, or by a share shorter."""
    if age_s < 0:
        age_s *= time.monotonic()
    offset = str(int(age_s))
    prefix = ["unshare", "--mount", "--time", "--monotonic", offset, "--boottime", offset]
    if os.geteuid() != 0:
        pytest.skip("time namespaces need root")
    if why := said_by(*prefix, "true"):
        pytest.skip(f"this host gives no time namespace: {why}")
    token = "0123456789abcdef0123456789abcdef"
    settings = {
        **SETTINGS,
        "transport.name": SOCKETS,
        "run.metrics": "127.0.0.1:0",
        "run.duration": "1h",
        **settings,
    }
    run = start(settings, "--spawn", "1", token=token)
    listening = run.wait_for(lambda report: report["type"] == "listening", "address")
    joined = subprocess.Popen(
        [*prefix, engine, "--join", listening["address"], "--output", folder],
        env={**os.environ, "INCAST_TOKEN": token},
    )
    return run, joined


@AGES
def test_two_hosts_with_different_clocks(start: Start, engine: Path, tmp_path: Path, age_s: float) -> None:
    """Latency from the trigger is a difference of times of two hosts, so each says how well it knows the other's clock.

    The namespaces of one host share CLOCK_REALTIME, which is the witness: the run's time that a node has is off by
    no more than it says, and nothing took longer than the run did.
    """
    begun = time.clock_gettime(time.CLOCK_REALTIME)
    settings = {"source.trigger_rate": "200Hz", "run.sample_interval": "50ms"}
    run, joined = start_on_two_hosts(start, engine, tmp_path, age_s, settings)
    run.wait_for_phase("measuring")
    (targets,) = (each["targets"] for each in json.loads((run.output / "metrics.json").read_text()))
    seen: list[dict[float, tuple[float, float]]] = [{}, {}]  # of each node: by unix time, the difference and the error
    while min(map(len, seen)) < 20:
        run.wait_for(lambda report: report["type"] == "sample", "samples")
        for samples, address in zip(seen, targets, strict=True):
            unix, by_run, error = times_of(address)
            samples[unix] = (unix - by_run, error)
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.story()
    assert joined.wait(60) == 0
    took_ns = (time.clock_gettime(time.CLOCK_REALTIME) - begun) * 1e9
    result = run.result()
    check_accounting(result)

    here, there = sorted(seen, key=lambda samples: max(error for _, error in samples.values()))
    assert {error for _, error in here.values()} == {0}
    stated = there[max(there)][1]  # the most since the measured window began
    latency = result["latency_ns"]
    assert 0 < stated * 1e9 <= latency["clock_error"] + 1 < took_ns
    # Single ones may be stamped late. The stamps have 6 digits.
    off = [
        difference - here[min(here, key=lambda other: abs(other - unix))][0] for unix, (difference, _) in there.items()
    ]
    assert abs(statistics.median(off)) <= stated + 2e-6, (sorted(off), stated)
    if latency["p50"] is None:
        assert "10 % of the median" in latency["reason"]
    else:
        assert latency["clock_error"] <= latency["p50"] / 10
        assert latency["max"] <= took_ns + latency["clock_error"]


class Reader(threading.Thread):
    """Reads the events of a node, and notes of each, in order, its number and when it gave it back."""

    def __init__(self, name: str, node: int) -> None:
        super().__init__()
        self.seen: list[tuple[int, float]] = []
        self._consumer = Consumer(name, node, timeout=60)
        self.start()

    def run(self) -> None:
        with contextlib.suppress(BuilderEndedError):
            while event := self._consumer.next(60):
                self.seen.append((event.first_event, time.clock_gettime(time.CLOCK_REALTIME)))
                event.release()
        self._consumer.close()


def latencies_of(address: str) -> tuple[int, float]:
    """How many MEPs a node has committed, and the sum of their latencies."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    values = dict(re.findall(r"^incast_mep_latency_seconds_(\w+){.*} (.*)$", text, re.MULTILINE))
    return int(values["count"]), float(values["sum"])


@AGES
def test_latency_on_two_hosts(start: Start, engine: Path, tmp_path: Path, name: str, age_s: float) -> None:
    """The latency that a node measures, against one by CLOCK_REALTIME, which the namespaces of a host share.

    Events happen every period, and their latency ends as their reader gives them back, who looks at the clock right
    before. Of node 0, which has the run's clock, the difference of the two is when event 0 was meant to happen; of the
    node on the other host it is that, but for the error of its clock. What passes between the look at the clock and the
    end of the latency makes that time too early, never too late, so that the latest of many counts.
    """
    rate_hz = 50
    settings = {
        "source.trigger_rate": f"{rate_hz}Hz",
        "source.fill": "generated",
        "protocol.packing": 1,
        "sink.kind": "consumer",
        "sink.name": name,
        "sink.window": 1,
        "run.sample_interval": "10ms",
    }
    run, joined = start_on_two_hosts(start, engine, tmp_path, age_s, settings)
    run.wait_for(lambda report: report["type"] == "phase", "nodes")
    readers = [Reader(name, node) for node in range(2)]
    run.wait_for_phase("measuring")
    (targets,) = (each["targets"] for each in json.loads((run.output / "metrics.json").read_text()))
    last = [(0, 0.0), (0, 0.0)]
    latencies: list[dict[int, float]] = [{}, {}]  # of each node's n-th MEP
    stated = 0.0
    while min(map(len, latencies)) < 40:
        for node, address in enumerate(targets):
            count, total = latencies_of(address)
            if count == last[node][0] + 1:
                latencies[node][count - 1] = total - last[node][1]
            last[node] = count, total
            stated = max(stated, times_of(address)[2])
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.story()
    assert joined.wait(60) == 0
    for reader in readers:
        reader.join(60)
    check_accounting(run.result())
    first_event_at = []
    for reader, known in zip(readers, latencies, strict=True):
        began = [reader.seen[n][1] - reader.seen[n][0] / rate_hz - latency for n, latency in known.items()]
        first_event_at.append(max(began))
    assert stated > 0
    off = first_event_at[1] - first_event_at[0]
    assert abs(off) <= stated + 100e-6, (off, stated)
