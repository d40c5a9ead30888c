"""Least squares within bounds, without derivatives, and how well the data tell each value.

The unknowns are places from 0 to 1 between their bounds. The steps are those of Levenberg and Marquardt (D. Marquardt,
J. SIAM 11(2), 1963) with slopes from finite differences: a simulation is a staircase when looked at closely, so slopes
are over steps that begin wide and become narrow.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

Places = tuple[float, ...]
# Residuals for each of several candidates, in the order of the measured figures; simulated side by side.
Simulate = Callable[[Sequence[Places]], list[list[float]]]
# By unknown and its place: the least step that changes its value (of a whole number: to the next).
Grain = Callable[[int, float], float]

_COARSE = 0.05  # of the range, over which slopes are taken at first
_WIDTHS = (_COARSE, 0.02, 0.005, 0.001)
_AT_END = 0.02  # and for the deviations
_DAMPINGS = (0.001, 0.1, 10.0)  # tried side by side
_ROUNDS = 4  # at each width, at most
_STARTS = 6  # random ones for each unknown
_DESCENTS = 3  # from the best of them, at the first width; the best of these goes on
_FAR = 1e3  # a residual that is none: the network carried nothing


class BudgetSpentError(Exception):
    """Raised by Simulate: no more networks are simulated. Nothing of that call was."""


@dataclass(frozen=True)
class Solution:
    """Where the squares are least, and the slopes of the figures there."""

    places: Places
    residuals: list[float]
    slopes: list[list[float]]  # [figure][unknown]; empty: not known

    @property
    def squares(self) -> float:
        """The sum that is least here."""
        return sum_of_squares(self.residuals)


def sum_of_squares(residuals: Sequence[float]) -> float:
    """A figure that is not there counts as far off."""
    return sum(min(each * each, _FAR) if math.isfinite(each) else _FAR for each in residuals)


def worst(residuals: Sequence[float]) -> float:
    """The largest of them, without sign; infinite where a figure is not there."""
    return max((abs(each) if math.isfinite(each) else math.inf for each in residuals), default=math.inf)


@dataclass(frozen=True)
class Search:
    """What a search needs beside the place where it begins."""

    simulate: Simulate
    grain: Grain
    enough: float  # where no residual is larger, it ends

    def descend(self, here: Places, residuals: list[float], free: Sequence[int], widths: Sequence[float]) -> Solution:
        """Levenberg and Marquardt from there. The slopes of the solution are not known."""
        for width in widths:
            for _ in range(_ROUNDS):
                if worst(residuals) <= self.enough:
                    return Solution(here, residuals, [])
                slopes = self.slopes(here, residuals, free, width)
                steps = [_step(slopes, residuals, free, damping) for damping in _DAMPINGS]
                candidates = list(dict.fromkeys(moved(here, step) for step in steps if step is not None))
                tried = self.simulate(candidates)
                squares = [sum_of_squares(each) for each in tried]
                before = sum_of_squares(residuals)
                if not squares or min(squares) >= before:
                    break
                chosen = squares.index(min(squares))
                here, residuals = candidates[chosen], tried[chosen]
                if squares[chosen] > 0.99 * before:
                    break
        return Solution(here, residuals, [])

    def slopes(
        self, here: Places, residuals: Sequence[float], free: Sequence[int], width: float = _AT_END
    ) -> list[list[float]]:
        """[figure][unknown] by differences over that width or what changes a value at all; 0 for what is not free."""
        steps = {index: max(width, self.grain(index, here[index])) for index in free}
        steps = {index: step if here[index] + step <= 1 else -step for index, step in steps.items()}
        found = self.simulate([replaced(here, one, here[one] + steps[one]) for one in free])
        slopes = [[0.0] * len(here) for _ in residuals]
        for one, there in zip(free, found, strict=True):
            for figure, (before, after) in enumerate(zip(residuals, there, strict=True)):
                difference = after - before
                slopes[figure][one] = difference / steps[one] if math.isfinite(difference) else 0.0
        return slopes


def least_squares(search: Search, start: Places, seed: int) -> Solution:
    """From the best of the start and random places; from the next best ones too, as long as it is not good enough."""
    free, draw = range(len(start)), random.Random(seed)
    starts = list(dict.fromkeys([start, *(tuple(draw.random() for _ in free) for _ in range(_STARTS * len(start)))]))
    begun = sorted(zip(starts, search.simulate(starts), strict=True), key=lambda one: sum_of_squares(one[1]))
    best: Solution | None = None
    for here, residuals in begun[:_DESCENTS]:
        reached = search.descend(here, residuals, free, (_COARSE,))
        if best is None or reached.squares < best.squares:
            best = reached
        if worst(best.residuals) <= search.enough:
            break
    assert best is not None
    best = search.descend(best.places, best.residuals, free, _WIDTHS[1:])
    return replace(best, slopes=search.slopes(best.places, best.residuals, free))


def moved(here: Places, step: Sequence[float]) -> Places:
    """By that step, and kept between the bounds."""
    return tuple(min(1.0, max(0.0, place + more)) for place, more in zip(here, step, strict=True))


def replaced(places: Places, unknown: int, place: float) -> Places:
    """With another place for that unknown."""
    return tuple(place if index == unknown else old for index, old in enumerate(places))


def _normal(slopes: Sequence[Sequence[float]], free: Sequence[int]) -> list[list[float]]:
    return [[sum(row[one] * row[other] for row in slopes) for other in free] for one in free]


def _step(
    slopes: Sequence[Sequence[float]], residuals: Sequence[float], free: Sequence[int], damping: float
) -> list[float] | None:
    normal = _normal(slopes, free)
    for index in range(len(free)):
        normal[index][index] = normal[index][index] * (1 + damping) + 1e-12
    finite = [each if math.isfinite(each) else 0.0 for each in residuals]
    right = [-sum(row[one] * each for row, each in zip(slopes, finite, strict=True)) for one in free]
    solved = solved_linear(normal, right)
    if solved is None:
        return None
    step = [0.0] * len(slopes[0])
    for one, value in zip(free, solved, strict=True):
        step[one] = value
    return step


def solved_linear(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float] | None:
    """Gaussian elimination with pivots; None where the matrix is singular."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(rows[row][column]))
        if abs(rows[pivot][column]) < 1e-300:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for row in range(size):
            if row != column:
                factor = rows[row][column] / rows[column][column]
                rows[row] = [one - factor * other for one, other in zip(rows[row], rows[column], strict=True)]
    return [rows[index][size] / rows[index][index] for index in range(size)]


