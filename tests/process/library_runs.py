"""Runs over transports that are modules around somebody's library: what their tests have in common."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from support import Run, Start, check_accounting, process_state, wait_until
from test_losses import EM, NAMES, SETTINGS, end, one_line, running, wait_for_progress

EVENTS = 400
SCHEMES: dict[str, dict[str, Any]] = {"push": {}, "pull": {}, "pull-read": {}, "push-pull": {"filter.accept": 0.7}}
MANY = "INCAST_KILL_TIMES" in os.environ  # how often nodes are killed and stopped


def entry_of(engine: Path, transport: str, **environment: str) -> dict[str, Any]:
    """What this host has of that transport."""
    done = subprocess.run(
        [engine, "--info=json"], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    (found,) = (each for each in json.loads(done.stdout)["transports"] if each["name"] == transport)
    assert isinstance(found, dict)
    return found


def build_events(start: Start, settings: dict[str, Any], scheme: str) -> None:
    """Four nodes build all events of a scheme, and every byte is right."""
    run = start(
        {
            "run.nodes": 4,
            "run.events": EVENTS,
            "protocol.scheme": scheme,
            "protocol.packing": 10,
            "protocol.mfp_size": "16KiB",
            "sink.kind": "verify",
            **settings,
            **SCHEMES[scheme],
        }
    )
    assert run.finish(60) == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert (result["status"], result["verified"], result["incomplete_events"]) == ("complete", "full", 0)
    assert result["events"] == EVENTS


_END_OF_MANAGER = f"node {NAMES[EM]} lost: silent for"


def took_event_manager_along(run: Run) -> bool:
    """Whether the event manager waits for a lock that a killed or stopped peer holds; and the run ended well."""
    try:
        status = run.finish(20)
    except AssertionError:
        return False
    if not any(text.startswith(_END_OF_MANAGER) for text in run.notices):
        return False
    assert status != 0, run.story()
    result = run.result()
    # What was admitted is known to the event manager alone.
    assert (result["status"], result["lost_events"], result["verify_errors"]) == ("event manager lost", None, 0)
    one_line(run, _END_OF_MANAGER)
    return True


def kill_a_unit(start: Start, settings: dict[str, Any], node: int, seed: str, *, shares_locks: bool = False) -> None:
    """It is lost, with one line, and the others go on.

    shares_locks: a library whose peers share locks. One that is killed or stopped while it holds a lock holds up others
    who want it, and if the event manager is among them, the run ends.
    """
    run = running(start, {**SETTINGS, **settings}, f"kill {seed}")
    os.kill(run.node_pid(node), signal.SIGKILL)
    run.wait_for(lambda report: report["type"] == "notice" and "lost" in report["text"], "loss")
    try:
        wait_for_progress(run)
    except AssertionError:
        if not (shares_locks and took_event_manager_along(run)):
            raise
    else:
        assert end(run) == 0, run.story()
        check_accounting(run.result())
    one_line(run, f"node {NAMES[node]} lost: killed by signal 9")


def stop_a_unit(start: Start, settings: dict[str, Any], node: int, seed: str, *, shares_locks: bool = False) -> None:
    """For ten seconds: it comes back. shares_locks: as above."""
    run = running(start, {**SETTINGS, **settings}, f"stop {seed}")
    pid = run.node_pid(node)
    os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    wait_until(lambda: process_state(pid) == "T", "stopped process")
    try:
        wait_for_progress(run)
        time.sleep(max(0.0, stopped + 10 - time.monotonic()))  # house: allow sleep: the stimulus
        os.kill(pid, signal.SIGCONT)
        back = "is back (incarnation 2)"
        run.wait_for(lambda report: report["type"] == "notice" and back in report["text"], "return", 20)
        wait_for_progress(run)
    except (AssertionError, ProcessLookupError):
        if not (shares_locks and took_event_manager_along(run)):
            raise
    else:
        assert end(run) == 0, run.story()
        check_accounting(run.result())


def refusal(engine: Path, folder: Path, transport: str, settings: dict[str, str], **environment: str) -> str:
    """The one line that a run with these settings of the transport ends with."""
    chosen = {f"transport.{transport}.{name}": value for name, value in settings.items()}
    chosen |= {"transport.name": transport, "run.nodes": "2", "run.events": "10"}
    sets = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    done = subprocess.run(
        [str(engine), *sets, "--output", str(folder / "out")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode != 0
    (line,) = set(done.stderr.splitlines())
    return line
