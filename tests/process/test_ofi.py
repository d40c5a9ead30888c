"""Event building over libfabric: its providers tcp and shm, every scheme; nodes that die, and nodes that stop.

INCAST_KILL_TIMES: how often each kind of node is killed and stopped, at different times.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from support import Start, check_accounting, process_state, wait_until
from test_losses import BU, NAMES, RU, end, one_line, pytest_generate_tests, running, wait_for_progress  # noqa: F401
from test_losses import SETTINGS as LOSSES
from transports import OFI

EVENTS = 400
SCHEMES: dict[str, dict[str, Any]] = {"push": {}, "pull": {}, "pull-read": {}, "push-pull": {"filter.accept": 0.7}}
PROVIDERS: dict[str, dict[str, Any]] = {
    "tcp": {},
    "shm": {f"transport.{OFI}.provider": "shm"},
    "shm, gate": {f"transport.{OFI}.provider": "shm", f"transport.{OFI}.order": "gate"},
}
MANY = "INCAST_KILL_TIMES" in os.environ


@pytest.fixture(autouse=True)
def _needs_libfabric(engine: Path) -> None:
    done = subprocess.run([engine, "--info=json"], capture_output=True, text=True, check=True)
    (here,) = (each for each in json.loads(done.stdout)["transports"] if each["name"] == OFI)
    if not here["available"]:
        pytest.skip(here["reason"])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_four_nodes_build_events(start: Start, provider: str, scheme: str) -> None:
    settings = {
        "transport.name": OFI,
        "run.nodes": 4,
        "run.events": EVENTS,
        "protocol.scheme": scheme,
        "protocol.packing": 10,
        "protocol.mfp_size": "16KiB",
        "sink.kind": "verify",
    }
    run = start({**settings, **PROVIDERS[provider], **SCHEMES[scheme]})
    assert run.finish(60) == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert (result["status"], result["verified"], result["incomplete_events"]) == ("complete", "full", 0)
    assert result["events"] == EVENTS


# Each provider once; all of them with every kind of node when it is done often.
KILLED = [("tcp", BU), ("shm", RU)] if not MANY else [(name, node) for name in PROVIDERS for node in (BU, RU)]


@pytest.mark.parametrize(("provider", "node"), KILLED)
def test_a_killed_unit_is_lost_and_others_go_on(start: Start, provider: str, node: int, attempt: int) -> None:
    settings = {**LOSSES, "transport.name": OFI, **PROVIDERS[provider]}
    run = running(start, settings, f"kill {provider} {node} {attempt}")
    os.kill(run.node_pid(node), signal.SIGKILL)
    run.wait_for(lambda report: report["type"] == "notice" and "lost" in report["text"], "loss")
    wait_for_progress(run)
    assert end(run) == 0, run.story()
    one_line(run, f"node {NAMES[node]} lost: killed by signal 9")
    check_accounting(run.result())


@pytest.mark.skipif(not MANY, reason="ten seconds each: with INCAST_KILL_TIMES")
@pytest.mark.parametrize("node", [BU, RU])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stopped_unit_comes_back(start: Start, provider: str, node: int, attempt: int) -> None:
    settings = {**LOSSES, "transport.name": OFI, **PROVIDERS[provider]}
    run = running(start, settings, f"stop {provider} {node} {attempt}")
    pid = run.node_pid(node)
    os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    wait_until(lambda: process_state(pid) == "T", "stopped process")
    wait_for_progress(run)
    time.sleep(max(0.0, stopped + 10 - time.monotonic()))  # house: allow sleep: the stimulus
    os.kill(pid, signal.SIGCONT)
    back = "is back (incarnation 2)"
    run.wait_for(lambda report: report["type"] == "notice" and back in report["text"], "return", 20)
    wait_for_progress(run)
    assert end(run) == 0, run.story()
    check_accounting(run.result())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"provider": "nonsense"}, ["transport.ofi.provider = 'nonsense'", "libfabric1", "tcp"]),
        ({"provider": "psm2"}, ["provider psm2", "fi_info -p psm2"]),
        ({"bind": "127.0.0.1,elsewhere"}, ["'elsewhere' is no address"]),
        ({"provider": "shm", "endpoint": "msg"}, ["provider shm"]),
    ],
)
def test_what_cannot_be_is_one_line(engine: Path, tmp_path: Path, settings: dict[str, str], words: list[str]) -> None:
    sets = [word for name, value in settings.items() for word in ("--set", f"transport.{OFI}.{name}={value}")]
    command = [str(engine), "--set", f"transport.name={OFI}", "--set", "run.nodes=2", "--set", "run.events=10", *sets]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "out")], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    for word in words:
        assert word in done.stderr, done.stderr
    assert len({line for line in done.stderr.splitlines() if words[0] in line}) >= 1
