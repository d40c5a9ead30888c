"""`incast tune`: the search on a planted surface without an engine; the command with a fake engine, and with ours."""

import csv
import itertools
import json
import math
import os
import random
import resource
import signal
import subprocess
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from incast.engine.transports import one_thread, simulated
from incast.tune.goal import (
    EVENTS_COLUMN,
    GOODPUT,
    GOODPUT_COLUMN,
    LATENCY,
    LATENCY_COLUMN,
    TRIGGER_RATE,
    Drift,
    Goal,
    dead,
)
from incast.tune.outcome import Outcome, outcome_of
from incast.tune.readings import CONFIRM, DEFAULT_NUMBER, LENGTHS, REFERENCE, WHOLE, Seen, Wanted, by_point
from incast.tune.search import Clock, Search
from incast.tune.space import Axes, Axis, defaults, identity
from incast.tune.tuning import search_on

from tests.conftest import DEADLINE_S, Incast
from tests.lab.conftest import InProcess

pytest.importorskip("optuna", reason="needs optuna: pip install 'incast[tune]'")

AXES = (
    Axis("protocol.scheme", ("push", "pull"), "push"),
    Axis("protocol.mfp_size", ("32KiB", "64KiB", "128KiB", "256KiB", "512KiB"), "64KiB"),
    Axis("protocol.credits", (1, 2, 4, 8, 16), "auto"),
    Axis("protocol.parallel_sends", (1, 2, 4, 8, 16, 0), 0),
)
GRID = math.prod(len(axis.values) for axis in AXES)


class Planted:
    """A machine whose response is known. `drift`: share by which it becomes faster and slower; `broken`: that fails."""

    def __init__(self, seed: int, *, noise: float = 0.03, drift: float = 0.0, broken: Axes | None = None) -> None:
        self.time_domain = "real"
        self.works = True
        self.seen: list[Seen] = []
        self.budget_s = 0.15 * GRID * 1.8
        self.stop_after = 10**6
        self._chance = random.Random(seed)
        self._noise, self._drift, self._broken = noise, drift, broken or {}
        self._numbers: dict[tuple[tuple[str, str], ...], int] = {}

    def take_over(self, other: "Planted") -> None:
        """What was measured there is known here."""
        self.seen, self._numbers = list(other.seen), dict(other._numbers)

    @staticmethod
    def goodput(point: Axes) -> float:
        """Best with pull, 256 KiB, 4 credits and 8 sends."""
        places = [axis.index(point[axis.key]) for axis in AXES]
        scheme, size, slots, sends = (3 if each is None else each for each in places)
        hill = math.exp(-(((size - 3) / 3) ** 2) - ((slots - 2) / 3) ** 2 - ((sends - 3) / 4) ** 2)
        return 3e9 * hill * (0.6 if size + slots > 5 else 1.0) * (1.0 if scheme else 0.95)

    def __call__(self, wanted: Sequence[Wanted]) -> list[Seen] | None:
        """Takes readings."""
        taken = []
        for each in wanted:
            if len(self.seen) >= self.stop_after:
                return None
            number = self._numbers.setdefault(identity(each.axes), len(self._numbers) + 1)
            wall_s = 0.8 + each.length
            spent_s = (self.seen[-1].spent_s if self.seen else 0.0) + wall_s
            figures = self._figures(each, spent_s) | {"wall_s": wall_s, "time_domain": self.time_domain}
            taken.append(Seen(each, number, figures, spent_s, self.budget_s))
            self.seen.append(taken[-1])
        return taken

    def _figures(self, wanted: Wanted, spent_s: float) -> dict[str, Any]:
        if not self.works or any(wanted.axes[key] == value for key, value in self._broken.items()):
            return {"status": "no result", "reason": "the engine ended with status 3"}
        speed = 1 + self._drift * math.sin(spent_s / 40)
        noise = math.exp(self._chance.gauss(0, self._noise / math.sqrt(wanted.length)))
        goodput = self.goodput(wanted.axes) * speed * noise
        built = goodput / 1e4
        offered = wanted.rate_hz
        dead = 0.0 if offered is None else max(0.0, 1 - built / offered)
        return {
            "status": "complete",
            "reason": None,
            "goodput_without_self_bytes_per_s": goodput,
            "events_per_s": built if offered is None else min(built, offered),
            "latency_p99_ns": 1e15 / goodput,
            "offered_hz": offered,
            "accepted_hz": None if offered is None else min(built, offered),
            "dead_time_fraction": dead,
            "window_s": 10.0,
            "packing_events": 1,
        }


