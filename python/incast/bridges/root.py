"""`incast bridge root`: the experiments of the papers that brought ROOT to RapidIO (docs/root.md).

[S1] J. Phys. Conf. Ser. 898 082007, [S2] RT2016. Machines drift, so each round takes every case once, and the next
round begins with another group. A figure is the median of the rounds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

import incast
from incast.bridges.machine import load_now, machine_facts
from incast.bridges.root_program import (
    CM,
    FULL,
    HALF,
    SOCKET,
    VERSIONS,
    WAYS,
    Case,
    Measuring,
    Reading,
    ReadingError,
    Way,
    version_of,
)

KIND = "root"
CLIENTS, DUPLEX, VERSIONS_COMPARED = "clients", "duplex", "versions"
_KIB, _MIB = 1 << 10, 1 << 20
LEAST_BUFFER_BYTES, MOST_BUFFER_BYTES = 64, 256 * _MIB
MOST_CLIENTS = 15  # [S1], [S2]: 16 nodes, and 4 before


@dataclass(frozen=True)
class Experiment:
    """One of the papers' questions, and what of it is measured by itself."""

    name: str
    title: str
    ways: str
    versions: str
    sizes: Sequence[int]
    clients: Sequence[int] = (1,)
    duplex: Sequence[str] = (HALF,)
    own_rings: bool = False  # a buffer of the program is one of the ring, as in [S1]

    def cases(self, ways: Sequence[str], versions: Sequence[str], sizes: Sequence[int], clients: int) -> list[Case]:
        """In the order of groups: what has the same processes stands together."""
        return [
            Case(way, version, count, size, duplex, size if self.own_rings and version not in (SOCKET.name, CM) else 0)
            for way in ways
            for version in _versions_over(WAYS[way], versions)
            for size in sizes
            for count in self.clients
            if count <= clients
            for duplex in self.duplex
        ]


def _versions_over(way: Way, versions: Sequence[str]) -> Sequence[str]:
    """Sockets of the kernel have none of them."""
    if not way.has_channels:
        return (SOCKET.name,)
    return [version for version in versions if version != CM or way.has_messages]


EXPERIMENTS = {
    each.name: each
    for each in (
        Experiment(CLIENTS, "n clients to one server", "tcp,shm,rio,rio-tsi721", "doorbell", (_MIB,),
                   clients=range(1, MOST_CLIENTS + 1)),
        Experiment(DUPLEX, "a pair, one way and both ways at once", "tcp,rio,rio-tsi721", "polled",
                   tuple(64 * _KIB * 4**step for step in range(7)), duplex=(HALF, FULL), own_rings=True),
        Experiment(VERSIONS_COMPARED, "the versions of [S1] and [S2], one client", "rio,rio-tsi721",
                   ",".join(VERSIONS), (4 * _KIB, 64 * _KIB, _MIB, 4 * _MIB)),
    )
}  # fmt: skip


def measure(
    measuring: Measuring,
    experiment: Experiment,
    cases: Sequence[Case],
    rounds: int,
    *,
    settings: Mapping[str, Any],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """All cases, in rounds: the result as it is kept. A case that fails is in `unfinished`, and not tried again."""
    groups = [list(group) for _, group in groupby(cases, attrgetter("group"))]
    taken: dict[Case, list[Reading]] = {case: [] for case in cases}
    failed: dict[Case, str] = {}
    begin, loads = datetime.now(UTC), [load_now()]
    for number in range(rounds):
        turn = number * len(groups) // rounds
        for place, group in enumerate((*groups[turn:], *groups[:turn])):
            say(f"round {number + 1} of {rounds}, {place + 1} of {len(groups)}: {case_words(group[0])}")
            _take_group(measuring, [case for case in group if case not in failed], taken, failed)
        loads.append(load_now())
    readings = [reading for each in taken.values() for reading in each]
    versions = dict.fromkeys(version_of(case) for case in cases)
    return {
        "schema": 1,
        "kind": KIND,
        "experiment": experiment.name,
        "time_domain": "real",
        "incast": incast.__version__,
        "started_utc": begin.isoformat(timespec="seconds"),
        "machine": machine_facts(loads),
        "settings": {**settings, "rounds": rounds},
        "ways": [{"name": name, "what": WAYS[name].what} for name in dict.fromkeys(case.way for case in cases)],
        "versions": [{"name": one.name, "what": one.what, "source": one.source} for one in versions],
        "cases": [_figures(case, taken[case]) for case in cases if taken[case]],
        "readings": len(readings),
        "readings_not_idle": sum(reading.busy is not None for reading in readings),
        "unfinished": list(failed.values()),
    }


def _take_group(
    measuring: Measuring, cases: list[Case], taken: Mapping[Case, list[Reading]], failed: dict[Case, str]
) -> None:
    """Each once. One that fails ends its processes; the next ones get new ones."""
    while cases:
        case = cases[0]
        try:
            with measuring.group(case, max(each.clients for each in cases)) as group:
                while cases:
                    case = cases[0]
                    taken[case].append(group.take(case))
                    cases.pop(0)
        except ReadingError as error:
            failed[case] = f"{case_words(case)}: {error}"
            taken[case].clear()
            cases.pop(0)


def _figures(case: Case, readings: Sequence[Reading]) -> dict[str, Any]:
    """A list has a value for each round, in order; `each_bytes_per_s` one of each client, or direction, in each."""
    return {
        "way": case.way,
        "version": case.version,
        "clients": case.clients,
        "buffer_bytes": case.buffer_bytes,
        "duplex": case.duplex,
        "ring": version_of(case).ring_for(case.ring_bytes) or None,
        "bytes_per_s": [sum(each.bytes_per_s) for each in readings],
        "each_bytes_per_s": [list(each.bytes_per_s) for each in readings],
        "cpu_s_per_byte": [each.cpu_s_per_byte for each in readings],
    }


def case_words(case: Case) -> str:
    """For people."""
    what = f"{case.clients} client{'s' if case.clients > 1 else ''}" if case.duplex == HALF else "both ways"
    return f"{case.way}, {case.version}, {case.buffer_bytes} B, {what}"
