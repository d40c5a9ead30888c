"""Raw traffic without event building: every pattern over every transport, verified, and runs that go wrong."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Run, Start, process_state
from test_documents import validate
from transports import ONE_THREAD, RAPIDIO, SHARED_MEMORY, SIMULATED, SOCKETS

MESSAGES = 150
NET: dict[str, Any] = {
    "run.task": "net",
    "net.messages": MESSAGES,
    "net.message_size": "16KiB",
    "net.working_set": "1MiB",
    "net.verify": "true",
}
TRANSPORTS = [ONE_THREAD, SHARED_MEMORY, RAPIDIO, SOCKETS, SIMULATED]
PATTERNS: dict[str, tuple[dict[str, Any], set[tuple[int, int]]]] = {
    "one-to-one": ({}, {(0, 1)}),
    "many-to-one": ({"run.nodes": 4}, {(1, 0), (2, 0), (3, 0)}),
    "one-to-many": ({"run.nodes": 4}, {(0, 1), (0, 2), (0, 3)}),
    "pairs": ({"run.nodes": 4}, {(0, 2), (1, 3)}),
    "all-to-all": ({"run.nodes": 3}, {(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)}),
    "bipartite": ({"net.producers": 2, "net.consumers": 3}, {(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)}),
}


def check(result: dict[str, Any], pairs: set[tuple[int, int]], per_pair: int) -> None:
    """The matrix has the pairs of the pattern and no other, each with all its messages, and everything adds up."""
    validate(result, "net_result.schema.json")
    assert result["status"] == "complete"
    assert [(pair["from"], pair["to"]) for pair in result["pairs"]] == sorted(pairs)
    assert {pair["messages"] for pair in result["pairs"]} == {per_pair}
    assert result["messages"] == per_pair * len(pairs)
    assert result["verify_errors"] == 0
    assert sum(node["messages_sent"] for node in result["nodes"]) == result["messages"]
    assert all(node["state"] == "finished" and node["bad_messages"] == 0 for node in result["nodes"])
    total = result["messages"] * result["message_bytes"]
    assert result["window"]["bytes"] == total
    assert result["bytes_per_s"]["total"] == pytest.approx(total / result["window"]["seconds"])
    for side, end in (("senders", "from"), ("receivers", "to")):
        assert sum(entry["bytes"] for entry in result[side]) == total
        rates = [entry["bytes_per_s"] for entry in result[side]]
        assert sum(rates) == pytest.approx(result["bytes_per_s"]["total"])
        spread = result["bytes_per_s"][f"per_{side[:-1]}"]
        assert (spread["min"], spread["max"]) == (min(rates), max(rates))
        for entry in result[side]:
            own = [pair["bytes"] for pair in result["pairs"] if pair[end] == entry["node"]]
            assert entry["bytes"] == sum(own)


def check_verified(result: dict[str, Any], messages: int) -> None:
    """Bodies do not move in a simulation."""
    virtual = result["transport"] == SIMULATED
    assert result["time_domain"] == ("virtual" if virtual else "real")
    assert result["verified"] == ("header" if virtual else "full")
    assert result["verified_messages"] == (0 if virtual else messages)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_pattern_carries_what_it_says(start: Start, transport: str, pattern: str) -> None:
    settings, pairs = PATTERNS[pattern]
    run = start({**NET, **settings, "transport.name": transport, "net.pattern": pattern})
    assert run.finish() == 0, run.story()
    result = run.result()
    check(result, pairs, MESSAGES)
    check_verified(result, result["messages"])
    assert result["round_trip_ns"] is None
    expected = {"result.json", "config.toml", "log.txt", "samples.jsonl", "audit.jsonl"}
    assert {path.name for path in run.output.iterdir()} == expected


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_queues_and_both_directions(start: Start, transport: str) -> None:
    settings = {"transport.name": transport, "net.pattern": "pairs", "net.duplex": "true", "run.nodes": 4}
    run = start({**NET, **settings, "net.queues": 5, "net.outstanding": 3, "net.message_size": 777})
    assert run.finish() == 0, run.story()
    result = run.result()
    check(result, {(0, 2), (2, 0), (1, 3), (3, 1)}, 5 * MESSAGES)
    check_verified(result, result["messages"])
    assert (result["queues"], result["outstanding"]) == (5, 3)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_ping_pong_times_every_message(start: Start, transport: str) -> None:
    run = start(
        {**NET, "transport.name": transport, "net.pattern": "many-to-one", "run.nodes": 3, "net.measure": "latency"}
    )
    assert run.finish() == 0, run.story()
    result = run.result()
    check(result, {(1, 0), (2, 0)}, MESSAGES)
    check_verified(result, 2 * result["messages"])  # questions and answers
    trips = result["round_trip_ns"]
    assert trips["count"] == result["messages"]
    assert 0 < trips["p50"] <= trips["p99"] <= trips["p999"] <= trips["max"]
    assert result["one_way_ns"]["p99"] == trips["p99"] / 2
    for pair in result["pairs"]:
        assert pair["round_trip_ns"]["count"] == MESSAGES
        assert pair["round_trip_ns"]["max"] <= trips["max"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_reads_bring_what_writes_would(start: Start, transport: str) -> None:
    settings = {"transport.name": transport, "net.operation": "read", "net.pattern": "many-to-one", "run.nodes": 3}
    run = start({**NET, **settings, "net.queues": 2, "net.outstanding": 3, "net.message_size": 777})
    assert run.finish() == 0, run.story()
    check(run.result(), {(1, 0), (2, 0)}, 2 * MESSAGES)
    check_verified(run.result(), run.result()["messages"])
    assert (run.result()["operation"], run.result()["round_trip_ns"]) == ("read", None)
    run = start({**NET, **settings, "net.measure": "latency"})
    assert run.finish() == 0, run.story()
    result = run.result()
    check(result, {(1, 0), (2, 0)}, MESSAGES)
    check_verified(result, result["messages"])
    assert result["round_trip_ns"]["count"] == result["messages"]
    assert 0 < result["round_trip_ns"]["min"] <= result["round_trip_ns"]["p50"]
    assert result["one_way_ns"] is None
    assert all(pair["round_trip_ns"]["count"] == MESSAGES for pair in result["pairs"])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_pings_beside_a_load(start: Start, transport: str) -> None:
    """They count in no rate; and writes that are not complete are limited, whatever the transport."""
    settings = {"net.measure": "loaded", "net.ping_size": 100, "net.queues": 2, "net.outstanding": 4, "net.sends": 1}
    run = start({**NET, **settings, "transport.name": transport, "run.nodes": 2, "net.pattern": "one-to-one"})
    assert run.finish() == 0, run.story()
    result = run.result()
    check(result, {(0, 1)}, 2 * MESSAGES)
    trips = result["round_trip_ns"]
    assert trips["count"] == result["pairs"][0]["round_trip_ns"]["count"] > 0
    assert 0 < trips["min"] <= trips["p50"] <= trips["p999"] <= trips["max"]
    check_verified(result, result["messages"] + 2 * trips["count"])
    assert (result["ping_bytes"], result["sends"], result["outstanding"]) == (100, 1, 4)


def test_a_ping_waits_behind_what_is_in_flight(start: Start) -> None:
    """On a simulated network the answer is known: at most all that the receiver has slots for."""
    settings = {"transport.name": SIMULATED, "net.pattern": "one-to-one", "net.message_size": "64KiB"}
    simulated = {f"transport.{SIMULATED}.rate": "12.5GB/s", f"transport.{SIMULATED}.latency": "1us"}
    loaded = {"net.measure": "loaded", "net.outstanding": 16, "net.messages": 2000}
    run = start({**NET, **settings, **simulated, **loaded})
    assert run.finish() == 0, run.story()
    in_flight_ns = 16 * (65536 + 64) / 12.5
    idle_ns = 2 * (1000 + 128 / 12.5)
    trips = run.result()["round_trip_ns"]
    assert in_flight_ns / 2 < trips["p50"] <= trips["max"] <= 1.05 * (in_flight_ns + idle_ns)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"net.operation": "read", "net.measure": "loaded"}, "net.measure = loaded: reads are measured without a load"),
        ({"net.operation": "read", "net.sends": 2}, "net.sends = 2: nobody sends"),
        ({"net.outstanding": 4, "net.sends": 5}, "net.sends = 5: a queue has 4 messages in flight; allowed: 1..4"),
        ({"net.measure": "loaded", "net.ping_size": "1MiB"}, "net.ping_size = 1048576: a message of the load has"),
    ],
)
def test_what_cannot_be_measured_is_refused(start: Start, settings: dict[str, Any], words: str) -> None:
    run = start({**NET, **settings})
    assert run.finish() == 2, run.story()
    assert words in run.story()


@pytest.mark.parametrize("measured", ["whole", "window"])
def test_ports_that_data_goes_through_are_counted(start: Start, measured: str) -> None:
    if not Path("/sys/class/net/lo/statistics/rx_bytes").is_file():
        pytest.skip("no sysfs with network interfaces")
    times = {"net.messages": 0, "run.duration": "200ms", "run.warm_up": "50ms"} if measured == "window" else {}
    run = start({**NET, **times, "transport.name": SOCKETS, "run.nodes": 3})
    assert run.finish() == 0, run.story()
    result = run.result()
    validate(result, "net_result.schema.json")
    (port,) = result["ports"]  # of one host, whatever the number of its nodes
    assert (port["device"], port["port"], port["interface"]) == (None, None, "lo")
    assert port["grown"]["rx_bytes"] >= result["window"]["bytes"]
    shared = start({**NET, "transport.name": SHARED_MEMORY})
    assert shared.finish() == 0, shared.story()
    assert shared.result()["ports"] == []


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_window_within_a_run(start: Start, transport: str) -> None:
    """With a duration the warm-up is left out, and what is under way at the end still arrives."""
    times = {"run.duration": "200ms", "run.warm_up": "50ms"}
    if transport == SIMULATED:
        times = {"run.duration": "2ms", "run.warm_up": "500us", "run.sample_interval": "10ms"}
    run = start({**NET, **times, "net.messages": 0, "transport.name": transport})
    assert run.finish() == 0, run.story()
    result = run.result()
    validate(result, "net_result.schema.json")
    assert result["window"]["rule"].startswith("after the warm-up")
    sent = sum(node["messages_sent"] for node in result["nodes"])
    assert 0 < result["messages"] < sent == sum(node["messages_received"] for node in result["nodes"])
    assert len(result["pairs"]) == 12
    assert result["verify_errors"] == 0


def test_sixteen_processes(start: Start) -> None:
    run = start({**NET, "transport.name": SHARED_MEMORY, "run.nodes": 16, "net.message_size": "4KiB"})
    assert run.finish(120) == 0, run.story()
    check(run.result(), {(one, two) for one in range(16) for two in range(16) if one != two}, MESSAGES)


def test_the_same_seed_simulates_the_same(start: Start) -> None:
    outcomes = []
    for latency in ("1us", "1us", "2us"):
        run = start({**NET, "transport.name": SIMULATED, f"transport.{SIMULATED}.latency": latency})
        assert run.finish() == 0, run.story()
        outcomes.append((run.result()["trace_hash"], run.result()["window"]["seconds"]))
    assert outcomes[0] == outcomes[1] != outcomes[2]


def test_a_run_can_be_repeated_from_its_directory(start: Start) -> None:
    first = start({**NET, "transport.name": SIMULATED, "net.pattern": "bipartite", "run.nodes": 3})
    assert first.finish() == 0, first.story()
    second = start({}, str(first.output / "config.toml"))
    assert second.finish() == 0, second.story()
    assert second.result()["config"] == first.result()["config"]
    assert second.result()["trace_hash"] == first.result()["trace_hash"]


def test_nodes_may_join_from_elsewhere(start: Start, engine: Path) -> None:
    """By the same rendezvous as event building; here the other host is this one."""
    token = "fedcba9876543210"
    run = start({**NET, "transport.name": SOCKETS, "run.nodes": 3}, "--spawn", "1", token=token)
    address = run.wait_for(lambda report: report["type"] == "listening", "address")["address"]
    joined = [
        subprocess.Popen([str(engine), "--join", address], env={**os.environ, "INCAST_TOKEN": token}) for _ in range(2)
    ]
    assert run.finish() == 0, run.story()
    assert [process.wait(20) for process in joined] == [0, 0]
    check(run.result(), {(one, two) for one in range(3) for two in range(3) if one != two}, MESSAGES)


def measuring(start: Start, transport: str) -> Run:
    settings = {"transport.name": transport, "run.nodes": 3, "net.messages": 0, "run.sample_interval": "100ms"}
    run = start({**NET, **settings, "run.duration": "1h", "run.warm_up": "0s"})
    run.wait_for(lambda report: report["type"] == "sample" and report["events"] > 0, "traffic")
    return run


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_ctrl_c_still_reports(start: Start, transport: str) -> None:
    run = measuring(start, transport)
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.story()
    result = run.result()
    validate(result, "net_result.schema.json")
    assert result["status"] == "interrupted"
    assert result["messages"] > 0
    assert all(node["state"] == "finished" for node in result["nodes"])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("transport", [SHARED_MEMORY, SOCKETS])
def test_a_lost_node_ends_the_run(start: Start, transport: str, how: signal.Signals) -> None:
    run = measuring(start, transport)
    pid = run.node_pid(1)
    os.kill(pid, how)
    assert run.finish(40) == 3, run.story()
    assert process_state(pid) == "", "the process must not be left behind"
    result = run.result()
    validate(result, "net_result.schema.json")
    assert result["status"] == "node lost"
    why = "killed by signal 9" if how == signal.SIGKILL else "silent for"
    assert f"node 1 (sends+receives) lost: {why}" in result["reason"]
    assert result["nodes"][1]["lost"]


def test_documents_name_every_pattern() -> None:
    text = (ROOT / "docs" / "net.md").read_text()
    assert all(f"`{pattern}`" in text for pattern in PATTERNS)
