"""Event building over UCX: over tcp and over its shared memory, every scheme; nodes that die, and nodes that stop.

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
from transports import UCX

EVENTS = 400
SCHEMES: dict[str, dict[str, Any]] = {"push": {}, "pull": {}, "pull-read": {}, "push-pull": {"filter.accept": 0.7}}
WAYS: dict[str, dict[str, Any]] = {
    "tcp": {f"transport.{UCX}.tls": "tcp,self", f"transport.{UCX}.failures": "peer"},
    "posix": {f"transport.{UCX}.tls": "posix,self"},
    "sysv": {f"transport.{UCX}.tls": "sysv,cma,self"},
}
MANY = "INCAST_KILL_TIMES" in os.environ


def here(engine: Path, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [engine, "--info=json"], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    (found,) = (each for each in json.loads(done.stdout)["transports"] if each["name"] == UCX)
    assert isinstance(found, dict)
    return found


@pytest.fixture(autouse=True)
def _needs_ucx(engine: Path) -> None:
    found = here(engine)
    if not found["available"]:
        pytest.skip(found["reason"])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("way", ["tcp", "posix"])
def test_four_nodes_build_events(start: Start, way: str, scheme: str) -> None:
    settings = {
        "transport.name": UCX,
        "run.nodes": 4,
        "run.events": EVENTS,
        "protocol.scheme": scheme,
        "protocol.packing": 10,
        "protocol.mfp_size": "16KiB",
        "sink.kind": "verify",
    }
    run = start({**settings, **WAYS[way], **SCHEMES[scheme]})
    assert run.finish(60) == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert (result["status"], result["verified"], result["incomplete_events"]) == ("complete", "full", 0)
    assert result["events"] == EVENTS


# Each way once; all of them with every kind of node when it is done often.
KILLED = [("tcp", BU), ("posix", RU)] if not MANY else [(name, node) for name in WAYS for node in (BU, RU)]


@pytest.mark.parametrize(("way", "node"), KILLED)
def test_a_killed_unit_is_lost_and_others_go_on(start: Start, way: str, node: int, attempt: int) -> None:
    settings = {**LOSSES, "transport.name": UCX, **WAYS[way]}
    run = running(start, settings, f"kill {way} {node} {attempt}")
    os.kill(run.node_pid(node), signal.SIGKILL)
    run.wait_for(lambda report: report["type"] == "notice" and "lost" in report["text"], "loss")
    wait_for_progress(run)
    assert end(run) == 0, run.story()
    one_line(run, f"node {NAMES[node]} lost: killed by signal 9")
    check_accounting(run.result())


@pytest.mark.skipif(not MANY, reason="ten seconds each: with INCAST_KILL_TIMES")
@pytest.mark.parametrize("node", [BU, RU])
@pytest.mark.parametrize("way", WAYS)
def test_a_stopped_unit_comes_back(start: Start, way: str, node: int, attempt: int) -> None:
    settings = {**LOSSES, "transport.name": UCX, **WAYS[way]}
    run = running(start, settings, f"stop {way} {node} {attempt}")
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


def refusal(engine: Path, folder: Path, settings: dict[str, str], **environment: str) -> str:
    """The one line that a run with these settings of ucx ends with."""
    sets = [word for name, value in settings.items() for word in ("--set", f"transport.{UCX}.{name}={value}")]
    command = [str(engine), "--set", f"transport.name={UCX}", "--set", "run.nodes=2", "--set", "run.events=10", *sets]
    done = subprocess.run(
        [*command, "--output", str(folder / "out")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode != 0
    (line,) = set(done.stderr.splitlines())
    return line


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tls": "nonsense"}, ["transport.ucx.tls", "nonsense"]),
        ({"bind": "127.0.0.1,elsewhere"}, ["'elsewhere' is no address"]),
        ({"send_queue": "100"}, ["send_queue", "no power of two"]),
        ({"failures": "sometimes"}, ["auto | peer | none"]),
        ({"tls": "posix,self", "failures": "peer"}, ["transport.ucx.failures = peer", "no peer failure handler"]),
    ],
)
def test_what_cannot_be_is_one_line(engine: Path, tmp_path: Path, settings: dict[str, str], words: list[str]) -> None:
    line = refusal(engine, tmp_path, settings)
    for word in words:
        assert word in line


def test_a_host_without_the_library_says_what_brings_it(engine: Path, tmp_path: Path) -> None:
    module = engine.parent.parent / "lib" / "incast" / f"incast-transport-{UCX}.so"
    (tmp_path / module.name).write_bytes(module.read_bytes().replace(b"libucp.so.0\0", b"libucp.so.-\0"))
    line = "it needs the library libucp.so.-, which is not installed; the package incast-ucx (with libucx0) brings it"
    assert line in here(engine, INCAST_TRANSPORT_MODULES=str(tmp_path))["reason"]
    assert line in refusal(engine, tmp_path, {}, INCAST_TRANSPORT_MODULES=str(tmp_path))
