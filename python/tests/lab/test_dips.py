"""Dips: found where they are, with what else happened then."""

import itertools
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from incast.engine.transports import chosen_across
from incast.evidence.dips import DIPS_NAME, MACHINE_NAME, dips_of_directory, find_dips, read_log, read_machine
from incast.figures.datasets import Run, load
from incast.figures.report import make_parts
from incast.figures.scan_figures import Choice

from tests.conftest import DEADLINE_S, Incast


def samples_of(
    rates: list[float], node: int = 0, width: float = 1.0, counters: dict[int, dict[str, int]] | None = None
) -> list[dict[str, Any]]:
    """One sample per interval, from second 0."""
    return [
        {
            "phase": "measuring",
            "node": node,
            "t": (step + 1) * width,
            "interval_s": width,
            "built_goodput_bytes_per_s": rate,
            "delta": {"cpu_ns": 0, **((counters or {}).get(step, {}))},
        }
        for step, rate in enumerate(rates)
    ]


def test_a_dip_has_its_time_depth_and_length() -> None:
    (dip,) = find_dips(samples_of([100.0] * 10 + [40.0, 10.0, 30.0] + [100.0] * 10))
    assert [dip.begin_s, dip.end_s] == pytest.approx([10, 13])
    assert [dip.lowest_bytes_per_s, dip.median_bytes_per_s] == pytest.approx([10, 100])
    assert dip.meanwhile == ()
    assert dip.words() == "at 10.0 s for 3.0 s, down to 10 % of the median"


def test_half_of_the_median_is_no_dip_and_two_are_two() -> None:
    assert find_dips(samples_of([100.0] * 10 + [51.0] + [100.0] * 10)) == []
    assert len(find_dips(samples_of([100.0] * 6 + [0.0] + [100.0] * 6 + [0.0] + [100.0] * 6))) == 2
    assert len(find_dips(samples_of([100.0] * 6 + [0.0, 100.0, 0.0] + [100.0] * 6))) == 1, "one good step between"
    assert find_dips(samples_of([100.0] * 5 + [0.0])) == [], "too few to know what is ordinary"
    assert find_dips([]) == []


def test_silence_is_seen_though_it_was_made_up_for_at_once() -> None:
    """Steps begin where nodes report, not where the measured phase happened to begin."""
    rates = [100.0] * 10 + [0.0, 170.0] + [100.0] * 10
    samples = [{**each, "t": each["t"] + 0.4} for node in range(3) for each in samples_of(rates, node)]
    edge = {**samples[0], "t": 0.5, "interval_s": 0.1}  # between the beginning of the phase and the first report
    (dip,) = find_dips([edge, *samples])
    assert [dip.begin_s, dip.end_s] == pytest.approx([10.4, 11.4], abs=0.05)
    assert dip.lowest_bytes_per_s == pytest.approx(0, abs=1)


def test_a_node_that_was_stopped_is_named() -> None:
    """It reports of one long interval when it goes on; what it built is not put into its last second alone."""
    others = samples_of([100.0] * 8 + [0.0] * 4 + [100.0] * 8)
    stopped = samples_of([100.0] * 20, node=1)
    late = {**stopped[11], "interval_s": 4.0, "built_goodput_bytes_per_s": 4.0}
    (dip,) = find_dips([*others, *stopped[:8], late, *stopped[12:]])
    assert (round(dip.begin_s), round(dip.end_s)) == (8, 12)
    assert dip.meanwhile == ("node 1 gave no sign of life from 8.0 s to 12.0 s (0 s of CPU)",)


def test_a_node_that_died_is_named() -> None:
    others = samples_of([100.0] * 10 + [10.0] * 2 + [100.0] * 8)
    (dip,) = find_dips([*others, *samples_of([100.0] * 10, node=2)])
    assert "node 2 was not heard of again after 10.0 s" in dip.meanwhile


def test_counters_the_log_and_the_machine_are_told_where_they_belong() -> None:
    counters = {10: {"evictions": 1, "reassignments": 7}, 15: {"late_reports": 3}}
    rates = [100.0] * 10 + [0.0, 0.0] + [100.0] * 10
    log = [(11.5, "warning: node 3 is slow"), (18.0, "error: something else")]
    machine = [
        {"t": 11.0, "seconds": 1.0, "others_cpu_fraction": 0.5, "stolen_cpu_fraction": 0.0},
        {"t": 20.0, "seconds": 1.0, "others_cpu_fraction": 0.9, "stolen_cpu_fraction": 0.9},
    ]
    (dip,) = find_dips(samples_of(rates, counters=counters), log, machine)
    assert dip.meanwhile == (
        "1 nodes dropped by the event manager",
        "7 MEPs given to another builder unit",
        "warning: node 3 is slow",
        "other processes used up to 50 % of all cores",
    )


