"""The table at the end of a run."""

import io
from pathlib import Path
from typing import Any

import pytest
from incast.evidence.diagnosis import diagnose
from incast.run.summary import limit_rows, print_summary
from rich.console import Console

from tests.fake_engine import RESULT


def shown(result: dict[str, Any]) -> dict[str, str]:
    """The rows of the summary by their label; the line about virtual time under its own words."""
    screen = Console(file=io.StringIO(), width=160)
    print_summary(screen, result, Path("/results/here"))
    assert isinstance(screen.file, io.StringIO)
    rows = (line.strip().partition("  ") for line in screen.file.getvalue().splitlines())
    return {label: " ".join(text.split()) for label, _, text in rows}


def test_every_figure_of_a_result() -> None:
    rows = shown(RESULT)
    assert rows["goodput, total"] == "4.00 GB/s (32.0 Gbit/s)"
    assert rows["goodput, without self"] == "3.00 GB/s (24.0 Gbit/s)"
    assert rows["per readout unit"] == "min 900 MB/s mean 1.00 GB/s max 1.10 GB/s"
    assert rows["per builder unit"] == "min 800 MB/s mean 1.00 GB/s max 1.20 GB/s"
    assert rows["events"] == "1 234 567 (123 k/s)"
    assert (rows["incomplete"], rows["lost"], rows["redelivered"]) == ("0", "0", "3")
    assert rows["verification"] == "full, no errors in 20 240 packets"
    assert rows["latency (service)"] == "min 80.0 µs p50 120 µs p95 300 µs p99 450 µs"
    assert rows["p99.9 2.50 ms"] == "max 9.00 ms"
    assert rows["dead time"] == "25 %"
    assert rows["builders waiting"] == "12.5 %"
    assert rows["run"] == "tcp, 4 nodes, push, MFPs of 61 events, 65.5 kB"
    assert rows["over time"] == "min 3.80 GB/s mean 4.00 GB/s max 4.10 GB/s"
    assert rows["CPU"] == "0.456 s/GB (25 % of it polling in vain)"
    assert rows["peak memory"] == "105 MB (largest process)"
    assert "triggers" not in rows
    assert "results in /results/here" in rows


def test_the_rate_of_events_names_its_window() -> None:
    assert shown(RESULT | {"window": {"seconds": 4.0}})["events"] == "1 234 567 (123 k/s in the 4.00 s measured)"
    assert shown(RESULT | {"window": {"seconds": 0.0}})["events"] == "1 234 567 (no time was measured)"


def test_a_filtered_run_says_what_was_accepted() -> None:
    """The rate is of accepted events, the number of all; so both stand in rows of their own."""
    rows = shown(RESULT | {"events": 35_532, "rejected_events": 35_217, "events_per_s": 39.3, "window": {"seconds": 8}})
    assert rows["events, filtered"] == "35 532"
    assert rows["accepted"] == "315 (39.3/s in the 8.00 s measured)"
    assert rows["rejected"] == "35 217 (99.1 %)"
    assert "events" not in rows
    config = RESULT["config"] | {"protocol": {"scheme": "push-pull"}}
    assert shown(RESULT | {"config": config})["rejected"] == "0 (0 %)", "a filter that rejects nothing says so"


def test_what_no_consumer_took_is_not_lost() -> None:
    rows = shown(RESULT | {"lost_events": 2016, "consumers": {"attached": 0, "taken_meps": 0}})
    assert rows["not delivered"] == "2 016 events: no consumer was attached"
    assert "lost" not in rows
    assert shown(RESULT | {"lost_events": 2016, "consumers": {"attached": 1, "taken_meps": 9}})["lost"] == "2 016"


def test_nothing_limits_a_run_that_built_nothing() -> None:
    found = diagnose(RESULT | {"window": {"seconds": 4.0, "meps": 0, "events": 0}})
    assert [text.plain for _, text in limit_rows(found)] == ["not said: nothing was built in the measured time"]


