"""What happens to links and nodes of the transport verbs. Run in a guest with eight soft-RoCE devices (rdma-nodes.sh)
by tests/guest/test_verbs.py; by name only: nowhere else is there a cable to cut. What happens to nodes alone is shown
on real devices as well, by verbs_device.py.

INCAST_GUEST_TIMES: how often each happens, at different times.
"""

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from support import Run, Start, check_accounting, process_state, wait_until

VERBS = "verbs"
DEVICES = Path("/sys/class/infiniband")
# Node I of the run has device I + 1. The event manager lives on node 0.
RU, BU = 1, 3
NAMES = {RU: "1 (RU)", BU: "3 (BU)"}
# Or all of them have the one of verbs_device.py.
DEVICE = os.environ.get("INCAST_RDMA_DEVICE")
BIND = {f"transport.{VERBS}.bind": "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4"}
SETTINGS: dict[str, Any] = {
    "transport.name": VERBS,
    **({f"transport.{VERBS}.device": DEVICE} if DEVICE else BIND),
    "run.nodes": 4,
    "protocol.mfp_size": "32KiB",
    "sink.kind": "verify",
}
SPLIT: dict[str, Any] = {
    **SETTINGS,
    "run.readout_units": 2,
    "run.builder_units": 2,
    "run.roles": "split",
    "run.warm_up": "100ms",
    "run.duration": "1h",
    "run.sample_interval": "200ms",
    "run.drain_deadline": "30s",
    "run.fail_above_incomplete": 1,
    # An emulated kernel that sends all it can leaves no time for processes where the host is busy, and soft-RoCE may
    # refuse what is sent twice ("remote invalid request error").
    "source.trigger_rate": "1kHz",
    "protocol.credits": 8,
    f"transport.{VERBS}.ack_timeout": 18,
}
# Two rails: node I has devices 2 I + 1 and 2 I + 2.
RAILS = {
    f"transport.{VERBS}.bind": ",".join(f"10.0.0.{2 * node + 1}+10.0.0.{2 * node + 2}" for node in range(4)),
}
THERE = sorted(path.name.removeprefix("rxe") for path in DEVICES.glob("rxe*"))
PATIENCE_S = 120.0  # for what takes a second elsewhere
# What netem does to each packet that a node sends, and whether packets then have to be sent again.
LINKS: dict[str, tuple[str, bool]] = {
    "as it is": ("none", False),
    "0.1 % lost": ("loss 0.1%", False),
    "1 % lost": ("loss 1%", True),
    "2 % lost": ("loss 2%", True),
    "1 ms late": ("delay 1ms", False),
    "out of order": ("delay 1ms reorder 75% 50%", True),
}
AGAIN = ("completer_retry_err", "rcvd_seq_err", "out_of_seq_request", "duplicate_request")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "attempt" in metafunc.fixturenames:
        metafunc.parametrize("attempt", range(int(os.environ.get("INCAST_GUEST_TIMES", "1"))))


def link(nodes: str, *words: str) -> None:
    subprocess.run(["netem.sh", nodes, "--", *words], check=True)


@pytest.fixture(autouse=True)
def _as_new() -> Any:
    """Every device is there and every cable is whole, before and after."""
    yield
    link("all", "none")
    for number in THERE:
        if not (DEVICES / f"rxe{number}").exists():
            subprocess.run(
                ["rdma", "link", "add", f"rxe{number}", "type", "rxe", "netdev", f"node{number}"], check=True
            )


def sent_again() -> int:
    """Of all devices, since they are there."""
    return sum(int(path.read_text()) for name in AGAIN for path in DEVICES.glob(f"rxe*/ports/1/hw_counters/{name}"))


def running(start: Start, seed: str, more: dict[str, Any] | None = None) -> Run:
    """At a random time of its measured window; the seed names it."""
    run = start({**SPLIT, **(more or {})})
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


def lines(run: Run, *texts: str) -> int:
    return len([line for line in run.notices if all(text in line for text in texts)])


