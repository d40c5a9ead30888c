"""Checks of what RDMA needs of a host: memory that may be locked, drivers, ports, addresses, MTU, flow control."""

import json
import re
from collections.abc import Iterator

from incast.doctor.host import ADVICE, FAULT, Finding, Host
from incast.doctor.ports import ROCE_V2, Port, ports

_IPC_LOCK = 14  # include/uapi/linux/capability.h
_PCI = "sys/bus/pci/devices"
_MELLANOX = "0x15b3"
# Of a RoCE packet beside its payload, as the kernel's iboe_get_mtu has it: GRH, UDP, BTH, XRC, atomic ETH, ICRC.
_ROCE_BYTES = 40 + 8 + 12 + 4 + 28 + 4
_IB_MTUS = (256, 512, 1024, 2048, 4096)
_CONFIGFS = "sys/kernel/config/rdma_cm"


def memlock(host: Host) -> Iterator[Finding]:
    """Registered memory is locked, and counts against a limit."""
    if not ports(host):
        return
    line = re.search(r"^Max locked memory\s+(\S+)", host.text("proc/self/limits") or "", re.MULTILINE)
    capable = re.search(r"^CapEff:\s*([0-9a-f]+)", host.text("proc/self/status") or "", re.MULTILINE)
    if line is None or line[1] == "unlimited" or (capable and int(capable[1], 16) >> _IPC_LOCK & 1):
        return
    yield Finding(
        "memlock", FAULT, "this shell", f"{int(line[1]) >> 10} KiB", "unlimited",
        "echo '* - memlock unlimited' > /etc/security/limits.d/rdma.conf, then log in again; "
        "of a service: LimitMEMLOCK=infinity",
        "all memory that an adapter reads or writes is locked when it is registered, and a builder unit registers all "
        "its slots at once",
    )  # fmt: skip


def drivers(host: Host) -> Iterator[Finding]:
    """Adapters without a driver, and devices that programs cannot open."""
    for address in host.names(_PCI):
        folder = f"{_PCI}/{address}"
        kind, vendor = host.text(f"{folder}/class") or "", host.text(f"{folder}/vendor") or ""
        adapter = kind.startswith("0x0207") or (vendor == _MELLANOX and kind.startswith("0x0200"))
        if adapter and not host.names(f"{folder}/infiniband"):
            module = "mlx5_ib" if vendor == _MELLANOX else "the adapter's RDMA driver"
            yield Finding(
                "drivers", FAULT, f"PCI {address}", "no RDMA device", f"a device below {folder}/infiniband",
                f"modprobe {module}", "the adapter is there, and nothing offers its RDMA",
            )  # fmt: skip
    if not ports(host):
        return
    opened = {host.text(f"sys/class/infiniband_verbs/{name}/ibdev"): name for name in _uverbs(host)}
    for device in dict.fromkeys(port.device for port in ports(host)):
        name = opened.get(device)
        if name is None or not host.exists(f"dev/infiniband/{name}"):
            yield Finding(
                "drivers", FAULT, device, "no /dev/infiniband/uverbs of it", "one that this user may open",
                "modprobe ib_uverbs", "programs reach a device through it",
            )  # fmt: skip
    if not host.exists("dev/infiniband/rdma_cm"):
        yield Finding(
            "drivers", FAULT, "this host", "no /dev/infiniband/rdma_cm", "there", "modprobe rdma_ucm",
            "connections are made by IP address through it",
        )  # fmt: skip


def _uverbs(host: Host) -> list[str]:
    return [name for name in host.names("sys/class/infiniband_verbs") if name.startswith("uverbs")]


def states(host: Host) -> Iterator[Finding]:
    """Ports that carry nothing: beside one that is up, those without cable or switched off are no fault."""
    all_ports = ports(host)
    some_up = any(port.state == "ACTIVE" for port in all_ports)
    for port in all_ports:
        if port.state == "ACTIVE":
            continue
        value = f"{port.state or 'unknown'}, {port.physical or 'unknown'}"
        level = ADVICE if some_up else FAULT
        if port.link == "InfiniBand" and port.physical == "LinkUp":
            level, command = FAULT, "systemctl start opensm, on one host of the network"
            reason = "no subnet manager has set it up"
        elif port.netdev is not None and not _switched_on(host, port.netdev):
            command, reason = f"ip link set {port.netdev} up", "a port of Ethernet is up when its interface is"
        elif port.physical == "Disabled" and port.link == "InfiniBand":
            command, reason = f"ibportstate -D 0 {port.number} enable", "it was switched off"
        else:
            command, reason = "look at the cable, and at the port at its other end", "the other end is not heard"
        yield Finding("states", level, port.name, value, "ACTIVE, LinkUp", command, reason)


def _switched_on(host: Host, netdev: str) -> bool:
    flags = host.text(f"sys/class/net/{netdev}/flags") or ""
    return not flags.startswith("0x") or bool(int(flags, 16) & 1)  # IFF_UP


