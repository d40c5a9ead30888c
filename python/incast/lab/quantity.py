"""Quantities as configurations write them (`64KiB`, `500ms`, `40kHz`, `100Gb/s`), as numbers for tables and axes.

The engine alone decides what a setting means and allows (src/base/units.cpp); here numbers are only drawn and sorted.
"""

import re
from collections.abc import Sequence

Scalar = bool | int | float | str

_KIBI = 1024.0
# By unit of the number: the factor of each suffix.
_SUFFIXES: dict[str, dict[str, float]] = {
    "bytes": {
        "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
        "KiB": _KIBI, "MiB": _KIBI**2, "GiB": _KIBI**3, "TiB": _KIBI**4,
    },
    "s": {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12, "min": 60, "h": 3600},
    "hz": {"Hz": 1, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9},
    "bytes_per_s": {
        "B/s": 1, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12,
        "Mb/s": 1e6 / 8, "Gb/s": 1e9 / 8, "Tb/s": 1e12 / 8, "Mbit/s": 1e6 / 8, "Gbit/s": 1e9 / 8,
    },
}  # fmt: skip
_UNITS = {suffix: (unit, factor) for unit, suffixes in _SUFFIXES.items() for suffix, factor in suffixes.items()}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*([A-Za-z/]*)\s*")


def quantity(value: Scalar | None) -> tuple[float, str] | None:
    """The number and its unit: bytes, s, hz, bytes_per_s, or an empty unit; None where the value is no number."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value), ""
    matched = _QUANTITY.fullmatch(value)
    if matched is None:
        return None
    number, suffix = float(matched[1]), matched[2]
    if not suffix:
        return number, ""
    if suffix not in _UNITS:
        return None
    unit, factor = _UNITS[suffix]
    return number * factor, unit


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