def test_packets_of_one_event() -> None:
    assert "MFPs of 1 event, " in shown(RESULT | {"sizes": RESULT["sizes"] | {"packing": 1}})["run"]


def test_files_on_other_hosts_are_named_with_them() -> None:
    nodes = [{"node": i, "roles": f"{i} (BU)", "lost": False, "place": {"host": f"node{i // 2}"}} for i in range(4)]
    written = {"nodes": nodes, "machine": {"host": "head"}, "config": {"sink": {"kind": "mep", "path": "/data"}}}
    assert shown(RESULT | written)["MEP files"] == "/data on node0, node1"
    assert "MEP files" not in shown(RESULT | written | {"nodes": nodes[:2], "machine": {"host": "node0"}})
    unread = {"accounting": {"ledger_error": "it is on node7: /out/ledger.bin"}}
    assert shown(RESULT | unread)["ledger"] == "it is on node7: /out/ledger.bin"


def test_an_estimate_of_more_than_there_was_is_left_out() -> None:
    assert shown(RESULT | {"cpu": {"seconds": 1.0, "polling_seconds": 1.23}})["CPU"] == "0.456 s/GB"


def test_unverified_goodput_says_so() -> None:
    assert shown(RESULT | {"verified": "none"})["verification"] == "not verified"


def test_a_verification_that_read_nothing_is_none() -> None:
    assert shown(RESULT | {"verified_meps": 0})["verification"].startswith("not verified")
    assert shown(RESULT | {"verified": "header", "verified_meps": 0})["verification"] == "headers alone, no errors"


def test_verify_errors_are_loud() -> None:
    assert shown(RESULT | {"verify_errors": 12})["verification"] == "full: 12 ERRORS"


def test_an_unknown_number_of_lost_events_is_not_zero() -> None:
    assert shown(RESULT | {"lost_events": None})["lost"] == "unknown"


def test_a_run_that_ended_early_says_why() -> None:
    rows = shown(RESULT | {"status": "event manager lost", "reason": "node 0 is gone"})
    assert "event manager lost: node 0 is gone" in rows


def test_no_latency_was_measured_is_not_a_latency_of_zero() -> None:
    rows = shown(RESULT | {"latency_ns": {"kind": "service", "count": 0, "p50": 0, "p99": 0, "p999": 0, "max": 0}})
    assert rows["latency (service)"] == "-"


UNKNOWN_LATENCY = {
    "latency_ns": {
        "kind": "trigger",
        "count": 5000,
        "clock_error": 11_000_000,
        **dict.fromkeys(("p50", "p99", "p999", "max")),
        "reason": "clocks of hosts may be 11 ms apart, more than 10 % of the median",
    }
}


def test_a_latency_that_is_not_known_is_not_shown() -> None:
    latency = shown(RESULT | UNKNOWN_LATENCY)["latency (trigger)"]
    assert latency == "not shown: clocks of hosts may be 11 ms apart, more than 10 % of the median"


def test_a_latency_over_several_hosts_says_how_well_it_is_known() -> None:
    latency = RESULT["latency_ns"] | {"kind": "trigger", "clock_error": 12_000}
    rows = shown(RESULT | {"latency_ns": latency})
    assert rows["latency (trigger)"] == "min 80.0 µs p50 120 µs p95 300 µs p99 450 µs"
    assert rows["p99.9 2.50 ms"] == "max 9.00 ms clock_error 12.0 µs"


def test_open_loop_shows_what_was_offered_and_what_was_taken() -> None:
    triggers = {"loop": "open", "requested_hz": 4e4, "offered_hz": 4e4, "accepted_hz": 3e4}
    assert shown(RESULT | {"triggers": triggers})["triggers"] == "offered 40.0 k/s accepted 30.0 k/s"
    more = {"policy": "drop", "inhibited_hz": 0, "dropped_hz": 1e4, "waiting_events": 12}
    rows = shown(RESULT | {"triggers": triggers | more | {"occupancy": {"mean": 0.25, "max": 1.0}}})
    assert rows["triggers"] == "offered 40.0 k/s accepted 30.0 k/s dropped 10.0 k/s 12 still wait (drop)"
    assert rows["readout memory"] == "mean 25 % max 100 % in use"


