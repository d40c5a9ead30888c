"""Row 9: ZeroMQ over RapidIO beside ZeroMQ over TCP. It is not simulated, but measured on this host, each time.

It needs the bridge, which is built apart (docs/zeromq.md); where it is not, the row says so.
"""

import os
import statistics
from collections.abc import Mapping, Sequence

from incast.base.errors import OneLineError
from incast.bridges.zmq import ROW_BYTES, ROW_WAYS, small_round_trips
from incast.bridges.zmq_program import WAYS, Measuring, Reading, ReadingError, find_bridge
from incast.engine.idle import usable_cores
from incast.reproduce.model import Fabrics, Figures, Finding, Row, statement

_SECONDS, _WARM_UP_S = 0.5, 0.1
_NEEDS = "needs ZeroMQ bridge"


def finding_of(readings: Mapping[str, Sequence[Reading]], load: float) -> Finding:
    """The first way is TCP; the others have to be faster, in every round."""
    medians = {way: [reading.round_trip_ns["p50"] for reading in readings[way]] for way in ROW_WAYS}
    reference, *others = ROW_WAYS
    gains = {
        way: [100 * (base / ours - 1) for base, ours in zip(medians[reference], medians[way], strict=True)]
        for way in others
    }
    times = "; ".join(f"{WAYS[way].what}: {statistics.median(medians[way]) / 1000:.1f} us" for way in ROW_WAYS)
    ranges = ", ".join(f"{way} {min(gain):+.0f} to {max(gain):+.0f} %" for way, gain in gains.items())
    every = [reading for way in ROW_WAYS for reading in readings[way]]
    busy = sum(reading.busy is not None for reading in every)
    return statement(
        ", ".join(f"{way} {statistics.median(gain):+.0f}" for way, gain in gains.items()),
        {f"{way} faster than {reference} in every round": min(gain) > 0 for way, gain in gains.items()},
        f"MEASURED, not simulated: median round trips of {ROW_BYTES} B, {len(medians[reference])} rounds in turn, both "
        f"processes on one host of {usable_cores()} cores, load {load:.1f}, not idle in {busy} of {len(every)} "
        f"readings; a ring of one buffer of 4 KiB, as there. {times}. Over the rounds: {ranges}.",
        "Ours: by how many per cent more round trips fit into the same time, median of the rounds. Whether [S4] counts "
        "so, or by time saved, is not said. There TCP crossed a network between two hosts. Here both sides share a "
        "host, so TCP is cheaper and the published ratio cannot be expected.",
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
