"""Numbers as people read them."""

import pytest
from incast.base import units


@pytest.mark.parametrize(
    ("bytes_per_s", "words"),
    [
        (0, "0 B/s"),
        (999, "999 B/s"),
        (999.6, "1.00 kB/s"),
        (1e3, "1.00 kB/s"),
        (12_340, "12.3 kB/s"),
        (99_960, "100 kB/s"),
        (3.214e9, "3.21 GB/s"),
        (5e15, "5000 TB/s"),
        (None, "-"),
    ],
)
def test_rate_has_three_digits_and_a_unit(bytes_per_s: float | None, words: str) -> None:
    assert units.rate(bytes_per_s) == words


def test_line_rate_is_in_bits() -> None:
    assert units.line_rate(12.5e9) == "100 Gbit/s"


@pytest.mark.parametrize(
    ("nanoseconds", "words"), [(812, "812 ns"), (12_300, "12.3 µs"), (4_500_000, "4.50 ms"), (1.2e9, "1.20 s")]
)
def test_duration(nanoseconds: float, words: str) -> None:
    assert units.duration_ns(nanoseconds) == words


def test_count_sets_thousands_apart() -> None:
    assert units.count(1234567) == "1 234 567"


def test_sparkline_spans_zero_to_the_highest_of_the_last_values() -> None:
    assert units.sparkline([1000, 0, 4, 8], width=3) == "▁▅█"
    assert units.sparkline([0, 0], width=5) == "▁▁"
    assert units.sparkline([], width=5) == ""
