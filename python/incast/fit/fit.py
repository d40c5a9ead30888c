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
from incast.fit.solve import (
    BudgetSpentError,
    Places,
    Search,
    Solution,
    deviations,
    least_squares,
    sum_of_squares,
)
from incast.fit.twins import Far, Twins, known_twin, look_along, made_up_for

_TOLD = 0.05  # a value is found if two standard deviations are less
_ENOUGH = 0.25  # of --noise: where no figure is further off, nothing better is looked for
_SAID_EVERY_S = 5.0
FOUND, LOOSE, UNDETERMINED, OPEN = "found", "loose", "undetermined", "open"
SEARCH, VERDICTS = "search", "verdicts"


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
    budget: int  # networks to simulate at most
    keep: Path | None  # a file of the networks that were simulated
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
    networks: int  # that the search looked at
    new: int  # of them simulated now; the others were kept
    ended: str | None  # what the budget ended: SEARCH, or VERDICTS on values that are open now
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
            screen.print(f"{networks} networks of {asked.budget} at most, {len(points)} points each", highlight=False)

    with tempfile.TemporaryDirectory(prefix="incast-fit-") as folder:
        simulate = Simulator(
            text,
            free,
            points,
            (asked.duration, asked.warm_up),
            jobs=asked.jobs or usable_cores(),
            folder=Path(folder),
            budget=asked.budget,
            keep=asked.keep,
            told=told,
        )
        search = Search(simulate, lambda index, place: free[index].grain(place), _ENOUGH * asked.noise)
        ended = None
        try:
            solution = least_squares(search, tuple(each.place_of(each.present) for each in free), asked.seed)
        except BudgetSpentError:
            solution, ended = _best_known(simulate), SEARCH
        values = _judged(simulate, search, solution, asked.noise)
        if ended is None and any(each.verdict == OPEN for each in values):
            ended = VERDICTS
        seen = simulate.observed(solution.places)
        compared = [
            (point.name, each.name, each.value, simulated_value)
            for point, observed in zip(points, seen, strict=True)
            for each in point.observed
            for simulated_value in [next((one.value for one in observed if one.name == each.name), math.nan)]
        ]
        assert len(compared) == figures
        text = simulate.network(solution.places)
        return Fit(values, points, compared, simulate.networks, simulate.simulated, ended, text)


def _best_known(simulate: Simulator) -> Solution:
    known = list(simulate.known())
    if not known:
        raise OneLineError("--budget: too small for the places where the search begins", EXIT_BAD_CONFIG)
    places, residuals = min(known, key=lambda one: sum_of_squares(one[1]))
    return Solution(places, residuals, [])


def _judged(simulate: Simulator, search: Search, solution: Solution, noise: float) -> list[Fitted]:
    """Values without slopes, and those that the budget does not reach, stay open unless a twin is known anyway."""
    spread = deviations(solution, noise) if solution.slopes else [math.inf] * len(solution.places)
    judged = []
    for index, (free, place, deviation) in enumerate(zip(simulate.free, solution.places, spread, strict=True)):
        value, relative = free.at(place), free.relative(place, deviation)

        def far(here: float, there: float, free: Free = free) -> bool:
            return abs(free.at(here) - free.at(there)) > _TOLD * max(free.at(here), free.at(there))

        def known(unknown: int = index, far: Far = far) -> Twins | None:
            return known_twin(simulate.known(), solution, unknown, far, noise)

        verdict, twins = FOUND, known()
        if 2 * relative > _TOLD:
            verdict = LOOSE
            try:
                if not solution.slopes:
                    raise BudgetSpentError
                look_along(search, solution, index, far)
                twins = known() or made_up_for(search, solution, index, far, noise)
            except BudgetSpentError:
                verdict = OPEN
        judged.append(Fitted(free, value, relative, verdict if twins is None else UNDETERMINED, twins))
    return judged


def lines(found: Fit) -> Iterator[str]:
    """For a person, within 80 columns where the names allow it."""
    virtual = sum(point.virtual for point in found.points)
    domain = f", {virtual} of them in {VIRTUAL_TIME}" if virtual else ""
    kept = f", {found.networks - found.new} of them before" if found.new < found.networks else ""
    yield f"{len(found.points)} measured points{domain}; {found.networks} networks simulated{kept}"
    if found.ended == SEARCH:
        yield "the budget ended the search: these values are the best so far"
    elif found.ended == VERDICTS:
        yield "the budget ended before it was known what the figures tell of the open values"
    if found.ended is not None:
        yield "with a larger --budget it goes on, and with the same --keep FILE from there"
    yield ""
    for each in found.values:
        free = each.free
        if each.twins is None:
            sure = f" +- {100 * each.deviation:.2g} %" if math.isfinite(each.deviation) else ", how well is not known"
            words = f"{free.shown(each.value)}{sure}" + (f" ({each.verdict})" if each.verdict != FOUND else "")
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
        "networks_simulated_now": found.new,
        "ended_by_budget": found.ended,
    }
