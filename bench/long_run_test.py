"""When memory counts as flat, what a dip is, and what is an error of a long run."""

import json
from pathlib import Path
from typing import Any

import pytest
from long_run import Growth, Interval, dips, errors_of, memory_by_node

MB = 1_000_000


def growth(rss: list[int]) -> Growth:
    found = Growth.of(rss)
    assert found is not None
    return found


def test_steady_memory_is_flat_whatever_the_start() -> None:
    assert growth([1 * MB, 2 * MB, 3 * MB, *[30 * MB] * 37]).flat


def test_a_slow_leak_is_not_flat() -> None:
    # 20 kB a sample, as 10 kB/s would be: 2 MB over 100 samples.
    leak = growth([30 * MB + 20_000 * n for n in range(100)])
    assert not leak.flat
    assert leak.highest == 30 * MB + 20_000 * 99


def test_one_high_sample_is_no_growth_but_is_reported() -> None:
    found = growth([*[30 * MB] * 39, 50 * MB])
    assert found.flat
    assert found.highest == 50 * MB


def test_large_processes_may_grow_by_a_share() -> None:
    assert growth([1000 * MB] * 20 + [1004 * MB] * 20).flat
    assert not growth([1000 * MB] * 20 + [1006 * MB] * 20).flat


@pytest.mark.parametrize("samples", [0, 1, 7])
def test_few_samples_say_nothing(samples: int) -> None:
    assert Growth.of([MB] * samples) is None


def test_dips_are_below_half_of_the_median() -> None:
    intervals = [Interval(float(t), goodput, 0.0, 0.0) for t, goodput in enumerate([4.0, 4.0, 1.9, 4.2, 0.5, 2.1])]
    assert [each.t for each in dips(intervals)] == [4.0], "the median is 3.05"


def test_memory_is_that_of_processes(tmp_path: Path) -> None:
    samples = tmp_path / "samples.jsonl"
    lines = [{"node": 0, "rss_bytes": 5}, {"node": 1, "rss_bytes": 0}, {"node": 0, "rss_bytes": 6}]
    samples.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert memory_by_node(samples) == {0: [5, 6]}


GOOD: dict[str, Any] = {
    "incomplete_events": 0,
    "lost_events": 0,
    "verify_errors": 0,
    "status": "complete",
    "nodes": [{"node": 0, "losses": 0}],
}


def test_a_good_run_has_no_errors() -> None:
    assert errors_of(GOOD, [], 0) == []


@pytest.mark.parametrize(
    ("changes", "notices", "status", "named"),
    [
        ({"lost_events": 3}, [], 0, "lost_events is 3"),
        ({"status": "node lost", "reason": "node 2"}, [], 4, "status node lost, exit status 4: node 2"),
        ({"nodes": [{"node": 1, "losses": 2}]}, [], 0, "node 1 was lost 2 times"),
        ({}, ["the disk is full"], 0, "the engine said: the disk is full"),
    ],
)
def test_errors_are_named(changes: dict[str, Any], notices: list[str], status: int, named: str) -> None:
    assert errors_of(GOOD | changes, notices, status) == [named]
