"""What goes beyond the pairs of test_matrix.py: copies, checksums, sizes, many nodes, open loop, simulation."""

import pytest
from support import Start, check_accounting
from transports import ONE_THREAD, SHARED_MEMORY, SIMULATED, SOCKETS

SHORT = {
    "run.nodes": 4,
    "run.events": 2000,
    "protocol.mfp_size": "64KiB",
    "sink.kind": "verify",
}


@pytest.mark.parametrize("scheme", ["push", "pull-read"])
@pytest.mark.parametrize("transport", [ONE_THREAD, SHARED_MEMORY, SOCKETS])
def test_checksums_of_what_is_whole_are_right(start: Start, transport: str, scheme: str) -> None:
    settings = {"transport.name": transport, "protocol.scheme": scheme, "protocol.checksum": "full"}
    run = start({**SHORT, **settings, "source.fill": "prefilled"})
    assert run.finish() == 0, run.story()
    result = run.result()
    assert result["events"] > 0
    assert result["incomplete_events"] == 0
    assert sum(node["totals"]["damaged_mfps"] for node in result["nodes"]) == 0
    check_accounting(result)


@pytest.mark.parametrize("transport", [ONE_THREAD, SHARED_MEMORY])
def test_pull_read_with_views_copies_nothing(start: Start, transport: str) -> None:
    run = start({**SHORT, "transport.name": transport, "protocol.scheme": "pull-read", "protocol.views": "true"})
    assert run.finish() == 0, run.story()
    result = run.result()
    assert (result["verified"], result["verify_errors"]) == ("full", 0)
    assert result["events"] > 0
    check_accounting(result)


@pytest.mark.parametrize(
    "writes",
    [
        {"protocol.message_size": "7000B"},
        {"protocol.message_size": "16KiB", "protocol.ack_per_write": "true", "protocol.outstanding_writes": 1},
    ],
    ids=["split", "one-at-a-time"],
)
@pytest.mark.parametrize("transport", [SHARED_MEMORY, SOCKETS])
def test_an_mfp_may_travel_as_several_writes(start: Start, transport: str, writes: dict[str, object]) -> None:
    run = start({**SHORT, "transport.name": transport, **writes})
    assert run.finish() == 0, run.story()
    result = run.result()
    assert (result["verified"], result["verify_errors"]) == ("full", 0)
    assert result["events"] > 0
    check_accounting(result)


@pytest.mark.parametrize("scheme", ["push", "pull"])
def test_what_a_node_has_for_itself_need_not_be_copied(start: Start, scheme: str) -> None:
    run = start({**SHORT, "transport.name": SOCKETS, "protocol.scheme": scheme, "protocol.self_traffic": "pointer"})
    assert run.finish() == 0, run.story()
    result = run.result()
    assert result["self_traffic"] == "pointer"
    assert result["verified"] == "full"
    assert result["events"] > 0
    goodput = result["goodput_bytes_per_s"]
    assert goodput["total"] > goodput["total_without_self"] > 0
    crossed = sum(
        node["totals"]["built_goodput_bytes"] - node["totals"]["built_self_bytes"] for node in result["nodes"]
    )
    assert 2 * crossed <= result["copied_bytes"] < 2.2 * crossed, "into sockets and out of them, and nothing else"
    check_accounting(result)


@pytest.mark.parametrize("schedule", ["sequential", "random", "linear-shift"])
@pytest.mark.parametrize("distribution", ["normal", "lognormal", "exponential"])
def test_sizes_and_orders(start: Start, schedule: str, distribution: str) -> None:
    """A fixed number of events is built exactly, whatever the sizes and the order."""
    run = start(
        {
            "transport.name": ONE_THREAD,
            "run.events": 20_000,
            "protocol.schedule": schedule,
            "protocol.mfp_size": "16KiB",
            "source.size_distribution": distribution,
            "source.sources_per_ru": 2,
        }
    )
    assert run.finish() == 0, run.story()
    result = run.result()
    assert result["events"] == 20_000
    check_accounting(result)


@pytest.mark.parametrize("em", ["shared", "own"])
def test_open_loop_accepts_what_is_offered(start: Start, em: str) -> None:
    run = start(
        {
            **SHORT,
            "transport.name": SOCKETS,
            "run.em": em,
            "run.events": 10_000,
            "source.trigger_rate": "20kHz",
            "source.arrivals": "poisson",
        }
    )
    assert run.finish() == 0, run.story()
    result = run.result()
    assert result["latency_ns"]["kind"] == "trigger"
    assert result["triggers"]["loop"] == "open"
    assert result["triggers"]["accepted_hz"] == pytest.approx(20_000, rel=0.3)
    check_accounting(result)


def test_sixteen_processes(start: Start) -> None:
    """More nodes than cores: nodes must sleep, or nothing moves."""
    run = start({**SHORT, "transport.name": SOCKETS, "run.nodes": 16, "protocol.mfp_size": "16KiB"})
    assert run.finish(120) == 0, run.story()
    result = run.result()
    assert result["events"] > 0
    assert result["verified"] == "full"
    check_accounting(result)
    # Memory per node as documented: slots, sources, and what a process takes anyway.
    sizes = result["sizes"]
    sources = max(int(result["config"]["source"]["prefill_size"]), sizes["ru_memory_bytes"])
    for node in result["nodes"]:
        assert node["peak_rss_bytes"] < sizes["bu_memory_bytes"] + 1.1 * sources + (48 << 20)


def test_thirty_two_processes(start: Start) -> None:
    run = start({**SHORT, "transport.name": SHARED_MEMORY, "run.nodes": 32, "protocol.mfp_size": "4KiB"})
    assert run.finish(120) == 0, run.story()
    result = run.result()
    assert result["events"] > 0
    assert result["verified"] == "full"
    assert result["set_up_ns"] > 0
    check_accounting(result)


def test_sixty_four_nodes_in_one_thread(start: Start) -> None:
    run = start({**SHORT, "transport.name": ONE_THREAD, "run.nodes": 64, "protocol.mfp_size": "4KiB"})
    assert run.finish(120) == 0, run.story()
    result = run.result()
    assert result["events"] > 0
    assert len(result["nodes"]) == 64
    check_accounting(result)
    sizes = result["sizes"]
    assert sizes["bu_memory_bytes"] >= sizes["credits"] * sizes["slot_bytes"]


def test_the_same_seed_simulates_the_same(start: Start) -> None:
    settings = {
        **SHORT,
        "transport.name": SIMULATED,
        "source.size_distribution": "normal",
    }
    hashes = []
    for seed in (7, 7, 8):
        run = start({**settings, "run.seed": seed})
        assert run.finish() == 0, run.story()
        result = run.result()
        assert result["time_domain"] == "virtual"
        assert result["verified"] == "header"
        check_accounting(result)
        hashes.append((result["trace_hash"], result["events"]))
    assert hashes[0] == hashes[1]
    assert hashes[0][0] != hashes[2][0]
