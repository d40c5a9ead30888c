"""What limited a run: bottlenecks planted in real and simulated runs, and rules on made-up results."""

import copy
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from incast.engine.idle import Readiness, Window
from incast.evidence.diagnosis import DIAGNOSIS_NAME, diagnose
from incast.evidence.facts import read_samples
from incast.evidence.findings import CONFIDENCES, MISSING, NOT_KNOWN
from incast.evidence.network import network_lines
from incast.run.summary import network_rows

from tests.fake_engine import RESULT
from tests.lab.conftest import InProcess

# Half a second in samples of 50 ms: what is looked at are counters, not speed.
SHORT = ("--duration", "500ms", "--warm-up", "200ms", "--set", "run.sample_interval=50ms", "--json")
SMALL = ("--set", "source.prefill_size=256KiB", "--nodes", "2")
# Two nodes that wait for each other in turn and sleep meanwhile.
IN_TURN = ("--roles", "split", "--set", "run.yields=0", "--sink", "null", "--mfp-size", "4KiB")
SLOW_COMMAND = "while sys.stdin.buffer.read(65536): time.sleep(0.02)"  # house: allow sleep: a slow command


def diagnosis_of(real: InProcess, *options: str) -> dict[str, Any]:
    done = real("run", *SHORT, "--output", "out", *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((real.folder / "out" / DIAGNOSIS_NAME).read_text())
    return found


def named(real: InProcess, cause: str, *options: str) -> None:
    """The cause is named from the counters of the nodes; and with what was seen of the machine, unless others used it.

    On a machine that others use, cores may be what is short in fact, or nothing can be told any more.
    """
    found = diagnosis_of(real, *options)
    result = json.loads((real.folder / "out" / "result.json").read_text())
    counted = diagnose(result, read_samples(real.folder / "out"))
    assert (counted.limited_by, counted.confidence in ("high", "medium")) == (cause, True), counted
    assert counted.evidence
    assert counted.suggestion
    others = found["machine"]["others_cpu_fraction"] + found["machine"]["stolen_cpu_fraction"]
    allowed = {cause, "CPU", NOT_KNOWN} if others > 0.2 else {cause}
    assert found["limited_by"] in allowed, found


def test_real_source_rate(real: InProcess) -> None:
    named(real, "source rate", *SMALL, "--trigger-rate", "2kHz")


def test_real_sink(real: InProcess) -> None:
    command = shlex.join([sys.executable, "-c", f"import sys, time\n{SLOW_COMMAND}"])
    # The command has to be there, and what lies before it full, before it can be what limits the run.
    # What waits for the command has to be much more than what is on its way back to the readout units, which a busy
    # machine delays: so they have room for many times the slots.
    settled = ("--warm-up", "2s", "--duration", "1s", "--set", "source.memory=1MiB")
    named(real, "sink", *SMALL, *settled, "--sink", f"command:{command}", "--mfp-size", "16KiB", "--credits", "4")


def test_real_credits(real: InProcess) -> None:
    named(real, "credits", *SMALL, *IN_TURN, "--credits", "1")


def test_real_parallel_sends(real: InProcess) -> None:
    named(real, "parallel sends", *SMALL, *IN_TURN, "--credits", "16", "--parallel-sends", "1")


def test_real_cpu(real: InProcess) -> None:
    """One process has one thread for all nodes, which always have work: on an idle machine it has a core for itself."""
    found = diagnosis_of(real, *SMALL, "--transport", "inproc", "--sink", "null")
    assert (found["limited_by"], found["confidence"]) == ("CPU", "high"), found


# Long enough to settle: at 1 Gb/s a MEP takes milliseconds.
SIM = ("--transport", "sim", "--duration", "200ms", "--warm-up", "100ms", "--set", "run.sample_interval=20ms")
BURST = ("--trigger-rate", "10kHz,10MHz@150ms,10kHz@151ms,10MHz@250ms,10kHz@251ms", "--policy", "throttle")
FAR = ("--set", "transport.sim.latency=500us")
NARROW = ("--set", "transport.sim.rate=1Gb/s")


@pytest.mark.parametrize(
    ("cause", "options"),
    [
        ("source rate", ("--trigger-rate", "20kHz")),
        ("credits", (*FAR, "--credits", "1")),
        ("parallel sends", (*FAR, "--credits", "32", "--parallel-sends", "1")),
        ("parallel requests", (*FAR, "--protocol", "pull", "--credits", "8", "--parallel-requests", "1")),
        ("sender link", (*NARROW, "--roles", "split", "--set", "run.readout_units=1", "--set", "run.builder_units=3")),
        (
            "receiver link",
            (*NARROW, "--roles", "split", "--set", "run.readout_units=3", "--set", "run.builder_units=1"),
        ),
        ("schedule", ("--set", "protocol.inter_send_gap=1ms")),
        (
            "buffer memory",
            (*BURST, "--credits", "2", "--set", "source.memory=2MiB", "--set", "transport.sim.rate=10Gb/s"),
        ),
    ],
)
def test_simulated(real: InProcess, cause: str, options: tuple[str, ...]) -> None:
    done = real("run", *SIM, "--output", "out", "--json", *options)
    assert done.returncode == 0, done.stderr
    found = json.loads((real.folder / "out" / DIAGNOSIS_NAME).read_text())
    assert (found["limited_by"], found["confidence"] in ("high", "medium")) == (cause, True), found


@pytest.mark.parametrize(
    ("cause", "options"),
    [
        ("receiver link", ("--pattern", "many-to-one", *NARROW)),
        ("sender link", ("--pattern", "one-to-many", *NARROW)),
        ("credits", ("--outstanding", "1", *FAR)),
        (NOT_KNOWN, ("--measure", "latency", "--nodes", "2")),
    ],
)
def test_simulated_raw_traffic(real: InProcess, cause: str, options: tuple[str, ...]) -> None:
    done = real("net", *SIM, "--output", "out", "--json", *options)
    assert done.returncode == 0, done.stderr
    found = json.loads((real.folder / "out" / DIAGNOSIS_NAME).read_text())
    assert found["limited_by"] == cause, found


def test_the_summary_says_it(real: InProcess) -> None:
    done = real("run", *SIM, *FAR, "--credits", "1", "--output", "out")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("limited by"))
    assert "credits" in line
    assert "high" in line
    assert "raise protocol.credits" in done.stdout


