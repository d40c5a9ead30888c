"""The statistics of the comparisons, the accounting, and which pairs count. Nothing here measures speed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import (
    CORES,
    GIGABYTES,
    MEMORY,
    MESSAGES,
    Entrant,
    IdleRule,
    Machine,
    Outcome,
    Process,
    Reading,
    Snapshot,
    Spread,
    Watch,
    Window,
    compare,
    judged_cache_bytes,
    read_processes,
    summary_lines,
    tree_cpu,
)

MIB = 1 << 20


def window(*, seconds: float = 1.0, cpu: float = 1.0, others: float = 0.0, steal: float = 0.0) -> Window:
    return Window(seconds=seconds, cpu=cpu, others=others, irq=0.0, steal=steal)


class Script:
    """An entrant that has a reading for each call, and notes in `calls` that it was called."""

    def __init__(self, name: str, rates: list[float], windows: list[Window] | None = None) -> None:
        self.name, self.calls = name, list[str]()
        self._rates: Iterator[float] = iter(rates)
        self._windows: Iterator[Window] = iter(windows or [window()] * len(rates))

    def entrant(self, calls: list[str]) -> Entrant:
        def run() -> Reading:
            calls.append(self.name)
            return Reading(next(self._rates), next(self._windows))

        return Entrant(self.name, run)


def run_comparison(scripts: list[Script], calls: list[str] | None = None, **options: Any) -> tuple[Outcome, list[str]]:
    calls = [] if calls is None else calls
    defaults: dict[str, Any] = {
        "unit": GIGABYTES,
        "pairs": 3,
        "rule": IdleRule(),
        "allow_busy": False,
        "max_discards": 3,
        "cores": 2,
        "say": lambda _line: None,
    }
    outcome = compare("a title", [script.entrant(calls) for script in scripts], **(defaults | options))
    return outcome, calls


def test_machine_time_is_read_in_seconds_and_without_guest_time() -> None:
    text = "cpu  1000 200 300 9999 77 10 20 40 500 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"
    machine = Machine.parse(text)
    assert (machine.busy, machine.irq, machine.steal) == pytest.approx((15.0, 0.3, 0.4))


def test_a_process_is_read_whatever_its_name() -> None:
    head = "42 (a) name (with) 7) S 17 42 42 0 -1 4194560 1 2 3 4 "
    process = Process.parse(head + "100 50 25 5 20 0 1 0 12345 1000000 300")
    assert process.parent == 17
    assert process.cpu == pytest.approx(1.8)


def test_a_tree_is_everything_below_its_roots_each_once() -> None:
    processes = {
        1: Process(0, 100.0),
        10: Process(1, 1.0),
        11: Process(10, 2.0),
        12: Process(11, 4.0),
        20: Process(1, 8.0),
        30: Process(1, 16.0),
    }
    assert tree_cpu(processes, [10]) == 7.0
    assert tree_cpu(processes, [10, 12, 20]) == 15.0, "a root below another root counts once"
    assert tree_cpu(processes, [999]) == 0.0, "a root that has ended"


def test_this_process_is_among_those_that_are_read() -> None:
    pid = int(Path("/proc/self/stat").read_text(encoding="ascii").split()[0])
    processes = read_processes()
    assert pid in processes
    assert tree_cpu(processes, [pid]) >= processes[pid].cpu


def test_others_are_the_machine_less_program_and_harness() -> None:
    first = Snapshot(at=5.0, machine=Machine(100.0, 1.0, 2.0), program=10.0, harness=1.0)
    second = Snapshot(at=7.0, machine=Machine(104.0, 1.5, 2.25), program=13.0, harness=1.25)
    got = Window.between(first, second)
    assert (got.seconds, got.cpu, got.others, got.irq, got.steal) == pytest.approx((2.0, 3.0, 0.75, 0.5, 0.25))
    ticks_behind = Snapshot(at=7.0, machine=Machine(102.9, 1.5, 2.25), program=13.0, harness=1.0)
    assert Window.between(first, ticks_behind).others == 0.0


def test_cpu_per_amount_is_cpu_rate_by_rate() -> None:
    reading = Reading(4e9, window(seconds=2.0, cpu=3.0))
    assert reading.cpu_per(GIGABYTES) == pytest.approx(0.375)
    assert reading.cpu_per(MESSAGES) == pytest.approx(0.000375)


def test_less_cpu_time_for_the_same_is_a_ratio_below_one() -> None:
    outcome, _calls = run_comparison(
        [Script("A", [2.0] * 3, [window(cpu=1.0)] * 3), Script("B", [1.0] * 3, [window(cpu=1.0)] * 3)]
    )
    assert outcome.cpu_ratios("B").median == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("others", "steal", "named"),
    [(0.19, 0.07, None), (0.21, 0.0, "others"), (0.0, 0.09, "steal")],
)
def test_the_rule_is_about_shares_of_all_cores(others: float, steal: float, named: str | None) -> None:
    reason = IdleRule(others=0.05, steal=0.02).broken_by(window(seconds=2.0, others=others, steal=steal), cores=2)
    assert (reason is None) if named is None else (reason is not None and reason.startswith(named))


def test_which_goes_first_alternates() -> None:
    _outcome, calls = run_comparison([Script("A", [1.0] * 3), Script("B", [1.0] * 3), Script("C", [1.0] * 3)])
    assert calls == ["A", "B", "C", "C", "B", "A", "A", "B", "C"]


def test_each_run_has_a_rest_before_it() -> None:
    calls: list[str] = []
    run_comparison([Script("A", [1.0] * 2), Script("B", [1.0] * 2)], calls, pairs=2, rest=lambda: calls.append("rest"))
    assert calls == ["rest", "A", "rest", "B", "rest", "B", "rest", "A"]


def test_the_median_is_that_of_ratios_within_pairs() -> None:
    # The machine is twice as fast in the second pair: a ratio of medians would say 1.5.
    outcome, _calls = run_comparison([Script("A", [3.0, 8.0, 3.3]), Script("B", [2.0, 4.0, 3.0])])
    ratio = outcome.rate_ratios("B")
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((1.5, 1.1, 2.0))
    assert outcome.complete
    assert outcome.idle


def test_an_even_number_of_pairs_has_a_median_too() -> None:
    assert Spread.of([4.0, 1.0, 2.0, 10.0]) == Spread(3.0, 1.0, 10.0)


def test_a_busy_pair_is_discarded_and_repeated_in_the_same_order() -> None:
    busy = window(others=1.0)
    outcome, calls = run_comparison(
        [Script("A", [1.0, 9.0, 2.0, 3.0]), Script("B", [1.0] * 4, [window(), busy, window(), window()])]
    )
    assert calls == ["A", "B", "B", "A", "B", "A", "A", "B"]
    assert [pair.busy is None for pair in outcome.pairs] == [True, False, True, True]
    assert outcome.rate_ratios("B") == Spread(2.0, 1.0, 3.0), "9 does not count"
    assert outcome.complete
    assert outcome.pairs[1].busy == "B: others took 50.0% of the CPU time, more than 5%"


def test_a_run_that_was_tried_and_disturbed_discards_the_pair() -> None:
    reading = Reading(1.0, window(), tried=(window(others=1.0),))
    entrants = [Entrant("A", lambda: reading), Entrant("B", lambda: Reading(1.0, window()))]
    outcome = compare(
        "a title",
        entrants,
        unit=GIGABYTES,
        pairs=1,
        rule=IdleRule(),
        allow_busy=False,
        max_discards=0,
        cores=2,
        say=lambda _line: None,
    )
    assert outcome.pairs[0].busy is not None


def test_repeating_is_bounded_and_the_shortage_is_said() -> None:
    stolen = window(steal=1.0)
    outcome, _calls = run_comparison(
        [Script("A", [1.0] * 9, [window(), *[stolen] * 8]), Script("B", [1.0] * 9)], max_discards=2
    )
    assert len(outcome.pairs) == 4, "one that counts and three that do not"
    assert not outcome.complete
    assert "only 1 of 3 pairs" in "\n".join(summary_lines(outcome))


def test_no_pair_at_all_is_no_error() -> None:
    outcome, _calls = run_comparison([Script("A", [1.0], [window(others=2.0)]), Script("B", [1.0])], max_discards=0)
    assert summary_lines(outcome) == ["a title: no pair counts, the machine was never idle"]
    assert outcome.to_json()["ratios"] == {}


def test_a_busy_machine_may_be_allowed_and_is_then_named() -> None:
    outcome, _calls = run_comparison(
        [Script("A", [1.0] * 3, [window(others=2.0)] * 3), Script("B", [1.0] * 3)], allow_busy=True
    )
    assert len(outcome.pairs) == 3
    assert outcome.complete
    assert not outcome.idle
    assert "NOT IDLE" in summary_lines(outcome)[0]


def test_the_record_holds_every_reading() -> None:
    outcome, _calls = run_comparison([Script("A", [2.0] * 3), Script("B", [1.0] * 3)])
    record = json.loads(json.dumps(outcome.to_json()))
    assert record["ratios"]["B"]["rate"] == {"median": 2.0, "low": 2.0, "high": 2.0}
    assert [sorted(pair["readings"]) for pair in record["pairs"]] == [["A", "B"]] * 3
    assert record["pairs"][0]["readings"]["A"]["window"]["cpu"] == 1.0


def test_a_core_has_its_share_of_the_cache_at_best() -> None:
    assert judged_cache_bytes(300 * MIB, 2) == 16 * MIB
    assert judged_cache_bytes(8 * MIB, 16) == 8 * MIB
    assert judged_cache_bytes(0, 4) == 16 * MIB, "where the machine does not say"


def watch(name: str, readings: list[float], most: float) -> Watch:
    left = iter(readings)
    return Watch(name, lambda: next(left), most)


def test_a_pair_during_which_the_memory_changed_its_speed_is_repeated() -> None:
    memory = watch(MEMORY, [25.0, 26.0, 24.0, 25.0, 38.0, 38.0, 38.0, 37.0, 39.0], 1.25)
    ours, theirs = Script("ours", [2.0, 9.0, 4.0]), Script("theirs", [1.0, 1.0, 1.0])
    outcome, _ = run_comparison([ours, theirs], pairs=2, watches=[memory])
    assert [pair.busy for pair in outcome.pairs] == [None, "memory: 25.0 to 38.0 GB/s", None]
    assert outcome.rate_ratios("theirs") == Spread(3.0, 2.0, 4.0)


def test_a_pair_during_which_cores_were_moved_is_repeated() -> None:
    memory = watch(MEMORY, [25.0] * 6, 1.25)
    cores = watch(CORES, [26.0, 25.0, 150.0, 150.0, 145.0, 146.0], 2.0)
    ours, theirs = Script("ours", [2.0, 4.0]), Script("theirs", [1.0, 1.0])
    outcome, _ = run_comparison([ours, theirs], pairs=1, watches=[memory, cores])
    assert [pair.busy for pair in outcome.pairs] == ["cores: 25.0 to 150.0 ns apart", None]


def test_ratios_are_given_for_each_state_of_the_machine() -> None:
    memory = watch(MEMORY, [25.0] * 3 + [38.0] * 3 + [26.0] * 3 + [24.0] * 3, 1.25)
    cores = watch(CORES, [26.0] * 3 + [27.0] * 3 + [25.0] * 3 + [150.0] * 3, 2.0)
    ours, theirs = Script("ours", [2.0, 4.0, 3.0, 5.0]), Script("theirs", [1.0, 1.0, 1.0, 1.0])
    outcome, _ = run_comparison([ours, theirs], pairs=4, watches=[memory, cores])
    assert [[pair.usual(MEMORY) for pair in group] for group in outcome.by_machine] == [[25.0, 26.0], [38.0], [24.0]]
    lines = summary_lines(outcome)[-3:]
    assert lines[0].endswith(
        "with memory 25.50 (25.00..26.00) GB/s, cores 25.50 (25.00..26.00) ns apart, 2 pairs:"
        " rate / theirs 2.50 (2.00..3.00) x"
    )
    assert "memory 38.00 (38.00..38.00) GB/s, cores 27.00" in lines[1]
    assert "memory 24.00 (24.00..24.00) GB/s, cores 150.00" in lines[2]
    assert "1 pairs: rate / theirs 5.00" in lines[2]
    assert outcome.to_json()["pairs"][1]["watched"] == {MEMORY: [38.0] * 3, CORES: [27.0] * 3}


def test_a_machine_of_one_state_is_not_told_apart() -> None:
    memory = watch(MEMORY, [25.0] * 3 + [28.0] * 3 + [31.0] * 3, 1.25)  # each within a fifth of the one before
    ours, theirs = Script("ours", [2.0, 4.0, 3.0]), Script("theirs", [1.0, 1.0, 1.0])
    outcome, _ = run_comparison([ours, theirs], watches=[memory])
    assert len(outcome.by_machine) == 1
    assert not any("with memory" in line for line in summary_lines(outcome))
