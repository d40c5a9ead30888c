"""Open loop far beyond what can be built: every event that was offered is accepted, inhibited or dropped (EB-M1).

Overload does not depend on the machine's speed: triggers come at a rate that no memory could take.
"""

import json
import signal
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support import Start, check_accounting
from test_documents import validate
from transports import ONE_THREAD, SHARED_MEMORY, SIMULATED, SOCKETS

EVENTS = 300_000
OVERLOADED: dict[str, Any] = {
    "transport.name": ONE_THREAD,
    "run.nodes": 2,
    "run.events": EVENTS,
    "run.sample_interval": "50ms",
    "protocol.packing": 1,
    "protocol.credits": 2,
    "source.fragment_size": 64,
    "source.prefill_size": "256KiB",
    "source.sources_per_ru": 2,
    "source.trigger_rate": "10MHz",
    # The readout unit of policy block keeps what comes until a loss is detected, and no less.
    "protocol.heartbeat": "1ms",
    "protocol.detection_deadline": "10ms",
    "protocol.suspect_grace": 0,
}


def totals(result: dict[str, Any]) -> list[dict[str, int]]:
    return [node["totals"] for node in result["nodes"]]


def overloaded(start: Start, **more: Any) -> dict[str, Any]:
    settings = {key.replace("__", "."): value for key, value in more.items()}
    run = start({**OVERLOADED, "run.fail_above_incomplete": 1, **settings})
    assert run.finish() == 0, run.story()
    result = run.result()
    check_accounting(result)
    validate(result, "result.schema.json")
    assert result["events"] == EVENTS
    assert result["incomplete_events"] == result["triggers"]["events_with_drops"]
    assert result["dead_time_fraction"] > 0
    for node in totals(result):
        passed = node["accepted_events"] + node["inhibited_events"] + node["dropped_events"]
        assert node["offered_events"] == passed, "nothing waits when the last event was built"
    return result


@pytest.mark.parametrize("fill", ["prefilled", "generated"])
@pytest.mark.parametrize("arrivals", ["fixed", "poisson"])
def test_block_loses_nothing_and_waits(start: Start, fill: str, arrivals: str) -> None:
    result = overloaded(start, source__policy="block", source__fill=fill, source__arrivals=arrivals)
    for node in totals(result):
        assert node["accepted_events"] == node["offered_events"] == EVENTS
    # Every event was meant to happen within 30 ms of the first.
    if result["window"]["seconds"] > 0.2:
        assert result["latency_ns"]["max"] > 1e8


@pytest.mark.parametrize("fill", ["prefilled", "generated"])
def test_throttle_inhibits_and_counts(start: Start, fill: str) -> None:
    result = overloaded(start, source__policy="throttle", source__fill=fill, source__memory="16KiB")
    for node in totals(result):
        assert node["accepted_events"] == EVENTS
        assert node["inhibited_events"] > 0
        assert node["dropped_events"] == 0
    assert result["triggers"]["occupancy"]["max"] == 1
    assert result["triggers"]["inhibited_hz"] > 0


@pytest.mark.parametrize("fill", ["prefilled", "generated"])
def test_drop_leaves_a_mark_for_every_fragment(start: Start, fill: str) -> None:
    result = overloaded(start, source__policy="drop", source__fill=fill, source__memory="16KiB")
    for node in totals(result):
        assert node["accepted_events"] + node["dropped_events"] == EVENTS
        assert node["dropped_events"] > 0
        assert node["inhibited_events"] == 0
    # What was dropped at the sources is what arrived marked, MFP by MFP.
    made = sum(node["dropped_mfps"] for node in totals(result))
    assert made == sum(node["flagged_dropped_mfps"] for node in totals(result)) > 0
    with_drops = result["triggers"]["events_with_drops"]
    assert max(node["dropped_events"] for node in totals(result)) <= with_drops
    assert with_drops <= sum(node["dropped_events"] for node in totals(result))
    assert result["flags"] == {"dropped": {"events": with_drops, "mfps": made}}


def test_without_overload_no_policy_touches_anything(start: Start) -> None:
    # Memory for all events: a machine that does not run us for a while is no overload of the readout.
    no_overload = {"source.trigger_rate": "1kHz", "run.events": 200, "source.memory": "1MiB"}
    for policy in ("block", "throttle", "drop"):
        settings = {**no_overload, "source.policy": policy}
        run = start({**OVERLOADED, **settings})
        assert run.finish() == 0, run.story()
        for node in totals(run.result()):
            assert node["accepted_events"] == node["offered_events"] == 200


@pytest.mark.parametrize("transport", [SIMULATED, ONE_THREAD, SHARED_MEMORY])
@pytest.mark.parametrize("arrivals", ["fixed", "poisson"])
def test_the_slowest_rates_end_as_any_other(start: Start, transport: str, arrivals: str) -> None:
    """At some of them a packet takes longer to fill than there is time in 64 bits of picoseconds."""
    for rate in ("1e-300Hz", "1e-7Hz") if transport == SIMULATED else ("5e-6Hz",):
        settings = {
            "transport.name": transport,
            "run.nodes": 2,
            "run.warm_up": 0,
            "run.duration": "2ms",
            "source.trigger_rate": rate,
            "source.arrivals": arrivals,
            "source.prefill_size": "256KiB",
        }
        run = start(settings)
        assert run.finish() == 0, run.story()
        check_accounting(run.result())
        validate(run.result(), "result.schema.json")