# --- made-up results


def result_with(**changes: Any) -> dict[str, Any]:
    """Two nodes on two cores, 16 credits each, one second."""
    result = copy.deepcopy(RESULT) | {
        "window": {"seconds": 1.0, "meps": 1000},
        "machine": {"cores": 2},
        "cpu": {"seconds": 0.4, "polling_seconds": 0.1, "sink_seconds": 0.0},
        "sizes": {"credits": 16, "packing": 10, "mfp_bytes": 1000, "memory_meps": 64},
        "nodes": [{"node": k, "roles": f"{k} (RU+BU)", "totals": {}} for k in range(2)],
        "latency_ns": {"kind": "service", "count": 10, "p50": 20_000_000, "p99": 0, "p999": 0, "max": 0},
    }
    return result | changes


def machine(ran: float, waited: float, others: float = 0.0) -> Window:
    shares = (Readiness(ran, waited),) * 2
    return Window(seconds=1.0, cpu=2 * ran, others=others, irq=0, steal=0, processes=shares)


def test_a_result_without_counters_is_not_known() -> None:
    assert diagnose({}).limited_by == NOT_KNOWN
    assert diagnose(RESULT).limited_by == NOT_KNOWN
    assert diagnose({"kind": "net"}).limited_by == NOT_KNOWN


def test_what_cannot_be_seen_is_said() -> None:
    found = diagnose(result_with())
    assert found.missing == MISSING
    assert {"switch buffer or pauses", "host memory bandwidth"} <= set(found.missing)


def test_processes_that_wait_for_a_core_lack_cpu() -> None:
    found = diagnose(result_with(), window=machine(0.1, 0.8, others=1.8))
    assert (found.limited_by, found.confidence) == ("CPU", "high")
    assert "80 % they waited" in found.evidence[0]
    assert "others 90 %" in found.evidence[1]


def test_processes_that_only_look_for_work_lack_none() -> None:
    idle = result_with(cpu={"seconds": 1.8, "polling_seconds": 1.7, "sink_seconds": 0})
    assert diagnose(idle, window=machine(0.5, 0.4)).limited_by != "CPU"


def test_nodes_that_sleep_with_all_credits_in_use_lack_credits() -> None:
    few = result_with(sizes={"credits": 2, "packing": 10, "mfp_bytes": 1000, "memory_meps": 64})
    found = diagnose(few, window=machine(0.2, 0.0))
    assert (found.limited_by, found.confidence) == ("credits", "high")
    many = diagnose(result_with(), window=machine(0.2, 0.0))
    assert (many.limited_by, many.confidence) == ("credits", "medium"), "the more there are, the less sure"