@pytest.fixture(scope="module")
def plain() -> Planted:
    """A whole search for goodput."""
    machine = Planted(1)
    tuned(machine, Goal(GOODPUT))
    return machine


@pytest.fixture(scope="module")
def steady() -> Planted:
    """The same without noise."""
    machine = Planted(1, noise=0.0)
    tuned(machine, Goal(GOODPUT))
    return machine


def outcome_on(machine: Planted) -> Outcome:
    """What came of a search for goodput."""
    return outcome_of(Goal(GOODPUT), AXES, machine.seen, machine.budget_s)


def tuned(machine: Planted, goal: Goal, seed: int = 1) -> Outcome:
    """What comes of the whole search."""
    search = Search(AXES, goal, Clock(1.0, 0.1, machine.budget_s), seed)
    assert search_on(search, machine.seen, machine)
    return outcome_of(goal, AXES, machine.seen, machine.budget_s)


BEST = max(
    Planted.goodput(dict(zip([axis.key for axis in AXES], values, strict=True)))
    for values in itertools.product(*(axis.values for axis in AXES))
)


@pytest.mark.parametrize(("noise", "drift"), [(0.03, 0.0), (0.03, 0.2)])
def test_the_planted_best_is_found(noise: float, drift: float) -> None:
    """In 15 % of the time of the grid, of three seeds; each of them far beyond the defaults."""
    found = []
    for seed in (1, 2, 3):
        machine = Planted(seed, noise=noise, drift=drift)
        outcome = tuned(machine, Goal(GOODPUT), seed)
        assert outcome.best is not None
        assert outcome.confirmed
        assert machine.seen[-1].spent_s <= machine.budget_s + 1.8
        found.append(Planted.goodput(outcome.best.axes) / BEST)
    assert min(found) >= 0.8, found
    assert sorted(found)[1] >= 0.9, found
    assert Planted.goodput(defaults(AXES)) < 0.5 * BEST


def test_the_end_alternates_the_best_the_next_best_and_the_defaults(plain: Planted) -> None:
    outcome = outcome_on(plain)
    rounds = [each.number for each in plain.seen if each.wanted.purpose == CONFIRM]
    assert len(set(rounds)) == 3
    assert DEFAULT_NUMBER in rounds
    assert rounds[:3] == rounds[5:2:-1], "the second round goes backwards"
    assert len(outcome.ratios()) >= 2
    assert all(ratio > 1.5 for ratio in outcome.ratios())


def test_short_readings_come_first_and_the_best_third_is_measured_for_longer(plain: Planted) -> None:
    counts = [
        sum(any(each.wanted.purpose != CONFIRM for each in point.of_length(length)) for point in by_point(plain.seen))
        for length in LENGTHS
    ]
    assert counts[0] > 20
    assert counts[0] // 3 >= counts[1] >= counts[0] // 3 - 1
    assert counts[1] // 3 >= counts[2] >= 1


def test_what_comes_next_follows_from_what_is_known_so_that_a_tuning_goes_on_where_it_was(plain: Planted) -> None:
    search = Search(AXES, Goal(GOODPUT), Clock(1.0, 0.1, plain.budget_s), 1)
    for done in range(0, len(plain.seen), 7):
        known = plain.seen[:done]
        (wanted,) = search.next(known, known[-1].spent_s if known else 0.0)
        assert wanted == plain.seen[done].wanted
    keys = Counter(
        (each.number, each.wanted.length) for each in plain.seen if each.wanted.purpose not in (CONFIRM, REFERENCE)
    )
    assert max(keys.values()) == 1, "nothing is measured twice for nothing"


