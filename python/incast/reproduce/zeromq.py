"""Row 9: ZeroMQ over RapidIO beside ZeroMQ over TCP. It is not simulated, but measured on this host, each time.

It needs the bridge, which is built apart (docs/zeromq.md); where it is not, the row says so.
"""

import os
from collections.abc import Mapping

from incast.base.errors import OneLineError
from incast.bridges.zmq import ROW_BYTES, ROW_ROUNDS, ROW_WAYS, small_round_trips
from incast.bridges.zmq_program import WAYS, Measuring, ReadingError, find_bridge
from incast.engine.idle import usable_cores
from incast.reproduce.model import Fabrics, Figures, Finding, Row, shape

_SECONDS, _WARM_UP_S = 0.5, 0.1
_NEEDS = "needs ZeroMQ bridge"


def finding_of(round_trips_ns: Mapping[str, float], load: float) -> Finding:
    """Of median round trips by way: the first is TCP, the others have to be faster."""
    reference, *others = ROW_WAYS
    base = round_trips_ns[reference]
    gains = {way: 100 * (base / round_trips_ns[way] - 1) for way in others}
    times = "; ".join(f"{WAYS[way].what}: {round_trips_ns[way] / 1000:.1f} us" for way in ROW_WAYS)
    shares = ", ".join(f"{way} {round_trips_ns[way] / base:.2f}" for way in others)
    return shape(
        ", ".join(f"{way} {gain:+.0f}" for way, gain in gains.items()),
        [gain > 0 for gain in gains.values()],
        f"MEASURED, not simulated: round trips of {ROW_BYTES} B, medians of {ROW_ROUNDS} rounds in turn, both "
        f"processes on one host of {usable_cores()} cores, load {load:.1f}; a ring of one buffer of 4 KiB, as "
        f"there. {times}. "
        f"Time beside TCP's: {shares}.",
        "Ours: by how many per cent more round trips fit into the same time. Whether [S4] counts so, or by time saved, "
        "is not said. There TCP crossed a network between two hosts. Here both sides share a host, so TCP is cheaper "
        "and the published ratio cannot be expected.",
    )


def _measured(_figures: Figures, _fabrics: Fabrics) -> Finding:
    try:
        found = small_round_trips(Measuring(find_bridge(None), _SECONDS, _WARM_UP_S))
    except (OneLineError, ReadingError) as error:
        return Finding(None, _NEEDS, remarks=(f"Skipped: {error}.",))
    return finding_of(found, os.getloadavg()[0])


ROWS = [
    Row("9", "S4", "ZeroMQ round trip, 2 nodes, slot 4 K: RIOZMQ faster than TCP for small messages; %", 65.0, "shape",
        _measured, is_measured=True),
]  # fmt: skip
