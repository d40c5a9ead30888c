"""What is measured next. It follows from what was measured so far and from the time that is left, so that a tuning
goes on where it was stopped.

The defaults come first. Then many points are measured for a short time: a few that are spread over all, then those
that a model proposes, in turn with neighbours of the best one. The best third of each length is measured again for
longer. With what is left of the time the best, the next best and the defaults are measured in turn, anew.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from incast.tune.goal import FAILED, TRIGGER_RATE, Goal, Judge
from incast.tune.proposals import Proposer, around, spread
from incast.tune.readings import (
    AROUND,
    CONFIRM,
    DEFAULT_NUMBER,
    EXPLORE,
    LENGTHS,
    LONGER,
    REFERENCE,
    WHOLE,
    Seen,
    Tried,
    Wanted,
    by_point,
)
from incast.tune.space import Axes, Axis, defaults, identity

_LONGER_SHARE = 3  # of so many points the best one is measured for longer
_REFERENCE_EVERY = 8  # short readings
_ROUNDS = 3  # of confirming
_MOST_ROUNDS = 5
_CONFIRM_SHARE = 0.4  # of the budget at most
_HOPELESS = 12  # points that fail, and no other
_FINALISTS = 3  # the best, the next best, the defaults
_STEPS = 2  # either way, around the best


@dataclass(frozen=True)
class Clock:
    """What the readings cost. `seconds`: measured time of a whole one; `parallel`: readings that run at a time."""

    seconds: float
    warm_up_seconds: float
    budget_s: float
    parallel: int = 1

    def cost(self, length: float, seen: Sequence[Seen]) -> float:
        """Seconds that a reading of that length will take, by those that were taken."""
        good = [each for each in seen if not each.failed] or list(seen)
        if length > LENGTHS[0]:  # triggers at a rate take a time of their own
            good = [each for each in good if each.wanted.rate_hz is not None] or good
        if not good:
            return self.warm_up_seconds + length * self.seconds
        return statistics.median(self._cost(length, each) for each in good)

    def _cost(self, length: float, seen: Seen) -> float:
        took = float(seen.figures.get("wall_s") or 0.0)
        if seen.figures.get("time_domain") == "virtual":
            span = self.warm_up_seconds + seen.wanted.length * self.seconds
            return took * (self.warm_up_seconds + length * self.seconds) / span
        return max(took + (length - seen.wanted.length) * self.seconds, 0.0)


class Search:
    """Decides for one goal over these axes."""

    def __init__(self, axes: Sequence[Axis], goal: Goal, clock: Clock, seed: int) -> None:
        self.axes = tuple(axes)
        self.goal = goal
        self.clock = clock
        self._seed = seed
        self._size = math.prod(len(axis.values) for axis in axes)
        self._first = min(max(6, 2 * len(self.axes)), self._size)

    def next(self, seen: Sequence[Seen], spent_s: float) -> list[Wanted]:
        """Readings that may run at the same time; none: the time is over, or everything fails."""
        points = by_point(seen)
        default = next((point for point in points if point.number == DEFAULT_NUMBER), None)
        if default is None:
            return [Wanted(defaults(self.axes), LENGTHS[0], REFERENCE)]
        if len(points) >= _HOPELESS and all(point.failed for point in points):
            return []
        left = self.clock.budget_s - spent_s
        judge = Judge(self.goal, points)
        if (wanted := self._confirm(seen, left)) is not None:
            return wanted
        if not default.failed and self._needs_reference(seen):
            return [Wanted(default.axes, LENGTHS[0], REFERENCE)]
        batch = self._longer(judge, points)
        if len(batch) < self.clock.parallel:
            batch += self._new(judge, points, seen, batch, left)
        # With everything measured there is nothing left but to be surer.
        return batch or self._round(seen, left)

    # --- the end

    def finalists(self, seen: Sequence[Seen]) -> list[Tried]:
        """The best, the next best, the defaults, as things stood when the rounds began; none if nothing is good."""
        begun = next((index for index, each in enumerate(seen) if self._confirms(each)), len(seen))
        points = by_point(seen[:begun])
        judge = Judge(self.goal, points)
        best = [point for point in judge.best_first(points) if judge.standing(point)[1].good][:2]
        chosen = {point.number for point in best} | {DEFAULT_NUMBER} if best else set()
        return [point for point in by_point(seen) if point.number in chosen and not point.failed]

    def _confirms(self, seen: Seen) -> bool:
        """In this budget: with a larger one the search goes on, and others may be best."""
        return seen.wanted.purpose == CONFIRM and seen.budget_s == self.clock.budget_s

    def _confirm(self, seen: Sequence[Seen], left: float) -> list[Wanted] | None:
        """None: it is not time yet."""
        if not any(map(self._confirms, seen)):
            finalists = len(self.finalists(seen))
            if not finalists:
                return None if left > self.clock.cost(LENGTHS[0], seen) else []
            if left > self._reserve(finalists, seen):
                return None
        return self._round(seen, left)

    def _reserve(self, finalists: int, seen: Sequence[Seen]) -> float:
        """Seconds that are kept for the rounds."""
        rounds = _MOST_ROUNDS if self.goal.name == TRIGGER_RATE else _ROUNDS
        return min(rounds * self._round_cost(finalists, seen), _CONFIRM_SHARE * self.clock.budget_s)

    def _round_cost(self, finalists: int, seen: Sequence[Seen]) -> float:
        return math.ceil(finalists / self.clock.parallel) * self.clock.cost(WHOLE, seen)

    def _round(self, seen: Sequence[Seen], left: float) -> list[Wanted]:
        """What is missing of the round that was begun, or a new one while there is time."""
        finalists = self.finalists(seen)
        if not finalists:
            return []
        taken = {point.number: sum(map(self._confirms, point.readings)) for point in finalists}
        rounds = min(taken.values())
        begun = max(taken.values()) > rounds
        no_time = rounds > 0 and left < self._round_cost(len(finalists), seen)
        if not begun and (rounds >= _MOST_ROUNDS or no_time):
            return []
        # Every other round goes backwards, so that a drift helps nobody.
        order = finalists if rounds % 2 == 0 else finalists[::-1]
        missing = [point for point in order if taken[point.number] == rounds]
        return [
            Wanted(point.axes, WHOLE, CONFIRM, self.goal.next_rate(point)) for point in missing[: self.clock.parallel]
        ]

    # --- the search

    def _needs_reference(self, seen: Sequence[Seen]) -> bool:
        """In real time the machine drifts."""
        for since, each in enumerate(reversed(seen)):
            if each.wanted.purpose == REFERENCE:
                return since >= _REFERENCE_EVERY and each.figures.get("time_domain") == "real"
        return False

    def _longer(self, judge: Judge, points: Sequence[Tried]) -> list[Wanted]:
        wanted: list[Wanted] = []
        for shorter, longer in zip(LENGTHS[-2::-1], LENGTHS[:0:-1], strict=True):
            scored = [
                (score, point)
                for point in points
                if (score := judge.at_length(point, shorter)) is not None and not point.failed
            ]
            room = len(scored) // _LONGER_SHARE - sum(bool(point.of_length(longer)) for _, point in scored)
            best = sorted(scored, key=lambda each: each[0], reverse=True)[: len(scored) // _LONGER_SHARE]
            for score, point in best:
                if room <= 0 or len(wanted) >= self.clock.parallel:
                    break
                if score.good and not point.of_length(longer):
                    wanted.append(Wanted(point.axes, longer, LONGER, self.goal.next_rate(point)))
                    room -= 1
        return wanted

    def _new(
        self, judge: Judge, points: Sequence[Tried], seen: Sequence[Seen], batch: Sequence[Wanted], left: float
    ) -> list[Wanted]:
        known = [(point.axes, judge.at_length(point, LENGTHS[0]) or FAILED) for point in points]
        taken = {identity(point.axes) for point in points}
        wanted: list[Wanted] = []
        first = [point for point in spread(self.axes, self._first, self._seed) if identity(point) not in taken]
        turn, proposer = len(points), None
        # What each setting does around the best one is part of the answer.
        best = judge.best_first(points)[0]
        steps = sum(identity(each) not in taken for each in around(self.axes, best.axes, 1))
        cost = math.ceil(steps / self.clock.parallel) * self.clock.cost(LENGTHS[0], seen)
        near_the_end = left < self._reserve(_FINALISTS, seen) + cost
        while len(wanted) + len(batch) < self.clock.parallel:
            point: Axes | None = None
            purpose = EXPLORE
            if first:
                point = first.pop(0)
            else:
                if (turn % 2 == 0 or near_the_end) and judge.standing(best)[1].good:
                    near = around(self.axes, best.axes, _STEPS)
                    point = next((each for each in near if identity(each) not in taken), None)
                    purpose = AROUND if point is not None else EXPLORE
                if point is None:
                    proposer = proposer or Proposer(
                        self.axes, known, [each.axes for each in wanted], self._seed + len(seen)
                    )
                    point = proposer.next() or proposer.any()
            if point is None:
                break
            turn += 1
            if identity(point) not in taken:
                taken.add(identity(point))
                wanted.append(Wanted(point, LENGTHS[0], purpose))
        return wanted
