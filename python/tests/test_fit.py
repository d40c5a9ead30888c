"""The search behind `incast fabric fit`, on functions that are known (docs/fabric-fit.md)."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from incast.base.errors import OneLineError
from incast.fit.free import Free, free_values
from incast.fit.kept import Kept
from incast.fit.measured import Observed
from incast.fit.solve import Places, Search, Simulate, Solution, deviations, least_squares, solved_linear
from incast.fit.twins import Twins, known_twin, look_along, made_up_for

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


def simulated(figures: Callable[[Places], list[float]], hidden: Places) -> Simulate:
    """As a network that has these figures, measured where the values are hidden."""
    measured = figures(hidden)

    def answer(candidates: Sequence[Places]) -> list[list[float]]:
        return [[math.log(s / m) for s, m in zip(figures(each), measured, strict=True)] for each in candidates]

    return answer


def far(one: float, other: float) -> bool:
    return abs(one - other) > 0.05 * max(one, other)


def search_of(simulate: Simulate) -> Search:
    return Search(simulate, lambda _index, _place: 0.0, enough=0.0)


def twin_of(search: Search, found: Solution, unknown: int, noise: float) -> Twins | None:
    known = look_along(search, found, unknown, far)
    return known_twin(known, found, unknown, far, noise) or made_up_for(search, found, unknown, far, noise)


def test_values_that_the_figures_tell_are_found() -> None:
    # Times of small and large messages, and a staircase as of packets.
    simulate = simulated(
        lambda p: [1 + 5 * p[0], 1 + 5 * p[0] + 300 * (0.1 + p[1]), math.ceil(50 * p[1]) + 9], (0.31, 0.77)
    )
    found = least_squares(search_of(simulate), (0.9, 0.1), seed=1)
    assert found.places == pytest.approx((0.31, 0.77), rel=0.01)
    assert max(deviations(found, 0.001)) < 0.02


def test_a_value_that_changes_nothing_has_a_twin_at_the_bound_that_is_further_away() -> None:
    search = search_of(simulated(lambda p: [1 + p[0], 2 + 3 * p[0]], (0.4, 0.6)))
    found = least_squares(search, (0.5, 0.6), seed=1)
    spread = deviations(found, 0.001)
    assert spread[0] < 0.01
    assert spread[1] == math.inf
    twins = twin_of(search, found, 1, 0.001)
    assert twins is not None
    assert twins.one[0] == twins.other[0]
    assert twins.other[1] == pytest.approx(0 if found.places[1] > 0.5 else 1)
    assert twin_of(search, found, 0, 0.001) is None


def test_of_two_values_that_act_as_one_each_has_a_twin_that_the_other_makes_up_for() -> None:
    search = search_of(simulated(lambda p: [1 + p[0] + 2 * p[1], 3 + p[0] + 2 * p[1]], (0.5, 0.5)))
    found = least_squares(search, (0.3, 0.8), seed=1)
    assert min(deviations(found, 0.001)) > 0.05
    for unknown in (0, 1):
        twins = twin_of(search, found, unknown, 0.002)
        assert twins is not None
        assert twins.one[unknown] != pytest.approx(twins.other[unknown], rel=0.05)
        assert search.simulate([twins.other])[0] == pytest.approx(search.simulate([twins.one])[0], abs=0.002)


def test_where_the_way_is_crooked_the_others_are_fitted_once_more() -> None:
    # Only the product counts: the way on which nothing changes is a hyperbola, on which slopes lead astray.
    search = search_of(simulated(lambda p: [(0.1 + p[0]) * (0.1 + p[1]), 1 + (0.1 + p[0]) * (0.1 + p[1])], (0.3, 0.4)))
    found = least_squares(search, (0.3, 0.8), seed=1)
    for unknown in (0, 1):
        twins = twin_of(search, found, unknown, 1e-5)
        assert twins is not None
        assert far(twins.one[unknown], twins.other[unknown])
        assert search.simulate([twins.other])[0] == pytest.approx(search.simulate([twins.one])[0], abs=2e-5)


def test_a_twin_is_among_what_was_simulated_anyway_or_is_not() -> None:
    solution = Solution((0.5, 0.5), [0.0, 0.1], [])
    known = [((0.5, 0.8), [0.0, 0.1005]), ((0.5, 0.2), [0.001, 0.1]), ((0.5, 0.9), [0.0, 0.2])]
    twins = known_twin(known, solution, 1, far, 0.002)
    assert twins is not None
    assert twins.other == (0.5, 0.8)
    assert known_twin(known, solution, 0, far, 0.002) is None


def test_six_values_take_a_bounded_number_of_simulations() -> None:
    """Two of them act as one, and one does nothing: with all verdicts within the budget that the command has."""
    asked = 0
    hidden = (0.31, 0.77, 0.2, 0.6, 0.45, 0.5)

    def figures(p: Places) -> list[float]:
        time, rate, window = 0.2 + p[0], 0.3 + p[1], 0.2 + p[2]
        path = 1 + p[3] + 2 * p[4]  # both alike
        return [
            value
            for size in (0.01, 0.1, 1, 10)
            for value in (path + time + size / rate, min(rate, window * 2 / (path + size)), size / (time + size / rate))
        ]

    plain = simulated(figures, hidden)

    def counted(candidates: Sequence[Places]) -> list[list[float]]:
        nonlocal asked
        asked += len(candidates)
        return plain(candidates)

    search = Search(counted, lambda _index, _place: 0.0, enough=0.0005)
    found = least_squares(search, (0.5,) * 6, seed=1)
    spread = deviations(found, 0.002)
    for unknown in (0, 1, 2):
        assert found.places[unknown] == pytest.approx(hidden[unknown], rel=0.05)
        assert spread[unknown] < 0.025
    for unknown in (3, 4, 5):
        assert spread[unknown] > 0.025
        assert twin_of(search, found, unknown, 0.002) is not None
    assert asked < 400


def test_what_was_simulated_is_kept_for_the_same_question_alone(tmp_path: Path) -> None:
    file, figures = tmp_path / "kept.jsonl", [(Observed("bytes/s", 1.5e9),), ()]
    first = Kept(file, ("2ms", 1))
    assert first.figures("a") is None
    first.add("a", figures)
    assert Kept(file, ("2ms", 1)).figures("a") == figures
    assert Kept(file, ("2ms", 1)).figures("b") is None
    assert Kept(file, ("1ms", 1)).figures("a") is None
    file.write_text("rate = 1\n")
    with pytest.raises(OneLineError, match="allowed: a file that --keep wrote"):
        Kept(file, ())
    Kept(None, ()).add("a", figures)


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
    window = named[1]
    assert window.at(window.place_of(45) + window.grain(window.place_of(45))) == 46
    rate = named[0]
    assert rate.grain(0.5) == 0
    assert rate.relative(0.5, 0.01) == pytest.approx(math.log(rate.at(0.51) / rate.at(0.5)))
    assert marked[0].relative(0.5, 0.01) == pytest.approx(0.02)
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
