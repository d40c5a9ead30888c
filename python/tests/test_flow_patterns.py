"""Flows by a rule (docs/flows.md)."""

from collections import Counter

import pytest
from incast.base.errors import OneLineError
from incast.run.flow_patterns import DATA_MINING, PATTERNS, WEB_SEARCH, PatternRequest, drawn_bytes, mean_bytes

GBIT = 1_000_000_000


def asked(hosts: int, seed: int = 1, count: int = 0, load: float = 0.5, senders: int = 0) -> PatternRequest:
    return PatternRequest((100 * GBIT,) * hosts, seed, 1000, count, load, senders)


@pytest.mark.parametrize("hosts", [2, 3, 64])
def test_in_a_permutation_everybody_sends_and_receives_once_and_not_from_itself(hosts: int) -> None:
    flows = list(PATTERNS["permutation"](asked(hosts)))
    assert sorted(flow.source for flow in flows) == sorted(flow.destination for flow in flows) == list(range(hosts))
    assert all(flow.source != flow.destination for flow in flows)


def test_incast_and_all_to_all_have_their_pairs() -> None:
    assert [(flow.source, flow.destination) for flow in PATTERNS["incast"](asked(5, senders=2))] == [(1, 0), (2, 0)]
    assert len(list(PATTERNS["incast"](asked(5)))) == 4
    pairs = {(flow.source, flow.destination) for flow in PATTERNS["all-to-all"](asked(5))}
    assert pairs == {(one, other) for one in range(5) for other in range(5) if one != other}
    with pytest.raises(OneLineError, match="--senders 5: the network has 5 hosts; allowed: 1 to 4"):
        list(PATTERNS["incast"](asked(5, senders=5)))


@pytest.mark.parametrize("pattern", ["web-search", "data-mining"])
def test_flows_at_random_times_offer_the_load(pattern: str) -> None:
    distribution = {"web-search": WEB_SEARCH, "data-mining": DATA_MINING}[pattern]
    flows = list(PATTERNS[pattern](asked(16, count=40_000, load=0.3)))
    times = [flow.start_ps for flow in flows]
    assert times == sorted(times)
    # Arrivals, which scatter by 0.5 %, and sizes by themselves, as the largest flows are few.
    per_s = 0.3 * 16 * 100 * GBIT / 8 / mean_bytes(distribution)
    assert len(flows) / (times[-1] * 1e-12) == pytest.approx(per_s, rel=0.03)
    small = sum(flow.n_bytes <= distribution[4][0] for flow in flows) / len(flows)
    assert small == pytest.approx(distribution[4][1], abs=0.01)
    assert min(Counter(flow.source for flow in flows).values()) > 2000
    assert all(flow.source != flow.destination for flow in flows)


def test_sizes_follow_the_curve() -> None:
    assert drawn_bytes(WEB_SEARCH, 0.0) == 1
    assert drawn_bytes(WEB_SEARCH, 0.15) == 10_000
    assert drawn_bytes(WEB_SEARCH, 0.5) == 50_000 + round(30_000 * 10 / 13)
    assert drawn_bytes(WEB_SEARCH, 1.0) == 30_000_000
    assert drawn_bytes(DATA_MINING, 0.3) == 1460
    assert mean_bytes(WEB_SEARCH) == pytest.approx(1.711e6, rel=1e-3)