@pytest.mark.parametrize(
    ("scheme", "assignment"), [("push", "em"), ("pull", "static"), ("push", "source-credits"), ("pull-read", "em")]
)
def test_a_packet_that_does_not_fill_is_closed_early(start: Start, scheme: str, assignment: str) -> None:
    """EB-C8, in virtual time: at 2 Hz the first events wait for one second and not for half a minute."""
    slow = {
        "transport.name": SIMULATED,
        "run.nodes": 3,
        "run.warm_up": 0,
        "source.trigger_rate": "2Hz",
        "protocol.scheme": scheme,
        "protocol.assignment": assignment,
    }
    # Triggers begin 5 ms behind the window; a MEP that waits for 1 s has the events at 0, 0.5 and 1 s.
    for duration, meps in (("900ms", 0), ("1100ms", 1), ("2400ms", 1), ("2600ms", 2), ("12100ms", 8)):
        run = start({**slow, "run.duration": duration})
        assert run.finish() == 0, run.story()
        result = run.result()
        check_accounting(result)
        assert (result["window"]["meps"], result["events"]) == (meps, 3 * meps), duration
    patient = start({**slow, "run.duration": "12100ms", "protocol.max_wait": 0})
    assert patient.finish() == 0, patient.story()
    assert patient.result()["events"] == 0


def test_a_closed_packet_says_how_long_its_event_waited(start: Start) -> None:
    run = start(
        {
            "transport.name": SIMULATED,
            "run.nodes": 2,
            "run.warm_up": 0,
            "run.duration": "10s",
            "source.trigger_rate": "0.7Hz",
            "protocol.max_wait": "300ms",
        }
    )
    assert run.finish() == 0, run.story()
    result = run.result()
    assert result["events"] == result["window"]["meps"] == 7
    assert 300_000_000 <= result["latency_ns"]["p50"] <= result["latency_ns"]["max"] < 301_000_000


def test_closed_packets_are_built_of_real_events(start: Start, tmp_path: Path) -> None:
    run = start(
        {
            "transport.name": SHARED_MEMORY,
            "run.nodes": 2,
            "run.warm_up": 0,
            "run.duration": "120s",
            "run.sample_interval": "50ms",
            "source.trigger_rate": "2Hz",
            "source.size_distribution": "exponential",
            "source.prefill_size": "256KiB",
            "protocol.max_wait": "200ms",
            "sink.kind": "mep",
            "sink.path": tmp_path / "built",
        }
    )
    run.wait_for(lambda report: report["type"] == "sample" and report["events"] > 2, "three events, built")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.story()
    check_accounting(run.result())
    lines = [
        json.loads(line)
        for manifest in tmp_path.glob("built/manifest-*.jsonl")
        for line in manifest.read_text().splitlines()
    ]
    meps = sorted((line["mep"], line["first_event"], line["n_events"]) for line in lines)
    assert len(meps) > 2
    following = 0
    for number, (mep, first, events) in enumerate(meps):
        assert (mep, first) == (number, following)
        following += events
    assert following == run.result()["events"]


def test_a_step_of_the_rate_shows_in_the_samples(start: Start) -> None:
    run = start(
        {
            "transport.name": SIMULATED,  # virtual time: what is due is due
            "run.nodes": 2,
            "run.warm_up": "10ms",
            "run.duration": "160ms",
            "run.sample_interval": "10ms",
            "source.trigger_rate": "100kHz",
            "source.trigger_steps": "300kHz@50ms,100kHz@110ms",
        }
    )
    assert run.finish() == 0, run.story()
    result = run.result()
    validate(result, "result.schema.json")
    offered = [round(sample["offered_hz"] / 50e3) * 50e3 for sample in result["triggers"]["over_time"]]
    assert offered.count(300e3) >= 2, offered
    assert offered[0] == offered[-1] == 100e3, offered
    reports = [report["triggers"] for report in run.reports if report["type"] == "sample"]
    assert max(report["offered_hz"] for report in reports) > 250e3


def test_a_result_without_open_loop_has_no_policy(start: Start) -> None:
    settings = {key: value for key, value in OVERLOADED.items() if key != "source.trigger_rate"}
    run = start({**settings, "run.events": 1000})
    assert run.finish() == 0, run.story()
    assert "policy" not in run.result()["triggers"]
    with pytest.raises(jsonschema.ValidationError):
        validate({**run.result(), "triggers": {"loop": "open"}}, "result.schema.json")


def test_uneven_correlated_sources_verify(start: Start) -> None:
    """Whatever the sizes, sinks know what must have come, byte for byte."""
    run = start(
        {
            "transport.name": SOCKETS,
            "run.nodes": 3,
            "run.events": 30_000,
            "source.sources_per_ru": 2,
            "source.size_distribution": "lognormal",
            "source.size_sigma": 0.5,
            "source.size_correlation": 0.6,
            "source.correlated_events": 8,
            "source.mean_ratio": 10,
            "source.hot_factor": 3,
            "source.hot_source": 2,
            "source.fragment_size": "200B",
        }
    )
    assert run.finish() == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert result["verified_meps"] == result["accounting"]["meps_committed"]