def test_a_larger_budget_goes_on_and_confirms_anew(plain: Planted) -> None:
    machine = Planted(3)
    first = outcome_on(plain)
    machine.take_over(plain)
    before = len(machine.seen)
    machine.budget_s *= 1.5
    outcome = tuned(machine, Goal(GOODPUT))
    added = machine.seen[before:]
    assert {each.wanted.purpose for each in added} > {CONFIRM}
    assert len(outcome.points) > len(first.points)
    assert outcome.confirmed
    assert len(outcome.ratios()) < sum(each.wanted.purpose == CONFIRM for each in machine.seen) / 3


def test_stopped_early_there_is_a_best_so_far_that_is_not_confirmed() -> None:
    machine = Planted(1)
    machine.stop_after = 15
    search = Search(AXES, Goal(GOODPUT), Clock(1.0, 0.1, machine.budget_s), 1)
    assert not search_on(search, machine.seen, machine)
    outcome = outcome_of(Goal(GOODPUT), AXES, machine.seen, machine.budget_s)
    assert outcome.best is not None
    assert not outcome.confirmed
    assert len(machine.seen) == 15


def test_points_that_fail_are_not_tried_again_and_do_not_stop_it() -> None:
    machine = Planted(1, broken={"protocol.scheme": "pull"})
    outcome = tuned(machine, Goal(GOODPUT))
    failed = [point for point in outcome.points if point.failed]
    assert failed
    assert all(len(point.readings) == 1 for point in failed)
    assert outcome.best is not None
    assert outcome.best.axes["protocol.scheme"] == "push"
    assert Planted.goodput(outcome.best.axes) > 0.75 * BEST


def test_it_ends_if_everything_fails() -> None:
    machine = Planted(1)
    machine.works = False
    assert tuned(machine, Goal(GOODPUT)).best is None
    assert len(machine.seen) == 12


def test_defaults_that_fail_do_not_stop_it_either() -> None:
    machine = Planted(1, broken={"protocol.credits": "auto"})
    machine.budget_s /= 2
    outcome = tuned(machine, Goal(GOODPUT))
    assert outcome.confirmed
    assert not outcome.ratios()


def test_a_bound_is_kept_or_nothing_is_named() -> None:
    best_latency_s = 1e6 / BEST
    kept = tuned(Planted(1, noise=0.01), Goal(GOODPUT, latency_below_s=2.0 * best_latency_s))
    assert kept.best is not None
    assert all(each.figures["latency_p99_ns"] <= 2e9 * best_latency_s for each in kept.best.readings)
    machine = Planted(1, noise=0.01)
    machine.budget_s /= 2
    missed = tuned(machine, Goal(GOODPUT, latency_below_s=0.1 * best_latency_s))
    assert missed.best is None
    nearest = missed.judge.best_first(missed.points)[0]
    assert Planted.goodput(nearest.axes) > 0.75 * BEST, "the nearest to the bound stands first"


def test_least_latency() -> None:
    outcome = tuned(Planted(1), Goal(LATENCY, goodput_above=1e8))
    assert outcome.best is not None
    assert Planted.goodput(outcome.best.axes) >= 0.8 * BEST
    assert max(outcome.ratios()) < 0.7


def test_the_highest_rate_without_dead_time_is_one_that_was_offered_and_taken() -> None:
    machine = Planted(1, noise=0.005)
    outcome = tuned(machine, Goal(TRIGGER_RATE))
    assert outcome.best is not None
    rate = outcome.figure(outcome.best)
    assert rate is not None
    built = Planted.goodput(outcome.best.axes) / 1e4
    assert 0.9 * built <= rate <= 1.01 * built
    assert rate in [each.wanted.rate_hz for each in outcome.best.readings]
    assert Planted.goodput(outcome.best.axes) >= 0.8 * BEST


