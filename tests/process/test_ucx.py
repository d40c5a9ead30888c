"""Event building over UCX: over tcp and over its shared memory, every scheme; nodes that die, and nodes that stop.

INCAST_KILL_TIMES: how often each kind of node is killed and stopped, at different times.
"""

from pathlib import Path
from typing import Any

import pytest
from library_runs import MANY, SCHEMES, build_events, entry_of, kill_a_unit, refusal, stop_a_unit
from support import Start
from test_losses import BU, RU, pytest_generate_tests  # noqa: F401
from transports import UCX

WAYS: dict[str, dict[str, Any]] = {
    "tcp": {"transport.name": UCX, f"transport.{UCX}.tls": "tcp,self", f"transport.{UCX}.failures": "peer"},
    "posix": {"transport.name": UCX, f"transport.{UCX}.tls": "posix,self"},
    "sysv": {"transport.name": UCX, f"transport.{UCX}.tls": "sysv,cma,self"},
}
NO_READS = ("tcp", "pull-read")


@pytest.fixture(scope="module", autouse=True)
def _needs_ucx(engine: Path) -> None:
    found = entry_of(engine, UCX)
    if not found["available"]:
        pytest.skip(found["reason"])


@pytest.mark.parametrize(
    ("way", "scheme"), [(way, scheme) for way in ("tcp", "posix") for scheme in SCHEMES if (way, scheme) != NO_READS]
)
def test_four_nodes_build_events(start: Start, way: str, scheme: str) -> None:
    build_events(start, WAYS[way], scheme)


def test_reads_over_tcp_are_refused(start: Start) -> None:
    run = start({"run.nodes": 4, "run.events": 10, "protocol.scheme": NO_READS[1], **WAYS[NO_READS[0]]})
    assert run.finish(60) != 0
    assert "the transport cannot read" in run.story()


# Each way once; all of them with every kind of node when it is done often.
KILLED = [("tcp", BU), ("posix", RU)] if not MANY else [(name, node) for name in WAYS for node in (BU, RU)]


@pytest.mark.parametrize(("way", "node"), KILLED)
def test_a_killed_unit_is_lost_and_others_go_on(start: Start, way: str, node: int, attempt: int) -> None:
    kill_a_unit(start, WAYS[way], node, f"{way} {node} {attempt}")


@pytest.mark.skipif(not MANY, reason="ten seconds each: with INCAST_KILL_TIMES")
@pytest.mark.parametrize("node", [BU, RU])
@pytest.mark.parametrize("way", WAYS)
def test_a_stopped_unit_comes_back(start: Start, way: str, node: int, attempt: int) -> None:
    stop_a_unit(start, WAYS[way], node, f"{way} {node} {attempt}")


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
    line = refusal(engine, tmp_path, UCX, settings)
    for word in words:
        assert word in line


def test_a_host_without_the_library_says_what_brings_it(engine: Path, tmp_path: Path) -> None:
    module = engine.parent.parent / "lib" / "incast" / f"incast-transport-{UCX}.so"
    (tmp_path / module.name).write_bytes(module.read_bytes().replace(b"libucp.so.0\0", b"libucp.so.-\0"))
    line = "it needs the library libucp.so.-, which is not installed; the package incast-ucx (with libucx0) brings it"
    assert line in entry_of(engine, UCX, INCAST_TRANSPORT_MODULES=str(tmp_path))["reason"]
    assert line in refusal(engine, tmp_path, UCX, {}, INCAST_TRANSPORT_MODULES=str(tmp_path))
