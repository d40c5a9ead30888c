"""What was measured so far, as the search sees it: points, and their readings in the order in which they were taken."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from incast.scan.runner import COMPLETE
from incast.scan.table import Row
from incast.tune.space import Axes

# Shares of the whole measured time: what looks good is measured again, for longer each time.
LENGTHS = (0.25, 0.5, 1.0)
WHOLE = LENGTHS[-1]
TUNING = "tuning"  # in a row of the journal: what the search knows of that reading
DEFAULT_NUMBER = 1

# Why a reading is taken.
REFERENCE, EXPLORE, LONGER, AROUND, CONFIRM = "reference", "explore", "longer", "around", "confirm"


@dataclass(frozen=True)
class Wanted:
    """A reading that is to be taken. `rate_hz`: triggers that are offered in it; None: as the settings say."""

    axes: Axes
    length: float
    purpose: str
    rate_hz: float | None = None


@dataclass(frozen=True)
class Seen:
    """A reading that was taken. `figures` is its row of the table, `spent_s` the time of the tuning when it ended."""

    wanted: Wanted
    number: int  # of its point
    figures: Mapping[str, Any]
    spent_s: float
    budget_s: float

    @property
    def failed(self) -> bool:
        """Whether it gave no figures."""
        return self.figures.get("status") != COMPLETE

    def number_of(self, column: str) -> float | None:
        """A figure of it."""
        value = self.figures.get(column)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass
class Tried:
    """A point with all its readings, in order."""

    number: int
    axes: Axes
    readings: list[Seen] = field(default_factory=list)

    def of_length(self, length: float) -> list[Seen]:
        """Those that were as long."""
        return [each for each in self.readings if each.wanted.length == length]

    @property
    def longest(self) -> float:
        """Of its readings."""
        return max((each.wanted.length for each in self.readings), default=0.0)

    @property
    def failed(self) -> bool:
        """Whether its last reading gave no figures: it is not tried again."""
        return bool(self.readings) and self.readings[-1].failed


def seen_of(row: Row) -> Seen:
    """Of a line of the journal."""
    kept = row[TUNING]
    wanted = Wanted(kept["axes"], kept["length"], kept["purpose"], kept["rate_hz"])
    return Seen(wanted, row["point"], row, kept["spent_s"], kept["budget_s"])


def in_order(rows: Iterable[Row]) -> list[Seen]:
    """All readings of a journal, in the order in which they were taken."""
    return [seen_of(row) for row in sorted(rows, key=lambda row: int(row[TUNING]["order"]))]


def by_point(readings: Sequence[Seen]) -> list[Tried]:
    """The points, by number."""
    found: dict[int, Tried] = {}
    for seen in readings:
        found.setdefault(seen.number, Tried(seen.number, seen.wanted.axes)).readings.append(seen)
    return [found[number] for number in sorted(found)]
