"""Network devices over Incast's channels (docs/netdev.md): `incast-netdev` in network namespaces.

INCAST_NETDEV_MIB=1024: bytes of each checked transfer; INCAST_NETDEV_ALL=1: every MTU with every number of queues;
INCAST_NETDEV_TIMES=20: how often a program is killed under load.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import pytest
from netdev_support import DEVICE, SINK, WAYS, Network, in_namespace, namespaces, network, transfer
from support import ROOT, said_by, wait_until

MEBIBYTES = int(os.environ.get("INCAST_NETDEV_MIB", "16"))
TIMES = int(os.environ.get("INCAST_NETDEV_TIMES", "1"))
ALL = [(way, mtu, queues) for way in WAYS for mtu in (1500, 9000, 65520) for queues in (1, 4)]
FEW = [("shm", 1500, 4), ("shm", 65520, 1), ("tcp", 9000, 1), ("tcp", 65520, 4), ("udp", 1500, 1)]
FEW += [("rio-shm", 1500, 1), ("rio-shm", 65520, 4), ("rio-udp", 9000, 1), ("rio-udp", 1500, 4)]
# One connection never has more on its way than a queue holds. What CoDel drops of it depends on how fast the host is.
LOSSES = ("dropped_full", "received_faulty", "received_refused")


@pytest.fixture(autouse=True)
def _has_ping() -> None:
    if why := said_by("ping", "-V"):
        pytest.skip(f"no ping: {why}")


@pytest.mark.parametrize(("name", "mtu", "queues"), ALL if "INCAST_NETDEV_ALL" in os.environ else FEW)
def test_ping_and_every_byte(engine: Path, tmp_path: Path, name: str, mtu: int, queues: int) -> None:
    with network(engine, tmp_path, WAYS[name], mtu=mtu, queues=queues) as net:
        net.ping(0, "10.9.0.2")
        net.ping(1, "fd09::1")
        net.ping(0, "10.9.0.2", "-M", "do", "-s", str(mtu - 28))  # the largest packet, in one piece
        transfer(net.names, "10.9.0.2", MEBIBYTES)
        transfer(net.names, "fd09::2", MEBIBYTES)
        for index in range(2):
            assert net.total(index, *LOSSES) == 0, net.status(index)
            assert net.total(index, "sent_frames") > 0
    for index in range(2):
        assert not net.exists(index)


def test_frames_for_all_reach_all(engine: Path, tmp_path: Path) -> None:
    """Three devices: whoever has an address is found by broadcast (ARP) and multicast (neighbour discovery)."""
    with network(engine, tmp_path, WAYS["shm"], count=3) as net:
        for index in range(3):
            for other in range(3):
                net.ping(index, f"10.9.0.{other + 1}")
                net.ping(index, f"fd09::{other + 1}")
        neighbours = subprocess.run(
            ["ip", "-n", net.names[0], "neighbour"], capture_output=True, text=True, check=True
        ).stdout
        for address, identity in (("10.9.0.2", 2), ("fd09::3", 3)):
            assert f"{address} dev {DEVICE} lladdr c2:00:00:00:00:{identity:02x}" in neighbours
        offloads = subprocess.run(
            ["ip", "netns", "exec", net.names[0], "ethtool", "-k", DEVICE], capture_output=True, text=True, check=True
        ).stdout
        for feature in ("tcp-segmentation-offload", "generic-receive-offload", "tx-checksumming", "scatter-gather"):
            assert f"{feature}: on" in offloads, offloads


def test_kernel_and_program_count_the_same(engine: Path, tmp_path: Path) -> None:
    with network(engine, tmp_path, WAYS["shm"]) as net:
        net.ping(0, "10.9.0.2")

        def kernel(counter: str) -> int:
            path = f"/sys/class/net/{DEVICE}/statistics/{counter}"
            words = ["ip", "netns", "exec", net.names[0], "cat", path]
            return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

        wait_until(
            lambda: kernel("tx_packets") == net.total(0, "sent_frames", "dropped_lost"), "what the device sent was sent"
        )
        wait_until(lambda: kernel("rx_packets") == net.total(0, "received_frames"), "what came was given to the device")


def test_a_killed_program_leaves_no_device_and_connections_go_on(engine: Path, tmp_path: Path) -> None:
    with network(engine, tmp_path, WAYS["shm"]) as net, in_namespace(net.names[1], SINK, "10.9.0.2") as sink:
        assert sink.stdout is not None
        port = sink.stdout.readline().strip()
        with in_namespace(net.names[0], ENDLESS, "10.9.0.2", port):
            for turn in range(TIMES):
                before = net.total(0, "sent_bytes")
                wait_until(partial(has_more, net, 0, "sent_bytes", before), "data flows")
                net.kill(1)
                wait_until(lambda: not net.exists(1), "the end of the device")
                wait_until(lambda: net.status(0)["peers"][0]["queues_up"] == 0, "it is seen to be gone")
                net.up(1)
                net.wait_for_peers()
                enough = net.total(1, "received_bytes") + 1_000_000
                goes_on = partial(has_more, net, 1, "received_bytes", enough)
                wait_until(goes_on, f"the same connection goes on, turn {turn}", 60)
        assert len(net.status(0)["peers"]) == 1


def test_a_stopped_peer_costs_a_bounded_queue_and_counted_drops(engine: Path, tmp_path: Path) -> None:
    backlog = 1 << 20
    with network(engine, tmp_path, WAYS["shm"], more=("--backlog", str(backlog))) as net:
        net.ping(0, "10.9.0.2")
        stopped = net.running[1]
        stopped.send_signal(signal.SIGSTOP)
        try:
            with in_namespace(net.names[0], FLOOD, "10.9.0.2"):
                wait_until(lambda: net.total(0, "dropped_full") > 1000, "drops are counted")
                assert net.total(0, "waiting_bytes") <= backlog
                assert net.total(0, "waiting_bytes") > backlog // 2
        finally:
            stopped.send_signal(signal.SIGCONT)
        wait_until(lambda: net.total(0, "waiting_bytes") == 0, "what waited goes on")
        wait_until(lambda: not said_by(*ping_words(net.names[0], "10.9.0.2")), "all is well again")


def test_the_program_has_no_capability_once_it_runs(engine: Path, tmp_path: Path) -> None:
    with network(engine, tmp_path, WAYS["shm"]) as net:
        status = Path(f"/proc/{net.running[0].pid}/status").read_text()
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert f"{kind}:\t0000000000000000" in status, status
        assert "NoNewPrivs:\t1" in status


def test_one_capability_is_enough(engine: Path, tmp_path: Path) -> None:
    """Of a user who is not root."""
    if not Path("/dev/net/tun").stat().st_mode & 0o002:
        pytest.skip("this host keeps /dev/net/tun for root")
    tmp_path.chmod(0o777)
    with namespaces(1) as names:
        folder = tempfile.mkdtemp(prefix="incast-netdev-", dir="/dev/shm")
        Path(folder).chmod(0o777)
        try:
            drop = ["setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps", "-all,+net_admin"]
            drop += ["--ambient-caps", "+net_admin", "--bounding-set", "-all,+net_admin"]
            program = engine.with_name("incast-netdev")
            up = [str(program), "up", DEVICE, "--transport", "shm", "--id", "1", "--peers", "1-2", "--foreground"]
            with subprocess.Popen(
                ["ip", "netns", "exec", names[0], *drop, *up, "--at", f"shm://{folder}/{{id}}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                try:
                    assert process.stdout is not None and process.stderr is not None
                    line = process.stdout.readline()
                    if not line and "setpriv" in (said := process.stderr.read()):
                        pytest.skip(f"this host lets nobody have one capability alone: {said}")
                    assert line.startswith(f"{DEVICE}: up")
                finally:
                    process.terminate()
        finally:
            shutil.rmtree(folder)


def test_up_returns_and_down_ends(engine: Path, tmp_path: Path) -> None:
    program = str(engine.with_name("incast-netdev"))
    with namespaces(1) as names:
        here = ["ip", "netns", "exec", names[0], program]
        up = [*here, "up", DEVICE, "--transport", "shm", "--id", "1", "--peers", "1-3"]
        up += ["--at", f"shm://{tmp_path}/{{id}}"]
        said = subprocess.run(up, capture_output=True, text=True, check=True, timeout=20).stdout
        assert said == f"{DEVICE}: up over shm, id 1, c2:00:00:00:00:01, MTU 1500, 1 queue, 2 peers\n"
        again = subprocess.run(up, capture_output=True, text=True, check=False, timeout=20)
        assert (again.returncode, again.stdout) == (2, "")
        assert again.stderr == f"incast netdev: {DEVICE}: a program has a device of that name already\n"
        shown = subprocess.run([*here, "status"], capture_output=True, text=True, check=True, timeout=20).stdout
        assert shown.startswith(f"{DEVICE}: c2:00:00:00:00:01 over shm") and len(shown.splitlines()) == 4
        assert max(map(len, shown.splitlines())) <= 80
        metrics = subprocess.run([*here, "status", "--prometheus"], capture_output=True, text=True, check=True).stdout
        assert f'incast_netdev_dropped_full_total{{device="{DEVICE}",peer="2"}} 0\n' in metrics
        assert said_by(*here, "down", DEVICE) == ""
        assert said_by("ip", "-n", names[0], "link", "show", DEVICE)
        gone = subprocess.run([*here, "down", DEVICE], capture_output=True, text=True, check=False)
        assert gone.returncode == 2 and "no such device here" in gone.stderr
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--id", "0"), "--id 0; allowed: 1 to 65534"),
        (("--peers", "1-"), "--peers: '1-'; allowed"),
        (("--address", "10.9.0.1"), "--address 10.9.0.1; allowed"),
        (("--secret", "/dev/null"), "--secret /dev/null: allowed"),
        (("--netns", "no-such-namespace"), "the network namespace no-such-namespace: No such file"),
    ],
)
def test_what_is_wrong_is_one_line(engine: Path, words: tuple[str, str], what: str) -> None:
    options = {"--id": "1", "--peers": "1-2", "--at": "shm:///dev/null/{id}", "--transport": "shm"} | dict([words])
    command = [str(engine.with_name("incast-netdev")), "up", DEVICE]
    for each in options.items():
        command += each
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 2
    assert done.stderr.startswith(f"incast netdev: {what}") and done.stderr.count("\n") == 1


def has_more(net: Network, index: int, counter: str, than: int) -> bool:
    return net.total(index, counter) > than


def ping_words(name: str, target: str) -> list[str]:
    return ["ip", "netns", "exec", name, "ping", "-n", "-c", "1", "-W", "1", target]


ENDLESS = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    connection.sendall(bytes(1 << 16))
"""
FLOOD = """
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    try:
        out.sendto(bytes(1400), (sys.argv[1], 9))
    except OSError:
        pass
"""


def test_the_commands_of_the_document(engine: Path, tmp_path: Path) -> None:
    """The first block of docs/netdev.md, with names of its own."""
    block = (ROOT / "docs" / "netdev.md").read_text().partition("```sh\n")[2].partition("```")[0]
    names = {each: f"incast-doc-{os.getpid()}-{each}" for each in ("left", "right")}
    try:
        for written in block.splitlines():
            line = re.sub(r"\b(left|right)\b", lambda found: names[found[0]], written)
            line = line.replace("incast netdev", str(engine.with_name("incast-netdev")))
            line = line.replace("/run/example", str(tmp_path / "example"))
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60)
            if done.returncode != 0 and "netns add" in line:
                pytest.skip(f"this host gives no network namespace: {done.stderr}")
            assert done.returncode == 0, f"{line}: {done.stderr}"
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