def test_events_that_no_command_took_are_shown() -> None:
    assert "not delivered" not in shown(RESULT)
    rows = shown(RESULT | {"sink": {"kind": "command", "undelivered_meps": 5}})
    assert rows["not delivered"] == "5 packets, without a command"


def test_incomplete_events_have_a_row_for_each_flag() -> None:
    flags = {"desync": {"events": 1091, "mfps": 29}, "dropped": {"events": 40, "mfps": 80}}
    rows = shown(RESULT | {"incomplete_events": 1131, "flags": flags})
    assert rows["incomplete"] == "1 131"
    assert (rows["desync"], rows["dropped"]) == ("1 091 events, 29 MFPs", "40 events, 80 MFPs")
    assert "left out" not in rows


def test_what_of_the_input_is_left_out_is_shown_by_file() -> None:
    files = [
        {"file": f"source-{source}.mfp", "left_out_mfps": 5 if source else 0, "left_out_events": 20 * source}
        for source in range(8)
    ]
    rows = shown(RESULT | {"inputs": {"uneven": files}})
    assert rows["left out"] == "20 events of source-1.mfp (5 MFPs)"
    assert {"40 events of source-2.mfp (5 MFPs)", "and of 3 more files"} <= set(rows)


def test_a_node_in_trouble_has_a_line() -> None:
    nodes = [
        {"node": 0, "roles": "0 (RU+BU+EM)", "lost": False},
        {"node": 1, "roles": "1 (RU+BU)", "lost": True, "why_lost": "killed by signal 9"},
    ]
    rows = shown(RESULT | {"nodes": nodes})
    assert rows["node 1 (RU+BU)"] == "killed by signal 9"
    assert "node 0 (RU+BU+EM)" not in rows


def test_virtual_time_comes_first() -> None:
    assert next(iter(shown(RESULT | {"time_domain": "virtual"}))).startswith("VIRTUAL TIME")
    assert not any("VIRTUAL" in label for label in shown(RESULT))


@pytest.mark.parametrize("missing", sorted(RESULT))
def test_what_a_run_did_not_measure_is_a_dash_and_no_crash(missing: str) -> None:
    rows = shown({key: value for key, value in RESULT.items() if key != missing} | {"goodput_bytes_per_s": None})
    assert rows["goodput, total"] == "- (-)"


def test_too_few_packets_are_said() -> None:
    nodes = [{"node": node, "roles": f"{node} (RU+BU)"} for node in range(4)]
    coarse = shown(RESULT | {"nodes": nodes, "window": {"seconds": 1.0, "meps": 100}})["coarse"]
    assert coarse.startswith(
        "only 100 packets were measured: one more or less per builder unit changes the rates by 4 %"
    )
    assert "coarse" not in shown(RESULT | {"nodes": nodes, "window": {"seconds": 1.0, "meps": 1000}})


def test_who_took_the_events_is_said() -> None:
    nobody = {"attached": 0, "taken_meps": 0, "dropped_meps": 1234}
    assert shown(RESULT | {"consumers": nobody})["consumers"] == (
        "nobody attached; packets: 0 taken, 1 234 dropped; no event reached a consumer"
    )
    some = {"attached": 3, "left": 1, "ejected": 1, "taken_meps": 500, "held_meps": 2}
    waiting = {"consumers": some, "accounting": {"meps_admitted": 510, "meps_committed": 500}}
    assert shown(RESULT | waiting)["consumers"] == (
        "3 attached, 1 left, 1 ejected; packets: 500 taken, 2 still held, 10 still wait"
    )
    assert "consumers" not in shown(RESULT)
