"""Numbers as people read them: rates, counts and times, in decimal units."""

import math
import statistics
from collections.abc import Sequence

ABSENT = "-"
VIRTUAL_TIME = "VIRTUAL TIME"  # stands beside what a simulation gives
_BARS = "▁▂▃▄▅▆▇█"


def _scaled(value: float, units: Sequence[str], step: float = 1000.0) -> str:
    """Three significant digits in the largest unit that keeps the figure at 1 or above."""
    magnitude = abs(value)
    index = 0
    # 999.5 and above would print as 1000 of the smaller unit.
    while index + 1 < len(units) and magnitude >= 999.5:
        magnitude /= step
        index += 1
    if index == 0 and magnitude == int(magnitude):
        digits = 0
    else:
        digits = 0 if magnitude >= 99.95 else 1 if magnitude >= 9.995 else 2
    return f"{math.copysign(magnitude, value):.{digits}f}{units[index]}"


def plain(value: float) -> str:
    """Three significant digits without a unit: `0.0123`, `1234`."""
    value = float(f"{value:.2e}")  # so that 0.9999 has no digit more than 1
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(digits, 0)}f}"


def of_rounds(values: Sequence[float], factor: float = 1.0) -> str:
    """The median of the values over the factor, with the lowest and the highest: `1.23 (1.20..1.31)`."""
    if not values:
        return ABSENT
    low, middle, high = (plain(of(values) / factor) for of in (min, statistics.median, max))
    return middle if len(values) == 1 else f"{middle} ({low}..{high})"


def rate(bytes_per_s: float | None) -> str:
    """Bytes per second, as `3.21 GB/s`."""
    if bytes_per_s is None:
        return ABSENT
    return _scaled(bytes_per_s, (" B/s", " kB/s", " MB/s", " GB/s", " TB/s"))


def common_rate(bytes_per_s: Sequence[float]) -> tuple[float, str]:
    """One unit for all of them: what to divide by, and its name; the largest is 1 or above."""
    most = max(bytes_per_s, default=0.0)
    scales = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))
    return next(((factor, name) for factor, name in scales if most >= factor), (1.0, "B/s"))


def line_rate(bytes_per_s: float | None) -> str:
    """The same rate in bits, as networks are sold: `25.7 Gbit/s`."""
    if bytes_per_s is None:
        return ABSENT
    return _scaled(bytes_per_s * 8, (" bit/s", " kbit/s", " Mbit/s", " Gbit/s", " Tbit/s"))


def size(n_bytes: float | None) -> str:
    """A number of bytes, as `1.05 MB`."""
    if n_bytes is None:
        return ABSENT
    return _scaled(n_bytes, (" B", " kB", " MB", " GB", " TB"))


def frequency(per_s: float | None) -> str:
    """Events per second, as `1.20 M/s`."""
    if per_s is None:
        return ABSENT
    return _scaled(per_s, ("/s", " k/s", " M/s", " G/s"))


def count(value: float | None) -> str:
    """A whole number with its thousands apart: `1 234 567`."""
    return ABSENT if value is None else f"{int(value):,}".replace(",", " ")


def duration_ns(nanoseconds: float | None) -> str:
    """Nanoseconds, as `12.3 µs`."""
    if nanoseconds is None:
        return ABSENT
    return _scaled(nanoseconds, (" ns", " µs", " ms", " s"))


def time_left(seconds: float) -> str:
    """`1 h 5 min left`, to two units."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min left"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60} s left"
    return f"{whole} s left"


def fraction(value: float | None) -> str:
    """A fraction of one, as `12.5 %`."""
    return ABSENT if value is None else f"{100 * value:.3g} %"


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` values as bars from zero to the highest of them."""
    shown = values[-width:] if width > 0 else []
    top = max(shown, default=0.0)
    if top <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(len(_BARS) - 1, max(0, int(value / top * len(_BARS))))] for value in shown)
