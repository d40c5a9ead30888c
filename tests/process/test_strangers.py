"""Whoever knocks at a listening run without knowing its token is refused with one line, and the run does not notice."""

import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import Run, Start, check_accounting, wait_until

TOKEN = "0123456789abcdef0123456789abcdef"
SETTINGS = {
    "transport.name": "tcp",
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
    message = {"type": "hello", "magic": "incast-rendezvous", "protocol": 1, "token": TOKEN, "node": None, "pid": 1}
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


def refusals(run: Run) -> list[str]:
    return [line for line in run.notices if line.startswith("refused ")]


def refused_by_endpoints(run: Run) -> list[str]:
    return [line for line in run.notices if re.match(r"node \d+.*: tcp: refused connection from ", line)]


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
    pytest.param(struct.pack("<I", 4000) + b"[" * 4000, "no JSON object", id="deep"),
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


def finish_undisturbed(run: Run, refused: int) -> None:
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.story()
    assert len(refusals(run)) == refused
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
    run.wait_for(lambda _: len(refusals(run)) == 60, "one line for each of the coordinator's visitors")
    run.wait_for(lambda _: len(refused_by_endpoints(run)) == 180, "one line for each of the endpoints' visitors")
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


def test_nobody_joins(start: Start) -> None:
    run = start({**SETTINGS, "run.join_deadline": "500ms"}, "--spawn", "2")
    assert run.finish(20) == 1, run.story()
    assert any(re.search(r"not all nodes joined within 500\.00 ms; silent: .*2", line) for line in run.notices)
    wait_until(lambda: run.all_node_pids() == [], "the end of all nodes")


def test_a_run_may_listen_on_ipv6(start: Start) -> None:
    run = start({**SETTINGS, "run.duration": "200ms"}, "--listen", "[::1]:0")
    assert run.finish() == 0, run.story()
    check_accounting(run.result())
