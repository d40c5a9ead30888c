"""Quantities as configurations write them (`64KiB`, `500ms`, `40kHz`, `100Gbps`), as numbers.

What a setting allows is for the engine to say. The units are the engine's, too (src/base/units.cpp): they come with the
schema, and tests/quantities.txt holds texts that both read alike.
"""

import functools
import math
import re
from collections.abc import Sequence

from incast.engine.settings import schema

Scalar = bool | int | float | str

# By kind of quantity: the unit of the number.
_BASE_UNITS = {"bytes": "bytes", "duration": "s", "frequency": "hz", "rate": "bytes_per_s"}
_QUANTITY = re.compile(r" *((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?) *([A-Za-z/]*) *")


@functools.cache
def _units() -> dict[str, tuple[str, float]]:
    """Each suffix, with the unit of the number and its factor; a bare number has none."""
    found: dict[str, tuple[str, float]] = {"": ("", 1.0)}
    for kind, unit in _BASE_UNITS.items():
        for suffix, factor in schema()["x-units"][kind].items():
            if suffix:
                found[suffix] = unit, float(factor)
    return found


def quantity(value: Scalar | None) -> tuple[float, str] | None:
    """The number and its unit: bytes, s, hz, bytes_per_s, or an empty unit; None where the value is no number."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value), ""
    matched = _QUANTITY.fullmatch(value)
    if matched is None or matched[2] not in _units():
        return None
    unit, factor = _units()[matched[2]]
    number = float(matched[1]) * factor
    return (number, unit) if math.isfinite(number) else None


def parse(kind: str, text: str) -> float | None:
    """The number in the base unit of that kind (bytes, duration, frequency, rate), as the engine reads it; or None."""
    found = quantity(text)
    return found[0] if found is not None and found[1] in ("", _BASE_UNITS[kind]) else None


def common_unit(values: Sequence[Scalar | None]) -> str | None:
    """The unit of all values, where bare numbers go with any; None if some value is no number or units differ."""
    units: set[str] = set()
    for value in values:
        if value is None:
            continue
        found = quantity(value)
        if found is None:
            return None
        units.add(found[1])
    units.discard("")
    return units.pop() if len(units) == 1 else ("" if not units else None)


def number_of(value: Scalar | None) -> float | None:
    """The number alone, in its base unit."""
    found = quantity(value)
    return None if found is None else found[0]


def setting_text(value: Scalar) -> str:
    """As the engine's `--set` reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
