"""`incast doctor`: on trees of /sys and /proc with one fault planted each, and on those of healthy hosts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from incast.doctor import limits
from incast.doctor.checks import CHECKS, findings
from incast.doctor.cluster import TOGETHER, Answer, _silent, _taken, between
from incast.doctor.host import ADVICE, FAULT, Finding, Host
from incast.doctor.ports import ports
from incast.doctor.system import engine_findings

from tests.conftest import Incast

SCHEMA = Path(__file__).parents[2] / "schema" / "doctor.schema.json"
MLX, NET = "sys/class/infiniband/mlx5_0", "sys/class/net/eth2"
PORT = f"{MLX}/ports/1"
LIMITS = "Limit                     Soft Limit           Hard Limit           Units\n"
ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
LINK_LOCAL = "fe80:0000:0000:0000:0e42:a1ff:fe00:0001"
Tree = dict[str, str]


def roce() -> Tree:
    """A host with one RoCE port as it should be."""
    return {
        "proc/self/limits": f"{LIMITS}Max locked memory         unlimited            unlimited            bytes\n",
        "proc/self/status": "Name:\tincast\nCapEff:\t0000000000000000\n",
        "dev/infiniband/rdma_cm": "",
        "dev/infiniband/uverbs0": "",
        "sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0",
        "sys/bus/pci/devices/0000:3b:00.0/class": "0x020000",
        "sys/bus/pci/devices/0000:3b:00.0/vendor": "0x15b3",
        "sys/bus/pci/devices/0000:3b:00.0/infiniband/mlx5_0/dev": "",
        f"{MLX}/node_type": "1: CA",
        f"{MLX}/device/net/eth2/ifindex": "4",
        f"{PORT}/link_layer": "Ethernet",
        f"{PORT}/state": "4: ACTIVE",
        f"{PORT}/phys_state": "5: LinkUp",
        f"{PORT}/rate": "100 Gb/sec (4X EDR)",
        f"{PORT}/gids/0": LINK_LOCAL,
        f"{PORT}/gids/1": LINK_LOCAL,
        f"{PORT}/gids/2": "0000:0000:0000:0000:0000:ffff:0a00:0107",
        f"{PORT}/gids/3": "0000:0000:0000:0000:0000:ffff:0a00:0107",
        f"{PORT}/gids/4": ZERO,
        **{f"{PORT}/gid_attrs/types/{n}": "RoCE v2" if n % 2 else "IB/RoCE v1" for n in range(4)},
        **{f"{PORT}/gid_attrs/ndevs/{n}": "eth2" for n in range(4)},
        "sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode": "RoCE v2",
        f"{NET}/mtu": "9000",
        f"{NET}/flags": "0x1003",
        "said/ibv_devinfo-d-mlx5_0-i-1": "hca_id: mlx5_0\n\tactive_mtu:\t\t4096 (5)\n",
        "said/dcb-j-pfc-show-dev-eth2": '{"pfc-cap":8,"prio-pfc":[false,false,false,true,false,false,false,false]}',
        **{f"{NET}/ecn/{side}/enable/{n}": "1" for side in ("roce_np", "roce_rp") for n in range(8)},
        **{f"{PORT}/counters/{name}": "12" for name in ("symbol_error", "port_xmit_discards", "port_xmit_wait")},
        **{f"{PORT}/hw_counters/{name}": "3" for name in ("out_of_sequence", "np_cnp_sent", "out_of_buffer")},
        f"{NET}/statistics/rx_crc_errors": "1",
    }


def infiniband() -> Tree:
    """A host with one port of InfiniBand as it should be."""
    tree = {path: text for path, text in roce().items() if "gid" not in path and NET not in path}
    return tree | {f"{PORT}/link_layer": "InfiniBand", f"{PORT}/gids/0": LINK_LOCAL}


def soft() -> Tree:
    """soft-RoCE on an Ethernet of its own: no adapter, so no PFC, no ECN."""
    kept = ("proc/", "dev/", "sys/class/infiniband_verbs")
    tree = {path: text for path, text in roce().items() if path.startswith(kept) or f"{MLX}/ports" in path}
    return tree | {f"{MLX}/parent": "eth2", f"{NET}/mtu": "9000", f"{NET}/flags": "0x1003"}


CPUFREQ = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
PAGES = "sys/kernel/mm/transparent_hugepage/enabled"
FILES = "Max open files            1024                 524288               files\n"
SELF = "1 (systemd) S 0 1 1 0 -1 0 0 0 0 0 {} 3 0 0 20 0 1 0"


def plain() -> Tree:
    """A host without RDMA, as it should be."""
    return {
        "proc/self/limits": LIMITS + FILES,
        "proc/self/status": "Name:\tincast\nCapEff:\t0000000000000000\n",
        "proc/stat": "cpu  1000 0 500 90000 100 0 10 0 0 0\ncpu0 1 0 1 1 1 1 1 1 0 0\n",
        "proc/1/stat": SELF.format(100),
        "proc/sys/net/core/rmem_max": "8388608",
        "proc/sys/net/core/wmem_max": "16777216",
        "proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456",
        "proc/sys/net/ipv4/tcp_wmem": "4096\t16384\t4194304",
        PAGES: "always [madvise] never",
        **{CPUFREQ.format(n): "performance" for n in range(4)},
    }


def planted(folder: Path, tree: Tree) -> Host:
    for path, text in tree.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Host(folder, pause=lambda _: None)


def found_in(folder: Path, tree: Tree) -> list[Finding]:
    found = findings(planted(folder, tree))
    assert all((each.value, each.right, each.command, each.reason) for each in found)
    assert {each.check for each in found} <= {check.name for check in CHECKS}
    return found


@pytest.mark.parametrize("healthy", [roce, infiniband, soft, plain, dict])
def test_nothing_is_found_on_a_healthy_host(tmp_path: Path, healthy: Callable[[], Tree]) -> None:
    assert found_in(tmp_path, healthy()) == []


GONE = None
FAULTS: list[tuple[str, dict[str, str | None], str, str]] = [
    ("memlock", {"proc/self/limits": f"{LIMITS}Max locked memory      8388608   8388608   bytes"}, FAULT, "8192 KiB"),
    ("drivers", {"sys/bus/pci/devices/0000:3b:00.0/infiniband/mlx5_0/dev": GONE}, FAULT, "modprobe mlx5_ib"),
    ("drivers", {"dev/infiniband/uverbs0": GONE}, FAULT, "modprobe ib_uverbs"),
    ("drivers", {"dev/infiniband/rdma_cm": GONE}, FAULT, "modprobe rdma_ucm"),
    ("states", {f"{PORT}/state": "1: DOWN", f"{PORT}/phys_state": "3: Disabled", f"{NET}/flags": "0x1002"}, FAULT,
     "ip link set eth2 up"),
    ("states", {f"{PORT}/state": "1: DOWN", f"{PORT}/phys_state": "2: Polling"}, FAULT, "cable"),
    ("gids", {f"{PORT}/gids/2": ZERO, f"{PORT}/gids/3": ZERO}, FAULT, "ip address add"),
    ("gids", {f"{PORT}/gid_attrs/types/{n}": "IB/RoCE v1" for n in range(4)}, FAULT, "no RoCE v2 address"),
    ("gids", {"sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode": "IB/RoCE v1"}, FAULT, "echo 'RoCE v2'"),
    ("mtus", {"said/ibv_devinfo-d-mlx5_0-i-1": "active_mtu: 1024 (3)"}, FAULT, "active MTU 1024, eth2 has 9000"),
    ("mtus", {f"{NET}/mtu": "1500", "said/ibv_devinfo-d-mlx5_0-i-1": GONE}, ADVICE, "packets of 1024 B"),
    ("mtus", {f"{NET}/mtu": "4191", "said/ibv_devinfo-d-mlx5_0-i-1": GONE}, ADVICE, "packets of 2048 B"),
    ("flow control", {
        "said/dcb-j-pfc-show-dev-eth2": '{"prio-pfc":[false,false,false,false,false,false,false,false]}',
        **{f"{NET}/ecn/roce_np/enable/{n}": "0" for n in range(8)},
        **{f"{NET}/ecn/roce_rp/enable/{n}": "0" for n in range(8)},
    }, ADVICE, "PFC off for all priorities, ECN off for all"),
    ("flow control", {f"{NET}/ecn/roce_rp/enable/3": "0"}, ADVICE, "for P in 3"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "changes", "level", "words"), FAULTS)
def test_a_planted_fault_is_found_and_no_other(
    tmp_path: Path, check: str, changes: dict[str, str | None], level: str, words: str
) -> None:
    tree = {path: text for path, text in {**roce(), **changes}.items() if text is not None}
    (found,) = found_in(tmp_path, tree)
    assert (found.check, found.level) == (check, level)
    assert words in f"{found.value}; {found.command}"


PLAIN_FAULTS: list[tuple[str, dict[str, str], str, str]] = [
    ("governor", {CPUFREQ.format(3): "powersave"}, ADVICE, "cpupower frequency-set -g performance"),
    ("huge pages", {PAGES: "always madvise [never]"}, ADVICE, f"echo madvise > /{PAGES}"),
    ("nofile", {"proc/self/limits": LIMITS + FILES.replace("524288", "512   ")}, FAULT, "at most 512 open files"),
    ("socket buffers", {"proc/sys/net/core/rmem_max": "212992"}, ADVICE, "net.core.rmem_max='8388608'"),
    ("socket buffers", {"proc/sys/net/core/wmem_max": "212992"}, ADVICE, "net.core.wmem_max='8388608'"),
    ("socket buffers", {"proc/sys/net/ipv4/tcp_rmem": "4096 87380 2097152"}, ADVICE, "='4096 87380 4194304'"),
    ("socket buffers", {"proc/sys/net/ipv4/tcp_wmem": "4096 16384 65536"}, ADVICE, "='4096 16384 4194304'"),
]


@pytest.mark.parametrize(("check", "changes", "level", "words"), PLAIN_FAULTS)
def test_a_fault_planted_without_rdma_is_found_and_no_other(
    tmp_path: Path, check: str, changes: dict[str, str], level: str, words: str
) -> None:
    (found,) = found_in(tmp_path, {**plain(), **changes})
    assert (found.check, found.level) == (check, level)
    assert words in f"{found.value}; {found.command}"


def test_who_administers_the_network_may_exceed_its_limits(tmp_path: Path) -> None:
    small = {"proc/sys/net/core/rmem_max": "212992", "proc/self/status": "CapEff:\t0000000000001000\n"}
    assert found_in(tmp_path, {**plain(), **small}) == []


@pytest.mark.parametrize(("busy", "found"), [(4, []), (60, ["others take 60 %, most of it by x y (process 7)"])])
def test_others_at_work_are_named(tmp_path: Path, busy: int, found: list[str]) -> None:
    other = {"proc/7/stat": SELF.replace("systemd", "x y").format(5)}
    planted(tmp_path, {**plain(), **other})
    later = {"proc/stat": f"cpu  {1000 + busy} 0 500 {90000 + 100 - busy} 100 0 10 0 0 0\n"}
    later |= {"proc/7/stat": other["proc/7/stat"].replace(" 5 3 ", f" {5 + busy} 3 ")}
    host = Host(tmp_path, pause=lambda _: (planted(tmp_path, later), None)[1])
    assert [each.value for each in findings(host)] == found


def test_what_an_engine_says_of_itself() -> None:
    assert (
        list(engine_findings({"path": "e", "version": "1", "transports": [{"name": "a", "available": True}]}, "1"))
        == []
    )
    no_device = {"name": "verbs", "available": False, "reason": "no RDMA device on this host"}
    assert list(engine_findings({"version": "1", "transports": [no_device]}, "1")) == []
    lacking = {"name": "verbs", "available": False, "reason": "libibverbs.so.1: cannot open shared object file"}
    (found,) = engine_findings({"version": "1", "transports": [lacking]}, "1")
    assert (found.level, found.value) == (ADVICE, "no libibverbs.so.1")
    (found,) = engine_findings({"path": "/e", "version": "0.9"}, "1")
    assert (found.level, found.value, found.right) == (FAULT, "version 0.9", "version 1, as here")
    (found,) = engine_findings({"path": "", "error": "not found"}, "1")
    assert (found.level, found.where, found.value) == (FAULT, "incast-node", "not found")


def seen(*reached: list[Any], mtu: str = "1500") -> dict[str, Any]:
    """What the probe says of a host."""
    return {"interface": "eth0", "files": {"/sys/class/net/eth0/mtu": mtu}, "reached": list(reached)}


def test_clocks_are_compared_with_the_first_host() -> None:
    there = {name: {"address": "10.0.0.1"} for name in "abc"}
    hosts = {
        "a": seen(["b", "tcp", 1, "", 0.02, 0.001], ["c", "tcp", 1, "", 5.0, 7.0], ["c", "udp", 1, "", 2.5, 0.001]),
        "b": seen(["a", "tcp", 1, "", -0.02, 0.001]),
        "c": seen(["a", "tcp", 1, "", -2.6, 0.5]),
    }
    (found,) = between(hosts, there, None)
    assert (found.check, found.host, found.value) == ("clocks", "c", "2.5 s ahead of a")
    assert [each.value for each in between({"a": seen(["b", "tcp", 1, "", -0.5, 0.45])}, there, None)] == []


def test_the_mtu_of_most_is_the_right_one() -> None:
    hosts = {"a": seen(mtu="9000"), "b": seen(mtu="1500"), "c": seen(mtu="9000")}
    (found,) = between(hosts, {}, None)
    assert (found.check, found.host, found.value) == ("network MTU", "b", "MTU 1500")
    assert found.command == "ip link set eth0 mtu 9000"


def local(*addresses: str) -> dict[str, str]:
    """As the kernel's table has them."""
    return {"/proc/net/fib_trie": "".join(f"|-- {each}\n   /32 host LOCAL\n" for each in ("127.0.0.1", *addresses))}