def test_a_window_that_missed_the_nodes_says_nothing() -> None:
    """They had ended when the second look was taken: only their parent was seen, which sleeps."""
    gone = Window(seconds=1.0, cpu=1.0, others=0, irq=0, steal=0, processes=(Readiness(0.01, 0.0),))
    assert diagnose(result_with(), window=gone).limited_by == NOT_KNOWN


def test_a_sink_that_takes_most_of_the_cpu_time() -> None:
    busy = result_with(cpu={"seconds": 1.9, "polling_seconds": 0.0, "sink_seconds": 1.5})
    found = diagnose(busy)
    assert (found.limited_by, found.confidence) == ("sink", "high")
    assert "CPU" in found.others


def open_loop(offered: float, accepted: float, dead: float, mean: float, most: float) -> dict[str, Any]:
    triggers = {"loop": "open", "offered_hz": offered, "accepted_hz": accepted}
    return result_with(triggers=triggers | {"occupancy": {"mean": mean, "max": most}}, dead_time_fraction=dead)


def test_open_loop() -> None:
    assert diagnose(open_loop(1000, 999, 0, 0.01, 0.1)).limited_by == "source rate"
    assert diagnose(open_loop(1000, 990, 0.05, 0.2, 1.0)).limited_by == "buffer memory"
    assert diagnose(open_loop(1000, 500, 0.5, 1.0, 1.0)).limited_by == NOT_KNOWN


