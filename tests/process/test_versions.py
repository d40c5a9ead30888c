"""Programs of other versions at the rendezvous: what 0.1.0 said, byte for byte, against the program of now."""

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
from support import ROOT, Start
from transports import SOCKETS

TOKEN = "0123456789abcdef0123456789abcdef"  # in the transcript, too
DEADLINE_S = 60


def golden(who: str) -> list[bytes]:
    """The frames of that side, as they travelled."""
    lines = (ROOT / "tests/golden/rendezvous-0.1.0.txt").read_text().splitlines()
    said = [line.split(" ", 2) for line in lines if not line.startswith("#")]
    return [bytes.fromhex(length) + text.encode() for side, length, text in said if side == who]


def meaning(frame: bytes) -> dict[str, Any]:
    assert struct.unpack("<I", frame[:4])[0] == len(frame) - 4
    return json.loads(frame[4:])


def only(frames: list[bytes], kind: str) -> bytes:
    return next(frame for frame in frames if meaning(frame)["type"] == kind)


class Wire:
    """One end of a rendezvous."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        end.settimeout(DEADLINE_S)

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.end.recv(size - len(data))
            assert chunk, "the other side hung up"
            data += chunk
        return data

    def hear(self, kind: str) -> dict[str, Any]:
        """The next of that kind."""
        while True:
            message = json.loads(self.exactly(struct.unpack("<I", self.exactly(4))[0]))
            if message["type"] == kind:
                return message
            assert message["type"] not in ("refused", "failed"), message


def test_a_node_of_0_1_0_joins(start: Start) -> None:
    settings = {"transport.name": SOCKETS, "run.nodes": 2, "run.duration": "1h"}
    run = start(settings, "--spawn", "1", token=TOKEN)
    host, port = run.wait_for(lambda report: report["type"] == "listening", "address")["address"].rsplit(":", 1)
    said, heard = golden("node"), golden("coordinator")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as end:
        wire = Wire(end)
        end.sendall(only(said, "hello"))
        welcome = wire.hear("welcome")
        assert meaning(only(heard, "welcome")).keys() <= welcome.keys()
        assert (welcome["node"], welcome["incarnation"]) == (1, 1)
        end.sendall(only(said, "clock"))
        answer = wire.hear("clock")
        assert answer["asked_ns"] == meaning(only(said, "clock"))["asked_ns"]
        assert answer.keys() == meaning(only(heard, "clock")).keys()
        address = meaning(only(said, "address"))["address"]
        end.sendall(only(said, "address"))
        peers = wire.hear("peers")
        assert [1, 1, address] in peers["peers"]
        assert [peer[0] for peer in peers["peers"]] == [0, 1]
        assert peers["control"] == 1
        for frame in said:
            if meaning(frame)["type"] == "sample":
                end.sendall(frame)
        end.sendall(only(said, "clock"))
        wire.hear("clock")  # what came before it made sense
    run.process.send_signal(signal.SIGINT)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)
        yield server


def test_a_coordinator_of_0_1_0_is_joined(engine: Path, tmp_path: Path, listener: socket.socket) -> None:
    node = subprocess.Popen(
        [engine, "--join", f"127.0.0.1:{listener.getsockname()[1]}"],
        env={**os.environ, "INCAST_TOKEN": TOKEN},
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        end, _ = listener.accept()
        with end:
            wire = Wire(end)
            said, heard = golden("coordinator"), golden("node")
            hello = wire.hear("hello")
            old = meaning(only(heard, "hello"))
            assert old.keys() <= hello.keys()
            assert hello["oldest_protocol"] <= old["protocol"] <= hello["protocol"]
            assert hello["control"][0] <= 1 <= hello["control"][1]
            end.sendall(only(said, "welcome"))
            for frame in said:
                if meaning(frame)["type"] == "clock":
                    answer = {**meaning(frame), "asked_ns": wire.hear("clock")["asked_ns"]}
                    text = json.dumps(answer, separators=(",", ":")).encode()
                    end.sendall(struct.pack("<I", len(text)) + text)
            address = wire.hear("address")
            assert meaning(only(heard, "address")).keys() <= address.keys()
            end.sendall(only(said, "peers"))
            end.sendall(only(said, "sample"))
            sample = wire.hear("sample")["sample"]
            assert meaning(only(heard, "sample"))["sample"].keys() <= sample.keys()
            end.sendall(only(said, "quit"))
            _, errors = node.communicate(timeout=DEADLINE_S)
        assert (node.returncode, errors) == (0, "")
    finally:
        node.kill()
        node.wait()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"protocol": 9, "oldest_protocol": 8}, "it speaks versions 8 to 9 of the rendezvous (Incast 0.9.1), this one"),
        ({"control": [7, 8]}, "it speaks versions 7 to 8 of control messages (Incast 0.9.1), this one version 1"),
    ],
)
def test_others_are_refused_in_one_line(start: Start, changes: dict[str, Any], reason: str) -> None:
    run = start({"transport.name": SOCKETS, "run.nodes": 2, "run.duration": "1h"}, "--spawn", "1", token=TOKEN)
    host, port = run.wait_for(lambda report: report["type"] == "listening", "address")["address"].rsplit(":", 1)
    text = json.dumps({**meaning(only(golden("node"), "hello")), "version": "0.9.1", **changes}).encode()
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as end:
        end.sendall(struct.pack("<I", len(text)) + text)
        refused = json.loads((wire := Wire(end)).exactly(struct.unpack("<I", wire.exactly(4))[0]))
    assert refused["type"] == "refused"
    assert refused["reason"].startswith(reason)
    assert refused["reason"].endswith(")")
    run.process.send_signal(signal.SIGINT)
