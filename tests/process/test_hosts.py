"""Two hosts, as two network namespaces with a cable between them."""

import json
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Start, check_accounting, two_hosts
from transports import SOCKETS

TOKEN = "0123456789abcdef0123456789abcdef"
NODES_PER_HOST = 8


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two of them, by name."""
    with two_hosts() as names:
        yield names


@pytest.mark.parametrize("scheme", ["push", "pull"])
def test_two_hosts_build_events(start: Start, engine: Path, hosts: list[str], scheme: str) -> None:
    run = start(
        {
            "transport.name": SOCKETS,
            "run.nodes": 2 * NODES_PER_HOST,
            "run.warm_up": "100ms",
            "run.duration": "1s",
            "protocol.scheme": scheme,
            "protocol.mfp_size": "16KiB",
            "sink.kind": "verify",
        },
        "--spawn",
        str(NODES_PER_HOST),
        "--listen",
        "10.0.0.1:0",
        token=TOKEN,
        prefix=["ip", "netns", "exec", hosts[0]],
    )
    listening = run.wait_for(lambda report: report["type"] == "listening", "address")
    environment = {**os.environ, "INCAST_TOKEN": TOKEN}
    command = ["ip", "netns", "exec", hosts[1], str(engine), "--join", listening["address"]]
    others = [
        subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for _ in range(NODES_PER_HOST)
    ]
    try:
        assert run.finish(120) == 0, run.story()
        assert [other.wait(20) for other in others] == [0] * NODES_PER_HOST
    finally:
        for other in others:
            if other.poll() is None:
                other.kill()
            other.wait()
    result = run.result()
    assert result["events"] > 0
    assert result["verified"] == "full"
    assert len(result["nodes"]) == 2 * NODES_PER_HOST
    assert result["set_up_ns"] > 0
    assert all(node["peak_rss_bytes"] > 0 for node in result["nodes"])
    check_accounting(result)


def test_nodes_are_told_whose_process_has_ended(start: Start) -> None:
    """The node that joins is played here: it says who it is, and listens."""
    run = start(
        {"transport.name": SOCKETS, "run.nodes": 3, "run.duration": "1h"},
        "--spawn",
        "2",
        "--listen",
        "127.0.0.1:0",
        token=TOKEN,
    )
    host, port = run.wait_for(lambda report: report["type"] == "listening", "address")["address"].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as stream, stream.makefile("rwb") as frames:

        def say(message: dict[str, Any]) -> None:
            text = json.dumps(message).encode()
            frames.write(struct.pack("<I", len(text)) + text)
            frames.flush()

        def hear(kind: str) -> dict[str, Any]:
            while True:
                (size,) = struct.unpack("<I", frames.read(4))
                message: dict[str, Any] = json.loads(frames.read(size))
                if message["type"] == kind:
                    return message

        say({"type": "hello", "magic": "incast-rendezvous", "protocol": 4, "token": TOKEN, "pid": 1, "version": "x"})
        incarnation = hear("welcome")["incarnation"]
        say({"type": "address", "incarnation": incarnation, "address": "00", "metrics": ""})
        peers = {node: incarnation for node, incarnation, _ in hear("peers")["peers"]}
        os.kill(run.node_pid(1), signal.SIGKILL)
        assert hear("ended") == {"type": "ended", "node": 1, "incarnation": peers[1]}