@pytest.mark.parametrize("name", LINKS)
def test_a_bad_link_costs_time_alone(start: Start, name: str, attempt: int) -> None:
    words, again = LINKS[name]
    before = sent_again()
    link("all", *words.split())
    run = start({**SETTINGS, "run.events": 2000, "protocol.packing": 10, "run.seed": attempt + 1})
    assert run.finish(240) == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert (result["status"], result["verified"], result["incomplete_events"]) == ("complete", "full", 0)
    assert result["events"] == 2000
    counted = sent_again() - before
    assert counted > 0 or not again, "what is lost is sent again"
    goodput = result["goodput_bytes_per_s"]["total"] / 1e6
    print(f"link {name}: {goodput:.1f} MB/s, sent again {counted}")


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


@pytest.mark.parametrize("node", [BU, RU], ids=["BU", "RU"])
def test_a_cable_that_is_whole_again_is_used_again(start: Start, node: int, attempt: int) -> None:
    run = running(start, f"cut {node} {attempt}")
    link(str(node + 1), "cut")
    cut = time.monotonic()
    wait_for_notice(run, f"node {NAMES[node]} dropped by the event manager")
    wait_for_progress(run)
    time.sleep(max(0.0, cut + 6 - time.monotonic()))  # house: allow sleep: the stimulus
    link(str(node + 1), "none")
    wait_for_notice(run, f"node {NAMES[node]} is back (incarnation 2)")
    wait_for_progress(run)
    result = end(run)
    assert lines(run, f"node {NAMES[node]} dropped") == 1, run.notices
    assert (result["incomplete_events"] > 0) == (node == RU)


def lost_for_ever(run: Run, node: int) -> None:
    """It is said once, and the others go on to the end. A node that still runs tries to come back meanwhile."""
    node_is = f"node {NAMES[node]} "
    gone = (node_is + "dropped by the event manager", node_is + "lost: ")
    run.wait_for(lambda report: report.get("text", "").startswith(gone), f"{node_is}gone", PATIENCE_S)
    wait_for_progress(run)
    result = end(run)
    assert max(lines(run, text) for text in gone) == 1, run.notices
    assert lines(run, node_is + "was out until the end") == 1, run.notices
    assert (result["incomplete_events"] > 0) == (node == RU)


@pytest.mark.parametrize("node", [BU, RU], ids=["BU", "RU"])
def test_a_cable_that_stays_cut_costs_its_node(start: Start, node: int, attempt: int) -> None:
    run = running(start, f"cut for ever {node} {attempt}")
    link(str(node + 1), "cut")
    lost_for_ever(run, node)


@pytest.mark.parametrize("node", [BU, RU], ids=["BU", "RU"])
def test_a_device_that_is_taken_away_costs_its_node(start: Start, node: int, attempt: int) -> None:
    run = running(start, f"remove {node} {attempt}")
    subprocess.run(["rdma", "link", "delete", f"rxe{node + 1}"], check=True)
    lost_for_ever(run, node)
    why = f"lost: {VERBS}: the RDMA device rxe{node + 1} was removed"
    assert [line for line in run.notices if NAMES[node] in line and "was out until" not in line] == [
        line for line in run.notices if f"node {NAMES[node]} {why}; " in line
    ], run.notices


@pytest.mark.parametrize("rail", [0, 1])
def test_a_rail_that_is_taken_away_costs_its_node(start: Start, rail: int, attempt: int) -> None:
    """Without the peers that are on it a node cannot go on; the others do. One line names the rail, one the node."""
    run = running(start, f"rail {rail} {attempt}", RAILS)
    device = f"rxe{2 * BU + 1 + rail}"
    subprocess.run(["rdma", "link", "delete", device], check=True)
    why = f"{VERBS}: the RDMA device {device} was removed"
    wait_for_notice(run, f"node {NAMES[BU]} lost: {why}; ")
    wait_for_progress(run)
    assert end(run)["incomplete_events"] == 0
    assert lines(run, f"{why}: rail {rail + 1} of 2 is lost with the peers on it") == 1, run.notices
    assert lines(run, device) == 2, run.notices
    assert lines(run, f"node {NAMES[BU]} was out until the end") == 1, run.notices