def test_drift_is_that_of_the_references(steady: Planted) -> None:
    machine = Planted(1, noise=0.0, drift=0.2)
    tuned(machine, Goal(GOODPUT))
    drift = Drift(Goal(GOODPUT), by_point(machine.seen))
    assert drift.references >= 5
    assert 1.1 < drift.span < 1.2, "smoothed: three references at a time"
    assert Drift(Goal(GOODPUT), by_point(steady.seen)).span == 1.0


def test_around_the_best_one_setting_is_changed(steady: Planted) -> None:
    outcome = outcome_on(steady)
    assert outcome.best is not None
    steps = outcome.steps()
    assert set(steps) == {axis.key for axis in AXES}
    assert sum(map(len, steps.values())) >= 4
    for key, found in steps.items():
        for step in found:
            point = {**outcome.best.axes, key: step.value}
            wanted = Planted.goodput(point) / Planted.goodput(outcome.best.axes)
            assert step.ratio == pytest.approx(wanted, rel=1e-6)


def test_several_at_a_time_are_points_that_differ() -> None:
    machine = Planted(1)
    machine.time_domain = "virtual"
    search = Search(AXES, Goal(GOODPUT), Clock(1.0, 0.1, machine.budget_s, parallel=4), 1)
    assert len(search.next([], 0.0)) == 1
    machine(search.next([], 0.0))
    batches = [machine(search.next(machine.seen, machine.seen[-1].spent_s)) for _ in range(4)]
    for batch in batches:
        assert batch is not None
        assert len(batch) == 4
        assert len({(identity(each.wanted.axes), each.wanted.length) for each in batch}) == 4


# --- the command

VARIED = ("--vary", "protocol.credits=1,2,4,8,16", "--vary", "protocol.mfp_size=32KiB,64KiB,128KiB,256KiB")


def lines_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "journal.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]  # whole ones


