"""`incast doctor --hosts`: hosts are network namespaces, in which faults are planted one by one and all together."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, cluster_of
from support import must, said_by

pytest.importorskip("ClusterShell", reason="needs ClusterShell: pip install 'incast[hosts]'")

HOSTS = 3
PORTS = "40000-40010"
# What the machine that all share is like, and what else it does.
_OF_THE_MACHINE = {"busy cores", "cores", "governor", "huge pages", "counters"}
Found = set[tuple[str, str, str]]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Faults are planted in it."""
    with cluster_of(HOSTS, tmp_path_factory.mktemp("cluster")) as made:
        yield made


def looked_at(cluster: Cluster, engine: Path, hosts: str) -> Found:
    """Check, host and where of each finding."""
    done = subprocess.run(
        cluster.incast("doctor", "--hosts", hosts, "--ssh", f"ssh -F {cluster.ssh_config}", "--ports", PORTS, "--json"),
        env=os.environ | {"INCAST_NODE": str(engine)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    assert all(each["value"] and each["right"] and each["command"] and each["reason"] for each in found)
    kept = [each for each in found if each["check"] not in _OF_THE_MACHINE]
    assert done.returncode == int(any(each["level"] == "fault" for each in found))
    return {(each["check"], each["host"], each["where"]) for each in kept}


def test_what_is_planted_is_found_and_nothing_else(cluster: Cluster, engine: Path) -> None:
    before = looked_at(cluster, engine, "node[1-3]")
    assert {check for check, _, _ in before} <= {"socket buffers"}, "the machine's own"
    if why := said_by(*cluster.words("nft", "add", "table", "inet", "t", host=2)):
        pytest.skip(f"this host gives no packet filter: {why}")

    def rule(host: int, words: str) -> None:
        must(*cluster.words("nft", "add", "rule", "inet", "t", "input", *words.split(), host=host))

    def setting(host: int, name: str, value: str) -> None:
        must(*cluster.words("sysctl", "-q", "-w", f"{name}={value}", host=host))

    planted: Found = set()
    must(*cluster.words("ip", "link", "set", "eth0", "mtu", "1400", host=1))
    planted.add(("network MTU", "node1", "interface eth0"))
    setting(1, "net.ipv4.tcp_rmem", "4096 65536 131072")
    planted.add(("socket buffers", "node1", "net.ipv4.tcp_rmem"))
    setting(2, "net.ipv4.tcp_wmem", "4096 65536 131072")
    planted.add(("socket buffers", "node2", "net.ipv4.tcp_wmem"))
    chain = "{ type filter hook input priority 0; }"
    must(*cluster.words("nft", "add", "chain", "inet", "t", "input", chain, host=2))
    rule(2, f"ip saddr {cluster.address(1)} tcp dport 40000-40010 drop")
    planted.add(("firewall", "node2", "tcp from node1, ports 40000, 40005, 40010"))
    rule(2, f"ip saddr {cluster.address(3)} tcp dport 40005 reject with tcp reset")
    planted.add(("firewall", "node2", "tcp from node3, ports 40005"))
    rule(2, f"ip saddr {cluster.address(3)} udp dport 40000-40010 drop")
    planted.add(("firewall", "node2", "udp from node3, ports 40000, 40005, 40010"))
    must("prlimit", "--pid", str(cluster.sshd(3)), "--nofile=400:400")
    planted.add(("nofile", "node3", "this shell"))
    assert looked_at(cluster, engine, "node[1-3]") - before == planted
    os.kill(cluster.sshd(3), 9)
    gone = {each for each in planted if each[1] != "node3" and "node3" not in each[2]} | {("ssh", "node3", "login")}
    assert looked_at(cluster, engine, "node[1-3]") - before == gone