def gids(host: Host) -> Iterator[Finding]:
    """RoCE: packets that routers forward and that can be marked have addresses of version 2."""
    for port in ports(host):
        if not port.roce or port.state != "ACTIVE":
            continue
        if port.routable is None:
            kinds = ", ".join(sorted({gid.kind for gid in port.gids})) or "none"
            yield Finding(
                "gids", FAULT, port.name, f"no {ROCE_V2} address but of the link ({kinds})",
                f"a GID of type {ROCE_V2} with an IP address",
                f"ip address add A.B.C.D/24 dev {port.netdev or 'INTERFACE'}",
                "GIDs follow the interface's IP addresses, and connections are made by these; RoCE v1 crosses no "
                "router and is not marked by ECN",
            )  # fmt: skip
        mode = host.text(f"{_CONFIGFS}/{port.device}/ports/{port.number}/default_roce_mode")
        if mode is not None and mode != ROCE_V2:
            yield Finding(
                "gids", FAULT, port.name, f"rdma_cm takes {mode}", ROCE_V2,
                f"echo '{ROCE_V2}' > /{_CONFIGFS}/{port.device}/ports/{port.number}/default_roce_mode",
                "connections by rdma_cm use that type, and both ends must agree",
            )  # fmt: skip


def roce_mtu(netdev_mtu: int) -> int:
    """Payload of a packet that a RoCE port takes for its interface's MTU."""
    return max((size for size in _IB_MTUS if size + _ROCE_BYTES <= netdev_mtu), default=0)


def mtus(host: Host) -> Iterator[Finding]:
    """RoCE: the port's active MTU follows the interface's; large packets cost less of everything."""
    for port in ports(host):
        mtu = host.number(f"sys/class/net/{port.netdev}/mtu") if port.netdev else None
        if not port.roce or port.state != "ACTIVE" or mtu is None:
            continue
        allowed, active = roce_mtu(mtu), _active_mtu(host, port)
        if active is not None and active != allowed:
            yield Finding(
                "mtus", FAULT, port.name, f"active MTU {active}, {port.netdev} has {mtu}",
                f"{allowed}, what fits into {mtu}", f"ip link set {port.netdev} down && ip link set {port.netdev} up",
                "ends that disagree drop packets, or fall back to the smaller size; the port took its MTU before the "
                "interface had this one",
            )  # fmt: skip
        if allowed < _IB_MTUS[-1]:
            yield Finding(
                "mtus", ADVICE, f"{port.name}, {port.netdev}", f"MTU {mtu}, so packets of {allowed} B",
                f"at least {_IB_MTUS[-1] + _ROCE_BYTES} (usually 9000), on every switch and host of the network",
                f"ip link set {port.netdev} mtu 9000", f"packets of {_IB_MTUS[-1]} B: fewer headers and interrupts",
            )  # fmt: skip


def _active_mtu(host: Host, port: Port) -> int | None:
    """Not in sysfs: ibv_devinfo (ibverbs-utils) says it."""
    said = host.said(("ibv_devinfo", "-d", port.device, "-i", str(port.number)))
    found = re.search(r"active_mtu:\s+(\d+)", said or "")
    return int(found[1]) if found else None


def flow_control(host: Host) -> Iterator[Finding]:
    """RoCE over real Ethernet: without PFC and without ECN a full switch drops, and the adapter sends all again."""
    for port in ports(host):
        if not port.roce or port.software or port.state != "ACTIVE" or port.netdev is None:
            continue
        pauses = _pfc(host, port.netdev)
        marks, slows = (_ecn(host, port.netdev, side) for side in ("roce_np", "roce_rp"))
        if pauses is not None and not any(pauses) and not (marks and slows):
            yield Finding(
                "flow control", ADVICE, f"{port.name}, {port.netdev}",
                "PFC off for all priorities" + ("" if marks is None else ", ECN off for all"),
                "PFC on for the priority of RoCE, or ECN on both sides, as on the switches",
                f"dcb pfc set dev {port.netdev} prio-pfc all:off 3:on",
                "after what a switch drops all is sent again (go-back-N), which costs far more than the loss",
            )  # fmt: skip
        elif marks and slows is not None and marks != slows:
            yield Finding(
                "flow control", ADVICE, f"{port.name}, {port.netdev}",
                f"ECN: answered for priorities {_list(marks)}, heeded for {_list(slows)}", "the same for both",
                f"for P in {_list(marks ^ slows)}: echo 1 > /sys/class/net/{port.netdev}/ecn/roce_{{np,rp}}/enable/$P",
                "np answers marks with notifications, rp slows down for them: one without the other does nothing",
            )  # fmt: skip


def _pfc(host: Host, netdev: str) -> list[bool] | None:
    """By priority; None if nothing says it (package iproute2, dcb)."""
    said = host.said(("dcb", "-j", "pfc", "show", "dev", netdev))
    try:
        found = json.loads(said or "")
        return [bool(each) for each in found["prio-pfc"]]
    except (ValueError, KeyError, TypeError):
        return None


def _ecn(host: Host, netdev: str, side: str) -> set[int] | None:
    """Priorities for which it is on; None where the driver does not say it."""
    folder = f"sys/class/net/{netdev}/ecn/{side}/enable"
    names = host.names(folder)
    return {int(name) for name in names if name.isdecimal() and host.text(f"{folder}/{name}") == "1"} if names else None


def _list(priorities: set[int]) -> str:
    return " ".join(map(str, sorted(priorities))) or "none"
