"""Free values of a network's file: which, between what bounds, and how each is written into the file."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.engine.fabric_sources import parameters
from incast.engine.quantity import quantity

_MARK = "free"
_LOG_SPAN = 20  # bounds further apart than this factor are searched by factors, not by differences
# By unit: the suffix it is written with, and how many of those are one base unit (bytes, s, bytes per s).
_WRITTEN = {"bytes": ("B", 1.0), "s": ("ps", 1e12), "bytes_per_s": ("Mb/s", 8e-6)}


@dataclass(frozen=True)
class Free:
    """A value that is sought, in base units (bytes, s, bytes per s, or a number)."""

    key: str  # hosts.nic.message_cost
    unit: str  # "" of a number
    whole: bool  # a whole number
    low: float
    high: float
    present: float  # as the file has it

    @property
    def by_factors(self) -> bool:
        """Whether it is searched on a logarithmic scale."""
        return self.low > 0 and self.high / self.low > _LOG_SPAN

    def at(self, place: float) -> float:
        """The value at 0 (low) to 1 (high)."""
        if self.by_factors:
            value = self.low * math.exp(place * math.log(self.high / self.low))
        else:
            value = self.low + place * (self.high - self.low)
        return float(round(value)) if self.whole else value

    def relative(self, place: float, step: float) -> float:
        """How much a small step from there changes the value, as a share of it."""
        if self.by_factors:
            return step * math.log(self.high / self.low)
        value = self.low + place * (self.high - self.low)
        return step * (self.high - self.low) / value if value > 0 else math.inf

    def grain(self, place: float) -> float:
        """The least step from there that changes the value: of a whole number, to the next."""
        if not self.whole:
            return 0.0
        if self.by_factors:
            return math.log1p(1 / self.at(place)) / math.log(self.high / self.low)
        return 1 / (self.high - self.low)

    def place_of(self, value: float) -> float:
        """Where it lies, kept within the bounds."""
        value = min(self.high, max(self.low, value))
        if self.by_factors:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def written(self, value: float) -> Any:
        """As the file has it."""
        if not self.unit:
            return round(value) if self.whole else value
        suffix, factor = _WRITTEN[self.unit]
        number = value * factor
        return f"{number:.3f}{suffix}" if suffix == "Mb/s" else f"{round(number)}{suffix}"

    def shown(self, value: float) -> str:
        """For a person."""
        if not self.unit:
            return f"{round(value)}" if self.whole else f"{value:.4g}"
        units = {
            "s": (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)),
            "bytes_per_s": (("Tb/s", 125e9), ("Gb/s", 125e6), ("Mb/s", 125e3)),
            "bytes": (("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0)),
        }[self.unit]
        name, size = next((one for one in units if value >= one[1]), units[-1])
        return f"{value / size:.4g} {name}"


def _in_file(content: Mapping[str, Any], key: str) -> Any:
    value: Any = content
    for word in key.split("."):
        value = value.get(word) if isinstance(value, Mapping) else None
    return value


def _number(key: str, value: Any) -> tuple[float, str]:
    found = quantity(value) if isinstance(value, int | float | str) else None
    if found is None:
        raise OneLineError(f"--free {key}: the file has {value!r} there; allowed: a number, size, time or rate", 2)
    return found


def make_free(content: Mapping[str, Any], words: str) -> Free:
    """`KEY` or `KEY=LOW..HIGH`; without bounds from a quarter to four times the file's value."""
    key, bounded, bounds = (word.strip() for word in words.partition("="))
    value = _in_file(content, key)
    if value is None and not bounded:
        raise OneLineError(f"--free {key}: the file has no such key; allowed: one that it has, or {key}=LOW..HIGH", 2)
    if not bounded:
        present, unit = _number(key, value)
        low, high = present / 4, present * 4
    else:
        ends = bounds.split("..")
        found = [quantity(end) for end in ends]
        if len(found) != 2 or found[0] is None or found[1] is None:
            raise OneLineError(f"--free {key}={bounds}: allowed: LOW..HIGH, such as 100ns..5us", EXIT_BAD_CONFIG)
        (low, low_unit), (high, high_unit) = found[0], found[1]
        unit = high_unit or low_unit
        if low_unit not in ("", unit):
            raise OneLineError(f"--free {key}={bounds}: two kinds of units", EXIT_BAD_CONFIG)
        present = math.sqrt(low * high) if low > 0 else high / 2
        if value is not None:
            present, own = _number(key, value)
            if own != unit:
                raise OneLineError(f"--free {key}={bounds}: the file has {value!r} there, of another kind", 2)
    if not 0 <= low < high:
        raise OneLineError(f"--free {words}: allowed: bounds from 0 on, the lower first", EXIT_BAD_CONFIG)
    whole = not unit and all(float(number).is_integer() for number in (low, high, present))
    return Free(key, unit, whole, low, high, min(high, max(low, present)))


def free_values(text: str, asked: Sequence[str]) -> list[Free]:
    """Those that are asked for; where none is, those that the file marks: `latency = "1us"  # free 100ns..5us`."""
    content = tomllib.loads(text)
    words = list(asked)
    if not words:
        for each in parameters(text):
            mark, _, bounds = each.source.partition(" ")
            if mark.rstrip(":,") == _MARK:
                words.append(f"{each.key}={bounds.split()[0]}" if ".." in bounds.split(" ")[0] else each.key)
    found = [make_free(content, each) for each in words]
    if not found:
        raise OneLineError(
            'no free value; allowed: --free KEY=LOW..HIGH, or "# free LOW..HIGH" behind it in the file', 2
        )
    keys = [each.key for each in found]
    if len(set(keys)) < len(keys):
        raise OneLineError(f"--free {next(key for key in keys if keys.count(key) > 1)}: twice", EXIT_BAD_CONFIG)
    return found
