"""What came of it: the best settings, by how much they are better and how sure that is, what each setting does around
them, and what limits now.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from incast.engine.quantity import Scalar, setting_text
from incast.tune.goal import TRIGGER_RATE, Goal, Judge, Score
from incast.tune.readings import CONFIRM, DEFAULT_NUMBER, LENGTHS, Seen, Tried, by_point
from incast.tune.space import Axis, differing


@dataclass(frozen=True)
class Finalist:
    """A point of the rounds at the end, with the figures that it gave in them."""

    point: Tried
    figures: tuple[float, ...]
    good: bool  # within the bounds each time

    @property
    def figure(self) -> float | None:
        """The median; None: it gave none."""
        return statistics.median(self.figures) if self.figures else None


@dataclass(frozen=True)
class Step:
    """What one changed setting does: its value, and the figure over the best point's, by readings of one length."""

    value: Scalar
    ratio: float | None  # None: it failed
    good: bool


@dataclass(frozen=True)
class Outcome:
    """What is known in the end. `best` is None if nothing kept the bounds."""

    goal: Goal
    axes: tuple[Axis, ...]
    points: tuple[Tried, ...]
    judge: Judge
    finalists: tuple[Finalist, ...]
    best: Tried | None
    confirmed: bool

    @property
    def virtual(self) -> bool:
        """Whether it was simulated."""
        return any(each.figures.get("time_domain") == "virtual" for point in self.points for each in point.readings)

    @property
    def default(self) -> Tried | None:
        """The point where nothing is tuned; None: it was not measured."""
        return next((point for point in self.points if point.number == DEFAULT_NUMBER), None)

    def finalist(self, point: Tried | None) -> Finalist | None:
        """That point in the rounds at the end."""
        return next((each for each in self.finalists if point is not None and each.point.number == point.number), None)

    def ratios(self) -> list[float]:
        """The best over the defaults, round by round."""
        best, default = self.finalist(self.best), self.finalist(self.default)
        if best is None or default is None:
            return []
        return [one / other for one, other in zip(best.figures, default.figures, strict=False) if other]

    def figure(self, point: Tried | None) -> float | None:
        """Of a point as far as it is known: of the rounds at the end, or else of its longest readings."""
        if point is None:
            return None
        if (finalist := self.finalist(point)) is not None and finalist.figure is not None:
            return finalist.figure
        found = [figure for each in point.of_length(point.longest) if (figure := self.goal.figure(each)) is not None]
        return statistics.median(found) if found else None

    def last_reading(self, point: Tried) -> Seen | None:
        """The last of its longest readings that gave figures and kept the bounds."""
        found = [each for each in point.of_length(point.longest) if self.goal.score(each).good]
        return found[-1] if found else None

    def steps(self) -> dict[str, list[Step]]:
        """By setting: the points that differ from the best one in that setting alone."""
        found: dict[str, list[Step]] = {}
        if self.best is None:
            return found
        for axis in self.axes:
            near = [point for point in self.points if differing(self.best.axes, point.axes) == [axis.key]]
            steps = [step for point in near if (step := self._step(self.best, point, axis)) is not None]
            order = [setting_text(value) for value in axis.values]
            steps.sort(key=lambda step: order.index(text) if (text := setting_text(step.value)) in order else -1)
            found[axis.key] = steps
        return found

    def _step(self, best: Tried, point: Tried, axis: Axis) -> Step | None:
        value = point.axes[axis.key]
        for length in LENGTHS[::-1]:
            one, other = self._plain(point, length), self._plain(best, length)
            if one is not None and other:
                return Step(value, one / other, all(self.goal.score(each).good for each in point.of_length(length)))
        return Step(value, None, good=False) if point.failed else None

    def _plain(self, point: Tried, length: float) -> float | None:
        """The figure by readings of one length, the drift taken out."""
        found = []
        for each in point.of_length(length):
            # What is built at most and what triggers are taken do not compare.
            if (figure := self.goal.figure(each)) is None or each.wanted.rate_hz is not None:
                continue
            factor = self.judge.drift.factor(each.spent_s)
            found.append(figure * factor if self.goal.least else figure / factor)
        return statistics.median(found) if found else None


def outcome_of(goal: Goal, axes: Sequence[Axis], seen: Sequence[Seen], budget_s: float) -> Outcome:
    """Of all readings; the rounds at the end are those of that budget."""
    points = by_point(seen)
    judge = Judge(goal, points)
    rounds: dict[int, list[Seen]] = {}
    for each in seen:
        if each.wanted.purpose == CONFIRM and each.budget_s == budget_s:
            rounds.setdefault(each.number, []).append(each)
    finalists = tuple(_finalist(goal, point, rounds[point.number]) for point in points if point.number in rounds)
    good = [each for each in finalists if each.good and each.figure is not None]
    if good:
        best: Tried | None = max(good, key=lambda each: _order(goal, each)).point
    else:
        first = judge.best_first(points)[:1]
        best = first[0] if first and judge.standing(first[0])[1].good else None
    return Outcome(goal, tuple(axes), tuple(points), judge, finalists, best, bool(good))


def _order(goal: Goal, finalist: Finalist) -> Score:
    figure = finalist.figure or 0.0
    return Score(2, -figure if goal.least else figure)


def _finalist(goal: Goal, point: Tried, readings: Sequence[Seen]) -> Finalist:
    if goal.name == TRIGGER_RATE:
        # Each round offers another rate: what counts is the highest that was taken.
        taken, _ = goal.rates(point)
        return Finalist(point, () if taken is None else (taken,), taken is not None)
    figures = tuple(figure for each in readings if (figure := goal.figure(each)) is not None)
    return Finalist(point, figures, all(goal.score(each).good for each in readings))


def as_json(outcome: Outcome) -> dict[str, Any]:
    """For tuning.json, and for --json."""
    best, default = outcome.best, outcome.default
    last = None if best is None else outcome.last_reading(best)
    ratios = outcome.ratios()

    def point_of(point: Tried | None) -> dict[str, Any] | None:
        if point is None:
            return None
        finalist = outcome.finalist(point)
        return {
            "point": point.number,
            "settings": dict(point.axes),
            "figure": outcome.figure(point),
            "rounds": [] if finalist is None else list(finalist.figures),
            "readings": len(point.readings),
            "longest": point.longest,
            "good": outcome.judge.standing(point)[1].good,
        }

    return {
        "schema": 1,
        "goal": outcome.goal.words,
        "unit": outcome.goal.unit,
        "time_domain": next(
            (each.figures.get("time_domain") for point in outcome.points for each in point.readings), None
        ),
        "confirmed": outcome.confirmed,
        "defaults": {axis.key: axis.default for axis in outcome.axes},
        "best": point_of(best),
        "default": point_of(default),
        "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)} if ratios else None,
        "points": [point_of(point) for point in outcome.judge.best_first(outcome.points)],
        "around": {
            key: [{"value": step.value, "ratio": step.ratio, "good": step.good} for step in steps]
            for key, steps in outcome.steps().items()
        },
        "limited_by": None
        if last is None
        else {
            key: last.figures.get(key)
            for key in ("limited_by", "limited_by_confidence", "limited_by_evidence", "suggestion")
        },
        "drift": {"fastest_over_slowest": outcome.judge.drift.span, "references": outcome.judge.drift.references},
    }