def test_an_address_that_two_hosts_have() -> None:
    there = {name: {"address": f"10.0.0.{at}"} for at, name in enumerate("abc")}
    shut = ["b", "tcp", 1, "Connection refused", None, None]
    hosts = {"a": seen(shut), "b": seen(), "c": seen()}
    for name, own in (("a", ["10.0.0.0"]), ("b", ["10.0.0.1"]), ("c", ["10.0.0.2", "10.0.0.1"])):
        hosts[name]["files"] |= local(*own)
    (found,) = between(hosts, there, None)
    assert (found.check, found.host, found.where, found.value) == ("addresses", "c", "10.0.0.1", "b has it as well")
    hosts["b"]["files"] |= local("10.0.0.2", "10.0.0.1")
    assert [each.check for each in between(hosts, there, None)] == ["firewall"], "one host under two names"


def test_large_packets_that_do_not_arrive() -> None:
    there = {name: {"address": "10.0.0.1"} for name in "ab"}
    hosts = {"a": seen() | {"large": {"b": [1500, 8, 0]}}, "b": seen() | {"large": {"a": [1500, 60, 59]}}}
    (found,) = between(hosts, there, None)
    assert (found.check, found.level, found.host, found.where) == ("large packets", FAULT, "a", "udp to b")
    hosts["a"]["large"] = {"b": [600, 60, 60]}
    hosts["b"]["large"] = {"a": [1500, 60, 54]}
    smaller, lossy = between(hosts, there, None)
    assert (smaller.check, smaller.value) == ("large packets", "MTU 600")
    assert (lossy.check, lossy.value) == ("loss", "6 of 60 packets of 1500 B did not come back")


