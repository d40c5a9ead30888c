"""SoftRIO between hosts: endpoints in network namespaces around one switch, with and without loss of datagrams."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import ROOT, Start, check_accounting, must, said_by, wait_until
from transports import RAPIDIO

CHILD = Path(__file__).with_name("softrio_child.py")
SNIFF = Path(__file__).with_name("sniff.py")
PORT = 7000
TOKEN = "0123456789abcdef0123456789abcdef"


Network = Callable[[int], list[str]]


@pytest.fixture
def network() -> Iterator[Network]:
    """Makes hosts with addresses 10.0.0.1, 2, ... around a switch: the names of their namespaces, then the switch's."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    names: list[str] = []

    def make(hosts: int) -> list[str]:
        names.extend(f"incast-rio-{os.getpid()}-{index}" for index in range(hosts + 1))
        if why := said_by("ip", "netns", "add", names[-1]):
            pytest.skip(f"this host gives no network namespace: {why}")
        switch = names[-1]
        if why := said_by("ip", "-n", switch, "link", "add", "switch", "type", "bridge"):
            pytest.skip(f"this host has no bridges: {why}")
        must("ip", "-n", switch, "link", "set", "switch", "up")
        for index, name in enumerate(names[:-1]):
            must("ip", "netns", "add", name)
            peer = ("type", "veth", "peer", "name", "cable", "netns", name)
            must("ip", "link", "add", f"port{index}", "netns", switch, *peer)
            must("ip", "-n", switch, "link", "set", f"port{index}", "master", "switch", "up")
            must("ip", "-n", name, "address", "add", f"10.0.0.{index + 1}/24", "dev", "cable")
            must("ip", "-n", name, "link", "set", "cable", "up")
            must("ip", "-n", name, "link", "set", "lo", "up")
        return names

    yield make
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def all_to_all(
    library: Path,
    names: list[str],
    *,
    rounds: int,
    options: str = "",
    largest: int = 64 << 10,
    endpoints: str = f"10.0.0.0/24:{PORT}",
) -> None:
    """Every endpoint writes to, reads from and rings every other one, which checks each byte."""
    hosts = names[:-1]
    environment = os.environ | {"RIO_FABRIC": f"udp:{endpoints}{options}", "RIO_RSVDMEM": "none"}
    children = [
        subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                name,
                sys.executable,
                str(CHILD),
                str(library),
                *map(str, (index, len(hosts), rounds, largest)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment | {"RIO_DESTID": str(index)},
        )
        for index, name in enumerate(hosts, start=1)
    ]
    try:
        results = []
        for child in children:
            assert child.stdout is not None and child.stderr is not None
            line = child.stdout.readline()
            assert line, child.stderr.read()
            results.append(json.loads(line))
        for child in children:
            _, errors = child.communicate(timeout=60)
            assert child.returncode == 0, errors
    finally:
        for child in children:
            child.kill()
            child.wait()
    for result in results:
        assert result["doorbells"] == rounds * (len(hosts) - 1)
        assert result["most"] == 1, "a doorbell came twice"


@pytest.fixture
def library(engine: Path) -> Path:
    """SoftRIO of the same build."""
    path = engine.parent.parent / "softrio" / "lib" / "libmport.so"
    assert path.exists(), f"{path} is not there: build it"
    return path


def test_sixteen_hosts(network: Network, library: Path) -> None:
    all_to_all(library, network(16), rounds=1)


