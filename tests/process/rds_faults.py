"""What happens to nodes of the transport rds, over RDMA. Run in a guest with four soft-RoCE devices (rds-nodes.sh) by
tests/guest/test_rds.py; by name only.

INCAST_GUEST_TIMES: how often each happens, at different times.
"""

import os
import random
import signal
import time
from typing import Any

import pytest
from support import Run, Start, check_accounting, process_state, wait_until
from transports import RDS

# The event manager lives on node 0.
RU, BU = 1, 3
NAMES = {RU: "1 (RU)", BU: "3 (BU)"}
PATIENCE_S = 120.0  # for what takes a second elsewhere
SPLIT: dict[str, Any] = {
    "transport.name": RDS,
    f"transport.{RDS}.bind": "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4",
    f"transport.{RDS}.carrier": "rdma",
    f"transport.{RDS}.connect_timeout": "60s",
    "run.nodes": 4,
    "run.readout_units": 2,
    "run.builder_units": 2,
    "run.roles": "split",
    "run.warm_up": "100ms",
    "run.duration": "1h",
    "run.sample_interval": "200ms",
    "run.drain_deadline": "30s",
    "run.fail_above_incomplete": 1,
    "protocol.mfp_size": "32KiB",
    "protocol.credits": 8,
    "sink.kind": "verify",
    "source.trigger_rate": "1kHz",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("attempt", range(int(os.environ.get("INCAST_GUEST_TIMES", "1"))))


def running(start: Start, seed: str) -> Run:
    """At a random time of its measured window; the seed names it."""
    run = start(SPLIT)
    run.wait_for(lambda report: report.get("phase") == "measuring" and report["type"] == "phase", "phase", PATIENCE_S)
    time.sleep(random.Random(seed).uniform(0.0, 1.0))  # house: allow sleep: the stimulus
    return run


def wait_for_notice(run: Run, text: str) -> None:
    run.wait_for(lambda report: report["type"] == "notice" and text in report["text"], text, PATIENCE_S)


def wait_for_progress(run: Run) -> None:
    """Until events are built again."""
    first = run.wait_for(lambda report: report["type"] == "sample", "sample", PATIENCE_S)
    run.wait_for(
        lambda report: report["type"] == "sample" and report["events"] > first["events"], "further events", PATIENCE_S
    )


def end(run: Run) -> dict[str, Any]:
    """Ctrl-C: what was admitted is still built, and all is accounted for."""
    run.process.send_signal(signal.SIGINT)
    assert run.finish(PATIENCE_S) == 0, run.story()
    result = run.result()
    assert result["status"] == "interrupted"
    check_accounting(result)
    return result


def lines(run: Run, text: str) -> int:
    return len([line for line in run.notices if text in line])


@pytest.mark.parametrize("node", [BU, RU], ids=["BU", "RU"])
def test_a_killed_unit_is_lost_and_others_go_on(start: Start, node: int, attempt: int) -> None:
    run = running(start, f"kill {node} {attempt}")
    os.kill(run.node_pid(node), signal.SIGKILL)
    wait_for_notice(run, f"node {NAMES[node]} lost: killed by signal 9")
    wait_for_progress(run)
    result = end(run)
    assert lines(run, f"node {NAMES[node]} lost") == 1, run.notices
    assert (result["incomplete_events"] > 0) == (node == RU)


@pytest.mark.parametrize("node", [BU, RU], ids=["BU", "RU"])
def test_a_stopped_unit_comes_back(start: Start, node: int, attempt: int) -> None:
    run = running(start, f"stop {node} {attempt}")
    pid = run.node_pid(node)
    os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    wait_until(lambda: process_state(pid) == "T", "stopped process")
    wait_for_notice(run, f"node {NAMES[node]} dropped by the event manager")
    wait_for_progress(run)
    time.sleep(max(0.0, stopped + 10 - time.monotonic()))  # house: allow sleep: the stimulus
    os.kill(pid, signal.SIGCONT)
    wait_for_notice(run, f"node {NAMES[node]} is back (incarnation 2)")
    wait_for_progress(run)
    result = end(run)
    assert lines(run, f"node {NAMES[node]} dropped") == 1, run.notices
    assert result["nodes"][node]["incarnation"] == 2
