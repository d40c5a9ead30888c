"""The bench that compares tuning with a grid: what it charges and concludes, on figures that are made up."""

from dataclasses import replace

import pytest

pytest.importorskip("optuna", reason="needs optuna: pip install 'incast[tune]'")

from incast.tune.space import Axes
from tune_vs_grid import CASES, SHARE, judge, replay_random, show

CASE = replace(CASES["qfx10000"], axes=CASES["qfx10000"].axes[:3])


def read(point: Axes, length: float, _repeat: int) -> tuple[float | None, float]:
    """Best with 256 KiB, 4 credits and 8 sends; a second for a whole reading."""
    places = [axis.index(point[axis.key]) for axis in CASE.axes]
    size, slots, sends = (0 if each is None else each for each in places)
    return 1e9 * 0.8 ** (abs(size - 3) + abs(slots - 1) + abs(sends - 3)), length


def test_cases_have_grids_of_240_points_without_the_defaults() -> None:
    for case in CASES.values():
        assert len(case.grid()) == 240
        assert case.default not in case.grid() or not case.simulated


def test_shares_are_of_the_best_of_the_grid_and_of_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = judge(CASE, "made up", 1, read)
    assert verdict.grid_s == 80
    assert verdict.default == pytest.approx(0.8**6)
    assert len(verdict.found) == 6
    for found, value in verdict.found:
        assert found.spent_s <= SHARE * verdict.grid_s + 1
        assert value == pytest.approx((read(found.point, 1.0, 1)[0] or 0.0) / 1e9)
    verdict.default = 1.0
    assert not show(verdict), "defaults that are among the best say nothing"
    assert "THE DEFAULTS ARE IN IT" in capsys.readouterr().out


def test_chance_stops_where_its_time_is_over() -> None:
    found = replay_random(CASE, read, 10.5, 1)
    assert (found.readings, found.spent_s) == (10, 10)
