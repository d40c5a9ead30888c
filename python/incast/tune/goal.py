"""What is best: the figure that a goal is judged by, bounds on others, and how much the machine drifted meanwhile."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from incast.base import units
from incast.tune.readings import DEFAULT_NUMBER, LENGTHS, Seen, Tried

GOODPUT, TRIGGER_RATE, LATENCY = GOALS = ("goodput", "trigger-rate", "latency")
GOODPUT_COLUMN, EVENTS_COLUMN, LATENCY_COLUMN = "goodput_without_self_bytes_per_s", "events_per_s", "latency_p99_ns"
_WORDS = {GOODPUT: "most goodput", TRIGGER_RATE: "highest trigger rate", LATENCY: "least latency (p99)"}
# Of the time: what counts as none, since a reading ends somewhere within a packet.
NO_DEAD_TIME = 0.001
_OFFERED = 0.8  # of the rate that was asked for
_TAKEN = 0.99  # of the triggers
_BUILT = 0.97  # of them, within the measured time
_FIRST_RATE = 0.9  # of what can be built
_RATE_STEP = 1.02  # rates closer than this are not told apart
_NEAREST = 3  # references that say how fast the machine is at a time


@dataclass(frozen=True, order=True)
class Score:
    """Larger is better: those within the bounds by their figure, then those beyond one, then those that failed."""

    standing: int  # 2: good; 1: beyond a bound, or dead time; 0: no figures
    value: float

    @property
    def good(self) -> bool:
        """Whether it keeps the bounds."""
        return self.standing == 2


FAILED = Score(0, 0.0)


@dataclass(frozen=True)
class Goal:
    """What to look for. `latency_below_s`, `goodput_above`: bounds, in seconds (99th percentile) and bytes/s.

    `open_loop`: triggers come at a rate that somebody set.
    """

    name: str
    latency_below_s: float | None = None
    goodput_above: float | None = None
    open_loop: bool = False

    @property
    def least(self) -> bool:
        """Whether small figures are good."""
        return self.name == LATENCY

    def shown(self, figure: float) -> str:
        """The figure with its unit."""
        if self.name == LATENCY:
            return units.duration_ns(figure)
        return units.rate(figure) if self.name == GOODPUT else f"{units.frequency(figure)[:-2].strip()}Hz"

    @property
    def unit(self) -> str:
        """Of the figure, as columns of a table end."""
        return {GOODPUT: "bytes_per_s", TRIGGER_RATE: "hz", LATENCY: "ns"}[self.name]

    @property
    def words(self) -> str:
        """For a person."""
        what = _WORDS[self.name]
        bounds = []
        if self.latency_below_s is not None:
            bounds.append(f"latency (p99) below {units.duration_ns(1e9 * self.latency_below_s)}")
        if self.goodput_above is not None:
            bounds.append(f"goodput above {units.rate(self.goodput_above)}")
        return " with ".join([what, " and ".join(bounds)]) if bounds else what

    def figure(self, seen: Seen) -> float | None:
        """By which a reading is judged, as it was measured."""
        if seen.failed:
            return None
        column = {GOODPUT: GOODPUT_COLUMN, TRIGGER_RATE: EVENTS_COLUMN, LATENCY: LATENCY_COLUMN}[self.name]
        if self.name == TRIGGER_RATE and seen.wanted.rate_hz is not None:
            return seen.wanted.rate_hz
        return seen.number_of(column) or None  # nothing was built

    def violation(self, seen: Seen) -> float:
        """How far a reading is beyond its bounds, as a share of these; 0: within."""
        beyond = 0.0
        latency, goodput = seen.number_of(LATENCY_COLUMN) or None, seen.number_of(GOODPUT_COLUMN)
        # As fast as they are built is no rate at which a latency counts.
        probing = self.name == TRIGGER_RATE and seen.wanted.rate_hz is None
        if self.latency_below_s is not None and not probing:
            # Without an event there is no latency.
            beyond = max(beyond, 1.0 if latency is None else latency / (1e9 * self.latency_below_s) - 1)
        if self.goodput_above is not None:
            beyond = max(beyond, 1.0 if goodput is None else 1 - goodput / self.goodput_above)
        return max(beyond, self.dead(seen))

    def dead(self, seen: Seen) -> float:
        """The same of triggers that must be taken: without a rate there are none, and for goodput they need not be."""
        must = seen.wanted.rate_hz is not None or (self.open_loop and self.name == LATENCY)
        return dead(seen) if must else 0.0

    def score(self, seen: Seen, factor: float = 1.0) -> Score:
        """`factor`: how much more than usual the machine gave then."""
        figure = self.figure(seen)
        if figure is None:
            return FAILED
        if (beyond := self.violation(seen)) > 0:
            return Score(1, -beyond)
        return Score(2, -figure * factor if self.least else figure / factor)

    def next_rate(self, point: Tried) -> float | None:
        """Triggers to offer in the next long reading of a point: between what it took and what it did not."""
        if self.name != TRIGGER_RATE:
            return None
        taken, refused = self.rates(point)
        if refused is None:
            return None  # not even as fast as it builds is known
        if taken is None:
            tries = sum(each.wanted.rate_hz is not None for each in point.readings)
            return refused * _FIRST_RATE ** (1 if tries == 0 else 2)
        return (taken * refused) ** 0.5 if refused > _RATE_STEP * taken else taken

    def rates(self, point: Tried) -> tuple[float | None, float | None]:
        """The highest rate that it took, and the lowest above it that it did not (or what it builds at most)."""
        offered = [(each.wanted.rate_hz, each) for each in point.readings if each.wanted.rate_hz is not None]
        bad = [rate for rate, each in offered if not self.score(each).good]
        good = [rate for rate, each in offered if self.score(each).good and all(rate < other for other in bad)]
        built = [
            figure
            for each in point.readings
            if each.wanted.rate_hz is None and (figure := each.number_of(EVENTS_COLUMN)) is not None
        ]
        tops = bad or built[-1:]
        return max(good, default=None), min(tops, default=None)


def dead(seen: Seen) -> float:
    """In open loop: share of the time without room for triggers, or of those not taken or not built; 0: none."""
    offered, accepted = seen.number_of("offered_hz"), seen.number_of("accepted_hz")
    asked = seen.wanted.rate_hz
    if asked is not None and (offered or 0.0) < _OFFERED * asked:
        return 1 - (offered or 0.0) / asked  # it ended before triggers came
    if not offered or accepted is None:
        return 0.0
    share = seen.number_of("dead_time_fraction") or 0.0
    # Events are taken by the packet: that of the end is always on the way.
    packet = (seen.number_of("packing_events") or 1.0) / (seen.number_of("window_s") or 1.0)
    not_taken = _beyond(offered, accepted, _TAKEN, 2 * packet)
    # A short reading ends before the memory of readout units is full: what is not built shows first.
    built = seen.number_of(EVENTS_COLUMN)
    not_built = 0.0 if built is None else _beyond(offered, built, _BUILT, 4 * packet)
    return max(share if share > NO_DEAD_TIME else 0.0, not_taken, not_built)


def _beyond(offered: float, done: float, wanted: float, tolerance: float) -> float:
    """The share of what was offered that was not done, if that is more than may be."""
    missed = offered - done
    return missed / offered if missed > max((1 - wanted) * offered, tolerance) else 0.0


class Drift:
    """How fast the machine was when, by readings of the point with the defaults. Virtual time has none."""

    def __init__(self, goal: Goal, points: Sequence[Tried]) -> None:
        self._at: list[tuple[float, float]] = []
        reference = next((point for point in points if point.number == DEFAULT_NUMBER), None)
        for length in LENGTHS if reference is not None else ():
            assert reference is not None
            found = [
                (seen.spent_s, figure)
                for seen in reference.of_length(length)
                if seen.figures.get("time_domain") == "real"
                and seen.wanted.rate_hz is None
                and (figure := goal.figure(seen))
            ]
            if found:
                usual = statistics.median(figure for _, figure in found)
                self._at += [(at, (usual / figure) if goal.least else (figure / usual)) for at, figure in found]

    def factor(self, at_s: float) -> float:
        """What the machine gave then over what it usually gave: the median of the references nearest in time."""
        if len(self._at) < _NEAREST:
            return 1.0
        nearest = sorted(self._at, key=lambda each: abs(each[0] - at_s))[:_NEAREST]
        return statistics.median(factor for _, factor in nearest)

    @property
    def span(self) -> float:
        """Fastest over slowest; 1: nothing is known of any drift."""
        factors = [self.factor(at) for at, _ in self._at]
        return max(factors) / min(factors) if factors else 1.0

    @property
    def references(self) -> int:
        """How many readings say so."""
        return len(self._at)


class Judge:
    """Scores of points, with the drift taken out."""

    def __init__(self, goal: Goal, points: Sequence[Tried]) -> None:
        self.goal = goal
        self.drift = Drift(goal, points)
        self._known: dict[tuple[int, float], Score | None] = {}

    def score(self, seen: Seen) -> Score:
        """Of one reading."""
        return self.goal.score(seen, self.drift.factor(seen.spent_s))

    def at_length(self, point: Tried, length: float) -> Score | None:
        """Of a point by its readings of that length; None: it has none."""
        key = point.number, length
        if key not in self._known:
            self._known[key] = self._at_length(point, length)
        return self._known[key]

    def _at_length(self, point: Tried, length: float) -> Score | None:
        found = point.of_length(length)
        if not found:
            return None
        if self.goal.name == TRIGGER_RATE and any(each.wanted.rate_hz is not None for each in found):
            taken, refused = self.goal.rates(point)
            return Score(2, taken) if taken is not None else Score(1, refused or 0.0)
        scores = sorted(map(self.score, found))
        worst = scores[0]
        if worst.standing < 2:  # once beyond a bound is beyond it
            return worst
        return Score(2, statistics.median(each.value for each in scores))

    def standing(self, point: Tried) -> tuple[float, Score]:
        """How long it was measured at most, and its score there: longer readings say more."""
        length = point.longest
        score = self.at_length(point, length) if length else None
        return length, score or FAILED

    def best_first(self, points: Sequence[Tried]) -> list[Tried]:
        """The good ones, those that were measured longest first; behind them the others, the nearest to good first."""

        def order(point: Tried) -> tuple[float, Score]:
            length, score = self.standing(point)
            return length if score.good else 0.0, score

        return sorted(points, key=order, reverse=True)
