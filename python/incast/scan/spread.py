"""How far the repeats of a point lie apart. Those of a simulation differ by their seed alone."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from incast.scan.table import headline


@dataclass(frozen=True)
class Spread:
    """Of the headline figure of the complete repeats of one point; in the unit of its column."""

    point: int
    column: str
    repeats: int
    lowest: float
    median: float
    highest: float

    @property
    def share(self) -> float:
        """From the lowest to the highest, as a share of the median."""
        return (self.highest - self.lowest) / self.median if self.median else 0.0


def spreads(rows: Sequence[Mapping[str, Any]]) -> list[Spread]:
    """In the order of the points; without those that have no complete repeat."""
    by_point: dict[int, list[tuple[str, float]]] = {}
    for row in rows:
        column, value = headline(row)
        if row["status"] == "complete" and value is not None:
            by_point.setdefault(row["point"], []).append((column, value))
    found = []
    for point, readings in sorted(by_point.items()):
        values = [value for _, value in readings]
        found.append(Spread(point, readings[0][0], len(values), min(values), statistics.median(values), max(values)))
    return found


def widest(rows: Sequence[Mapping[str, Any]]) -> Spread | None:
    """The point whose repeats lie furthest apart; None where no point has several."""
    several = [spread for spread in spreads(rows) if spread.repeats > 1]
    return max(several, key=lambda spread: spread.share, default=None)
