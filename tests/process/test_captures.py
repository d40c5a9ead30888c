"""Captures of the datagrams of boards, sent again by `incast emit --pcap` (docs/dataflow.md).

Some are written here; one is captured by tcpdump, where that may open a device.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import Start, check_accounting, wait_until
from test_boards import addresses, boards_run, built, emit
from transports import SHARED_MEMORY

TCPDUMP = shutil.which("tcpdump", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
RAW_IP = 101
EVENTS = 320

Datagram = tuple[int, bytes]  # port and bytes


def write_capture(
    path: Path, datagrams: list[Datagram], step_s: float = 0.0, link: int = RAW_IP, mtu: int = 9000
) -> None:
    """A classic pcap file of IPv4 packets, `step_s` apart; those above the MTU travel in pieces."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, link))
        for number, (port, payload) in enumerate(datagrams):
            udp = struct.pack("!HHHH", 40000, port, 8 + len(payload), 0) + payload
            at_ns = round(number * step_s * 1e9)
            for offset in range(0, len(udp), mtu):
                piece = udp[offset : offset + mtu]
                where = offset // 8 | (0x2000 if offset + mtu < len(udp) else 0)
                header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(piece), number & 0xFFFF, where, 64, 17, 0)
                packet = header + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + piece
                file.write(struct.pack("<IIII", at_ns // 10**9, at_ns % 10**9, len(packet), len(packet)) + packet)


@contextmanager
def receivers(count: int) -> Iterator[list[socket.socket]]:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
            each.settimeout(20)
        yield sockets
    finally:
        for each in sockets:
            each.close()


def replay(engine: Path, path: Path, to: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    program = str(engine.with_name("incast-emit"))
    command = [program, "--pcap", str(path), "--to", ",".join(to), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def address(receiver: socket.socket) -> str:
    return f"127.0.0.1:{receiver.getsockname()[1]}"


def test_each_address_of_the_capture_has_one_of_its_own(engine: Path, tmp_path: Path) -> None:
    sent = [(5000 + number % 3, bytes([number]) * (3 + 1000 * number)) for number in range(9)]
    write_capture(tmp_path / "boards.pcap", sent, mtu=1480)
    with receivers(2) as sockets:
        wanted = "5000,5002"
        done = replay(
            engine,
            tmp_path / "boards.pcap",
            [address(each) for each in sockets],
            "--captured-port",
            wanted,
            "--pace",
            "0",
        )
        assert done.returncode == 0, done.stderr
        for receiver, port in zip(sockets, (5000, 5002), strict=True):
            expected = [payload for to, payload in sent if to == port]
            assert [receiver.recv(65536) for _ in expected] == expected
    said = json.loads(done.stdout)
    assert [(way["captured_to"], way["datagrams"]) for way in said["sent"]] == [
        ("10.0.0.2:5000", 3),
        ("10.0.0.2:5002", 3),
    ]
    assert (said["other_frames"], said["cut_frames"], said["incomplete_frames"]) == (0, 0, 0)


def test_the_pace_is_that_of_the_capture_or_a_multiple(engine: Path, tmp_path: Path) -> None:
    write_capture(tmp_path / "boards.pcap", [(5000, b"x" * 100)] * 11, step_s=0.1)
    with receivers(1) as (receiver,):
        for pace, least_s in (("1", 1.0), ("4", 0.25), ("0", 0.0)):
            done = replay(engine, tmp_path / "boards.pcap", [address(receiver)], "--pace", pace)
            assert done.returncode == 0, done.stderr
            said = json.loads(done.stdout)
            assert said["captured_seconds"] == 1.0
            assert said["seconds"] >= least_s


def test_what_comes_before_damage_is_sent(engine: Path, tmp_path: Path) -> None:
    path = tmp_path / "boards.pcap"
    write_capture(path, [(5000, bytes([number]) * 100) for number in range(10)])
    path.write_bytes(path.read_bytes()[:-30])
    with receivers(1) as (receiver,):
        done = replay(engine, path, [address(receiver)])
        assert [receiver.recv(65536)[0] for _ in range(9)] == list(range(9))
    assert done.returncode == 1
    assert json.loads(done.stdout)["sent"][0]["datagrams"] == 9
    assert len(done.stderr.splitlines()) == 1
    assert "truncated" in done.stderr


def test_wrong_captures_are_one_line(engine: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no capture at all, but long enough to look at it\n")
    write_capture(tmp_path / "wireless", [(5000, b"x")], link=105)
    write_capture(tmp_path / "two", [(5000, b"x"), (5001, b"y")])
    write_capture(tmp_path / "none", [])
    for name, words, said in (
        ("nowhere", [], "nowhere: No such file"),
        ("text", [], "text: unknown file format"),
        ("wireless", [], "link type 105"),
        ("none", [], "no UDP datagram to send"),
        ("two", ["--captured-port", "7"], "no UDP datagram to send"),
        ("two", ["--boards", "3"], "--boards"),
        ("two", ["--pace", "-1"], "--pace"),
    ):
        done = replay(engine, tmp_path / name, ["127.0.0.1:9"], *words)
        assert done.returncode != 0, name
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert said in done.stderr
    done = replay(engine, tmp_path / "two", ["127.0.0.1:9"] * 3)
    assert "--to: 3 addresses; allowed: 1, or 2, as" in done.stderr
    assert "10.0.0.2:5000, 10.0.0.2:5001" in done.stderr


@contextmanager
def tcpdump(path: Path, port: str) -> Iterator[None]:
    """Captures what goes to a port of this host."""
    if TCPDUMP is None:
        pytest.skip("no tcpdump")
    words = [TCPDUMP, "-i", "lo", "-U", "-w", str(path), "-B", "65536", "udp", "dst", "port", port]
    if os.geteuid() == 0:
        words[1:1] = ["-Z", "root"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        while line and "listening on" not in line:
            if "permission" in line.lower() or "not permitted" in line.lower():
                pytest.skip(f"tcpdump: {line.strip()}")
            line = process.stderr.readline()
        assert line, "tcpdump ended"
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.stderr.read()


def test_what_tcpdump_captured_builds_the_same_events(start: Start, engine: Path, tmp_path: Path) -> None:
    path = tmp_path / "boards.pcap"
    words = {"boards": 1, "events": EVENTS, "packing": 16, "fragment_size": 200}
    with receivers(2) as (board, captured), tcpdump(path, address(captured).rpartition(":")[2]):
        emitted = emit(engine, tmp_path, [address(board)], **words)
        # One by one, as from a board: what the kernel sends as one piece it hands to tcpdump as one, too.
        for _ in range(emitted.sums("packets")):
            captured.sendto(board.recv(65536), captured.getsockname())
        sent_bytes = emitted.sums("sent_bytes")
        wait_until(lambda: path.stat().st_size >= sent_bytes, "tcpdump wrote all of it", 20)
    run = boards_run(start, tmp_path, 1, 1, EVENTS, transport__name=SHARED_MEMORY)
    done = replay(engine, path, addresses(run, 1), "--pace", "0.1")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["sent"][0]["datagrams"], said["sent"][0]["bytes"]) == (emitted.sums("packets"), sent_bytes)
    assert run.finish() == 0, run.story()
    check_accounting(run.result())
    assert run.result()["complete_events"] == EVENTS
    assert built(tmp_path) == {0: dict.fromkeys(range(EVENTS), "ok")}
