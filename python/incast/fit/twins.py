"""What the data cannot tell: another network that gives equal results although a value differs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from incast.fit.solve import Places, Search, Solution, covariances, moved, worst

_PARTS = (1.0, 0.5, 0.25, 0.1)  # of the way to the bounds, looked at side by side
_JUST_FAR = (0.012, 0.025, 0.04, 0.07, 0.1, 0.15, 0.25)  # places from here, of which the nearest that is far is taken
_AFTERWARDS = (0.02, 0.005)  # widths of slopes, where the others are to make up for more than slopes say


@dataclass(frozen=True)
class Twins:
    """Two networks that give equal results although they differ in one value."""

    one: Places
    other: Places
    apart: float  # the largest difference of a figure's logarithm


# Whether two places of the unknown are values that differ by more than is told.
Far = Callable[[float, float], bool]


def known_twin(
    known: Iterable[tuple[Places, Sequence[float]]], solution: Solution, unknown: int, far: Far, noise: float
) -> Twins | None:
    """The furthest among networks that were simulated anyway, with residuals that differ by `noise` at most."""
    best: Twins | None = None
    here = solution.places[unknown]
    for places, residuals in known:
        if not far(here, places[unknown]) or (apart := _apart(solution.residuals, residuals)) > noise:
            continue
        if best is None or abs(places[unknown] - here) > abs(best.other[unknown] - here):
            best = Twins(solution.places, places, apart)
    return best


def look_along(search: Search, solution: Solution, unknown: int, far: Far) -> list[tuple[Places, list[float]]]:
    """Simulates some 10 networks on the way on which that value changes and the figures do least, and on the one on
    which it changes alone, in both directions, up to the bounds: candidates for known_twin().
    """
    here = solution.places
    alone = [float(index == unknown) for index in range(len(here))]
    line = [
        places
        for way in (_way(solution, unknown), alone)
        for side in (-1.0, 1.0)
        for places in _along(here, way, side)
        if far(here[unknown], places[unknown])
    ]
    line = list(dict.fromkeys(line))
    return list(zip(line, search.simulate(line), strict=True))


def made_up_for(search: Search, solution: Solution, unknown: int, far: Far, noise: float) -> Twins | None:
    """Where slopes say too little: that value is moved just far enough, and the others are fitted to the figures of the
    solution. Some 40 networks.
    """
    here = solution.places

    def simulate(candidates: Sequence[Places]) -> list[list[float]]:
        """Differences from the solution's figures, instead of the measured ones."""
        return [
            [there - before for there, before in zip(residuals, solution.residuals, strict=True)]
            for residuals in search.simulate(candidates)
        ]

    others = [index for index in range(len(here)) if index != unknown]
    second = Search(simulate, search.grain, noise)
    for side in (-1.0, 1.0) if others else ():
        step = _just_far(here[unknown], side, far)
        if step is None:
            continue
        place = moved(here, [step * each for each in _way(solution, unknown)])
        reached = second.descend(place, simulate([place])[0], others, _AFTERWARDS)
        if (apart := worst(reached.residuals)) <= noise:
            return Twins(here, reached.places, apart)
    return None


def _just_far(here: float, side: float, far: Far) -> float | None:
    steps = (side * near for near in _JUST_FAR)
    return next((step for step in steps if 0 <= here + step <= 1 and far(here, here + step)), None)


def _way(solution: Solution, unknown: int) -> list[float]:
    """By unknown, for a step of 1 of that one."""
    column = covariances(solution.slopes)[unknown]
    if column is None or column[unknown] <= 0:
        return [float(index == unknown) for index in range(len(solution.places))]
    return [each / column[unknown] for each in column]


def _along(here: Places, way: Sequence[float], side: float) -> list[Places]:
    """Parts of the way from here to the first bound that it meets."""
    room = [
        ((1 - place) if side * step > 0 else place) / abs(step)
        for place, step in zip(here, way, strict=True)
        if abs(step) > 1e-6
    ]
    length = min(room, default=0.0)
    return [moved(here, [side * part * length * step for step in way]) for part in _PARTS]


def _apart(one: Sequence[float], other: Sequence[float]) -> float:
    return worst([left - right for left, right in zip(one, other, strict=True)])
