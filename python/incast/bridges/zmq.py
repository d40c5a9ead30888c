"""`incast bridge zmq`: what ZeroMQ reaches over the transports, and over tcp and ipc beside them (docs/zeromq.md).

Machines drift, so each round measures every case once, and the next round begins with another one. A figure is the
median of the rounds. The scans and breakdowns are those of [S4] (RIOZMQ, 2017).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import incast
from incast.bridges.machine import load_now, machine_facts
from incast.bridges.zmq_program import LATENCY, STREAM, WAYS, Case, Measuring, Reading, ReadingError, Ring, Way

KIND = "zmq"
SMALL_BYTES = (8, 64, 256, 1 << 10, 4 << 10)
LARGE_BYTES = (16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
DEFAULT_BYTES = (8, 1 << 10, 64 << 10, 1 << 20)
# Sections of a result, in order.
SPEED, BUFFER_SCAN, RING_SCAN, BREAKDOWN = "speed", "buffer_scan", "ring_scan", "breakdown"
# A scan measures a small and a larger round trip, and a stream of large messages.
SCANNED = ((LATENCY, 8), (LATENCY, 64 << 10), (STREAM, 1 << 20))
_SCANNED_BUFFER_BYTES = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
_SCANNED_BUFFERS = (1, 2, 4, 16, 64, 256)
_SCAN_BUFFERS = 16  # of the scan of sizes, as in [S4]
_SCAN_BUFFER_BYTES = 16 << 10  # of the scan of lengths
# [S4] has 16 buffers of 32 MiB for its breakdowns; a ring has 64 MiB at most here. A message is one write in both.
_BREAKDOWN_RING = Ring(16, 4 << 20)
# Messages come one by one, as in a round trip, but one way, so that a side either sends or receives.
_BREAKDOWN_PAUSES_US = {8: 200, 1 << 20: 2000}


@dataclass(frozen=True)
class Wanted:
    """What is measured. Scans and breakdowns are of channels: of tcp and ipc there are none."""

    ways: Sequence[Way]
    sizes: Sequence[int] = DEFAULT_BYTES
    speed: bool = True
    scan: bool = False
    breakdown: bool = False

    def cases(self) -> list[tuple[str, Case]]:
        """Each with its section."""
        channels = [way.name for way in self.ways if way.has_rings]
        found: list[tuple[str, Case]] = []
        if self.speed:
            found += [
                (SPEED, Case(way.name, kind, size))
                for kind in (LATENCY, STREAM)
                for size in self.sizes
                for way in self.ways
            ]
        if self.scan:
            shapes = [(BUFFER_SCAN, Ring(_SCAN_BUFFERS, size)) for size in _SCANNED_BUFFER_BYTES]
            shapes += [(RING_SCAN, Ring(buffers, _SCAN_BUFFER_BYTES)) for buffers in _SCANNED_BUFFERS]
            found += [
                (section, Case(name, kind, size, ring))
                for section, ring in shapes
                for kind, size in SCANNED
                for name in channels
            ]
        if self.breakdown:
            found += [
                (BREAKDOWN, Case(name, STREAM, size, _BREAKDOWN_RING, pause, has_stages=True))
                for name in channels
                for size, pause in _BREAKDOWN_PAUSES_US.items()
            ]
        return found


def measure(
    measuring: Measuring, wanted: Wanted, rounds: int, *, settings: Mapping[str, Any], say: Callable[[str], None]
) -> dict[str, Any]:
    """All cases, in rounds: the result as it is kept. A case that fails is in `unfinished`, and not tried again."""
    cases = wanted.cases()
    taken: dict[tuple[str, Case], list[Reading]] = {case: [] for case in cases}
    failed: dict[tuple[str, Case], str] = {}
    begin, loads = datetime.now(UTC), [load_now()]
    for number in range(rounds):
        turn = number * len(cases) // rounds
        for place, (section, case) in enumerate((*cases[turn:], *cases[:turn])):
            if (section, case) in failed:
                continue
            say(f"round {number + 1} of {rounds}, {place + 1} of {len(cases)}: {_words(section, case)}")
            try:
                taken[section, case].append(measuring.take(case))
            except ReadingError as error:
                failed[section, case] = f"{_words(section, case)}: {error}"
        loads.append(load_now())
    readings = [reading for each in taken.values() for reading in each]
    return {
        "schema": 1,
        "kind": KIND,
        "time_domain": "real",
        "incast": incast.__version__,
        "started_utc": begin.isoformat(timespec="seconds"),
        "machine": machine_facts(loads),
        "settings": {**settings, "rounds": rounds},
        "ways": [{"name": way.name, "what": way.what} for way in wanted.ways],
        "cases": [_figures(section, case, taken[section, case]) for section, case in cases if taken[section, case]],
        "readings": len(readings),
        "readings_not_idle": sum(reading.busy is not None for reading in readings),
        "unfinished": list(failed.values()),
    }


def _figures(section: str, case: Case, readings: Sequence[Reading]) -> dict[str, Any]:
    """A list has a value for each round, in order."""
    found: dict[str, Any] = {
        "section": section,
        "way": case.way,
        "kind": case.kind,
        "message_bytes": case.message_bytes,
        "ring": asdict(case.ring) if case.ring.buffers else None,
        "messages_per_s": [each.messages_per_s for each in readings],
        "bytes_per_s": [each.messages_per_s * case.message_bytes for each in readings],
        "cpu_s_per_message": [each.cpu_s_per_message for each in readings],
    }
    if case.kind == LATENCY:
        found["round_trip_ns"] = {
            key: [each.round_trip_ns[key] for each in readings] for key in ("min", "p50", "p99", "mean")
        }
    if case.has_stages:
        found |= {"pause_us": case.pause_us}
        for side in ("send", "receive"):
            stages = [getattr(each, side) for each in readings]
            found[f"{side}_ns"] = {name: [one.get(name, 0.0) for one in stages] for name in stages[0]}
    return found


def _words(section: str, case: Case) -> str:
    ring = f", {case.ring.buffers} buffers of {case.ring.buffer_bytes} B" if case.ring.buffers else ""
    return f"{section.replace('_', ' ')}, {case.way}, {case.kind}, {case.message_bytes} B{ring}"


# --- row 9 of docs/reproduction.md

ROW_ROUNDS = 5
_ROW_RING = Ring(1, 4 << 10)  # as [S4] has it for small messages
ROW_BYTES = 8
ROW_WAYS = ("tcp", "rio", "rio-tsi721")


def small_round_trips(measuring: Measuring, rounds: int = ROW_ROUNDS) -> dict[str, list[Reading]]:
    """Round trips of 8 B by way, one reading in each round, in turn; the ring of [S4]."""
    found: dict[str, list[Reading]] = {name: [] for name in ROW_WAYS}
    for number in range(rounds):
        turn = number % len(ROW_WAYS)
        for name in (*ROW_WAYS[turn:], *ROW_WAYS[:turn]):
            ring = _ROW_RING if WAYS[name].has_rings else Ring()
            found[name].append(measuring.take(Case(name, LATENCY, ROW_BYTES, ring)))
    return found