def test_in_open_loop_fewer_triggers_are_a_reason() -> None:
    counters = {step: {"offered_events": 10 if step in (10, 11) else 1000} for step in range(20)}
    samples = samples_of([100.0] * 10 + [1.0, 1.0] + [100.0] * 8, counters=counters)
    (dip,) = find_dips(samples, open_loop=True)
    assert dip.meanwhile == ("triggers came at 1 % of their mean rate",)
    (dip,) = find_dips(samples)
    assert dip.meanwhile == (), "in closed loop events are offered because they are built"
    even = {step: {"offered_events": 9} for step in range(20)}
    steady = samples_of([100.0] * 10 + [1.0, 1.0] + [100.0] * 8, counters=even)
    assert find_dips(steady, open_loop=True)[0].meanwhile == ()


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e9), min_size=8, max_size=60), st.sampled_from([0.05, 0.5, 2.0]))
def test_dips_are_apart_in_order_and_deep_enough(rates: list[float], width: float) -> None:
    dips = find_dips(samples_of(rates, width=width))
    for dip in dips:
        assert dip.begin_s < dip.end_s
        assert dip.lowest_bytes_per_s < 0.5 * dip.median_bytes_per_s
    for one, other in itertools.pairwise(dips):
        assert one.end_s < other.begin_s


def test_what_lies_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(
        "2026-01-01T00:00:00.500 info 4 nodes\n2026-01-01T00:00:11.000 warning node 1 is lost\nverified: none\n"
    )
    (tmp_path / MACHINE_NAME).write_text(
        '{"t": 1, "seconds": 1, "others_cpu_fraction": 0, "stolen_cpu_fraction": 0}\n{"t'
    )
    assert read_log(tmp_path) == [(10.5, "warning: node 1 is lost")]
    assert len(read_machine(tmp_path)) == 1
    assert dips_of_directory(tmp_path, samples_of([100.0] * 9)) == []
    assert not (tmp_path / DIPS_NAME).exists()
    (dip,) = dips_of_directory(tmp_path, samples_of([100.0] * 10 + [0.0] + [100.0] * 9))
    assert dip.meanwhile == ("warning: node 1 is lost",)
    assert json.loads((tmp_path / DIPS_NAME).read_text())["dips"][0]["begin_s"] == pytest.approx(10)


def nodes_of(engine_of: int) -> dict[int, int]:
    """Process ids by node, of the engine below that process."""
    found: dict[int, int] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if b"--node" in words and parent == engine_of:
                found[int(words[words.index(b"--node") + 1])] = int(process.name)
    return found


def test_a_node_stopped_twice_gives_two_dips_with_their_cause(real_incast: Incast) -> None:
    """The process of a node is stopped in a real run, over sockets, and goes on before anybody gives it up."""
    output = real_incast.folder / "out"
    settings_of_run = {
        "run.nodes": "3",
        "run.duration": "6s",
        "run.warm_up": "100ms",
        "run.sample_interval": "100ms",
        "transport.name": chosen_across(),
        "source.prefill_size": "256KiB",
        "protocol.mfp_size": "16KiB",
        "protocol.detection_deadline": "30s",
        "protocol.late_after": "30s",
        "sink.kind": "null",
    }
    overrides = [word for key, value in settings_of_run.items() for word in ("--set", f"{key}={value}")]
    engine = real_incast.environment["INCAST_NODE"]
    command = [engine, *overrides, "--output", str(output), "--progress", "json"]
    stops = [1.0, 3.5]  # seconds of the run
    stopped: tuple[int, float] | None = None
    done = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            if said["type"] != "sample":
                continue
            if stopped is None and done < len(stops) and said["t"] > stops[done]:
                stopped = nodes_of(process.pid)[2], said["t"]
                os.kill(stopped[0], signal.SIGSTOP)
            elif stopped is not None and said["t"] > stopped[1] + 1.0:
                os.kill(stopped[0], signal.SIGCONT)
                stopped, done = None, done + 1
        assert process.wait(timeout=DEADLINE_S) == 0
    assert done == 2
    (run,) = load([output])
    assert isinstance(run, Run)
    dips = dips_of_directory(output, run.samples())
    named = [dip for dip in dips if any("node 2 gave no sign of life" in line for line in dip.meanwhile)]
    assert len(named) == 2, dips
    assert all(dip.end_s - dip.begin_s > 0.4 for dip in named), named
    (table,) = [table for part in make_parts([run], Choice()) for table in part.tables if "Dips" in table.caption]
    assert sum("node 2 gave no sign of life" in row[-1] for row in table.rows) == 2
