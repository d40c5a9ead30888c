"""Least squares within bounds, without derivatives, and what the data cannot tell.

The unknowns are places from 0 to 1 between their bounds. The steps are those of Levenberg and Marquardt (D. Marquardt,
J. SIAM 11(2), 1963) with slopes from finite differences: a simulation is a staircase when looked at closely, so slopes
are over steps that begin wide and become narrow.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Places = tuple[float, ...]
# Residuals for each of several candidates, in the order of the measured figures; simulated side by side.
Simulate = Callable[[Sequence[Places]], list[list[float]]]

_WIDTHS = (0.05, 0.02, 0.005, 0.001)  # of the steps over which slopes are taken
_DAMPINGS = (0.001, 0.1, 10.0)  # tried side by side
_ROUNDS = 4  # at each width, at most
_STARTS = 6  # random ones for each unknown
_FAR = 1e3  # a residual that is none: the network carried nothing


@dataclass(frozen=True)
class Solution:
    """Where the squares are least, and the slopes of the figures there."""

    places: Places
    residuals: list[float]
    slopes: list[list[float]]  # [figure][unknown]

    @property
    def squares(self) -> float:
        """The sum that is least here."""
        return sum_of_squares(self.residuals)


def sum_of_squares(residuals: Sequence[float]) -> float:
    """A figure that is not there counts as far off."""
    return sum(min(each * each, _FAR) if math.isfinite(each) else _FAR for each in residuals)


def least_squares(simulate: Simulate, start: Places, fixed: Sequence[int] = (), *, seed: int, search: bool) -> Solution:
    """From the start, and with `search` from random places too. Unknowns of `fixed` stay where they are."""
    free = [index for index in range(len(start)) if index not in fixed]
    draw = random.Random(seed)
    starts = [start]
    starts += [
        tuple(draw.random() if index in free else place for index, place in enumerate(start))
        for _ in range(_STARTS * len(free) if search else 0)
    ]
    found = simulate(starts)
    best = min(range(len(starts)), key=lambda index: sum_of_squares(found[index]))
    here, residuals = starts[best], found[best]
    for width in _WIDTHS:
        for _ in range(_ROUNDS):
            slopes = _slopes(simulate, here, residuals, free, width)
            steps = [_step(slopes, residuals, free, damping) for damping in _DAMPINGS]
            candidates = list(dict.fromkeys(_moved(here, step) for step in steps if step is not None))
            tried = simulate(candidates)
            squares = [sum_of_squares(each) for each in tried]
            before = sum_of_squares(residuals)
            if not squares or min(squares) >= before:
                break
            chosen = squares.index(min(squares))
            here, residuals = candidates[chosen], tried[chosen]
            if squares[chosen] > 0.99 * before:
                break
    return Solution(here, residuals, _slopes(simulate, here, residuals, free, _WIDTHS[1]))


def _slopes(
    simulate: Simulate, here: Places, residuals: Sequence[float], free: Sequence[int], width: float
) -> list[list[float]]:
    """[figure][unknown], 0 for those that are fixed."""
    steps = {index: width if here[index] + width <= 1 else -width for index in free}
    moved = [tuple(place + (steps[index] if index == one else 0) for index, place in enumerate(here)) for one in free]
    found = simulate(moved)
    slopes = [[0.0] * len(here) for _ in residuals]
    for one, there in zip(free, found, strict=True):
        for figure, (before, after) in enumerate(zip(residuals, there, strict=True)):
            difference = after - before
            slopes[figure][one] = difference / steps[one] if math.isfinite(difference) else 0.0
    return slopes


def _moved(here: Places, step: Sequence[float]) -> Places:
    return tuple(min(1.0, max(0.0, place + more)) for place, more in zip(here, step, strict=True))


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


def deviations(solution: Solution, noise: float) -> list[float]:
    """One standard deviation of each place, of residuals that scatter as they do here, and by `noise` at least."""
    unknowns = range(len(solution.places))
    spare = max(1, len(solution.residuals) - len(unknowns))
    scatter = max(noise**2, solution.squares / spare)
    normal = _normal(solution.slopes, unknowns)
    steepest = max(normal[index][index] for index in unknowns)
    # What is flat keeps nothing from being solved for the others, and comes out as flat.
    for index in unknowns:
        normal[index][index] += 1e-9 * steepest
    found = []
    for one in unknowns:
        column = solved_linear(normal, [float(index == one) for index in unknowns])
        told = column is not None and 0 < column[one] * steepest < 1e8
        found.append(math.sqrt(scatter * column[one]) if told and column is not None else math.inf)
    return found


@dataclass(frozen=True)
class Twins:
    """Two networks that give equal results although they differ in one value."""

    one: Places
    other: Places
    apart: float  # the largest difference of a figure's logarithm


def twins_of(
    simulate: Simulate, solution: Solution, unknown: int, far: Callable[[float, float], bool], noise: float
) -> Twins | None:
    """Another value of that unknown, as far away as there is one on the grid, with results that differ by no more than
    `noise`: alone, or where the others make up for it.
    """
    here = solution.places
    grid = [step / 8 for step in range(9)]
    others = sorted(
        (place for place in grid if far(here[unknown], place)), key=lambda place: abs(place - here[unknown])
    )
    alone = [_replaced(here, unknown, place) for place in reversed(others)]  # the furthest comes first
    for there, residuals in zip(alone, simulate(alone), strict=True):
        if (apart := _apart(solution.residuals, residuals)) <= noise:
            return Twins(here, there, apart)
    best: Twins | None = None
    for side in (-1, 1) if len(here) > 1 else ():
        way = [place for place in others if (place - here[unknown]) * side > 0]
        for place in dict.fromkeys(way[:1] + way[-1:]):
            found = least_squares(simulate, _replaced(here, unknown, place), (unknown,), seed=0, search=False)
            apart = _apart(solution.residuals, found.residuals)
            if apart > noise:
                break
            if best is None or abs(place - here[unknown]) > abs(best.other[unknown] - here[unknown]):
                best = Twins(here, found.places, apart)
    return best


def _replaced(places: Places, unknown: int, place: float) -> Places:
    return tuple(place if index == unknown else old for index, old in enumerate(places))


def _apart(one: Sequence[float], other: Sequence[float]) -> float:
    differences = [abs(left - right) for left, right in zip(one, other, strict=True)]
    return max((each if math.isfinite(each) else math.inf for each in differences), default=math.inf)
