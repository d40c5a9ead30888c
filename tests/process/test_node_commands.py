"""`incast node`: readout and builder units are taken out of a run by command, and let in again, while it goes on.

INCAST_KILL_TIMES: how many restarts under load.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Run, Start, audited, check_accounting, process_state, wait_until
from test_losses import BU, EM, NAMES, RU, SETTINGS, end, one_line, wait_for_progress
from transports import SHARED_MEMORY, SOCKETS

TIMES = int(os.environ.get("INCAST_KILL_TIMES", "3"))


def node(run: Run, *words: str) -> subprocess.CompletedProcess[str]:
    """`incast node` on a run; the numbers of nodes last."""
    command = [sys.executable, "-m", "incast", "node", words[0], str(run.output), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT / "python")


def sample(run: Run) -> dict[str, Any]:
    return run.wait_for(lambda report: report["type"] == "sample", "sample")


@pytest.mark.parametrize("transport", [SOCKETS, SHARED_MEMORY])
def test_units_are_restarted_under_load(start: Start, transport: str) -> None:
    """What they miss is flagged, they take part again at once, and nobody else is touched."""
    run = start({**SETTINGS, "transport.name": transport})
    run.wait_for_phase("measuring")
    others = {number: run.node_pid(number) for number in range(6) if number not in (RU, BU)}
    for attempt in range(TIMES):
        for unit in (RU, BU):
            before = run.node_pid(unit)
            done = node(run, "restart", str(unit))
            assert (done.returncode, done.stderr) == (0, ""), run.story()
            assert done.stdout == f"{run.output}: node {NAMES[unit]} is back (incarnation {attempt + 2})\n"
            assert run.node_pid(unit) != before
            wait_for_progress(run)
    assert others == {number: run.node_pid(number) for number in others}
    assert end(run) == 0, run.story()
    result = run.result()
    check_accounting(result)
    out = audited(run, "taken_out")
    assert [entry["node"] for entry in out] == [RU, BU] * TIMES
    assert {entry["reason"] for entry in out} == {"taken out by command"}
    back = audited(run, "back")
    assert [entry["node"] for entry in back] == [RU, BU] * TIMES
    # Complete again within a second: what a readout unit is out for is all that costs.
    assert all(entry["cost"]["seconds"] < 1 for entry in back if TIMES > 3), back
    assert result["incomplete_events"] == sum(entry["cost"]["incomplete_events"] for entry in back)
    for number, record in enumerate(result["nodes"]):
        assert record["incarnation"] == (TIMES + 1 if number in (RU, BU) else 1)
        assert record["losses"] == 0
    assert not [line for line in run.notices if "lost" in line]


def test_a_node_stays_out_until_it_is_let_in(start: Start) -> None:
    run = start({**SETTINGS, "transport.name": SOCKETS, "run.respawn": "true"})
    run.wait_for_phase("measuring")
    pid = run.node_pid(RU)
    assert node(run, "out", str(RU)).stdout == f"{run.output}: node {NAMES[RU]} is out\n"
    assert process_state(pid) == ""
    one_line_of = "node 1 (RU) is out by command; MEPs without its fragments are flagged"
    run.wait_for(lambda report: report["type"] == "notice" and report["text"] == one_line_of, "notice")
    wait_for_progress(run)
    with pytest.raises(AssertionError, match="has no process"):
        run.node_pid(RU)
    again = node(run, "out", str(RU))
    assert (again.returncode, again.stdout) != (0, "")
    assert "is out already" in again.stderr
    assert node(run, "in", str(RU)).returncode == 0
    wait_until(lambda: sample(run)["incomplete_events"] == sample(run)["incomplete_events"], "complete events")
    assert end(run) == 0, run.story()
    one_line(run, one_line_of)
    check_accounting(run.result())


def test_a_stopped_node_is_made_to_leave(start: Start) -> None:
    run = start({**SETTINGS, "transport.name": SOCKETS})
    run.wait_for_phase("measuring")
    os.kill(run.node_pid(BU), signal.SIGSTOP)
    assert node(run, "restart", str(BU)).returncode == 0, run.story()
    wait_for_progress(run)
    assert end(run) == 0, run.story()
    check_accounting(run.result())


def test_a_node_that_was_lost_is_let_in_again(start: Start) -> None:
    run = start({**SETTINGS, "transport.name": SOCKETS})
    run.wait_for_phase("measuring")
    os.kill(run.node_pid(RU), signal.SIGKILL)
    run.wait_for(lambda report: report["type"] == "notice" and "lost" in report["text"], "loss")
    done = node(run, "restart", str(RU))
    assert done.stdout == f"{run.output}: node {NAMES[RU]} is back (incarnation 2)\n", done
    wait_for_progress(run)
    assert end(run) == 0, run.story()
    check_accounting(run.result())


def test_what_cannot_be_is_refused_in_one_line(start: Start, tmp_path: Path) -> None:
    run = start({**SETTINGS, "transport.name": SOCKETS, "run.least_builder_units": 3})
    run.wait_for_phase("measuring")
    for words, why in [
        (("out", str(EM)), f"the run needs node {NAMES[EM]}"),
        (("out", str(BU)), "run.least_builder_units = 3, and 2 are left without it"),
        (("in", str(RU)), f"node {NAMES[RU]} is not out"),
        (("restart", "6"), "there is no node 6; allowed: 0..5"),
    ]:
        done = node(run, *words)
        assert (done.returncode, done.stdout) == (1, ""), done
        assert why in done.stderr
        assert len(done.stderr.splitlines()) == 1
    control = run.output / "control"
    assert control.is_socket()
    assert control.stat().st_mode & 0o777 == 0o600
    assert node(run, "out", "0").returncode == 0
    last = node(run, "out", str(RU))
    assert "run.least_readout_units = 1, and 0 are left without it" in last.stderr
    assert end(run) == 0, run.story()
    assert not control.exists()
    assert "no run takes commands here" in node(run, "out", "0").stderr
    run.output = tmp_path / "nothing"
    assert "no such directory" in node(run, "out", "0").stderr


def test_the_run_ends_when_a_loss_leaves_too_few(start: Start) -> None:
    run = start({**SETTINGS, "transport.name": SOCKETS, "run.least_builder_units": 3})
    run.wait_for_phase("measuring")
    os.kill(run.node_pid(BU), signal.SIGKILL)
    assert run.finish() == 3, run.story()
    one_line(run, "the run stops (run.least_builder_units = 3, and 2 are left without it)")
    assert run.result()["status"] == "node lost"
    check_accounting(run.result())


def test_more_than_there_are_is_refused(engine: Path) -> None:
    words = ["--set", "run.nodes=4", "--set", "run.least_readout_units=5", "--set", "transport.name=shm"]
    done = subprocess.run([engine, *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "run.least_readout_units = 5: the run has 4; allowed: 1..4" in done.stderr + done.stdout
