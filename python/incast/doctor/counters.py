"""Counters of ports and their interfaces that should stand still: what grows while one looks."""

from collections.abc import Iterator

from incast.doctor.host import ADVICE, FAULT, Finding, Host
from incast.doctor.ports import DEVICES, Port, ports

LOOK_S = 1.0
_CABLE = ("reseat or replace the cable; ethtool -m, or mlxlink, shows its signal", "bits arrive wrong")
_LOSS = ("look at buffers, PFC and ECN of the switches on the way", "packets get lost on the way, and are sent again")
_SLOW = ("more receives, or faster consumers: docs/transport-contract.md, pressure", "the receiving side is not ready")
# Below the port: the folder, the name, and what to do and why.
_PORT = {
    "counters/symbol_error": _CABLE,
    "counters/link_error_recovery": _CABLE,
    "counters/link_downed": ("look at cable and switch port", "the link went down"),
    "counters/port_rcv_errors": _CABLE,
    "counters/local_link_integrity_errors": _CABLE,
    "counters/excessive_buffer_overrun_errors": _CABLE,
    "counters/port_rcv_remote_physical_errors": ("look at the other ports on the way", "bits arrive wrong further off"),
    "counters/port_xmit_discards": _LOSS,
    "hw_counters/out_of_sequence": _LOSS,
    "hw_counters/packet_seq_err": _LOSS,
    "hw_counters/implied_nak_seq_err": _LOSS,
    "hw_counters/local_ack_timeout_err": (
        "look at loss, and at the ACK timeout",
        "acknowledgements did not come in time",
    ),
    "hw_counters/out_of_buffer": _SLOW,
    "hw_counters/rnr_nak_retry_err": _SLOW,
    "hw_counters/rx_icrc_encapsulated": _CABLE,
    "hw_counters/completer_retry_err": _LOSS,  # soft-RoCE's
}
_INTERFACE = {
    "rx_crc_errors": _CABLE,
    "rx_errors": _CABLE,
    "rx_missed_errors": ("larger rings: ethtool -G", "the interface had no buffer for what came"),
    "rx_fifo_errors": ("larger rings: ethtool -G", "the interface had no buffer for what came"),
    "tx_errors": ("look at the interface's log: dmesg", "the interface could not send"),
}
_WAITS = {
    "counters/port_xmit_wait": (
        "look at receivers that are slow, and at links that many share",
        "there were no credits",
    ),
    "hw_counters/np_cnp_sent": ("look at links that many share", "packets came marked: a switch's queue was long"),
}


def growing(host: Host) -> Iterator[Finding]:
    """Looks twice, a second apart. Totals since the start of the machine say nothing of now."""
    all_ports = ports(host)
    if not all_ports:
        return
    before = {port.name: _read(host, port) for port in all_ports}
    host.pause(LOOK_S)
    for port in all_ports:
        for path, now in _read(host, port).items():
            then = before[port.name].get(path)
            if then is None or now <= then:
                continue
            name = path.rpartition("/")[2]
            waits = _WAITS.get("/".join(path.split("/")[-2:]))
            command, reason = waits or _PORT.get("/".join(path.split("/")[-2:])) or _INTERFACE[name]
            yield Finding(
                "counters", ADVICE if waits else FAULT, f"{port.name}, {name}",
                f"grew by {now - then} in {LOOK_S:.0f} s, to {now}", "standing still", command, reason,
            )  # fmt: skip


def _read(host: Host, port: Port) -> dict[str, int]:
    folder = f"{DEVICES}/{port.device}/ports/{port.number}"
    paths = [f"{folder}/{name}" for name in (*_PORT, *_WAITS)]
    if port.netdev is not None:
        paths += [f"sys/class/net/{port.netdev}/statistics/{name}" for name in _INTERFACE]
    found = {path: host.number(path) for path in paths}
    return {path: value for path, value in found.items() if value is not None}
