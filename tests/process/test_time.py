"""Hosts that have been up for long, as time namespaces (64 bits of picoseconds are full after 106.75 days), processes
that are stopped together, and nodes that join late.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support import Start, check_accounting, said_by

FULL_S = 2**63 / 1e12
TRANSPORTS = ["shm", "tcp", "rio", "inproc"]
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


PAUSE_S = 4  # longer than silence is borne (protocol.detection_deadline)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_pause_of_all_processes_is_nobodys_silence(start: Start, transport: str) -> None:
    """As when a virtual machine moves, or a container is frozen."""
    run = start({**SETTINGS, "transport.name": transport, "run.duration": "1h"})
    run.wait_for_phase("measuring")
    stopped = [run.process.pid, *run.all_node_pids()]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(PAUSE_S)  # house: allow sleep: the stimulus
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    text = "this process was stopped for"
    run.wait_for(lambda report: report["type"] == "notice" and text in report["text"], "what it noticed")
    events = run.wait_for(lambda report: report["type"] == "sample", "sample")["events"]
    run.wait_for(lambda report: report["type"] == "sample" and report["events"] > events, "further events")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.story()
    result = run.result()
    assert result["incomplete_events"] == 0
    assert result["accounting"]["evictions"] == 0
    check_accounting(result)


@pytest.mark.parametrize("transport", ["shm", "tcp", "rio"])
def test_a_node_that_joins_late(start: Start, engine: Path, transport: str) -> None:
    token = "0123456789abcdef0123456789abcdef"
    settings = {**SETTINGS, "transport.name": transport, "run.duration": "100ms", "run.sample_interval": "100ms"}
    run = start({**settings, "run.nodes": 3}, "--spawn", "2", token=token)
    listening = run.wait_for(lambda report: report["type"] == "listening", "address")
    time.sleep(PAUSE_S)  # house: allow sleep: the stimulus
    joined = subprocess.run(
        [engine, "--join", listening["address"]], env={**os.environ, "INCAST_TOKEN": token}, check=False, timeout=60
    )
    assert joined.returncode == 0
    assert run.finish() == 0, run.story()
    assert not [line for line in run.notices if "silent" in line]
    check_accounting(run.result())


@pytest.mark.parametrize("age_s", [3600, -0.5], ids=["an hour older", "half as old"])
def test_two_hosts_with_different_clocks(start: Start, engine: Path, tmp_path: Path, age_s: float) -> None:
    """Latency from the trigger is a difference of times of two hosts, so each says how well it knows the other's clock.

    The namespaces of one host share CLOCK_REALTIME, which is the witness: nothing took longer than the run did.
    """
    if age_s < 0:
        age_s *= time.monotonic()
    offset = str(int(age_s))
    prefix = ["unshare", "--mount", "--time", "--monotonic", offset, "--boottime", offset]
    if os.geteuid() != 0:
        pytest.skip("time namespaces need root")
    if why := said_by(*prefix, "true"):
        pytest.skip(f"this host gives no time namespace: {why}")
    token = "0123456789abcdef0123456789abcdef"
    settings = {**SETTINGS, "transport.name": "tcp", "run.nodes": 2, "source.trigger_rate": "200Hz"}
    begun = time.clock_gettime(time.CLOCK_REALTIME)
    run = start(settings, "--spawn", "1", token=token)
    listening = run.wait_for(lambda report: report["type"] == "listening", "address")
    joined = subprocess.run(
        [*prefix, engine, "--join", listening["address"], "--output", tmp_path],
        env={**os.environ, "INCAST_TOKEN": token},
        check=False,
        timeout=60,
    )
    assert joined.returncode == 0
    assert run.finish() == 0, run.story()
    took_ns = (time.clock_gettime(time.CLOCK_REALTIME) - begun) * 1e9
    result = run.result()
    check_accounting(result)
    latency = result["latency_ns"]
    assert 0 < latency["clock_error"] < took_ns
    if latency["p50"] is None:
        assert "10 % of the median" in latency["reason"]
    else:
        assert latency["clock_error"] <= latency["p50"] / 10
        assert latency["max"] <= took_ns + latency["clock_error"]
