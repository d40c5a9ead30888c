"""Which differences count as larger than the noise."""

import json
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from incast.engine.transports import chosen_across
from incast.figures.compare import batches, difference, goodput_by_interval, other_settings, t_quantile
from incast.figures.datasets import Scan, load
from incast.scan.journal import Journal
from incast.scan.plan import read_plan

from tests.lab.conftest import InProcess, WriteScan

SIM = ("--transport", "sim", "--duration", "30ms", "--warm-up", "10ms", "--set", "run.sample_interval=10ms")


def test_welch_by_hand() -> None:
    """Means 10 and 14, variances 1 and 4, three readings each: t = 4 / sqrt(5 / 3) with 2.94 degrees of freedom."""
    found = difference("", "x", [9, 10, 11], [12, 14, 16])
    assert found.noise == pytest.approx(t_quantile(2) * (1 / 3 + 4 / 3) ** 0.5)
    assert found.larger is False
    assert difference("", "x", [9, 10, 11], [112, 114, 116]).larger is True


def test_one_reading_has_no_noise_and_equal_ones_have_none() -> None:
    assert difference("", "x", [1], [2, 3]).larger is None
    assert difference("", "x", [5, 5], [5, 5]).larger is False
    assert difference("", "x", [5, 5], [6, 6]).larger is True, "a simulation gives the same every time"
    assert difference("", "x", [0, 0], [1, 1]).ratio is None


def test_quantiles() -> None:
    assert t_quantile(0.5) == t_quantile(1) == 63.657
    assert t_quantile(4.9) == t_quantile(4)
    assert [t_quantile(degrees) for degrees in (31, 45, 100, 1e6)] == [2.750, 2.704, 2.660, 2.617]
    falling = [t_quantile(degrees) for degrees in range(1, 200)]
    assert falling == sorted(falling, reverse=True)


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200))
def test_batches_are_of_neighbours(values: list[float]) -> None:
    made = batches(values)
    length = len(values) // len(made)
    assert len(made) == min(10, len(values))
    assert made[0] == statistics.fmean(values[:length])
    assert min(values) - 1e-6 <= min(made) <= max(made) <= max(values) + 1e-6


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=8))
def test_nothing_differs_from_itself(values: list[float]) -> None:
    assert difference("", "x", values, list(values)).larger is False


def test_intervals_of_all_nodes_without_those_that_are_cut() -> None:
    samples = [
        {"phase": phase, "node": node, "interval_s": 1.0, "built_goodput_bytes_per_s": rate}
        for phase, rates in (("warm-up", (9, 9)), ("measuring", (1, 2, 3, 4)), ("draining", (9,)))
        for rate in rates
        for node in (0, 1)
    ]
    assert goodput_by_interval(samples) == [4, 6]


def test_settings_that_differ() -> None:
    assert other_settings({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 4}}) == [
        ("a.c", 2, 4),
        ("d", 3, None),
    ]


def test_two_scans_point_by_point(real: InProcess, write_scan: WriteScan) -> None:
    text = (
        "seconds = 0.005\nwarm_up_seconds = 0.002\nrepeats = 2\n[set]\ntransport.name = 'sim'\n"
        "transport.sim.rate = '{rate}'\n[grid]\nprotocol.credits = {values}\n"
    )
    for name, rate, values in (("a", "10Gb/s", "[2, 4]"), ("b", "40Gb/s", "[4, 8]")):
        file = write_scan(text.format(rate=rate, values=values), head="", name=f"{name}.toml")
        assert real("scan", str(file), "--output", name).returncode == 0
    answer = json.loads(real("compare", "a", "b", "--json").stdout)
    assert answer["mixed"] is False
    assert ["transport.sim.rate", "10Gb/s", "40Gb/s"] in answer["other_conditions"]
    found = {(each["where"], each["figure"]): each for each in answer["differences"]}
    assert {where for where, _ in found} == {"protocol.credits=4"}
    goodput = found["protocol.credits=4", "goodput_without_self_bytes_per_s"]
    assert goodput["larger_than_noise"] is True
    assert goodput["ratio"] == pytest.approx(4, rel=0.3)
    assert any("2 points are in one of the two only" in note for note in answer["notes"])
    shown = real("compare", "a", "b")
    assert "SIMULATED" in shown.stdout
    assert "Welch" in shown.stdout
    same = json.loads(real("compare", "a", "a", "--json").stdout)
    assert not [each for each in same["differences"] if each["larger_than_noise"]]


def test_two_runs_and_what_cannot_be_compared(real: InProcess) -> None:
    assert real("run", *SIM, "--output", "one").returncode == 0
    assert real("run", *SIM, "--output", "two", "--set", "transport.sim.rate=10Gb/s").returncode == 0
    small = ("--nodes", "2", "--transport", "inproc", "--duration", "50ms", "--warm-up", "0s")
    assert real("run", *small, "--set", "source.prefill_size=256KiB", "--output", "three").returncode == 0
    shown = real("compare", "one", "two")
    assert shown.returncode == 0
    assert "transport.sim.rate" in shown.stdout
    assert "noise is not known" in shown.stdout
    shutil.copytree(real.folder / "one", real.folder / "old")
    file = real.folder / "old/result.json"
    file.write_text(
        file.read_text().replace('"prefill_size"', '"prefill_bytes"').replace('"slot_size"', '"slot_bytes"')
    )
    renamed = json.loads(real("compare", "one", "old", "--json").stdout)
    assert renamed["other_conditions"] == [], "an older version's names are those of this one"
    mixed = real("compare", "one", "three")
    assert mixed.stdout.startswith("MEASURED AGAINST SIMULATED")
    assert real("net", *SIM, "--output", "raw").returncode == 0
    refused = real("compare", "one", "raw")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert not (Path(real.folder) / "report").exists()


def test_scans_of_the_last_version_have_the_names_of_this_one(write_scan: WriteScan, tmp_path: Path) -> None:
    head = f"seconds = 1\n[set]\ntransport.{chosen_across()}.hello_timeout_ms = 20\n[grid]\n"
    for name, key in (("old", "protocol.slot_bytes"), ("new", "protocol.slot_size")):
        plan = read_plan(write_scan(f"{key} = ['64KiB', '1MiB']\n", head=head))
        with Journal(tmp_path / name, plan) as journal:
            journal.add({"point": 1, "repeat": 1, key: "64KiB"})
    old, new = load([tmp_path / "old", tmp_path / "new"])
    assert isinstance(old, Scan)
    assert isinstance(new, Scan)
    assert replace(old.plan, title="") == replace(new.plan, title="")
    assert f"transport.{chosen_across()}.hello_timeout=20ms" in old.plan.points[0].settings
    assert old.rows == new.rows
