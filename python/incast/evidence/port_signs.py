"""Counters of ports that moved in the measured window, in words: what no transport sees of the network."""

from collections.abc import Iterator, Mapping
from typing import Any

_MARKED = "packets that came marked: a queue on their way was long"
_LOST = "packets missing in what came: lost on the way"
_AGAIN = "sent again"
_BITS = "wrong bits on the link"
# By the names of sysfs: those of mlx5 and of the InfiniBand PMA, of soft-RoCE, and of interfaces.
SIGNS = {
    "port_xmit_wait": "ticks with data to send and no credits for it",
    "port_xmit_discards": "packets discarded that were to be sent",
    "out_of_sequence": _LOST,
    "packet_seq_err": f"packets that the other end missed, {_AGAIN}",
    "implied_nak_seq_err": f"answers that went missing, {_AGAIN}",
    "local_ack_timeout_err": f"acknowledgements that did not come in time, {_AGAIN}",
    "rnr_nak_retry_err": f"refused by a receiver that was not ready, {_AGAIN}",
    "out_of_buffer": "packets that found no receive posted",
    "np_ecn_marked_roce_packets": _MARKED,
    "np_cnp_sent": "notifications of congestion sent: packets came marked",
    "rp_cnp_handled": "notifications of congestion heeded: this port slowed down",
    "rp_cnp_ignored": "notifications of congestion ignored",
    "rx_icrc_encapsulated": _BITS,
    "symbol_error": _BITS,
    "port_rcv_errors": _BITS,
    "link_error_recovery": "recoveries of the link",
    "link_downed": "times that the link went down",
    "out_of_seq_request": _LOST,
    "rcvd_seq_err": f"packets that the other end missed, {_AGAIN}",
    "duplicate_request": "packets that came twice",
    "completer_retry_err": f"acknowledgements that did not come in time, {_AGAIN}",
    "rcvd_rnr_err": f"refused by a receiver that was not ready, {_AGAIN}",
    "retry_exceeded_err": "operations given up after all tries",
    "rx_crc_errors": _BITS,
    "rx_errors": "packets that came wrong",
    "tx_errors": "packets that could not be sent",
    "rx_dropped": "packets that came and were dropped",
    "tx_dropped": "packets dropped that were to be sent",
    "rx_missed_errors": "packets that found no buffer of the interface",
    "rx_fifo_errors": "packets that found no buffer of the interface",
}


def port_signs(result: Mapping[str, Any]) -> tuple[str, ...]:
    """A line for each counter that moved and says something; of pauses by whatever name a driver gives them."""
    return tuple(_lines(result))


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    ports = result.get("ports") or []
    several = len({port["host"] for port in ports}) > 1
    for port in ports:
        of = port["interface"] if port["device"] is None else f"{port['device']} port {port['port']}"
        where = f"{port['host']}, {of}" if several else of
        for name, n in port["grown"].items():
            words = SIGNS.get(name) or ("pauses" if "pause" in name else None)
            if words is not None:
                yield f"{where}: {name} +{n}: {words}"