def test_all_ways_of_one_host_are_one_finding() -> None:
    there = {name: {"address": f"10.0.0.{at}"} for at, name in enumerate("abc")}
    pairs = [(host, other) for host in "abc" for other in "abc" if host != other]
    no, yes = "no answer within 9 s", ""
    hosts = {
        host: seen(*([other, "udp", 1, no if "b" in (host, other) else yes, 0.0, 0.1] for _, other in its))
        | {"large": {other: [1500, 8, 0] if "b" in (host, other) else [1500, 60, 60] for _, other in its}}
        for host in "abc"
        if (its := [pair for pair in pairs if pair[0] == host])
    }
    assert [(each.check, each.host, each.where) for each in between(hosts, there, None)] == [
        ("firewall", "b", "udp to and from all others"),
        ("large packets", "b", "udp to and from all others"),
    ]


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("ssh: connect to host b port 22: Connection refused", "systemctl enable --now ssh"),
        ("ssh: Could not resolve hostname b: Name or service not known", "getent hosts b"),
        ("root@b: Permission denied (publickey).", "ssh-copy-id b"),
        ("Host key verification failed.", "ssh-keygen -R b"),
        ("Connection timed out during banner exchange", "ping b"),
        ("sh: 1: exec: python3: not found", "python3-minimal"),
        ("something else", "ssh -v b true"),
    ],
)
def test_what_ssh_says_decides_what_helps(said: str, command: str) -> None:
    (found,) = _silent({"b": Answer(lines=[said])})
    assert command in found.command


