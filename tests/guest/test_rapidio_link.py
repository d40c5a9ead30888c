"""A master port of the kernel (kernel/link.c) as an endpoint of SoftRIO on UDP, with processes of this host."""

import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from guest.steps import Step
from in_guest import BIN, EVENTS, TROUBLE, GuestRun, check_built, free_ports
from support import wait_until
from transports import RAPIDIO

SOFTRIO = BIN / "softrio"
ENGINE = BIN / "incast-node"
TOKEN = "0123456789abcdef"
HOST = "10.0.2.2"  # as the guest sees it
GUEST = "10.0.2.15"
# An emulated processor may stand still for seconds while the host is busy.
DEADLINE = "deadline_ms=30000"
GUEST_ID = 8
SERVER_ID = 7
# The nodes of a run on this host; each takes the lowest id that is free.
NODES = {"push": (1, 2, 3), "pull": (4, 5, 6)}
BUILDING: dict[str, Any] = {
    "transport.name": RAPIDIO,
    f"transport.{RAPIDIO}.fabric": "RIO_FABRIC",
    f"transport.{RAPIDIO}.layout": "segments",
    f"transport.{RAPIDIO}.connect_timeout": "120s",
    "run.nodes": 4,
    "run.events": EVENTS,
    "run.join_deadline": "300s",
    "protocol.packing": 20,
    "protocol.mfp_size": "16KiB",
    "sink.kind": "verify",
    "protocol.detection_deadline": "60s",
    "protocol.late_after": "60s",
}
# Registers, a write and a read, a doorbell, messages; and a write to where nothing is.
TALK = """
set -e
export RIO_FABRIC=linux:0
{softrio} list
{softrio} ping {server} --count 3
{softrio} write {server} 'hello, host'
{softrio} read {server} 16
{softrio} doorbell {server} 7
{softrio} cm {server} 'are you there?'
! {softrio} write {server} 'outside' --at 0x7000000000 || exit 1
cat /sys/bus/platform/devices/rio_soft.0/counters
"""
# The other way, until this host has asked.
SERVE = """
RIO_FABRIC=linux:0 {softrio} serve --window 1048576 >/out/serving 2>&1 &
server=$!
until [ -e /out/asked ]; do kill -0 $server || exit 1; sleep 0.2; done
kill $server
wait $server
"""
# The driver first that made device objects of the endpoints.
UNLOAD = """
set -e
pkill -f 'softrio link'
while pgrep -f 'softrio link' >/dev/null; do sleep 0.1; done
cat /proc/modules
rmmod rionet rio_cm rio_mport_cdev
rmmod rio_soft
"""
JOIN = "exec env INCAST_TOKEN={token} RIO_FABRIC=linux:0 {engine} --progress none --join {address}"


class Fabric:
    """Endpoints 1 to 7 of this host, and 8, the guest's."""

    def __init__(self) -> None:
        self.ports = dict(enumerate(free_ports(socket.SOCK_DGRAM, GUEST_ID), start=1))

    def name(self, host: str, guest: str, ids: tuple[int, ...]) -> str:
        """As one side sees those."""
        places = [f"{number}={host}:{self.ports[number]}" for number in ids]
        return f"udp:{','.join(places)},{GUEST_ID}={guest}:{self.ports[GUEST_ID]}?{DEADLINE}"

    def here(self, *ids: int) -> dict[str, str]:
        """The environment of an endpoint of this host."""
        return {**os.environ, "RIO_FABRIC": self.name("127.0.0.1", "127.0.0.1", ids)}


