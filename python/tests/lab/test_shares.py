"""No figure can be what cannot be: every share lies in 0 to 1, and a rate times its window is what was counted in it.

Runs of one event, of a few and of a millisecond, where nothing has settled; and results that no run would give.
"""

import io
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from incast.engine.idle import Readiness, Window
from incast.evidence.diagnosis import diagnose
from incast.evidence.facts import read_samples
from incast.evidence.findings import CONFIDENCES
from incast.run.summary import print_summary
from rich.console import Console

from tests.fake_engine import RESULT
from tests.lab.conftest import InProcess

SHARES = re.compile(r"fraction|utilisation|occupancy")
PERCENT = re.compile(r"(-?[\d.]+(?:e[+-]?\d+)?) %")
TINY = (
    "--warm-up",
    "0s",
    "--mfp-size",
    "4KiB",
    "--set",
    "source.prefill_size=64KiB",
    "--set",
    "run.sample_interval=10ms",
)


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], Any]]:
    """Every figure, and the names that lead to it."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, path)
    else:
        yield path, value


def check_shares(said: Any) -> None:
    """Wherever they stand."""
    for path, value in leaves(said):
        if any(SHARES.search(name) for name in path) and path[-1] != "memory_meps" and value is not None:
            assert 0 <= value <= 1, (path, value)


def check_words(text: str) -> None:
    """No percentage for a person is more than all of it."""
    for found in PERCENT.findall(text):
        assert 0 <= float(found) <= 100, text


def check_counts(result: Mapping[str, Any]) -> None:
    """Rates and counts are those of one window."""
    window, goodput = result["window"], result["goodput_bytes_per_s"]
    assert result["events_per_s"] * window["seconds"] == pytest.approx(window["events"])
    assert goodput["total"] * window["seconds"] == pytest.approx(window["goodput_bytes"])
    assert window["events"] <= result["events"]
    assert goodput["total_without_self"] <= goodput["total"]
    cpu = result["cpu"]
    assert cpu["polling_seconds"] + cpu["sink_seconds"] <= cpu["seconds"] * (1 + 1e-9)
    # The kernel tells CPU time to the microsecond, and of a busy core a little late.
    assert cpu["cores"] is None or cpu["cores"] <= 1.01 * result["machine"]["cores"]


def summary_of(result: Mapping[str, Any]) -> str:
    screen = Console(file=io.StringIO(), width=200)
    print_summary(screen, result, Path("/results/here"), diagnose(result))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


@pytest.mark.parametrize(
    "options",
    [
        *[f"--transport sim --nodes 2 --events {events}" for events in (1, 2, 8, 64)],
        "--transport sim --nodes 4 --events 64 --roles split --trigger-rate 100kHz",
        "--transport sim --nodes 2 --duration 1ms",
        "--transport sim --nodes 8 --events 64 --fabric ib-qdr-8",
        "--transport inproc --nodes 2 --events 2",
        "--transport inproc --nodes 2 --duration 1ms --trigger-rate 100kHz",
        "--transport inproc --nodes 2 --events 2000 --sink mep:built",
        "--transport shm --nodes 2 --events 8",
        "--transport shm --nodes 2 --duration 1ms --sink touch",
    ],
)
def test_the_shortest_runs(real: InProcess, options: str) -> None:
    done = real("run", *TINY, "--json", "--output", "out", *options.split())
    assert done.returncode == 0, done.stderr
    result = json.loads((real.folder / "out" / "result.json").read_text())
    diagnosis = json.loads((real.folder / "out" / "diagnosis.json").read_text())
    check_shares(result)
    check_shares(diagnosis)
    check_counts(result)
    for text in (summary_of(result), json.dumps(diagnosis, ensure_ascii=False), done.stderr):
        check_words(text)
    check_words(json.dumps(diagnose(result, read_samples(real.folder / "out")).to_json()))


_NUMBER = st.floats(0, 1e13) | st.integers(0, 10**15) | st.sampled_from([0, 1, 1e-9])
_PLACES = (
    ("cpu", "seconds"),
    ("cpu", "cores"),
    ("cpu", "polling_seconds"),
    ("cpu", "sink_seconds"),
    ("window", "seconds"),
    ("window", "meps"),
    ("window", "events"),
    ("triggers", "offered_hz"),
    ("triggers", "accepted_hz"),
    ("sizes", "credits"),
    ("sizes", "slot_bytes"),
    ("sizes", "packing"),
    ("latency_ns", "p50"),
    ("latency_ns", "count"),
    ("machine", "cores"),
    ("consumers", "held_meps"),
)
_SECTIONS: dict[str, dict[str, str]] = {
    "sink": {"kind": "mep"},
    "protocol": {"scheme": "push", "parallel_sends": "2", "schedule": "linear-shift"},
    "source": {"fragment_size": "1KiB"},
}


def _sample(delta: dict[str, float], seconds: float) -> dict[str, Any]:
    return {"node": 0, "phase": "measuring", "interval_s": seconds, "delta": delta}


_DELTA = st.dictionaries(
    st.sampled_from(
        ["cpu_ns", "polling_cpu_ns", "sink_cpu_ns", "sleeps", "sent_goodput_bytes", "built_goodput_bytes", "delay_ns"]
    ),
    _NUMBER,
)


@settings(deadline=None, max_examples=100)
@given(
    st.dictionaries(st.sampled_from(_PLACES), _NUMBER | st.none()),
    st.sampled_from(["sim", "tcp", "shm"]),
    st.sampled_from(["open", "closed"]),
    st.lists(st.builds(_sample, _DELTA, st.floats(1e-9, 100)), max_size=3),
    st.none()
    | st.builds(
        Window, *[st.floats(0, 10)] * 5, st.lists(st.builds(Readiness, st.floats(0, 10), st.floats(0, 10))).map(tuple)
    ),
)
def test_results_that_no_run_would_give(
    places: dict[tuple[str, str], float | None],
    transport: str,
    loop: str,
    samples: list[dict[str, Any]],
    window: Window | None,
) -> None:
    result: dict[str, Any] = json.loads(json.dumps(RESULT))
    result["config"] = _SECTIONS | {"transport": {"name": transport, "tcp": {"max_rate": "1MB/s"}}}
    result["time_domain"] = "virtual" if transport == "sim" else "real"
    result["triggers"] = {**result.get("triggers", {}), "loop": loop, "occupancy": {"mean": 0.1, "max": 1.0}}
    for (section, key), value in places.items():
        result.setdefault(section, {})[key] = value
    found = diagnose(result, samples, window)
    assert found.confidence in CONFIDENCES
    check_words(json.dumps(found.to_json()))
    check_words(summary_of(result))
    if window is not None:
        check_shares(window.shares(2))


def test_a_link_of_a_run_that_moved_little_is_not_known() -> None:
    """What was posted in a moment is still on its way, and fills no link."""
    result = {
        "config": {"transport": {"name": "sim", "sim": {"rate": "1MB/s"}}},
        "time_domain": "virtual",
        "window": {"seconds": 1.0},
        "sizes": {"credits": 4, "slot_bytes": 1_000_000},
        "nodes": [{"node": 0, "roles": "0 (RU+BU)", "totals": {}}],
    }
    posted = [_sample({"sent_goodput_bytes": 4e6}, 1.0)]
    assert diagnose(result, posted).limited_by == "not known"
    many = [_sample({"sent_goodput_bytes": 1e7}, 10.0)]
    assert diagnose(result, many).limited_by == "sender link"


def test_links_count_the_bytes_that_there_were() -> None:
    """A packet of one event has the tables of one event, whatever it has room for."""
    totals = {"sent_goodput_bytes": 1024, "mfps_sent": 1, "events_built": 1, "meps_built": 1}
    result = {
        "config": {"transport": {"name": "sim", "sim": {"rate": "1MB/s"}}, "source": {"fragment_size": 1024}},
        "time_domain": "virtual",
        "sizes": {"packing": 63, "mfp_bytes": 64736},
        "nodes": [{"node": 0, "roles": "0 (RU+BU)", "totals": totals}],
    }
    sample = _sample({"sent_goodput_bytes": 5e5}, 1.0)
    assert diagnose(result, [sample]).limited_by == "not known", "half full, heads and tables included"
