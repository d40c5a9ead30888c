"""`incast bridge iperf`: tables 1 and 2 of [S1] with network devices over an emulated adapter (docs/netdev.md).

[S1] J. Phys. Conf. Ser. 898 082007 measured RIOsockets, a network device of the kernel, between 16 hosts. Here the link
is emulated: its rate is an input. What the emulation does not impose is of interest: what the network stack and the
devices lose of the rate, how fairly clients share it, what they send again, how long frames wait.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import incast
from incast.bridges.iperf_program import MANY_TO_ONE, ONE_TO_ONE, Case, Devices, Reading, ReadingError
from incast.bridges.machine import load_now, machine_facts

KIND = "iperf"
PATTERNS = (ONE_TO_ONE, MANY_TO_ONE)
MOST_STREAMS = {ONE_TO_ONE: 8, MANY_TO_ONE: 15}
# Gb/s of payload that the adapter sends and receives at most, [S1] 2.5; the emulation's source, too.
LIMIT_GBIT = {ONE_TO_ONE: 13.4, MANY_TO_ONE: 14.8}
# [S1] table 1: all clients together, 1 to 15 of them.
PUBLISHED_CLIENTS = (
    10.80, 14.47, 14.47, 13.27, 14.81, 14.85, 14.70, 12.89, 14.95, 14.91, 14.95, 13.08, 13.85, 14.43, 13.40,
)  # fmt: skip
# [S1] table 2: the slowest and the fastest pair, of 1 to 8 of them.
PUBLISHED_PAIRS = (
    (10.9, 10.9), (10.7, 10.9), (10.7, 11.0), (10.8, 11.0), (10.7, 11.0), (10.8, 11.0), (10.7, 11.0), (10.7, 11.0),
)  # fmt: skip


def cases_of(patterns: Sequence[str], most: int | None) -> list[Case]:
    """1, 2, ... connections of each pattern, at most `most`."""
    return [
        Case(pattern, streams)
        for pattern in patterns
        for streams in range(1, min(most or MOST_STREAMS[pattern], MOST_STREAMS[pattern]) + 1)
    ]


def measure(
    made: Devices,
    cases: Sequence[Case],
    rounds: int,
    *,
    slowdown: int,
    settings: Mapping[str, Any],
    simulated_gbit: Mapping[str, Sequence[float]] | None = None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """All cases, in rounds: the result as it is kept. A case that fails is in `unfinished`, and not tried again.

    `simulated_gbit`: of each pattern, for 1, 2, ... connections; of a pair, or of all clients.
    """
    taken: dict[Case, list[Reading]] = {case: [] for case in cases}
    failed: dict[Case, str] = {}
    begin, loads = datetime.now(UTC), [load_now()]
    for number in range(rounds):
        turn = number * len(cases) // rounds
        for place, case in enumerate((*cases[turn:], *cases[:turn])):
            if case in failed:
                continue
            say(f"round {number + 1} of {rounds}, {place + 1} of {len(cases)}: {case_words(case)}")
            try:
                taken[case].append(made.take(case, settings["seconds"], settings["warm_up_seconds"]))
            except ReadingError as error:
                failed[case] = f"{case_words(case)}: {error}"
                taken[case].clear()
        loads.append(load_now())
    readings = [reading for each in taken.values() for reading in each]
    return {
        "schema": 1,
        "kind": KIND,
        "time_domain": "real",
        "incast": incast.__version__,
        "started_utc": begin.isoformat(timespec="seconds"),
        "machine": machine_facts(loads),
        "slowdown": slowdown,
        "settings": {**settings, "rounds": rounds},
        "simulated_gbit": simulated_gbit,
        "cases": [_figures(case, taken[case]) for case in cases if taken[case]],
        "readings": len(readings),
        "readings_not_idle": sum(reading.busy is not None for reading in readings),
        "unfinished": list(failed.values()),
    }


def _figures(case: Case, readings: Sequence[Reading]) -> dict[str, Any]:
    """A list has a value for each round, in order; those of streams one of each connection in each."""
    return {
        "pattern": case.pattern,
        "streams": case.streams,
        "each_bytes_per_s": [[stream.bytes_per_s for stream in each.streams] for each in readings],
        "each_mean_rtt_s": [[stream.mean_rtt_s for stream in each.streams] for each in readings],
        "retransmits": [sum(stream.retransmits for stream in each.streams) for each in readings],
        "idle_rtt_s": [each.idle_rtt_s for each in readings],
        "dropped_frames": [each.dropped_frames for each in readings],
        "marked_frames": [each.marked_frames for each in readings],
    }


def fairness(rates: Sequence[float]) -> float:
    """Jain's index: 1 if all are equal, 1/n if one has all (R. Jain et al., DEC-TR-301, 1984)."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else 0.0


def case_words(case: Case) -> str:
    """For people."""
    if case.pattern == ONE_TO_ONE:
        return f"{case.streams} pair{'s' if case.streams > 1 else ''}"
    return f"{case.streams} client{'s' if case.streams > 1 else ''} to one"
