"""Whoever knocks at a listening run without knowing its token is refused with one line, and the run does not notice."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Run, Start, audited, check_accounting, wait_until
from transports import SOCKETS

TOKEN = "0123456789abcdef0123456789abcdef"
SETTINGS = {
    "transport.name": SOCKETS,
    "run.nodes": 3,
    "run.warm_up": "100ms",
    "run.duration": "1h",
    "run.sample_interval": "100ms",
    "protocol.mfp_size": "16KiB",
}


def listening(start: Start, *arguments: str) -> tuple[Run, tuple[str, int]]:
    run = start(SETTINGS, *arguments, token=TOKEN)
    report = run.wait_for(lambda report: report["type"] == "listening", "address")
    host, port = report["address"].rsplit(":", 1)
    return run, (host, int(port))


def frame(message: dict[str, Any]) -> bytes:
    text = json.dumps(message).encode()
    return struct.pack("<I", len(text)) + text


def hello(**changes: Any) -> bytes:
    message = {"type": "hello", "magic": "incast-rendezvous", "protocol": 4, "token": TOKEN, "node": None, "pid": 1}
    return frame({**message, "version": "x", **changes})


def knock(address: tuple[str, int], data: bytes) -> bytes:
    """Sends, and returns everything that is answered until the other side closes."""
    answer = b""
    with socket.create_connection(address, timeout=20) as stranger:
        try:
            stranger.sendall(data)
            while chunk := stranger.recv(4096):
                answer += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass
    return answer


MORE = r"(?:(\d+) more like it within [^,]*, the last: )?"


def said(run: Run, pattern: str) -> int:
    """How many such lines there were, those included that were only counted."""
    found = [re.match(MORE + pattern, line) for line in run.notices]
    return sum(int(match.group(1) or 1) for match in found if match)


def refusals(run: Run) -> int:
    return said(run, "refused ")


def refused_by_endpoints(run: Run) -> int:
    return said(run, rf"node \d+ \([^)]*\): {SOCKETS}: refused connection from ")


def wait_for_refusal(run: Run, text: str) -> None:
    report = run.wait_for(
        lambda one: one["type"] == "notice" and one["text"].startswith("refused "), f"refusal: {text}"
    )
    assert re.fullmatch(rf"refused 127\.0\.0\.1:\d+: .*{text}.*", report["text"]), report["text"]


KNOCKS = [
    pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "not an Incast node", id="http"),
    pytest.param(random.Random(1).randbytes(100_000), "not an Incast node", id="random"),
    pytest.param(struct.pack("<I", 0xFFFFFFFF), "not an Incast node", id="huge"),
    pytest.param(frame({"type": "sample"}), "not an Incast node", id="no-hello"),
    pytest.param(struct.pack("<I", 7) + b"[1,2,3]", "no JSON object", id="no-object"),
    pytest.param(struct.pack("<I", 1000) + b"[" * 1000, "nested more than 8 deep", id="deep"),
    pytest.param(hello(more="x" * 1024), "at most 1024 are allowed", id="long"),
    pytest.param(hello(token="f" * 32), "wrong token", id="wrong-token"),
    pytest.param(hello(token=""), "wrong token", id="empty-token"),
    pytest.param(hello(token=TOKEN[:-1]), "wrong token", id="short-token"),
    pytest.param(hello(token=5), "wrong token", id="number-as-token"),
    pytest.param(hello(protocol=99), "version 99", id="version"),
    pytest.param(hello(node=77), "node 77 is taken, or there is none", id="no-such-node"),
    pytest.param(hello(node=1), "node 1 is taken", id="taken-node"),
]


@pytest.mark.parametrize(("data", "reason"), KNOCKS)
def test_strangers_are_refused_with_one_line(start: Start, data: bytes, reason: str) -> None:
    run, address = listening(start)
    run.wait_for_phase("measuring")
    answer = knock(address, data)
    wait_for_refusal(run, reason)
    if answer:
        assert json.loads(answer[4:])["type"] == "refused"
        assert TOKEN.encode() not in answer
    finish_undisturbed(run, refused=1)


def finish_undisturbed(run: Run, refused: int | None = None) -> None:
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.story()
    assert refusals(run) == sum(entry["count"] for entry in audited(run, "refused"))
    assert refused is None or refusals(run) == refused
    assert not [line for line in run.notices if "lost" in line]
    assert TOKEN not in (run.output / "log.txt").read_text()
    assert run.result()["incomplete_events"] == 0
    check_accounting(run.result())


def listening_ports(pid: int) -> set[int]:
    """TCP ports that a process listens on."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and words[9] in inodes:
            ports.add(int(words[1].split(":")[1], 16))
    return ports


