"""The tables of `incast bridge zmq`: for a terminal of 80 columns, for a report, and for docs/zeromq.md."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from incast.base import units
from incast.bridges.zmq import BREAKDOWN, BUFFER_SCAN, LARGE_BYTES, RING_SCAN, SCANNED, SPEED
from incast.bridges.zmq_program import LATENCY, STREAM

Cases = Sequence[Mapping[str, Any]]

# In the order of the work; what [S4] calls it. `wait` is no work: it sleeps until something comes.
SEND_STAGES = {
    "commands": "mailbox (fd operations)",
    "encode": "encode",
    "copy_in": "write: copy, dma_write, doorbell",
    "post": "hub: rest of dma_write, credits",
    "arm": "may it sleep? (poll)",
    "wait_cpu": "epoll_wait, CPU (poll)",
    "loop": "the loop itself",
}
RECEIVE_STAGES = {
    "wait_cpu": "epoll_wait, CPU (poll)",
    "post": "hub: doorbells, credits",
    "copy_out": "copy out of the ring",
    "decode": "decode, hand over",
    "commands": "mailbox (fd operations)",
    "arm": "may it sleep? (poll)",
    "loop": "the loop itself",
}
SIDES = {"send": SEND_STAGES, "receive": RECEIVE_STAGES}


@dataclass(frozen=True)
class BridgeTable:
    """Rows of text below headings; the first column is what the row is of."""

    name: str
    title: str
    headings: list[str]
    rows: list[list[str]]


def size_text(n_bytes: int) -> str:
    """`64 KiB`."""
    for factor, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if n_bytes >= factor and n_bytes % factor == 0:
            return f"{n_bytes // factor} {unit}"
    return f"{n_bytes} B"


def of_section(result: Mapping[str, Any], section: str, kind: str | None = None) -> Cases:
    """The cases of that section, of that kind."""
    return [each for each in result["cases"] if each["section"] == section and kind in (None, each["kind"])]


def ways_of(cases: Cases) -> list[str]:
    """In order."""
    return list(dict.fromkeys(each["way"] for each in cases))


def sizes_of(cases: Cases) -> list[int]:
    """Of messages, the smallest first."""
    return sorted({each["message_bytes"] for each in cases})


def is_small(message_bytes: int) -> bool:
    """As [S4] divides its figures of latency: by whether a message fits a buffer of 4 KiB, or about so."""
    return message_bytes < LARGE_BYTES[0]


def round_trips(case: Mapping[str, Any]) -> Sequence[float]:
    """The median of each round, ns."""
    values: Sequence[float] = case["round_trip_ns"]["p50"]
    return values


def tables(result: Mapping[str, Any], *, ranges: bool = False) -> list[BridgeTable]:
    """Those for which there is something. Cells are medians of the rounds; `ranges`: lowest and highest behind them."""
    found = [*_speed_tables(result, ranges)]
    for section, column in ((BUFFER_SCAN, "buffer_bytes"), (RING_SCAN, "buffers")):
        found += _scan_tables(result, section, column, ranges)
    found += _breakdown_tables(result, ranges)
    return [table for table in found if table.rows]


def _cell(values: Sequence[float], text: Callable[[float], str], ranges: bool) -> str:
    if not values:
        return units.ABSENT
    middle = text(statistics.median(values))
    return f"{middle} ({text(min(values))} .. {text(max(values))})" if ranges and len(values) > 1 else middle


def _rows(
    cases: Cases, values: Callable[[Mapping[str, Any]], Sequence[float]], text: Callable[[float], str], ranges: bool
) -> list[list[str]]:
    """A row for each size of messages, a column for each way."""
    by_place = {(each["message_bytes"], each["way"]): values(each) for each in cases}
    ways = ways_of(cases)
    return [
        [size_text(size), *(_cell(by_place.get((size, way), ()), text, ranges) for way in ways)]
        for size in sizes_of(cases)
    ]


def _speed_tables(result: Mapping[str, Any], ranges: bool) -> list[BridgeTable]:
    latency, stream = (of_section(result, SPEED, kind) for kind in (LATENCY, STREAM))
    found = []
    for name, title, cases in (
        ("latency-small", "Round trip, small messages", [each for each in latency if is_small(each["message_bytes"])]),
        ("latency-large", "Round trip, large messages", [c for c in latency if not is_small(c["message_bytes"])]),
    ):
        headings = ["message", *ways_of(cases)]
        found.append(BridgeTable(name, title, headings, _rows(cases, round_trips, units.duration_ns, ranges)))
    headings = ["message", *ways_of(stream)]
    per_message = "cpu_s_per_message"
    for what, title, key, text, among in (
        ("throughput", "Throughput, one way", "bytes_per_s", units.rate, stream),
        ("rate", "Messages per second, one way", "messages_per_s", units.frequency, stream),
        ("cpu-latency", "CPU time of a round trip, both processes", per_message, _cpu, latency),
        ("cpu-stream", "CPU time of a message one way, both processes", per_message, _cpu, stream),
    ):
        rows = _rows(among, itemgetter(key), text, ranges)
        found.append(BridgeTable(what, title, headings, rows))
    return found


def _cpu(seconds: float) -> str:
    return units.duration_ns(1e9 * seconds)


def scan_words(kind: str, message_bytes: int) -> str:
    """What a scan measures."""
    what = "round trip" if kind == LATENCY else "throughput"
    return f"{what}, {size_text(message_bytes)}"


def _scan_tables(result: Mapping[str, Any], section: str, column: str, ranges: bool) -> list[BridgeTable]:
    title = "Scan of buffer sizes" if column == "buffer_bytes" else "Scan of ring lengths"
    heading = "buffer" if column == "buffer_bytes" else "buffers"
    found = []
    for kind, message_bytes in SCANNED:
        cases = [each for each in of_section(result, section, kind) if each["message_bytes"] == message_bytes]
        by_place = {(each["ring"][column], each["way"]): each for each in cases}
        ways = ways_of(cases)
        rows = []
        for value in sorted({place[0] for place in by_place}):
            row = [size_text(value) if column == "buffer_bytes" else str(value)]
            for way in ways:
                case = by_place.get((value, way))
                values = () if case is None else round_trips(case) if kind == LATENCY else case["bytes_per_s"]
                row.append(_cell(values, units.duration_ns if kind == LATENCY else units.rate, ranges))
            rows.append(row)
        name = f"{section.replace('_', '-')}-{kind}-{message_bytes}"
        found.append(BridgeTable(name, f"{title}: {scan_words(kind, message_bytes)}", [heading, *ways], rows))
    return found


def _breakdown_tables(result: Mapping[str, Any], ranges: bool) -> list[BridgeTable]:
    cases = of_section(result, BREAKDOWN)
    found = []
    for side, stages in SIDES.items():
        for way in ways_of(cases):
            own = [each for each in cases if each["way"] == way]
            headings = ["stage"]
            for case in own:
                headings += [size_text(case["message_bytes"]), "share"]
            columns = [stage_medians(case, side) for case in own]
            rows = []
            for stage, words in stages.items():
                row = [words]
                for case, medians in zip(own, columns, strict=True):
                    values = case[f"{side}_ns"].get(stage, ())
                    row += [_cell(values, units.duration_ns, ranges), _share(medians[stage], medians)]
                rows.append(row)
            total = ["all of it"]
            for medians in columns:
                total += [units.duration_ns(sum(medians.values())), ""]
            rows.append(total)
            found.append(BridgeTable(f"{side}-{way}", f"Breakdown of {side}, {way}, for one message", headings, rows))
    return found


def stage_medians(case: Mapping[str, Any], side: str) -> dict[str, float]:
    """Nanoseconds of a message in each stage of that side, in the order of the work."""
    found = case[f"{side}_ns"]
    return {stage: statistics.median(found[stage]) if stage in found else 0.0 for stage in SIDES[side]}


def _share(value: float, medians: Mapping[str, float]) -> str:
    whole = sum(medians.values())
    return units.ABSENT if whole <= 0 else f"{100 * value / whole:.0f} %"


def ring_words(result: Mapping[str, Any], name: str) -> str:
    """What a scan or a breakdown keeps as it is; an empty text for other tables."""
    section = next((each for each in (BUFFER_SCAN, RING_SCAN) if name.startswith(each.replace("_", "-"))), None)
    if section is None:
        section = BREAKDOWN if name.partition("-")[0] in SIDES else None
    cases = [] if section is None else of_section(result, section)
    if not cases:
        return ""
    buffers, n_bytes = cases[0]["ring"]["buffers"], cases[0]["ring"]["buffer_bytes"]
    if section == BUFFER_SCAN:
        return f"Rings of {buffers} buffers."
    if section == RING_SCAN:
        return f"Buffers of {size_text(n_bytes)}."
    pauses = ", ".join(str(case["pause_us"]) for case in cases if case["way"] == cases[0]["way"])
    ring = f"A ring of {buffers} buffers of {size_text(n_bytes)}"
    return f"{ring}; messages one by one, {pauses} us apart; sleep is no work."


def conditions(result: Mapping[str, Any]) -> list[str]:
    """What has to stand beside every figure, a line each."""
    machine, settings = result["machine"], result["settings"]
    load = machine["load"]
    lines = [
        f"{machine['cpu_model']}, {machine['cores']} cores, {machine['kernel']}; both processes on this host; "
        f"{result['started_utc'][:10]}, incast {result['incast']}",
        f"medians of {settings['rounds']} rounds in turn, {settings['seconds']:g} s each after "
        f"{settings['warm_up_seconds']:g} s of warm-up; I/O threads look for {settings['spin_us']} us before they "
        "sleep",
        f"load of the machine {min(load):.1f} .. {max(load):.1f}; "
        f"not idle during {result['readings_not_idle']} of {result['readings']} readings",
    ]
    return [*lines, *way_lines(result)]


def way_lines(result: Mapping[str, Any]) -> list[str]:
    """What each way is."""
    return [f"{way['name']}: {way['what']}" for way in result["ways"]]