def test_samples_are_those_of_the_measured_phase(tmp_path: Path) -> None:
    lines = [
        {"node": 0, "phase": phase, "interval_s": 1.0, "delta": {"cpu_ns": cpu, "sleeps": 1}}
        for phase, cpu in (("warm-up", 10**9), ("measuring", 10**8), ("draining", 10**9))
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"torn'
    (tmp_path / "samples.jsonl").write_text(text)
    found = diagnose(result_with(machine={"cores": 1}), read_samples(tmp_path))
    assert found.limited_by != "CPU"
    assert diagnose(result_with(), [{**lines[0], "phase": "measuring"}]).limited_by == "CPU"


_ANY = st.recursive(
    st.none() | st.booleans() | st.floats(-1e9, 1e12) | st.sampled_from(["auto", "pull", "command", "64KiB", ""]),
    lambda inner: st.dictionaries(st.sampled_from(["seconds", "credits", "mean", "loop", "name"]), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.sampled_from(sorted(set(result_with()) - {"nodes", "kind"})), _ANY, max_size=4))
def test_any_result_gets_an_answer(changes: dict[str, Any]) -> None:
    """A result of another version, or a damaged one, is no reason to fail after an hour of measuring."""
    found = diagnose(result_with(**changes))
    assert found.confidence in CONFIDENCES
    assert (found.limited_by == NOT_KNOWN) == (found.confidence == "none")


def simulated_network(dropped: int = 0, paused_s: float = 0.0, fullest: float = 0.5) -> dict[str, Any]:
    """A run of the packet model as it says of its network."""
    return RESULT | {
        "time_domain": "virtual",
        "config": {"transport": {"name": "sim", "sim": {"fabric": "some.toml"}}, "protocol": {"scheme": "push"}},
        "network": {
            "window": {"begin_s": 1.0, "end_s": 1.01},
            "totals": {"packets": 100_000, "dropped": dropped, "repeated": 3 * dropped, "paused_s": paused_s},
            "links": {"used": 10, "utilisation_max": fullest},
        },
    }


def test_a_switch_that_drops_is_named() -> None:
    found = diagnose(simulated_network(dropped=5000))
    assert (found.limited_by, found.confidence) == ("switch buffer or pauses", "high")
    assert "5000 packets found no room in a switch, 15000 were sent again" in found.evidence
    assert "fewer protocol.credits" in found.suggestion
    assert diagnose(simulated_network(dropped=200)).confidence == "medium"
    assert diagnose(simulated_network(dropped=20)).limited_by == NOT_KNOWN


def shared_by(built: list[float], most: float, mean: float, **protocol: str) -> dict[str, Any]:
    """A simulated run with so many bytes per second at each builder unit, the event manager on node 0."""
    result = simulated_network(fullest=most)
    result["network"]["links"] |= {"utilisation_mean": mean, "busiest": "switch to host0 (cable 0)"}
    result["config"] = result["config"] | {"protocol": {"scheme": "push"} | protocol, "run": {"em": "shared"}}
    roles = ["0 (EM+RU+BU)", *(f"{node} (RU+BU)" for node in range(1, len(built)))]
    nodes = [{"node": node, "roles": roles[node], "built_goodput_bytes_per_s": rate} for node, rate in enumerate(built)]
    return result | {"nodes": nodes}


def test_a_builder_unit_with_more_than_its_share_is_named() -> None:
    """It takes the share of the others: its link is full, theirs are not."""
    found = diagnose(shared_by([12e9] + [8e9] * 7, 0.98, 0.63))
    assert (found.limited_by, found.confidence) == ("one builder unit", "high")
    assert found.evidence == (
        "node 0 (EM+RU+BU) builds 1.41 times the mean of the builder units",
        "the event manager runs there, so credits of this unit come back before all others",
        "switch to host0 (cable 0): 98 % busy; all links in use: 63 % on average",
    )
    assert found.suggestion == "protocol.assignment = static, or run.em = own (takes one more host)"
    assert diagnose(shared_by([12e9] + [8e9] * 7, 0.87, 0.6)).confidence == "medium"
    static = diagnose(shared_by([12e9] + [8e9] * 7, 0.98, 0.63, assignment="static"))
    assert static.limited_by == "one builder unit"
    assert "static" not in static.suggestion.split(",")[0]
    assert diagnose(shared_by([12e9] + [8e9] * 7, 0.6, 0.5)).limited_by == NOT_KNOWN  # no link is short


def test_a_full_link_of_a_simulated_network_is_named() -> None:
    even = diagnose(shared_by([8e9] * 8, 0.99, 0.9))
    assert (even.limited_by, even.confidence) == ("network links", "high")
    one = diagnose(shared_by([8e9] * 8, 0.99, 0.5))
    assert (one.limited_by, one.confidence) == ("network link", "medium")
    assert one.evidence == ("switch to host0 (cable 0): 99 % busy; all links in use: 50 % on average",)
    raw = {"kind": "net", "measure": "bandwidth", "outstanding": 2, "queues": 1}
    assert diagnose(shared_by([8e9] * 8, 0.99, 0.5) | raw).limited_by == "network link"


def test_the_summary_names_the_busiest_link_and_builder() -> None:
    """Whatever limited the run, and once only."""
    result = shared_by([12e9] + [8e9] * 7, 0.6, 0.5)
    rows = {label: text.plain for label, text in network_rows(result, diagnose(result))}
    assert rows["busiest link"] == "switch to host0 (cable 0): 60 % busy; all links in use: 50 % on average"
    assert rows["busiest builder"] == "node 0 (EM+RU+BU) builds 1.41 times the mean of the builder units"
    limited = shared_by([12e9] + [8e9] * 7, 0.98, 0.63)
    assert network_rows(limited, diagnose(limited)) == []
    assert network_rows(shared_by([8e9] * 8, 0.6, 0.5) | {"network": {}}, None) == []


def test_a_deadlock_is_named_before_all_else() -> None:
    circle = {"class": 3, "ports": [f"s{k} to s{(k + 1) % 5} (cable {k})" for k in range(5)]}
    stuck = simulated_network(paused_s=0.03)
    stuck["network"]["deadlocks"] = [circle]
    raw = stuck | {"kind": "net", "measure": "bandwidth", "outstanding": 2, "queues": 1}
    for result in (stuck, raw, raw | {"measure": "latency"}):
        found = diagnose(result)
        assert (found.limited_by, found.confidence) == ("deadlock of the network", "high")
        assert found.evidence[0].startswith("class 3: s0 to s1 (cable 0), s1 to s2 (cable 1)")
        assert "and 1 more wait for each other for ever" in found.evidence[0]
    stuck["network"]["deadlocks"] = [circle, circle]
    assert "2 circles of ports" in diagnose(stuck).evidence[0]


def test_raw_traffic_names_what_switches_did() -> None:
    raw = {"kind": "net", "measure": "bandwidth", "outstanding": 2, "queues": 1}
    found = diagnose(simulated_network(dropped=5000) | raw)
    assert (found.limited_by, found.confidence) == ("switch buffer or pauses", "high")
    assert "net.outstanding" in found.suggestion
    assert network_lines(simulated_network(dropped=3)) == ["3 packets found no room in a switch, 9 were sent again"]
    assert network_lines(simulated_network()) == []


def test_pauses_are_named() -> None:
    found = diagnose(simulated_network(paused_s=0.03))
    assert found.limited_by == "switch buffer or pauses"
    assert "cables were paused 30 % of the time" in found.evidence[0]
    assert diagnose(simulated_network(paused_s=0.001)).limited_by == NOT_KNOWN