def test_a_port_scan_disturbs_nothing(start: Start) -> None:
    """Every port of every process of the run: connect and leave, random bytes, connect and say nothing."""
    run, address = listening(start)
    run.wait_for_phase("measuring")
    ports = {address[1]}
    for pid in run.all_node_pids():
        ports |= listening_ports(pid)
    assert len(ports) == 4, "the coordinator and three nodes listen"
    generator = random.Random(2)
    silent = []
    for port in sorted(ports):
        for _ in range(20):
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
                stranger.sendall(generator.randbytes(generator.randrange(1, 5000)))
            silent.append(socket.create_connection(("127.0.0.1", port), timeout=5))
    first = run.wait_for(lambda report: report["type"] == "sample", "sample")
    run.wait_for(lambda report: report["type"] == "sample" and report["events"] > first["events"], "further events")
    for stranger in silent:
        stranger.close()
    run.wait_for(lambda _: refusals(run) == 60, "all of the coordinator's visitors are told of")
    run.wait_for(lambda _: refused_by_endpoints(run) == 180, "all of the endpoints' visitors are told of")
    finish_undisturbed(run, refused=60)


def test_others_join_with_the_token(start: Start, engine: Path, tmp_path: Path) -> None:
    """One node is started here, two come from elsewhere; with a wrong token nobody does."""
    run, address = listening(start, "--spawn", "1")
    join = [str(engine), "--join", f"{address[0]}:{address[1]}"]
    bare = {name: value for name, value in os.environ.items() if name != "INCAST_TOKEN"}
    wrong = subprocess.run(
        join, env={**bare, "INCAST_TOKEN": "guess"}, capture_output=True, text=True, timeout=20, check=False
    )
    assert wrong.returncode == 4
    assert "wrong token" in wrong.stderr
    assert len(wrong.stderr.splitlines()) == 1
    (tmp_path / "token").write_text(TOKEN + "\n")
    joiners = [
        subprocess.Popen(join, env={**bare, "INCAST_TOKEN": TOKEN}),
        subprocess.Popen([*join, "--token-file", str(tmp_path / "token")], env=bare),
    ]
    run.wait_for_phase("measuring")
    late = subprocess.run(
        join, env={**bare, "INCAST_TOKEN": TOKEN}, capture_output=True, text=True, timeout=20, check=False
    )
    assert late.returncode == 4
    assert "all nodes are there" in late.stderr
    finish_undisturbed(run, refused=2)
    assert [joiner.wait(20) for joiner in joiners] == [0, 0]
    assert not any(TOKEN in line for line in run.reports_as_text())


def test_the_token_is_not_on_a_command_line(start: Start) -> None:
    run, _ = listening(start)
    run.wait_for_phase("measuring")
    for pid in [run.process.pid, *run.all_node_pids()]:
        assert TOKEN.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    finish_undisturbed(run, refused=0)


def test_silent_strangers_keep_nobody_out(start: Start, engine: Path) -> None:
    """They hold every place, and come back to it; the last node joins, and the log stays short."""
    run, address = listening(start, "--spawn", "2")
    silent = [socket.create_connection(address, timeout=20) for _ in range(100)]
    for _ in range(200):
        with socket.create_connection(address, timeout=20) as guesser:
            guesser.sendall(hello(token="guess"))
    environment = {**os.environ, "INCAST_TOKEN": TOKEN}
    joiner = subprocess.Popen([str(engine), "--join", f"{address[0]}:{address[1]}"], env=environment)
    run.wait_for_phase("measuring")
    # More than 300 if a node was so slow that it had to make room, and came again.
    run.wait_for(lambda _: refusals(run) >= 300, "all of them are told of")
    assert len([line for line in run.notices if "refused" in line]) < 150
    for stranger in silent:
        stranger.close()
    finish_undisturbed(run)
    assert joiner.wait(20) == 0


class Member:
    """Knows the token, and says what it likes. The run waits for it: nothing is measured yet."""

    def __init__(self, run: Run) -> None:
        self.run = run
        report = run.wait_for(lambda report: report["type"] == "listening", "address")
        host, port = report["address"].rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.socket.sendall(hello())
        size = struct.unpack("<I", self.receive(4))[0]
        assert json.loads(self.receive(size))["type"] == "welcome"

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            assert chunk
            data += chunk
        return data

    def say(self, data: bytes) -> None:
        """All of it, or as much as the coordinator takes before it hangs up."""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            self.socket.sendall(data)


