"""The fit from its inputs to its words and files (docs/fabric-fit.md)."""

import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.base.files import replace_file
from incast.base.units import VIRTUAL_TIME
from incast.engine.fabric_text import read_fabric_text
from incast.engine.idle import usable_cores
from incast.fit.free import Free, free_values
from incast.fit.measured import Point, read_points
from incast.fit.simulator import Simulator
from incast.fit.solve import Places, Solution, Twins, deviations, least_squares, twins_of

_TOLD = 0.05  # a value with a smaller deviation is found
_SAID_EVERY_S = 5.0
FOUND, LOOSE, UNDETERMINED = "found", "loose", "undetermined"


@dataclass(frozen=True)
class FitRequest:
    """What to fit to what."""

    network: Path
    results: tuple[Path, ...]
    free: tuple[str, ...]
    duration: str
    warm_up: str
    noise: float  # relative, of a measured figure
    seed: int
    jobs: int  # 0: as many as there are cores
    output: Path | None


@dataclass(frozen=True)
class Fitted:
    """One value, and how well the results tell it."""

    free: Free
    value: float
    deviation: float  # one standard deviation, relative; infinite: the results do not tell it
    verdict: str
    twins: Twins | None = None  # only where it is undetermined

    @property
    def at_bound(self) -> bool:
        """Whether it might lie beyond."""
        return self.verdict != UNDETERMINED and not 0.002 < self.free.place_of(self.value) < 0.998


@dataclass(frozen=True)
class Fit:
    """All of it."""

    values: list[Fitted]
    points: list[Point]
    simulated: list[tuple[str, str, float, float]]  # point, figure, measured, simulated
    networks: int
    text: str  # of the network with these values


def fit(asked: FitRequest, screen: Console) -> Fit:
    """Finds the values; says on that console how far it is."""
    text = read_fabric_text(asked.network)
    free, points = free_values(text, asked.free), read_points(asked.results)
    figures = sum(len(point.observed) for point in points)
    if not asked.noise > 0:
        raise OneLineError(f"--noise {asked.noise}: allowed: more than 0, such as 0.001", EXIT_BAD_CONFIG)

    said_at = time.monotonic()

    def told(networks: int) -> None:
        nonlocal said_at
        if time.monotonic() - said_at > _SAID_EVERY_S:
            said_at = time.monotonic()
            screen.print(f"{networks} networks simulated, {len(points)} points each", highlight=False)

    with tempfile.TemporaryDirectory(prefix="incast-fit-") as folder:
        window, jobs = (asked.duration, asked.warm_up), asked.jobs or usable_cores()
        simulate = Simulator(text, free, points, window, jobs=jobs, folder=Path(folder), told=told)
        start = tuple(each.place_of(each.present) for each in free)
        solution = least_squares(simulate, start, seed=asked.seed, search=True)
        spread = deviations(solution, asked.noise)
        values = [
            _judged(simulate, solution, index, deviation=deviation, noise=asked.noise)
            for index, deviation in enumerate(spread)
        ]
        seen = simulate.observed(solution.places)
        compared = [
            (point.name, each.name, each.value, simulated_value)
            for point, observed in zip(points, seen, strict=True)
            for each in point.observed
            for simulated_value in [next((one.value for one in observed if one.name == each.name), math.nan)]
        ]
        assert len(compared) == figures
        return Fit(values, points, compared, simulate.networks, simulate.network(solution.places))


def _judged(simulate: Simulator, solution: Solution, index: int, *, deviation: float, noise: float) -> Fitted:
    one, place = simulate.free[index], solution.places[index]
    value, relative = one.at(place), math.inf
    if value > 0 and deviation < 1:
        relative = abs(one.at(place + deviation) - one.at(place - deviation)) / 2 / value
    if relative <= _TOLD:
        return Fitted(one, value, relative, FOUND)

    def far(here: float, there: float) -> bool:
        return abs(one.at(here) - one.at(there)) > _TOLD * max(one.at(here), one.at(there))

    twins = twins_of(simulate, solution, index, far, noise)
    return Fitted(one, value, relative, LOOSE if twins is None else UNDETERMINED, twins)


def lines(found: Fit) -> Iterator[str]:
    """For a person, within 80 columns where the names allow it."""
    virtual = sum(point.virtual for point in found.points)
    domain = f", {virtual} of them in {VIRTUAL_TIME}" if virtual else ""
    yield f"{len(found.points)} measured points{domain}; {found.networks} networks simulated"
    yield ""
    for each in found.values:
        free = each.free
        if each.twins is None:
            sure = f" +- {100 * each.deviation:.2g} %" if math.isfinite(each.deviation) else ", how well is not known"
            words = f"{free.shown(each.value)}{sure}" + (f" ({each.verdict})" if each.verdict == LOOSE else "")
            yield f"{free.key} = {words}"
            if each.at_bound:
                yield f"  at the end of its range, {free.shown(free.low)} to {free.shown(free.high)}: widen it"
            continue
        yield f"{free.key}: undetermined, these give equal results (within {100 * each.twins.apart:.2g} %):"
        for places in (each.twins.one, each.twins.other):
            yield f"  {_values(found, places, each)}"
    yield ""
    yield "largest differences, simulated from measured:"
    worst = sorted(found.simulated, key=lambda one: -abs(math.log(one[3] / one[2])) if one[3] > 0 else -math.inf)
    for point, figure, measured, simulated in worst[:5]:
        yield f"  {100 * (simulated / measured - 1):+.2f} %  {figure} of {point}"


def _values(found: Fit, places: Places, twin: Fitted) -> str:
    """The value that is undetermined, and those that make up for it."""
    assert twin.twins is not None
    shown = []
    for fitted, place, one, other in zip(found.values, places, twin.twins.one, twin.twins.other, strict=True):
        if one != other:
            shown.append(f"{fitted.free.key} = {fitted.free.shown(fitted.free.at(place))}")
    return ", ".join(shown)


def write_network(found: Fit, asked: FitRequest) -> None:
    """The network with the values that were found; what is undetermined stands there as it was reached."""
    assert asked.output is not None
    head = [f"# {asked.network.name} with values of incast fabric fit, from {len(found.points)} measured points:"]
    for each in found.values:
        sure = f"+- {100 * each.deviation:.2g} %" if math.isfinite(each.deviation) else "not told"
        head.append(f"# {each.free.key} = {each.free.shown(each.value)}, {each.verdict}, {sure}")
    replace_file(asked.output, "\n".join(head) + "\n" + found.text)


def as_json(found: Fit) -> dict[str, Any]:
    """For programs; values in base units."""

    def twin(each: Fitted) -> list[dict[str, float]] | None:
        if each.twins is None:
            return None
        return [
            {fitted.free.key: fitted.free.at(place) for fitted, place in zip(found.values, places, strict=True)}
            for places in (each.twins.one, each.twins.other)
        ]

    return {
        "kind": "fabric-fit",
        "values": [
            {
                **asdict(each.free),
                "value": each.value,
                "relative_deviation": each.deviation if math.isfinite(each.deviation) else None,
                "verdict": each.verdict,
                "equal_results": twin(each),
            }
            for each in found.values
        ],
        "figures": [
            {"point": point, "figure": figure, "measured": measured, "simulated": simulated}
            for point, figure, measured, simulated in found.simulated
        ],
        "networks": found.networks,
    }
