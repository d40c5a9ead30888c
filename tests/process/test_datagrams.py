"""Event building over datagrams that are dropped, doubled and overtaken: all arrives, and the losses are counted; or,
where bodies are sent once, what misses some of its bytes is flagged.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Start, check_accounting, mep_check, must, said_by, two_hosts
from transports import DATAGRAMS, SOCKETS

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
ENOUGH = 2000  # datagrams: of these some get lost for certain, if one in a hundred does. A busy host may send fewer
ONCE = {f"transport.{DATAGRAMS}.repair": "none", "run.fail_above_incomplete": 1}


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
    if loses and datagrams["sent"] > ENOUGH:
        assert datagrams["lost"] > 0
        assert 0 < datagrams["repeated"] < datagrams["sent"]


def check_flagged(result: dict[str, Any], loses: bool, verified: str = "full") -> None:
    """What was built is complete or flagged, exactly: in the ledger, by builder unit and by flag."""
    check_accounting(result)
    assert result["verified"] == verified
    assert result["events"] == result["complete_events"] + result["incomplete_events"] > 0
    accounting = result["accounting"]
    totals = [node["totals"] for node in result["nodes"]]
    assert sum(each["meps_built"] for each in totals) == accounting["meps_committed"]
    assert sum(each["incomplete_meps"] for each in totals) == accounting["meps_flagged"]
    assert accounting["ledger"]["flagged"] == accounting["meps_flagged"]
    torn = sum(each["torn_mfps"] for each in totals)
    events = result["incomplete_events"]
    assert result["flags"] == ({"bad-checksum": {"events": events, "mfps": torn}} if torn > 0 else {})
    assert (events > 0) == (torn > 0)
    if loses and result["datagrams"]["sent"] > ENOUGH:
        assert torn > 0
        assert result["datagrams"]["lost"] > 0


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


@pytest.mark.parametrize(
    ("drop", "scheme"),  # of a million
    [(0, "push"), (1000, "push"), (10_000, "push"), (100_000, "push"), (10_000, "pull")],
)
def test_bodies_that_are_sent_once_are_whole_or_flagged(start: Start, drop: int, scheme: str) -> None:
    more = {f"transport.{DATAGRAMS}.mtu": 1500, f"transport.{DATAGRAMS}.drop": drop, "protocol.scheme": scheme}
    run = start({**SETTINGS, **ONCE, **more})
    assert run.finish(120) == 0, run.story()
    check_flagged(run.result(), loses=drop >= MILLION // 100)


def test_files_name_the_sources_that_miss_bytes(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "built"
    more = {f"transport.{DATAGRAMS}.mtu": 1500, f"transport.{DATAGRAMS}.drop": MILLION // 100}
    run = start({**SETTINGS, **ONCE, **more, "sink.kind": "mep", "sink.path": folder})
    assert run.finish(120) == 0, run.story()
    result = run.result()
    lines = [json.loads(line) for path in folder.glob("manifest-*") for line in path.read_text().splitlines()]
    flagged = [line for line in lines if line["flags"]]
    assert len(lines) == result["accounting"]["meps_committed"]
    assert len(flagged) == result["accounting"]["meps_flagged"]
    assert {flag for line in flagged for flag in line["flags"].values()} <= {"bad-checksum"}
    check_flagged(result, loses=True, verified="none")
    checked = mep_check(folder)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two of them, by name; their datagrams travel one by one."""
    with two_hosts() as names:
        for index, name in enumerate(names):
            features = ("tx", "off", "gso", "off", "gro", "off", "tso", "off")
            if why := said_by("ip", "netns", "exec", name, "ethtool", "-K", f"cable{index}", *features):
                pytest.skip(f"offloads cannot be turned off: {why}")
        yield names


def run_over(
    hosts: list[str], start: Start, engine: Path, settings: dict[str, Any], address: str = "10.0.0.1"
) -> dict[str, Any]:
    """The result of a run of two nodes on each host."""
    run = start(
        settings,
        "--spawn",
        "2",
        "--listen",
        f"{address}:0",
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
    return run.result()


@pytest.mark.parametrize(("percent", "once"), [(0, False), (1, False), (10, False), (1, True)])
def test_what_the_network_drops_costs_no_events_or_is_flagged(
    start: Start, engine: Path, hosts: list[str], percent: int, once: bool
) -> None:
    if percent > 0:
        hook = "type filter hook input priority 0; policy accept;"
        drop = f"udp dport > 0 numgen random mod 100 < {percent} drop"
        for host in hosts:
            rules = "\n".join(["table inet lossy {", "chain losses {", hook, drop, "}", "}"])
            if why := said_by("ip", "netns", "exec", host, "nft", rules):
                pytest.skip(f"nftables cannot drop here: {why}")
    result = run_over(hosts, start, engine, {**SETTINGS, **(ONCE if once else {})})
    check = check_flagged if once else check_built
    check(result, loses=percent > 0)


# What comes in on the cable, before the kernel puts fragments together.
WATCH = """
table inet watch {
    counter marked {}
    counter unmarked {}
    counter fragments {}
    chain come {
        type filter hook prerouting priority -450; policy accept;
        ip frag-off & 16383 != 0 counter name fragments
        exthdr frag exists counter name fragments
        meta l4proto KIND ip dscp 46 counter name marked
        meta l4proto KIND ip6 dscp 46 counter name marked
        meta l4proto KIND ip dscp != 46 counter name unmarked
        meta l4proto KIND ip6 dscp != 46 counter name unmarked
    }
}
"""


@pytest.mark.parametrize(
    ("transport", "address"), [(DATAGRAMS, "10.0.0.1"), (DATAGRAMS, "[fd00::1]"), (SOCKETS, "10.0.0.1")]
)
def test_packets_have_their_class_and_fit_the_cable(
    start: Start, engine: Path, hosts: list[str], transport: str, address: str
) -> None:
    """IPv4 and IPv6; the size of datagrams is found out."""
    for index, host in enumerate(hosts):
        must("ip", "-n", host, "link", "set", f"cable{index}", "mtu", "1400")
        if why := said_by("ip", "-n", host, "address", "add", f"fd00::{index + 1}/64", "dev", f"cable{index}", "nodad"):
            pytest.skip(f"no IPv6 here: {why}")
        kind = "udp" if transport == DATAGRAMS else "tcp"
        if why := said_by("ip", "netns", "exec", host, "nft", WATCH.replace("KIND", kind)):
            pytest.skip(f"nftables cannot count here: {why}")
    result = run_over(
        hosts, start, engine, {**SETTINGS, "transport.name": transport, f"transport.{transport}.dscp": 46}, address
    )
    check_accounting(result)
    assert result["events"] > 0
    for host in hosts:
        words = ["ip", "netns", "exec", host, "nft", "--json", "list", "counters"]
        listed = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)["nftables"]
        packets = {each["counter"]["name"]: each["counter"]["packets"] for each in listed if "counter" in each}
        assert packets["marked"] > 100
        assert packets["fragments"] == 0
        assert (
            packets["unmarked"] == 0 or transport != DATAGRAMS
        )  # nodes also talk over sockets that are not the transport's
