"""Nodes that die, and nodes that stop and come back, over tcp and shm (EB-F3, EB-F4)."""

import os
import random
import signal
import time
from typing import Any

import pytest
from support import Run, Start, audited, check_accounting, process_state, wait_until
from transports import RAPIDIO, SHARED_MEMORY, SOCKETS

SETTINGS = {
    "run.nodes": 5,
    "run.readout_units": 2,
    "run.builder_units": 3,
    "run.roles": "split",
    "run.em": "own",
    "run.warm_up": "100ms",
    "run.duration": "1h",
    "run.sample_interval": "100ms",
    "run.drain_deadline": "20s",
    "run.fail_above_incomplete": 1,
    "protocol.mfp_size": "32KiB",
    "sink.kind": "verify",
}
RU, BU, EM = 1, 3, 5
NAMES = {RU: "1 (RU)", BU: "3 (BU)", EM: "5 (EM)"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """INCAST_KILL_TIMES: how often each kind of node is killed and stopped, at different times."""
    if "attempt" in metafunc.fixturenames:
        metafunc.parametrize("attempt", range(int(os.environ.get("INCAST_KILL_TIMES", "1"))))


# Over rio once in test_rio.py, and here when it is done often.
@pytest.fixture(params=[SOCKETS, SHARED_MEMORY, *([RAPIDIO] if "INCAST_KILL_TIMES" in os.environ else [])])
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Of a run over each transport between processes."""
    return {**SETTINGS, "transport.name": request.param}


def running(start: Start, settings: dict[str, Any], seed: str) -> Run:
    """A run at a random time of its measured window. The seed names the time, so that a failure can be tried again."""
    run = start(settings)
    run.wait_for_phase("measuring")
    time.sleep(random.Random(seed).uniform(0.0, 1.0))  # house: allow sleep: the stimulus
    return run


def wait_for_progress(run: Run) -> None:
    """Until events are built again."""
    first = run.wait_for(lambda report: report["type"] == "sample", "sample")
    run.wait_for(lambda report: report["type"] == "sample" and report["events"] > first["events"], "further events")


def end(run: Run) -> int:
    """Ctrl-C: what was admitted is still built."""
    run.process.send_signal(signal.SIGINT)
    return run.finish()


def one_line(run: Run, text: str) -> None:
    assert len([line for line in run.notices if text in line]) == 1, run.notices


def test_a_killed_builder_unit_costs_nothing(start: Start, settings: dict[str, Any], attempt: int) -> None:
    run = running(start, settings, f"kill BU {attempt}")
    os.kill(run.node_pid(BU), signal.SIGKILL)
    run.wait_for(lambda report: report["type"] == "notice" and "lost" in report["text"], "loss")
    wait_for_progress(run)
    assert end(run) == 0, run.story()
    result = run.result()
    one_line(run, f"node {NAMES[BU]} lost: killed by signal 9")
    assert result["status"] == "interrupted"
    assert result["incomplete_events"] == 0
    check_accounting(result)


def test_a_killed_readout_unit_is_flagged(start: Start, settings: dict[str, Any], attempt: int) -> None:
    run = running(start, settings, f"kill RU {attempt}")
    os.kill(run.node_pid(RU), signal.SIGKILL)
    run.wait_for(lambda report: report["type"] == "notice" and "lost" in report["text"], "loss")
    wait_for_progress(run)
    assert end(run) == 0, run.story()
    result = run.result()
    one_line(run, f"node {NAMES[RU]} lost: killed by signal 9")
    assert result["incomplete_events"] > 0
    assert result["accounting"]["meps_flagged"] == result["accounting"]["ledger"]["flagged"] > 0
    check_accounting(result)


def check_event_manager_lost(run: Run) -> None:
    result = run.result()
    assert result["status"] == "event manager lost"
    assert result["lost_events"] is None
    assert result["goodput_bytes_per_s"]["total"] > 0
    ledger = result["accounting"]["ledger"]
    assert ledger["commits"] == ledger["distinct_meps"] > 0
    assert result["verify_errors"] == 0


def test_a_killed_event_manager_ends_the_run(start: Start, settings: dict[str, Any], attempt: int) -> None:
    run = running(start, settings, f"kill EM {attempt}")
    os.kill(run.node_pid(EM), signal.SIGKILL)
    assert run.finish(20) == 3, run.story()
    one_line(run, f"node {NAMES[EM]} lost: killed by signal 9")
    check_event_manager_lost(run)


def test_a_stopped_event_manager_ends_the_run(start: Start, settings: dict[str, Any], attempt: int) -> None:
    run = running(start, settings, f"stop EM {attempt}")
    pid = run.node_pid(EM)
    os.kill(pid, signal.SIGSTOP)
    assert run.finish(30) == 3, run.story()
    assert process_state(pid) == "", "the stopped process must not be left behind"
    one_line(run, f"node {NAMES[EM]} lost: silent for")
    check_event_manager_lost(run)


@pytest.mark.parametrize("node", [BU, RU], ids=["BU", "RU"])
def test_a_stopped_unit_comes_back(start: Start, settings: dict[str, Any], node: int, attempt: int) -> None:
    """A writer that wakes up late may write nothing where others write by now (EB-F3), and takes part again."""
    run = running(start, settings, f"stop {NAMES[node]} {attempt}")
    pid = run.node_pid(node)
    os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    wait_until(lambda: process_state(pid) == "T", "stopped process")
    wait_for_progress(run)
    time.sleep(max(0.0, stopped + 10 - time.monotonic()))  # house: allow sleep: the stimulus
    os.kill(pid, signal.SIGCONT)
    back = "is back (incarnation 2)"
    run.wait_for(lambda report: report["type"] == "notice" and back in report["text"], "return", 20)
    run.wait_for(lambda report: "was out for" in report.get("text", ""), "what it cost", 20)
    wait_for_progress(run)
    assert end(run) == 0, run.story()
    one_line(run, f"node {NAMES[node]} has been silent for")
    one_line(run, f"node {NAMES[node]} dropped by the event manager: the event manager heard nothing of it for")
    one_line(run, f"node {NAMES[node]} was out for")
    result = run.result()
    (cost,) = [entry["cost"] for entry in audited(run, "back")]
    assert cost["seconds"] > 0
    assert (cost["incomplete_events"] > 0) == (node == RU)
    assert cost["incomplete_events"] <= result["incomplete_events"]
    assert cost["reassigned_meps"] <= result["accounting"]["reassignments"]
    assert result["nodes"][node]["incarnation"] == 2
    assert (result["incomplete_events"] > 0) == (node == RU)
    check_accounting(result)


def test_a_respawned_unit_takes_part_again(start: Start, settings: dict[str, Any]) -> None:
    run = start({**settings, "run.respawn": "true"})
    run.wait_for_phase("measuring")
    killed = run.node_pid(BU)
    os.kill(killed, signal.SIGKILL)
    back = "node 3 (BU) is back (incarnation 2)"
    run.wait_for(lambda report: report["type"] == "notice" and back in report["text"], "return")
    assert run.node_pid(BU) != killed
    wait_for_progress(run)
    assert end(run) == 0, run.story()
    check_accounting(run.result())


def test_a_loss_stops_the_run_if_asked(start: Start, settings: dict[str, Any]) -> None:
    run = start({**settings, "run.on_loss": "stop"})
    run.wait_for_phase("measuring")
    os.kill(run.node_pid(BU), signal.SIGKILL)
    assert run.finish() == 3, run.story()
    assert run.result()["status"] == "node lost"
    check_accounting(run.result())


def test_nodes_end_with_a_killed_coordinator(start: Start, settings: dict[str, Any]) -> None:
    run = running(start, settings, "kill coordinator")
    pids = run.all_node_pids()
    assert len(pids) == 6
    run.process.kill()
    for pid in pids:
        wait_until(lambda pid=pid: process_state(pid) in ("", "Z"), f"the end of node process {pid}", 10)


def test_a_second_interrupt_aborts(start: Start, settings: dict[str, Any]) -> None:
    run = running(start, settings, "abort")
    os.kill(run.node_pid(BU), signal.SIGSTOP)  # cannot drain
    run.process.send_signal(signal.SIGTERM)
    run.wait_for_phase("draining")
    run.process.send_signal(signal.SIGINT)
    assert run.finish(10) == 130, run.story()
    assert run.all_node_pids() == []