def test_the_command_ends_with_settings_that_run_takes(fake: InProcess) -> None:
    said = fake("tune", *VARIED, "--budget", "4", "--output", "out", "--json", mood="planted")
    assert said.returncode == 0, said.stderr
    answer = json.loads(said.stdout)
    assert answer == json.loads((fake.folder / "out/tuning.json").read_text())
    assert answer["confirmed"]
    assert answer["finished"]
    settings = tomllib.loads((fake.folder / "out/best.toml").read_text())["protocol"]
    assert settings == {key.removeprefix("protocol."): value for key, value in answer["best"]["settings"].items()}
    assert answer["ratio"]["min"] > 1
    rows = lines_of(fake.folder / "out")
    assert len({(row["point"], row["repeat"]) for row in rows}) == len(rows)
    with (fake.folder / "out/table.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    assert any(row["status"] != "complete" for row in rows), "16 credits are too many"
    assert fake("run", "out/best.toml", "--output", "again", mood="well").returncode == 0
    said = fake("report", "out", "--json")
    assert said.returncode == 0, said.stderr
    figures = [name for name in json.loads(said.stdout)["files"] if name.endswith(".png")]
    around = any(step["ratio"] is not None for steps in answer["around"].values() for step in steps)
    assert [name.rpartition("-")[2] for name in sorted(figures)] == ["around.png"] * around + ["points.png"]
    page = (fake.folder / "report" / "index.html").read_text()
    assert "Tuning out" in page
    for key, value in answer["best"]["settings"].items():
        assert f"<td>{key}</td><td>{value}</td><td>{answer['defaults'][key]}</td>" in page, "the settings found"
    assert f"{answer['ratio']['median']:.2f} x" in page
    assert fake("compare", "out", "out").stderr.count("\n") == 1
    (fake.folder / "out/tuning.json").unlink()
    assert fake("report", "out").stderr == (
        "incast: out is of a tuning: tuning.json: not there; allowed: incast tune --resume out writes it\n"
    )
    assert fake("scan", "--resume", "out").stderr == ("incast: out is of a tuning; allowed: incast tune --resume out\n")


@pytest.mark.parametrize(
    ("figures", "beyond"),
    [
        ({}, 0.0),
        ({"dead_time_fraction": 0.0005}, 0.0),
        ({"dead_time_fraction": 0.02}, 0.02),
        ({"accepted_hz": 980.0}, 0.02),
        ({"accepted_hz": 995.0}, 0.0),
        ({"events_per_s": 900.0}, 0.1),  # it went into memory
        ({"events_per_s": 980.0}, 0.0),
        ({"offered_hz": 0.0, "accepted_hz": 0.0, "events_per_s": 0.0}, 1.0),  # it ended before triggers came
        ({"offered_hz": 500.0, "accepted_hz": 500.0, "events_per_s": 500.0}, 0.5),
    ],
)
def test_what_dead_time_is(figures: dict[str, float], beyond: float) -> None:
    usual = {"offered_hz": 1000.0, "accepted_hz": 1000.0, "events_per_s": 1000.0, "dead_time_fraction": 0.0}
    wanted = Wanted(defaults(AXES), WHOLE, CONFIRM, 1000.0)
    seen = Seen(wanted, 1, {**usual, "status": "complete", "window_s": 10.0, "packing_events": 1, **figures}, 1.0, 1.0)
    assert dead(seen) == pytest.approx(beyond)
    assert Goal(TRIGGER_RATE).score(seen).good == (beyond == 0)
    closed = replace(seen, wanted=replace(wanted, rate_hz=None))
    figures_of_closed = {GOODPUT_COLUMN: 1e9, LATENCY_COLUMN: 1000, EVENTS_COLUMN: 900.0}
    closed = replace(closed, figures={**seen.figures, **figures_of_closed})
    assert Goal(GOODPUT).score(closed).good, "what is admitted in a closed loop is no trigger"
    assert Goal(TRIGGER_RATE).score(closed).good
    assert Goal(LATENCY, open_loop=True).score(closed).good == (dead(closed) == 0)


def test_stopped_and_killed_it_goes_on(incast: Incast) -> None:
    command = incast.command("tune", *VARIED, "--budget", "100", "--output", "out")
    folder = incast.folder / "out"

    def stopped(words: Sequence[str], lines: int, how: signal.Signals) -> tuple[int, str]:
        with subprocess.Popen(
            words, cwd=incast.folder, env=incast.full_environment("planted"), stderr=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            deadline = time.monotonic() + DEADLINE_S
            while len(lines_of(folder)) < lines:
                assert process.poll() is None
                assert time.monotonic() < deadline
            process.send_signal(how)
            said, _ = process.communicate(timeout=DEADLINE_S)
            return process.returncode, said

    status, said = stopped(command, 5, signal.SIGINT)
    assert status == 130
    assert "not confirmed" in said
    assert "stopped; to go on: incast tune --resume out" in said
    assert (folder / "best.toml").is_file(), "the best so far"
    again = incast.command("tune", "--resume", "out")
    first = len(lines_of(folder))
    assert stopped(again, first + 3, signal.SIGKILL)[0] == -signal.SIGKILL
    before = lines_of(folder)
    done = incast("tune", "--resume", "out", "--budget", "1", mood="planted")  # it is over: one round is left
    assert done.returncode == 0, done.stderr
    rows = lines_of(folder)
    assert rows[: len(before)] == before
    assert len({(row["point"], row["repeat"]) for row in rows}) == len(rows)
    assert [row["tuning"]["order"] for row in rows] == list(range(len(rows)))
    assert sum(row["tuning"]["purpose"] == REFERENCE for row in rows[:8]) == 1, "the defaults are not measured again"
    assert "not confirmed" not in done.stdout


def test_a_full_disk_is_one_line_and_it_goes_on_from_there(fake: InProcess) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, most))
    try:
        said = fake("tune", *VARIED, "--budget", "20", "--output", "out", mood="planted")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert said.returncode == 1, said.stderr
    last = said.stderr.splitlines()[-1]
    assert last == (
        "incast: out/journal.jsonl: File too large; this reading is to be taken again: incast tune --resume out"
    )
    done = lines_of(fake.folder / "out")
    assert len(done) >= 2
    assert fake("tune", "--resume", "out", "--budget", "1", mood="planted").returncode == 0
    assert lines_of(fake.folder / "out")[: len(done)] == done