def test_an_enumerating_host_gives_the_ids(network: Network, library: Path, engine: Path) -> None:
    """Only its address is known beforehand; every endpoint asks it for an id, and for the places of the others."""
    names = network(4)
    must("ip", "-n", names[0], "link", "set", "lo", "up")  # one of the endpoints is where the host is
    command = ["ip", "netns", "exec", names[0], str(engine.with_name("softrio")), "enumerate", "--listen", "10.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        try:
            fabric = host.stdout.readline().strip()
            assert fabric.startswith("RIO_FABRIC=udp:host:10.0.0.1:")
            all_to_all(library, names, rounds=1, endpoints=fabric.removeprefix("RIO_FABRIC=udp:"))
        finally:
            host.terminate()
        said = host.stdout.readlines()
    assert host.returncode == 0
    for index in range(1, 5):
        assert any(line.startswith(f"endpoint {index}: 10.0.0.{index}:") for line in said), said


@pytest.mark.parametrize("percent", [1, 10])
def test_losses_of_the_sender(network: Network, library: Path, percent: int) -> None:
    """Datagrams that are not sent, by SoftRIO's own option: on every host."""
    all_to_all(library, network(3), rounds=4, options=f"?drop={percent * 10_000}")


def without_offloads(names: list[str]) -> None:
    """Datagrams travel one by one, so that they are lost one by one."""
    for name in names[:-1]:
        features = ("tx", "off", "gso", "off", "gro", "off", "tso", "off")
        if why := said_by("ip", "netns", "exec", name, "ethtool", "-K", "cable", *features):
            pytest.skip(f"offloads cannot be turned off: {why}")


@pytest.mark.parametrize("percent", [1, 10])
def test_losses_of_the_switch(network: Network, library: Path, percent: int) -> None:
    names = network(3)
    without_offloads(names)
    hook = "type filter hook forward priority 0; policy accept;"
    lines = ["table bridge lossy {", "chain losses {", hook]
    lines += [f"ip protocol udp numgen random mod 100 < {percent} drop", "}", "}"]
    rules = "\n".join(lines)
    if why := said_by("ip", "netns", "exec", names[-1], "nft", rules):
        pytest.skip(f"nftables cannot drop here: {why}")
    all_to_all(library, names, rounds=4)


@pytest.mark.parametrize("percent", [1, 10])
def test_losses_of_netem(network: Network, library: Path, percent: int) -> None:
    names = network(3)
    without_offloads(names)
    for index in range(3):
        faults = ("loss", f"{percent}%", "delay", "200us", "100us", "duplicate", "1%")
        if why := said_by("tc", "-n", names[-1], "qdisc", "add", "dev", f"port{index}", "root", "netem", *faults):
            pytest.skip(f"this host has no netem: {why}")
    all_to_all(library, names, rounds=4)


def test_wireshark_understands_the_packets(network: Network, library: Path, tmp_path: Path) -> None:
    script = ROOT / "tools" / "wireshark" / "incast_rio.lua"
    if shutil.which("tshark") is None:
        if shutil.which("luac5.4") is not None:
            must("luac5.4", "-p", "-o", str(tmp_path / "luac.out"), str(script))
        pytest.skip("no tshark on this host: the dissector's syntax at most was checked")
    names = network(2)
    without_offloads(names)
    capture = tmp_path / "rio.pcap"
    command = ["ip", "netns", "exec", names[-1], sys.executable, str(SNIFF), "port0", str(capture)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sniffer:
        assert sniffer.stdout is not None
        assert sniffer.stdout.readline() == "ready\n"
        all_to_all(library, names, rounds=1, largest=4096)
        wait_until(
            lambda: bytes.fromhex("44520106") in capture.read_bytes(), "a good-bye, the last packet of a session"
        )
        sniffer.terminate()
    dissect = ["tshark", "-X", f"lua_script:{script}", "-r", str(capture)]
    shown = subprocess.run([*dissect, "-V"], capture_output=True, text=True, check=True)
    assert "Lua Error" not in shown.stdout + shown.stderr
    for words in (
        "NWRITE_R",
        "NWRITE",
        "NREAD",
        "RESPONSE DONE",
        "DOORBELL 0x0000",
        "MAINTENANCE read",
        "hello",
        "bye",
    ):
        assert words in shown.stdout, words
    assert "The CRC is wrong" not in shown.stdout
    assert "too short" not in shown.stdout
    one = [*dissect, "-Y", "rio.address == 0x10001000 && rio.destination == 2", "-T", "fields", "-e", "rio.source"]
    assert "1" in subprocess.run(one, capture_output=True, text=True, check=True).stdout.replace(",", "\n").split("\n")


@pytest.mark.parametrize(
    "combination",
    [
        ("push", "doorbell", "strict", "contiguous"),
        ("pull", "cm", "weak", "segments"),
        ("pull-read", "memory", "weak", "contiguous"),
    ],
    ids="-".join,
)
def test_four_hosts_build_events(
    start: Start, engine: Path, network: Network, combination: tuple[str, str, str, str]
) -> None:
    """The transport rio, a node on each host; over loopback: test_rio.py."""
    scheme, notice, order, layout = combination
    hosts = network(4)[:-1]
    run = start(
        {
            "run.nodes": 4,
            "run.warm_up": "20ms",
            "run.duration": "200ms",
            "transport.name": RAPIDIO,
            f"transport.{RAPIDIO}.fabric": f"udp:10.0.0.0/24:{PORT}",
            f"transport.{RAPIDIO}.notice": notice,
            f"transport.{RAPIDIO}.order": order,
            f"transport.{RAPIDIO}.layout": layout,
            f"transport.{RAPIDIO}.segment": 131_072,
            "protocol.scheme": scheme,
            "protocol.mfp_size": "32KiB",
            "protocol.credits": 4,
            "source.prefill_size": "1MiB",
            "sink.kind": "verify",
        },
        "--spawn",
        "1",
        "--listen",
        "10.0.0.1:0",
        token=TOKEN,
        prefix=["ip", "netns", "exec", hosts[0]],
    )
    listening = run.wait_for(lambda report: report["type"] == "listening", "address")
    others = [
        subprocess.Popen(
            ["ip", "netns", "exec", host, str(engine), "--join", listening["address"]],
            env={**os.environ, "INCAST_TOKEN": TOKEN},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        for host in hosts[1:]
    ]
    try:
        assert run.finish() == 0, run.story()
        assert [other.wait(20) for other in others] == [0, 0, 0]
    finally:
        for other in others:
            other.kill()
            other.wait()
    result = run.result()
    assert result["status"] == "complete"
    assert result["events"] > 0
    assert result["verified"] == "full"
    assert result["incomplete_events"] == 0
    check_accounting(result)
