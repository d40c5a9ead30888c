"""Runs without a terminal: started, looked after, ended early, killed."""

import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from incast.run.detached import _LOG_BYTES, DIED, Detached, _RotatingText, _write

from tests.conftest import DEADLINE_S
from tests.lab.conftest import InProcess
from tests.test_files import full_disk

SMALL = ("--transport", "inproc", "--nodes", "2", "--warm-up", "0s", "--set", "source.prefill_size=256KiB")


def state_of(real: InProcess, name: str) -> dict[str, Any]:
    (report,) = json.loads(real("status", name, "--json").stdout)
    found: dict[str, Any] = report
    return found


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline


@pytest.fixture
def detached(real: InProcess) -> Iterator[int]:
    """The process of a run of an hour, in `out`; ended at the end of the test whatever happens."""
    watched = ("--web", "--set", "run.metrics=127.0.0.1:0")
    done = real("run", "--detach", *SMALL, *watched, "--duration", "1h", "--output", "out", "--json")
    assert done.returncode == 0, done.stderr
    pid = json.loads(done.stdout)["pid"]
    yield pid
    run = Detached(real.folder / "out.run.json", json.loads((real.folder / "out.run.json").read_text()))
    if run.is_alive():
        os.killpg(pid, signal.SIGKILL)
    for engine in run.engines():
        os.killpg(engine, signal.SIGKILL)


def test_it_runs_in_a_session_of_its_own_and_stops_when_asked(real: InProcess, detached: int) -> None:
    assert os.getsid(detached) == detached != os.getsid(0), "a terminal that is closed does not reach it"
    until(lambda: state_of(real, "out")["phase"] == "measuring")  # a first node may build before the second reports
    until(lambda: bool(state_of(real, "out")["goodput_bytes_per_s"]))
    going = state_of(real, "out")
    assert (going["state"], going["pid"], going["exit_status"]) == ("running", detached, None)
    assert len(going["nodes"]) == 2
    assert "running" in real("status", "out").stdout
    page = re.search(r"live page: (\S+)", (real.folder / "out.log").read_text())
    assert page is not None
    for url in (page[1], *(f"http://{address}/metrics" for address in going["metrics"])):
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            assert b"incast" in answer.read()
    stopped = real("stop", "out")
    assert stopped.returncode == 0, stopped.stderr
    assert "interrupted" in stopped.stdout
    ended = state_of(real, "out")
    assert (ended["state"], ended["exit_status"]) == ("interrupted", 0)
    result = json.loads((real.folder / "out" / "result.json").read_text())
    assert (result["status"], result["lost_events"]) == ("interrupted", 0)
    assert "goodput" in (real.folder / "out.log").read_text()
    again = real("stop", "out")
    assert again.returncode == 0
    assert "nothing to stop" in again.stdout


def test_one_that_was_killed_is_not_running_and_its_engine_can_be_stopped(real: InProcess, detached: int) -> None:
    until(lambda: bool(state_of(real, "out")["goodput_bytes_per_s"]))  # its engine is there
    os.kill(detached, signal.SIGKILL)
    until(lambda: state_of(real, "out")["state"].startswith(DIED))
    assert "its engine goes on" in state_of(real, "out")["state"]
    real("stop", "out")
    assert state_of(real, "out")["state"] == DIED
    assert json.loads((real.folder / "out" / "result.json").read_text())["status"] == "interrupted"
    assert "nothing to stop" in real("stop", "out").stdout


def test_one_that_was_not_detached_can_be_asked_for_when_it_has_ended(real: InProcess) -> None:
    assert real("run", *SMALL, "--duration", "50ms", "--output", "out").returncode == 0
    assert state_of(real, "out")["state"] == "complete"
    stopped = real("stop", "out")
    assert (stopped.returncode, stopped.stdout) == (0, "out: complete; nothing to stop\n")
    (real.folder / "out" / "result.json").unlink()  # as if its engine had been killed, too
    assert state_of(real, "out")["state"] == "ended without a result"


def test_it_completes_by_itself_and_is_listed(real: InProcess) -> None:
    (real.folder / "incast-results").mkdir()
    options = (*SMALL, "--duration", "100ms", "--output", "incast-results/short")
    assert real("run", "--detach", *options).returncode == 0
    until(lambda: state_of(real, "incast-results/short")["exit_status"] is not None)
    shown = real("status")
    assert "incast-results/short: complete" in shown.stdout


def test_a_bad_config_is_the_same_one_line(real: InProcess) -> None:
    done = real("run", "--detach", "--nodes", "0", "--output", "out")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "run.nodes = 0" in done.stderr
    assert not list(real.folder.iterdir()), "nothing is left behind"


def test_what_is_there_is_not_overwritten_and_what_is_not_is_said(real: InProcess) -> None:
    (real.folder / "out").mkdir()
    taken = real("run", "--detach", *SMALL, "--output", "out")
    assert taken.returncode == 2
    assert "there already" in taken.stderr
    for command in ("status", "stop"):
        done = real(command, "absent")
        assert done.returncode == 1
        assert "no detached run" in done.stderr
        assert done.stderr.count("\n") == 1
    assert "no detached runs" in real("status").stdout


def test_logs_rotate(tmp_path: Path) -> None:
    stream = _RotatingText(tmp_path / "x.log")
    line = "100 % of a line that is neither short nor long " * 4
    for number in range(7 * _LOG_BYTES // len(line)):
        stream.write(f"{number} {line}\n")
    stream.close()
    logs = sorted(tmp_path.iterdir())
    assert [path.name for path in logs] == ["x.log", *(f"x.log.{k}" for k in range(1, 5))]
    assert all(path.stat().st_size <= _LOG_BYTES for path in logs)
    assert "100 % of a line" in logs[0].read_text()


def test_a_damaged_state_hides_no_other(real: InProcess) -> None:
    results = real.folder / "incast-results"
    results.mkdir()
    (results / "bad.run.json").write_text("")
    (results / "good.run.json").write_text(json.dumps({"schema": 1, "exit_status": 3, "pid": 1, "start_ticks": 1}))
    done = real("status")
    assert done.returncode == 1
    assert "good: ended with status 3" in done.stdout
    (line,) = done.stderr.splitlines()
    assert "bad.run.json: damaged" in line
    assert [report["state"] for report in json.loads(real("status", "--json").stdout)] == ["ended with status 3"]


def test_its_state_is_written_in_place_where_there_is_no_room_for_another(tmp_path: Path) -> None:
    state = tmp_path / "out.run.json"
    _write(state, {"request": {}})
    size = state.stat().st_size
    with full_disk(size - 1):  # a new file would be as long
        _write(state, {"request": {}, "exit_status": 0})
    assert state.stat().st_size == size
    assert json.loads(state.read_text())["exit_status"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out.run.json"]


def test_a_name_is_of_one_run_unless_it_is_to_be_replaced(real: InProcess) -> None:
    short = ("run", "--detach", *SMALL, "--events", "2000", "--output", "out")
    assert real(*short).returncode == 0
    until(lambda: state_of(real, "out")["exit_status"] is not None)
    refused = real(*short)
    assert refused.returncode == 2
    assert "is there already; allowed: a name that is not, or --force" in refused.stderr
    assert real(*short, "--force").returncode == 0
    until(lambda: state_of(real, "out")["exit_status"] is not None)
    assert state_of(real, "out")["state"] == "complete"
