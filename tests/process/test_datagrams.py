"""Event building over datagrams that are dropped, doubled and overtaken: all arrives, and the losses are counted."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Start, check_accounting, said_by, two_hosts
from transports import DATAGRAMS

TOKEN = "0123456789abcdef0123456789abcdef"
SETTINGS = {
    "transport.name": DATAGRAMS,
    "run.nodes": 4,
    "run.warm_up": "0s",
    "run.duration": os.environ.get("INCAST_LOSSES_DURATION", "300ms"),
    "protocol.mfp_size": "16KiB",
    "sink.kind": "verify",
}
MILLION = 1_000_000


def check_built(result: dict[str, Any], loses: bool) -> None:
    """All of it, whole; what was lost on the way was sent again."""
    assert result["events"] > 0
    assert result["verified"] == "full"
    assert result["verify_errors"] == 0
    assert result["incomplete_events"] == result["lost_events"] == 0
    check_accounting(result)
    datagrams = result["datagrams"]
    assert datagrams["sent"] > 0
    assert datagrams["lost"] >= 0
    if loses:
        assert datagrams["lost"] > 0
        assert 0 < datagrams["repeated"] < datagrams["sent"]


@pytest.mark.parametrize("scheme", ["push", "pull"])
@pytest.mark.parametrize(
    "faults",
    [
        {},
        {"drop": MILLION // 1000},
        {"drop": MILLION // 100},
        {"drop": MILLION // 10},
        {"twice": MILLION // 20, "late": MILLION // 20},
    ],
    ids=["none", "drop 0.1 %", "drop 1 %", "drop 10 %", "twice and late"],
)
def test_datagrams_that_get_lost_cost_no_events(start: Start, faults: dict[str, int], scheme: str) -> None:
    settings = {f"transport.{DATAGRAMS}.{name}": value for name, value in faults.items()}
    mtu = {f"transport.{DATAGRAMS}.mtu": 1500}
    run = start({**SETTINGS, **settings, **mtu, "protocol.scheme": scheme})
    assert run.finish(120) == 0, run.story()
    check_built(run.result(), loses=faults.get("drop", 0) >= MILLION // 100)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two of them, by name; their datagrams travel one by one."""
    with two_hosts() as names:
        for index, name in enumerate(names):
            features = ("tx", "off", "gso", "off", "gro", "off", "tso", "off")
            if why := said_by("ip", "netns", "exec", name, "ethtool", "-K", f"cable{index}", *features):
                pytest.skip(f"offloads cannot be turned off: {why}")
        yield names


@pytest.mark.parametrize("percent", [0, 1, 10])
def test_what_the_network_drops_costs_no_events(start: Start, engine: Path, hosts: list[str], percent: int) -> None:
    if percent > 0:
        hook = "type filter hook input priority 0; policy accept;"
        drop = f"udp dport > 0 numgen random mod 100 < {percent} drop"
        for host in hosts:
            rules = "\n".join(["table inet lossy {", "chain losses {", hook, drop, "}", "}"])
            if why := said_by("ip", "netns", "exec", host, "nft", rules):
                pytest.skip(f"nftables cannot drop here: {why}")
    run = start(
        SETTINGS,
        "--spawn",
        "2",
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
        for _ in range(2)
    ]
    try:
        assert run.finish(120) == 0, run.story()
        assert [other.wait(20) for other in others] == [0, 0]
    finally:
        for other in others:
            if other.poll() is None:
                other.kill()
            other.wait()
    check_built(run.result(), loses=percent > 0)
