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


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (0.01234, "0.0123"),
        (0.9999, "1.00"),
        (1.5, "1.50"),
        (12.34, "12.3"),
        (1234.5, "1230"),
        (-2.5, "-2.50"),
    ],
)
def test_plain_has_three_digits_and_no_unit(value: float, words: str) -> None:
    assert units.plain(value) == words


def test_rounds_are_their_median_and_their_range() -> None:
    assert units.of_rounds([3e9, 1e9, 2e9], 1e9) == "2.00 (1.00..3.00)"
    assert units.of_rounds([5.0]) == "5.00"
    assert units.of_rounds([]) == "-"


def test_count_sets_thousands_apart() -> None:
    assert units.count(1234567) == "1 234 567"


def test_sparkline_spans_zero_to_the_highest_of_the_last_values() -> None:
    assert units.sparkline([1000, 0, 4, 8], width=3) == "▁▅█"
    assert units.sparkline([0, 0], width=5) == "▁▁"
    assert units.sparkline([], width=5) == ""