def test_ports_that_others_have() -> None:
    there = {"a": {"ports": [["tcp", 5], ["udp", 5], ["udp", 6]]}}
    (found,) = _taken(there, [5, 6])
    assert (found.check, found.level, found.host, found.where) == ("ports", FAULT, "a", "tcp, ports 6")
    assert list(_taken(there, [])) == []


@pytest.mark.parametrize(
    ("group", "files"),
    [
        ("0::/a/b", {"sys/fs/cgroup/a/cpu.max": "150000 100000", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}),
        (
            "4:cpu,cpuacct:/a",
            {
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "150000",
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
        ),
    ],
)
def test_a_quota_of_cores(tmp_path: Path, group: str, files: dict[str, str]) -> None:
    online = {"sys/devices/system/cpu/online": "0-1", "proc/self/status": "Cpus_allowed_list:\t0-7\n"}
    (found,) = limits.cores(planted(tmp_path, online | files | {"proc/self/cgroup": group}))
    assert (found.level, found.value) == (FAULT, "1.5 cores' worth of time")
    assert found.command.startswith("echo ")


def test_cores_that_may_not_be_used(tmp_path: Path) -> None:
    files = {"sys/devices/system/cpu/online": "0-3", "proc/self/status": "Cpus_allowed_list:\t0,2\n"}
    (found,) = limits.cores(planted(tmp_path, files))
    assert (found.level, found.value) == (ADVICE, "2 of 4 cores may be used")
    planted(tmp_path, {"sys/devices/system/cpu/isolated": "1,3"})
    assert list(limits.cores(Host(tmp_path))) == [], "isolated ones are kept from all"


def test_little_address_space(tmp_path: Path) -> None:
    files = {"proc/self/limits": f"{LIMITS}Max address space         268435456            unlimited            bytes\n"}
    (found,) = limits.memory(planted(tmp_path, files))
    assert found.value.startswith("268435456 bytes")


def test_a_queue_that_shapes(tmp_path: Path) -> None:
    said = "qdisc noqueue 0: dev lo root refcnt 2\n"
    said += "qdisc tbf 8001: dev eth0 root refcnt 2 rate 10Mbit burst 32Kb lat 50ms\n"
    host = planted(tmp_path, {"said/tc-qdisc-show": said + "qdisc fq 8002: dev eth1 root refcnt 2\n"})
    (found,) = limits.shaping(host)
    assert (found.where, found.value) == ("interface eth0", "tbf rate 10Mbit burst 32Kb lat 50ms")
    assert found.command == "tc qdisc del dev eth0 root"


def test_infiniband_without_a_subnet_manager(tmp_path: Path) -> None:
    (found,) = found_in(tmp_path, infiniband() | {f"{PORT}/state": "2: INIT"})
    assert "opensm" in found.command


def test_a_second_port_without_cable_is_advice(tmp_path: Path) -> None:
    second = {path.replace(PORT, f"{MLX}/ports/2"): text for path, text in roce().items() if path.startswith(PORT)}
    down = {f"{MLX}/ports/2/state": "1: DOWN", f"{MLX}/ports/2/phys_state": "2: Polling"}
    (found,) = found_in(tmp_path, roce() | second | down)
    assert (found.level, found.where) == (ADVICE, "mlx5_0 port 2")


def test_who_may_lock_memory_has_no_limit(tmp_path: Path) -> None:
    limited = {"proc/self/limits": f"{LIMITS}Max locked memory         65536   65536   bytes\n"}
    assert found_in(tmp_path, roce() | limited | {"proc/self/status": "CapEff:\t0000000000004000\n"}) == []


@pytest.mark.parametrize(
    ("counter", "level"),
    [
        (f"{PORT}/counters/symbol_error", FAULT),
        (f"{PORT}/hw_counters/out_of_sequence", FAULT),
        (f"{PORT}/counters/port_xmit_wait", ADVICE),
        (f"{PORT}/hw_counters/np_cnp_sent", ADVICE),
        (f"{NET}/statistics/rx_crc_errors", FAULT),
    ],
)
def test_what_grows_is_found_and_what_stands_still_is_not(tmp_path: Path, counter: str, level: str) -> None:
    planted(tmp_path, roce())
    file = tmp_path / counter
    host = Host(tmp_path, pause=lambda _: (file.write_text(str(int(file.read_text()) + 7)), None)[1])
    (found,) = findings(host)
    assert (found.level, found.where) == (level, f"mlx5_0 port 1, {file.name}")
    assert found.value.startswith("grew by 7 in 1 s")


def test_the_address_to_use(tmp_path: Path) -> None:
    (port,) = ports(planted(tmp_path, roce()))
    assert port.routable is not None
    assert (port.routable.index, port.routable.ipv4, port.netdev, port.software) == (3, "10.0.1.7", "eth2", False)
    (port,) = ports(planted(tmp_path / "soft", soft()))
    assert (port.netdev, port.software) == ("eth2", True)


def test_statuses_and_both_forms(incast: Incast, tmp_path: Path) -> None:
    host = planted(tmp_path / "host", roce())
    done = incast("doctor", "--root", str(host.root))
    assert (done.returncode, done.stderr) == (0, "")
    assert "3: 10.0.1.7" in done.stdout
    planted(host.root, {f"{NET}/mtu": "1500", "said/ibv_devinfo-d-mlx5_0-i-1": ""})
    assert incast("doctor", "--root", str(host.root)).returncode == 0, "advice alone"
    planted(host.root, {"proc/self/limits": f"{LIMITS}Max locked memory         65536   65536   bytes\n"})
    done = incast("doctor", "--root", str(host.root))
    assert done.returncode == 1
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "faults: 1, advice: 1" in done.stdout
    done = incast("doctor", "--root", str(host.root), "--json")
    assert done.returncode == 1
    whole: dict[str, Any] = json.loads(done.stdout)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(whole)
    assert [each["check"] for each in whole["findings"]] == ["memlock", "mtus"]
    assert whole["ports"][0]["gid_index"] == 3
    assert incast("doctor", "--root", "nowhere").returncode == 2


def test_every_check_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    assert all(f"| `{name}` |" in text for name in (*(check.name for check in CHECKS), *TOGETHER))
