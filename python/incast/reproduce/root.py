"""Rows 5 and 6b: ROOT over SoftRIO with the emulated adapter, measured on this host, each time.

They need the bridge, which is built apart (docs/root.md); where it is not, the rows say so.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from incast.base.errors import OneLineError
from incast.bridges.root import DUPLEX, EXPERIMENTS, VERSIONS_COMPARED, measure
from incast.bridges.root_program import CM, Case, Measuring, find_bridge
from incast.reproduce.model import Fabrics, Figures, Finding, Row, statement

_SECONDS, _WARM_UP_S = 0.25, 0.1
_ROUNDS = 3
_NEEDS = "needs ROOT bridge"
_WAY = "rio-tsi721"
_IPERF_GBIT = 10.8  # [S1], table 1
_MIB = 1 << 20
_SIZES = (_MIB // 16, _MIB, 8 * _MIB, 32 * _MIB, 128 * _MIB)
_TENS_OF_MB = (32 * _MIB, 128 * _MIB)  # of _SIZES, within the published 30 to 130 MB
_FAR_BELOW = 4  # half of the published ratio
_MESSAGES = 4 * _MIB  # what one SendRaw sends for row 6b

Rates = Mapping[tuple[str, int], Sequence[float]]  # bytes/s of the rounds, by version and buffer


def _taken(experiment: str, cases: Sequence[Case]) -> tuple[Rates, str]:
    """And the conditions. OneLineError, if there is no bridge, or if a case failed."""
    measuring = Measuring(find_bridge(None), _SECONDS, _WARM_UP_S)
    result = measure(measuring, EXPERIMENTS[experiment], cases, _ROUNDS, settings={}, say=lambda _: None)
    if result["unfinished"]:
        raise OneLineError(result["unfinished"][0], 1)
    rates = {(case["version"], case["buffer_bytes"]): case["bytes_per_s"] for case in result["cases"]}
    return rates, _conditions(result)


def _conditions(result: Mapping[str, Any]) -> str:
    load = result["machine"]["load"]
    return (
        f"MEASURED, not simulated, over SoftRIO in shared memory with an emulated Tsi721, {_ROUNDS} rounds in turn, "
        f"both processes on one host of {result['machine']['cores']} cores, load {min(load):.1f} to {max(load):.1f}, "
        f"not idle in {result['readings_not_idle']} of {result['readings']} readings."
    )


def _gbit(rates: Sequence[float]) -> float:
    return 8e-9 * statistics.median(rates)


def finding_of_buffers(rates: Rates, said: str) -> Finding:
    """Row 5: polled rings of all sizes, and rings with doorbells."""
    polled = {size: _gbit(rates["polled", size]) for size in _SIZES}
    doorbells = {size: _gbit(rates["doorbell", size]) for size in _SIZES}
    best = max(polled, key=lambda size: polled[size])
    return statement(
        polled[best],
        {
            f"below iperf's {_IPERF_GBIT} Gb/s at every size": max(polled.values()) < _IPERF_GBIT,
            "best for tens of MB": best in _TENS_OF_MB,
            "doorbells are faster at the best size": doorbells[best] > polled[best],
        },
        said,
        "Gb/s by buffer, polled and with doorbells: "
        + ", ".join(f"{_size(size)} {polled[size]:.2f} and {doorbells[size]:.2f}" for size in _SIZES)
        + ".",
        "There the adapter copied, here a processor does, and a checksum over each buffer shows that a polled one is "
        "whole, so caches favour small buffers. The published values at other sizes stand only in the image.",
    )


def finding_of_messages(rates: Rates, said: str) -> Finding:
    """Row 6b: CM alone beside rDMA that CM acknowledges."""
    cm, rdma = rates[CM, _MESSAGES], rates["cm-ack", _MESSAGES]
    ratios = [other / own for own, other in zip(cm, rdma, strict=True)]
    return statement(
        [1e-6 * statistics.median(cm), 1e-6 * statistics.median(rdma)],
        {f"CM under 1 : {_FAR_BELOW} of rDMA in every round": min(ratios) > _FAR_BELOW},
        said,
        f"rDMA carries {min(ratios):.0f} to {max(ratios):.0f} times as much as CM, published 8.3, with one client. "
        "Each message of CM costs two changes of processes on cores that others use too, so the ratio is this host's.",
    )


def _size(n_bytes: int) -> str:
    return f"{n_bytes >> 20} MiB" if n_bytes >= _MIB else f"{n_bytes >> 10} KiB"


def _buffers(_figures: Figures, _fabrics: Fabrics) -> Finding:
    wanted = EXPERIMENTS[DUPLEX]
    cases = [
        case for case in wanted.cases([_WAY], ["polled", "doorbell"], _SIZES, 1) if case.duplex == wanted.duplex[0]
    ]
    try:
        return finding_of_buffers(*_taken(DUPLEX, cases))
    except OneLineError as error:
        return Finding(None, _NEEDS, remarks=(f"Skipped: {error}.",))


def _messages(_figures: Figures, _fabrics: Fabrics) -> Finding:
    cases = EXPERIMENTS[VERSIONS_COMPARED].cases([_WAY], [CM, "cm-ack"], [_MESSAGES], 1)
    try:
        return finding_of_messages(*_taken(VERSIONS_COMPARED, cases))
    except OneLineError as error:
        return Finding(None, _NEEDS, remarks=(f"Skipped: {error}.",))


ROWS = [
    Row("5", "S1 figure 5", "ROOT, one pair, rDMA circular buffer, memory polling: best; Gb/s", 8.5, "shape", _buffers,
        is_measured=True, note="Below iperf; best for tens of MB; polling costs."),
    Row("6b", "S2", "the same as row 6 with ROOT programs, one client: CM and rDMA; MB/s", [120.0, 1000.0], "shape",
        _messages, is_measured=True, note="CM far below rDMA, about 1 : 8."),
]  # fmt: skip
