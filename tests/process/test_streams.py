"""Boards that connect by TCP (EB-C9): cut off, killed, lying and back. What they sent in full is built.

What was built is counted by the MEP files, and what was sent by the boards, independently of the engine.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from boards_support import DESYNC, LATE, built, total
from incast.formats import encode_mfp
from source_child import fragment, size_of
from support import Run, Start, check_accounting
from test_boards import addresses, boards_run, check_sums, emit
from transports import ONE_THREAD, SHARED_MEMORY

PACKING = 16


def packet(source: int, first: int, events: int = PACKING) -> bytes:
    """As `incast emit` makes them."""
    fragments = [fragment(source, event, size_of(source, event)) for event in range(first, first + events)]
    return encode_mfp(source, first, [len(each) for each in fragments], b"".join(fragments), types=16)


class Board:
    """A board in this process, which knows what it sent in full."""

    def __init__(self, to: str, source: int) -> None:
        host, _, port = to.rpartition(":")
        self.source = source
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.events: set[int] = set()

    def send(self, first_mep: int, last_mep: int) -> None:
        for mep in range(first_mep, last_mep):
            self.socket.sendall(packet(self.source, PACKING * mep))
            self.events |= set(range(PACKING * mep, PACKING * (mep + 1)))

    def send_half(self, mep: int) -> None:
        whole = packet(self.source, PACKING * mep)
        self.socket.sendall(whole[: len(whole) // 2])


Connect = Callable[[str, int], Board]


@pytest.fixture
def connect() -> Iterator[Connect]:
    boards: list[Board] = []

    def one(to: str, source: int) -> Board:
        boards.append(Board(to, source))
        return boards[-1]

    yield one
    for board in boards:
        board.socket.close()


def streams_run(start: Start, folder: Path, rus: int, per_ru: int, events: int, **more: Any) -> Run:
    return boards_run(start, folder, rus, per_ru, events, source__kind="tcp", **more)


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("loss", ["0", "3%"])
def test_what_connected_boards_sent_adds_up(
    start: Start, engine: Path, tmp_path: Path, together: int, loss: str
) -> None:
    run = streams_run(start, tmp_path, 2, 2, 4800, transport__name=SHARED_MEMORY)
    emitted = emit(
        engine,
        tmp_path,
        addresses(run, 2),
        transport="tcp",
        boards_per_connection=together,
        boards=4,
        events=4800,
        packing=PACKING,
        fragment_size=200,
        spread=0.5,
        loss=loss,
    )
    assert emitted.said["unsent_bytes"] == 0
    assert (emitted.sums("lost_events") > 0) == (loss != "0")
    found = check_sums(run, emitted, tmp_path, 4800)
    flagged = [flag for states in found.values() for flag in states.values() if flag != "ok"]
    assert len(flagged) == emitted.sums("lost_events")
    assert set(flagged) <= {LATE}


def test_a_builder_that_is_slow_loses_nothing(start: Start, engine: Path, tmp_path: Path) -> None:
    """What udp: would lose: boards as fast as can be, and one window of two MEPs."""
    run = streams_run(start, tmp_path, 1, 2, 8000, transport__name=ONE_THREAD, source__window=2)
    emitted = emit(
        engine,
        tmp_path,
        addresses(run, 1),
        transport="tcp",
        boards=2,
        events=8000,
        packing=PACKING,
        fragment_size=1000,
    )
    found = check_sums(run, emitted, tmp_path, 8000)
    assert all(flag == "ok" for states in found.values() for flag in states.values())


def test_a_board_that_is_cut_off_and_comes_back(start: Start, connect: Connect, tmp_path: Path) -> None:
    """Half a packet, silence, and another connection: exactly what was sent in full is built."""
    meps = 60
    run = streams_run(start, tmp_path, 1, 2, PACKING * meps, transport__name=SHARED_MEMORY, source__patience="300ms")
    (to,) = addresses(run, 1)
    other = connect(to, 1)
    first = connect(to, 0)
    first.send(0, 20)
    first.send_half(20)
    other.send(0, 40)
    first.socket.close()
    wait_for_events(run, PACKING * 40)
    again = connect(to, 0)
    again.send(40, meps)
    other.send(40, meps)
    assert run.finish(60) == 0, run.story()
    result = run.result()
    check_accounting(result)
    found = built(tmp_path)
    sent = first.events | again.events
    assert {event for event, flag in found[0].items() if flag == "ok"} == sent
    assert {flag for event, flag in found[0].items() if event not in sent} == {LATE}
    assert set(found[1].values()) == {"ok"} and len(found[1]) == PACKING * meps
    assert total(result, "board_lost_events") == PACKING * meps - len(sent)
    told = " ".join(run.notices)
    assert re.search(r"the connection from \S+ \(source 0\) has ended, within a packet, which is dropped", told)
    assert "source 0 is back" in told


def wait_for_events(run: Run, events: int) -> None:
    run.wait_for(
        lambda report: report["type"] == "sample" and report["events"] >= events, f"{events} events are built", 60
    )


def test_liars_change_nothing(start: Start, connect: Connect, tmp_path: Path) -> None:
    meps = 400
    run = streams_run(start, tmp_path, 1, 2, PACKING * meps, transport__name=SHARED_MEMORY, source__patience="20s")
    (to,) = addresses(run, 1)
    boards = [connect(to, source) for source in (0, 1)]
    for board in boards:
        board.send(0, meps // 2)
    strangers = [connect(to, 7), connect(to, 8), connect(to, 0)]
    strangers[0].socket.sendall(b"GET / HTTP/1.1\r\nHost: boards\r\n\r\n")
    strangers[1].socket.sendall(packet(9, 0) + b"\xce\x40" + bytes(40))
    strangers[2].socket.sendall(packet(0, PACKING * (meps - 1)))  # another's
    strangers[0].socket.settimeout(60)
    assert strangers[0].socket.recv(1) == b""
    for board in boards:
        board.send(meps // 2, meps)
    assert run.finish(60) == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert {flag for states in built(tmp_path).values() for flag in states.values()} == {"ok"}
    assert result["complete_events"] == PACKING * meps
    told = " ".join(run.notices)
    assert "no MFP" in told
    assert "source 9, which another readout unit has" in told


class Emitter:
    """`incast emit`, until it is killed."""

    def __init__(self, engine: Path, to: list[str], **options: Any) -> None:
        words = [str(engine.with_name("incast-emit")), "--transport", "tcp", "--to", ",".join(to)]
        for name, value in options.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def end(self) -> dict[str, Any]:
        said, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0
        result: dict[str, Any] = json.loads(said)
        return result


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes-on", "counts-from-0"])
def test_an_emitter_that_is_killed_and_started_again(start: Start, engine: Path, tmp_path: Path, goes_on: bool) -> None:
    events = 6400
    run = streams_run(start, tmp_path, 2, 1, events, transport__name=SHARED_MEMORY, source__patience="500ms")
    to = addresses(run, 2)
    shape = {"events": events, "packing": PACKING, "rate": "2kHz", "fragment_size": 200}
    one = Emitter(engine, to[:1], boards=1, **shape)
    other = Emitter(engine, to[1:], boards=1, first_id=1, **shape)
    wait_for_events(run, 1000)
    one.process.send_signal(signal.SIGKILL)
    one.process.wait()
    assert one.process.stdout is not None
    one.process.stdout.close()
    run.wait_for(lambda report: "(source 0)" in report.get("text", ""), "the end of its connection is told", 60)
    again = Emitter(
        engine,
        to[:1],
        boards=1,
        **{**shape, "first_event": 4800 if goes_on else 0, "events": 1600, "rate": "1MHz" if goes_on else "2kHz"},
    )
    assert run.finish(120) == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert other.end()["boards"][0]["events"] == events
    if goes_on:
        assert again.end()["boards"][0]["events"] == 1600
    else:
        again.process.kill()
        again.process.communicate()
    found = built(tmp_path)
    assert set(found[1].values()) == {"ok"}
    assert sorted(found[0]) == sorted(found[1]) == list(range(events))
    before = [event for event, flag in found[0].items() if flag == "ok" and event < 4800]
    assert before == list(range(len(before))), "what the first one sent, without a gap"
    assert len(before) > 1000
    rest = {found[0][event] for event in range(len(before), events)}
    told = " ".join(run.notices)
    assert "source 0 is back" in told
    if goes_on:
        assert {found[0][event] for event in range(4800, events)} == {"ok"}
        assert {found[0][event] for event in range(len(before), 4800)} <= {LATE}
    else:
        assert rest <= {LATE, DESYNC}
        assert total(result, "board_restarts") == 1
        assert "source 0 counts events from 0 again" in told


def test_files_of_mfps_are_streams(start: Start, connect: Connect, tmp_path: Path) -> None:
    """What stands in MFP files can be sent as it is, with the packet that ends a file."""
    meps = 50
    run = streams_run(start, tmp_path, 1, 2, PACKING * meps, transport__name=SHARED_MEMORY, source__patience="20s")
    (to,) = addresses(run, 1)
    end = bytes.fromhex("ce40 0000 14000000 ffffffffffffffff 0000 00 00")
    for source in (0, 1):
        board = connect(to, source)
        board.send(0, meps)
        board.socket.sendall(end)
        board.socket.close()
    assert run.finish(60) == 0, run.story()
    assert {flag for states in built(tmp_path).values() for flag in states.values()} == {"ok"}
    assert total(run.result(), "board_refused_datagrams") == 0


def test_wrong_settings_are_one_line(start: Start, engine: Path) -> None:
    common = {"source.kind": "tcp", "sink.kind": "null", "protocol.packing": 4, "transport.name": ONE_THREAD}
    for wrong, said in (
        ({"source.format": "mef"}, "source.format = mef"),
        ({"sink.kind": "verify"}, "sink.kind = verify"),
        ({"source.address": "192.0.2.1"}, "192.0.2.1"),
        ({"source.port": 65535, "run.nodes": 2}, "source.port = 65535"),
    ):
        run = start({**common, **wrong})
        assert run.finish() != 0
        assert any(said in line for line in [*run.errors, *run.notices]), (said, run.errors)
    emitter = str(engine.with_name("incast-emit"))
    for words, said in (
        (["--transport", "tcp", "--format", "mef"], "--format mef"),
        (["--boards-per-connection", "2"], "--transport"),
    ):
        done = subprocess.run(
            [emitter, "--to", "127.0.0.1:1", *words], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
