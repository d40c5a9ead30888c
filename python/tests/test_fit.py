"""The search behind `incast fabric fit`, on functions that are known (docs/fabric-fit.md)."""

import math
from collections.abc import Callable, Sequence

import pytest
from incast.base.errors import OneLineError
from incast.fit.free import Free, free_values
from incast.fit.solve import Places, deviations, least_squares, solved_linear, twins_of

NETWORK = """
[hosts.nic]
mtu = "4096B"
message_cost = "400ns"       # free 0ns..2us
[switches.sw]
latency = "500ns"            # free: a data sheet says so
[links.c]
rate = "100Gb/s"             # assumed
[flow]
window_packets = 64
"""


def simulated(
    figures: Callable[[Places], list[float]], hidden: Places
) -> Callable[[Sequence[Places]], list[list[float]]]:
    """As a network that has these figures, measured where the values are hidden."""
    measured = figures(hidden)

    def answer(candidates: Sequence[Places]) -> list[list[float]]:
        return [[math.log(s / m) for s, m in zip(figures(each), measured, strict=True)] for each in candidates]

    return answer


def far(one: float, other: float) -> bool:
    return abs(one - other) > 0.05 * max(one, other)


def test_values_that_the_figures_tell_are_found() -> None:
    # Times of small and large messages, and a staircase as of packets.
    simulate = simulated(
        lambda p: [1 + 5 * p[0], 1 + 5 * p[0] + 300 * (0.1 + p[1]), math.ceil(50 * p[1]) + 9], (0.31, 0.77)
    )
    found = least_squares(simulate, (0.9, 0.1), seed=1, search=True)
    assert found.places == pytest.approx((0.31, 0.77), rel=0.01)
    assert max(deviations(found, 0.001)) < 0.02


def test_a_value_that_changes_nothing_has_a_twin_far_away() -> None:
    simulate = simulated(lambda p: [1 + p[0], 2 + 3 * p[0]], (0.4, 0.6))
    found = least_squares(simulate, (0.5, 0.5), seed=1, search=True)
    spread = deviations(found, 0.001)
    assert spread[0] < 0.01
    assert spread[1] == math.inf
    twins = twins_of(simulate, found, 1, far, 0.001)
    assert twins is not None
    assert twins.one[0] == twins.other[0]
    assert abs(twins.one[1] - twins.other[1]) >= 0.25
    assert twins_of(simulate, found, 0, far, 0.001) is None


def test_of_two_values_that_act_as_one_each_has_a_twin_that_the_other_makes_up_for() -> None:
    simulate = simulated(lambda p: [1 + p[0] + 2 * p[1], 3 + p[0] + 2 * p[1]], (0.5, 0.5))
    found = least_squares(simulate, (0.3, 0.8), seed=1, search=True)
    assert min(deviations(found, 0.001)) > 0.05
    for unknown in (0, 1):
        twins = twins_of(simulate, found, unknown, far, 0.002)
        assert twins is not None
        assert twins.one[unknown] != pytest.approx(twins.other[unknown], rel=0.05)
        assert simulate([twins.other])[0] == pytest.approx(simulate([twins.one])[0], abs=0.002)


def test_a_fixed_value_stays() -> None:
    simulate = simulated(lambda p: [1 + p[0], 2 + p[1]], (0.4, 0.6))
    found = least_squares(simulate, (0.1, 0.9), (0,), seed=1, search=False)
    assert found.places[0] == 0.1
    assert found.places[1] == pytest.approx(0.6, abs=0.01)


def test_linear_equations() -> None:
    assert solved_linear([[0, 2], [4, 1]], [6, 11]) == pytest.approx([2, 3])
    assert solved_linear([[1, 2], [2, 4]], [1, 2]) is None


def test_free_values_are_named_or_marked_in_the_file() -> None:
    marked = free_values(NETWORK, [])
    assert [each.key for each in marked] == ["hosts.nic.message_cost", "switches.sw.latency"]
    assert [each.low for each in marked] == pytest.approx([0, 125e-9])
    assert [each.high for each in marked] == pytest.approx([2e-6, 2e-6])
    assert marked[0].written(marked[0].at(0.5)) == "1000000ps"
    named = free_values(NETWORK, ["links.c.rate=10Gb/s..400Gb/s", "flow.window_packets=8..256"])
    assert named[0].by_factors
    assert named[0].written(named[0].at(0.5)) == "63245.553Mb/s"
    assert named[1].written(named[1].at(0.5)) in (45, 46)
    for each in (*marked, *named):
        assert each.at(each.place_of(each.present)) == pytest.approx(each.present)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("links.c.delay", "the file has no such key"),
        ("hosts.nic.mtu=9..x", "allowed: LOW..HIGH"),
        ("hosts.nic.mtu=1KiB..5us", "two kinds of units"),
        ("hosts.nic.mtu=1us..5us", "of another kind"),
        ("hosts.nic.mtu=5KiB..1KiB", "the lower first"),
    ],
)
def test_a_wrong_free_value_is_one_line(words: str, line: str) -> None:
    with pytest.raises(OneLineError, match=line):
        free_values(NETWORK, [words])


def test_values_are_shown_with_a_unit_that_fits() -> None:
    assert Free("a", "s", False, 0, 1e-5, 1e-6).shown(1.234e-6) == "1.234 us"
    assert Free("a", "bytes", False, 0, 1e9, 1e6).shown(65536) == "64 KiB"
    assert Free("a", "bytes_per_s", False, 1, 1e12, 1e9).shown(5e9) == "40 Gb/s"