def test_no_point_keeps_the_bound(fake: InProcess) -> None:
    said = fake("tune", *VARIED, "--budget", "2", "--latency-below", "1us", "--output", "out", mood="planted")
    assert said.returncode == 1, said.stderr
    assert "no point kept the bounds" in said.stdout
    assert not (fake.folder / "out/best.toml").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--goal", "speed"], "--goal speed: allowed: goodput, trigger-rate, latency"),
        (["--budget", "soon"], "--budget soon: allowed: a time"),
        (["--goal", "latency"], "--goal latency: without a load"),
        (["--goal", "trigger-rate", "--set", "source.trigger_rate=1kHz"], "finds source.trigger_rate"),
        (["--vary", "protocol.credits=1"], "two values or more"),
        (["--vary", "protocol.colour=1,2"], "--vary protocol.colour: allowed: keys"),
        (["--vary", "protocol.credits=1,2", "--set", "protocol.credits=4"], "--set says it, too"),
        (["--vary", "protocol.credits=1,many"], "protocol.credits"),
        (["--set", "run.nodes=0"], "run.nodes = 0"),
        (["--transport", "pigeon"], "transport.name = pigeon"),
        (["--resume", "nowhere"], "nowhere is no folder of a tuning: tune.json: not there"),
        (["--resume", "nowhere", "--seconds", "1"], "--resume: takes what was asked for"),
        (["absent.toml"], "absent.toml"),
        (["--seconds", "2ms"], "--seconds: 0.25 of it is measured first: run.duration"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(real: InProcess, options: list[str], words: str) -> None:
    said = real("tune", *options)
    assert said.returncode == 2, said.stdout
    assert said.stderr.count("\n") == 1, said.stderr
    assert words in said.stderr
    assert not list(real.folder.iterdir())


def test_what_is_varied_by_itself(real: InProcess) -> None:
    said = real("tune", "--transport", simulated(), "--set", "protocol.credits=4", "--check")
    assert said.returncode == 0, said.stderr
    assert "protocol.schedule: linear-shift, random, sequential   (default: linear-shift)" in said.stdout
    assert "protocol.credits" not in said.stdout, "what is set is not varied"
    said = real("tune", "--transport", one_thread(), "--vary", "usual", "--vary", "protocol.credits=3,5", "--check")
    assert "protocol.credits: 3, 5   (default: auto)" in said.stdout
    assert "protocol.mfp_size" in said.stdout


def test_a_simulated_network(real: InProcess) -> None:
    said = real(
        "tune", "--transport", simulated(), "--nodes", "4", "--set", "source.prefill_size=256KiB", "--seconds", "4ms",
        "--warm-up", "100us", "--vary", "protocol.credits=1,2,4", "--vary", "protocol.parallel_sends=1,2,4",
        "--budget", "4", "--jobs", "2", "--output", "out",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "VIRTUAL TIME" in said.stdout
    assert "limited by" in said.stdout
    rows = lines_of(real.folder / "out")
    assert {row["status"] for row in rows} == {"complete"}
    again = real("run", "out/best.toml", "--output", "again")
    assert again.returncode == 0, again.stderr
    result = json.loads((real.folder / "again/result.json").read_text())
    assert result["config"]["run"]["nodes"] == 4
    assert max(map(len, said.stdout.splitlines())) <= int(os.environ.get("COLUMNS", "400"))