@pytest.fixture
def join(start: Start) -> Iterator[Callable[..., Member]]:
    members: list[Member] = []

    def joined(**settings: Any) -> Member:
        members.append(Member(start({**SETTINGS, **settings}, "--spawn", "2", token=TOKEN)))
        return members[-1]

    yield joined
    for member in members:
        member.socket.close()


BAD_MESSAGES = [
    pytest.param(struct.pack("<I", 16 << 20) + b"[" * (1 << 20), "16777216 bytes is announced", id="huge"),
    pytest.param(struct.pack("<I", 9000) + b"[" * 9000, "nested more than 8 deep", id="deep"),
    pytest.param(frame({"type": "remark", "text": "x" * 41000}), "'remark' has 410.. bytes, at most 40960", id="long"),
    pytest.param(frame({"type": "address", "incarnation": 99, "address": "00"}), "makes no sense", id="incarnation"),
    pytest.param(frame({"type": "rejoin"}), "makes no sense", id="rejoin"),
    pytest.param(frame({"type": "sample", "sample": {"totals": 5, "node": 2}}), "makes no sense", id="sample"),
]


@pytest.mark.parametrize(("data", "reason"), BAD_MESSAGES)
def test_a_member_that_talks_nonsense_is_dropped(join: Callable[..., Member], data: bytes, reason: str) -> None:
    member = join()
    member.say(data)
    assert member.run.finish(30) == 1, member.run.story()
    assert any(re.search(f"node 2 .*lost: .*{reason}", line) for line in member.run.notices), member.run.story()
    (lost,) = audited(member.run, "lost")
    assert lost["node"] == 2
    assert re.search(reason, lost["reason"])


def test_a_member_that_talks_much_is_not_heard_much(join: Callable[..., Member]) -> None:
    """Its lines are counted, it costs the coordinator little, and what it says is one line each."""
    member = join()
    flood = frame({"type": "remark", "text": "much\n2026-01-01T00:00:00.000 error forged"}) * 100_000
    sender = threading.Thread(target=member.say, args=(flood,), daemon=True)
    sender.start()
    member.run.wait_for(lambda _: said(member.run, "node 2 .*: much ") > 20, "the count of its lines")
    log = (member.run.output / "log.txt").read_text().splitlines()
    assert len(log) < 200
    assert not [line for line in log if line.startswith("2026-01-01")]
    member.run.process.send_signal(signal.SIGINT)
    assert member.run.finish(30) in (0, 1)
    member.socket.close()
    sender.join(20)
    assert not sender.is_alive()


@pytest.mark.parametrize(
    ("claimed", "listed"),
    [("169.254.169.254:80", False), ("example.org:80", False), ("[2001:db8::1]:80", False), ("127.0.0.1:80", True)],
)
def test_metrics_are_listed_where_they_can_be(join: Callable[..., Member], claimed: str, listed: bool) -> None:
    """Prometheus asks whatever stands in metrics.json."""
    member = join(**{"run.metrics": "127.0.0.1:0"})
    member.say(frame({"type": "address", "incarnation": 1, "address": "00", "metrics": claimed}))
    told = "metrics at" if listed else "left out"
    member.run.wait_for(lambda report: told in report.get("text", "") and "node 2 " in report["text"], told)
    member.run.process.send_signal(signal.SIGINT)
    member.run.finish(30)
    path = member.run.output / "metrics.json"
    assert (claimed in (path.read_text() if path.exists() else "")) == listed
    assert len(audited(member.run, "bad_message")) == (0 if listed else 1)


def test_nobody_joins(start: Start) -> None:
    run = start({**SETTINGS, "run.join_deadline": "500ms"}, "--spawn", "2")
    assert run.finish(20) == 1, run.story()
    told = r"not all nodes joined within 500\.00 ms \(run\.join_deadline\); nothing was heard of nodes .*2"
    assert any(re.search(told, line) for line in run.notices)
    wait_until(lambda: run.all_node_pids() == [], "the end of all nodes")


def test_a_run_may_listen_on_ipv6(start: Start) -> None:
    run = start({**SETTINGS, "run.duration": "200ms"}, "--listen", "[::1]:0")
    assert run.finish() == 0, run.story()
    check_accounting(run.result())


def test_who_joins_when_the_run_is_ending_costs_no_line(engine: Path, tmp_path: Path) -> None:
    """No node can bind there: the first one to say so ends the run, while others are about to join."""
    settings = {"transport.name": SOCKETS, f"transport.{SOCKETS}.bind": "192.0.2.1", "run.nodes": "16"}
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    for turn in range(2):
        command = [str(engine), *sets, "--output", str(tmp_path / f"out{turn}")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0
        (line,) = set(done.stderr.splitlines())
        assert "192.0.2.1" in line