def softrio(fabric: Fabric, *words: str) -> str:
    """Endpoint 6 of this host asks the guest's. Each time it has just come."""
    done = ask({**fabric.here(6), "RIO_DESTID": "6"}, *words)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def ask(environment: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    command = [str(SOFTRIO), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)


def ask_the_guest(fabric: Fabric, out: Path) -> list[str]:
    """What it answers, once it serves."""

    def serves() -> bool:
        return any("channel" in file.read_text() for file in out.glob("out*/serving"))

    wait_until(serves, "the guest to serve", 600)
    try:
        text = "from outside"
        return [
            softrio(fabric, "cm", str(GUEST_ID), text),  # the kernel does not know it yet
            softrio(fabric, "ping", str(GUEST_ID)),
            softrio(fabric, "write", str(GUEST_ID), text),
            softrio(fabric, "read", str(GUEST_ID), "16"),
            softrio(fabric, "doorbell", str(GUEST_ID), "9"),
        ]
    finally:
        (next(out.glob("out*")) / "asked").touch()


def test_a_guest_and_this_host_talk(guest: GuestRun, tmp_path: Path, modules: Path) -> None:
    """Either asks the other one for everything once."""
    fabric = Fabric()
    words = {"softrio": SOFTRIO, "server": SERVER_ID}
    link = f"net-host.sh && rio-link.sh {modules} {SOFTRIO} '{fabric.name(HOST, GUEST, (6, 7))}' {GUEST_ID} {SERVER_ID}"
    steps = [
        Step("link", link, 240),
        Step("talk", TALK.format(**words), 240),
        Step("serve", SERVE.format(**words), 240),
        Step("unload", UNLOAD),
        Step("log", "dmesg"),
        Step("carrier", "cat /run/rio-link"),
    ]
    environment = {**fabric.here(SERVER_ID), "RIO_DESTID": str(SERVER_ID)}
    with (
        subprocess.Popen([str(SOFTRIO), "serve", "--window", "1048576"], env=environment) as server,
        ThreadPoolExecutor() as pool,
    ):
        try:
            answers = pool.submit(ask_the_guest, fabric, tmp_path)
            results = guest(steps, udp=(fabric.ports[GUEST_ID],))
            said = "".join(answers.result())
        finally:
            server.terminate()
    for name in ("link", "talk", "serve", "unload"):
        assert results[name].status == 0, (results[name], results["carrier"], results["log"])
    assert "68 65 6c 6c 6f" in results["talk"].output
    assert f"endpoint {SERVER_ID} answers: are you there?" in results["talk"].output
    assert "lost_messages 0" in results["talk"].output
    assert "66 72 6f 6d 20 6f 75 74" in said
    assert f"endpoint {GUEST_ID} answers: from outside" in said
    assert not TROUBLE.search(results["log"].output), results["log"]


@pytest.mark.usefixtures("everything")
def test_events_are_built_between_a_guest_and_this_host(guest: GuestRun, tmp_path: Path, modules: Path) -> None:
    """Three nodes here and one there, which is the last one to come; push and pull."""
    fabric = Fabric()
    everybody = fabric.name(HOST, GUEST, tuple(number for ids in NODES.values() for number in ids))
    steps = [Step("link", f"net-host.sh && rio-link.sh {modules} {SOFTRIO} '{everybody}' {GUEST_ID}", 240)]
    runs = {}
    with ExitStack() as stack:
        for (scheme, ids), port in zip(NODES.items(), free_ports(socket.SOCK_STREAM, len(NODES)), strict=True):
            command = [str(ENGINE), "--progress", "none", "--spawn", "3", "--listen", f"127.0.0.1:{port}"]
            command += ["--output", str(tmp_path / scheme)]
            for key, value in {**BUILDING, "protocol.scheme": scheme}.items():
                command += ["--set", f"{key}={value}"]
            environment = {**fabric.here(*ids), "INCAST_TOKEN": TOKEN}
            run = stack.enter_context(subprocess.Popen(command, env=environment))
            stack.callback(run.terminate)
            runs[scheme] = run
            seen = " ".join(f"/sys/bus/rapidio/devices/00:e:{number:04x}" for number in ids)
            there = f"for each in {seen}; do until [ -e $each ]; do sleep 0.2; done; done"
            join = JOIN.format(token=TOKEN, engine=ENGINE, address=f"{HOST}:{port}")
            steps.append(Step(scheme, f"{there}\n{join}", 240))
        steps += [Step("carrier", "cat /run/rio-link"), Step("log", "dmesg")]
        results = guest(steps, udp=(fabric.ports[GUEST_ID],))
        for scheme, run in runs.items():
            assert run.wait(60) == 0, (results[scheme], results["carrier"], results["log"])
            check_built(tmp_path / scheme, results[scheme])
    assert not TROUBLE.search(results["log"].output), results["log"]
