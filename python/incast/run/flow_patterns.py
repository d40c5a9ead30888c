"""Flows by a rule: who sends how much to whom, and when (docs/flows.md). Every number follows from the seed."""

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError

_MTU_OF_THE_TABLES = 1460  # bytes: the data-mining sizes are tabulated in packets

# Cumulative distributions of a flow's bytes: (bytes, share of flows up to them), straight lines between the points.
# Web search: M. Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010, figure 4, in the points that HPCC used (Y. Li
# et al., SIGCOMM 2019; its artefact, traffic_gen/WebSearch_distribution.txt). Data mining: A. Greenberg et al., "VL2",
# SIGCOMM 2009, figure 2, in the points of pFabric (M. Alizadeh et al., SIGCOMM 2013): half of all are one packet.
WEB_SEARCH = (
    (0, 0.0), (10_000, 0.15), (20_000, 0.2), (30_000, 0.3), (50_000, 0.4), (80_000, 0.53), (200_000, 0.6),
    (1_000_000, 0.7), (2_000_000, 0.8), (5_000_000, 0.9), (10_000_000, 0.97), (30_000_000, 1.0),
)  # fmt: skip
DATA_MINING = tuple(
    (packets * _MTU_OF_THE_TABLES, share)
    for packets, share in (
        (1, 0.0), (1, 0.5), (2, 0.6), (3, 0.7), (7, 0.8), (267, 0.9), (2107, 0.95), (66_667, 0.99), (666_667, 1.0),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Flow:
    """One flow; hosts by number."""

    start_ps: int
    source: int
    destination: int
    n_bytes: int


@dataclass(frozen=True)
class PatternRequest:
    """What a pattern is made of; each uses what it needs."""

    rates: Sequence[int]  # bit/s of the link of each host
    seed: int
    n_bytes: int  # of each flow, where sizes are not drawn
    count: int  # of flows, where they come at random times
    load: float  # of all hosts' links, payload alone
    senders: int  # of incast; 0: all others


def mean_bytes(distribution: Sequence[tuple[int, float]]) -> float:
    """Of a cumulative distribution with straight lines between its points."""
    return sum((right[1] - left[1]) * (left[0] + right[0]) / 2 for left, right in pairwise(distribution))


def drawn_bytes(distribution: Sequence[tuple[int, float]], share: float) -> int:
    """The size that this share of all flows does not exceed, at least a byte."""
    index = max(1, bisect_left([point[1] for point in distribution], share))
    (low, below), (high, above) = distribution[index - 1], distribution[index]
    return max(1, round(low + (high - low) * (share - below) / (above - below)))


def _permutation(asked: PatternRequest) -> Iterator[Flow]:
    """Every host sends to one other and receives from one: a cycle through all, drawn at random (Sattolo)."""
    draw = random.Random(asked.seed)
    to = list(range(len(asked.rates)))
    for last in range(len(to) - 1, 0, -1):
        other = draw.randrange(last)
        to[last], to[other] = to[other], to[last]
    return (Flow(0, source, destination, asked.n_bytes) for source, destination in enumerate(to))


def _incast(asked: PatternRequest) -> Iterator[Flow]:
    hosts = len(asked.rates)
    senders = asked.senders or hosts - 1
    if senders >= hosts:
        raise OneLineError(f"--senders {senders}: the network has {hosts} hosts; allowed: 1 to {hosts - 1}", 2)
    return (Flow(0, source, 0, asked.n_bytes) for source in range(1, senders + 1))


def _all_to_all(asked: PatternRequest) -> Iterator[Flow]:
    """In the order of a linear shift."""
    hosts = len(asked.rates)
    return (
        Flow(0, source, (source + shift) % hosts, asked.n_bytes) for shift in range(1, hosts) for source in range(hosts)
    )


def _poisson(distribution: Sequence[tuple[int, float]], asked: PatternRequest) -> Iterator[Flow]:
    """Arrivals at random times, between two hosts at random, with sizes of that distribution."""
    draw = random.Random(asked.seed)
    hosts = len(asked.rates)
    per_s = asked.load * sum(asked.rates) / 8 / mean_bytes(distribution)
    time_s = 0.0
    for _ in range(asked.count):
        time_s += draw.expovariate(per_s)
        source = draw.randrange(hosts)
        destination = (source + 1 + draw.randrange(hosts - 1)) % hosts
        yield Flow(round(time_s * 1e12), source, destination, drawn_bytes(distribution, draw.random()))


PATTERNS: dict[str, Callable[[PatternRequest], Iterator[Flow]]] = {
    "permutation": _permutation,
    "incast": _incast,
    "all-to-all": _all_to_all,
    "web-search": lambda asked: _poisson(WEB_SEARCH, asked),
    "data-mining": lambda asked: _poisson(DATA_MINING, asked),
}


def flows_text(pattern: str, asked: PatternRequest) -> str:
    """The flows as the engine reads them."""
    if len(asked.rates) < 2:
        raise OneLineError(f"--flows {pattern}: the network has one host; allowed: at least two", EXIT_BAD_CONFIG)
    lines = ["start_ps,source,destination,bytes"]
    lines += (f"{flow.start_ps},{flow.source},{flow.destination},{flow.n_bytes}" for flow in PATTERNS[pattern](asked))
    return "\n".join(lines) + "\n"