def covariances(slopes: Sequence[Sequence[float]]) -> list[list[float] | None]:
    """By unknown: how it scatters with each, for figures that scatter by 1. None: no figure tells it.

    A column is also the way on which the unknown changes and the figures do least, the others making up for it.
    """
    unknowns = range(len(slopes[0]))
    normal = _normal(slopes, unknowns)
    steepest = max(normal[index][index] for index in unknowns)
    # What is flat keeps nothing from being solved for the others, and comes out as flat.
    for index in unknowns:
        normal[index][index] += 1e-9 * steepest
    return [solved_linear(normal, [float(index == one) for index in unknowns]) for one in unknowns]


def deviations(solution: Solution, noise: float) -> list[float]:
    """One standard deviation of each place, of residuals that scatter as they do here, and by `noise` at least."""
    unknowns = range(len(solution.places))
    spare = max(1, len(solution.residuals) - len(unknowns))
    scatter = max(noise**2, solution.squares / spare)
    steepest = max(sum(row[index] ** 2 for row in solution.slopes) for index in unknowns)
    found = []
    for one, column in zip(unknowns, covariances(solution.slopes), strict=True):
        told = column is not None and 0 < column[one] * steepest < 1e8
        found.append(math.sqrt(scatter * column[one]) if told and column is not None else math.inf)
    return found
