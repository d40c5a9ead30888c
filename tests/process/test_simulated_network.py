"""What a run on the packet model tells of its network: result.json, the tables beside it, and the trace."""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Start
from test_documents import validate
from transports import SIMULATED

RUN = {
    "transport.name": SIMULATED,
    f"transport.{SIMULATED}.fabric": str(ROOT / "fabrics" / "ib-qdr-8.toml"),
    "run.nodes": 8,
    "run.warm_up": "1ms",
    "run.duration": "4ms",
    "protocol.mfp_size": "64KiB",
    "sink.kind": "null",
}


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def total(rows: list[dict[str, str]], column: str) -> int:
    return sum(int(row[column]) for row in rows)


def finished(start: Start, settings: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    run = start(settings)
    assert run.finish() == 0, run.story()
    return run.output, run.result()


def test_the_tables_say_what_the_result_says(start: Start) -> None:
    folder, result = finished(start, RUN)
    validate(result, "result.schema.json")
    network = result["network"]
    ports, queues, series = (table(folder / f"network_{name}.csv") for name in ("ports", "queues", "series"))
    assert (network["fabric"], network["hosts"], network["switches"], network["cables"]) == ("ib-qdr-8", 8, 1, 8)
    assert len(ports) == 16
    assert total(ports, "bytes") == network["totals"]["bytes"] > 0
    assert total(ports, "dropped") == network["totals"]["dropped"] == 0
    window = network["window"]["end_s"] - network["window"]["begin_s"]
    assert window == pytest.approx(4e-3)
    # What is on the cables to the hosts is what was built, and its headers.
    arrived = sum(int(row["bytes"]) for row in ports if row["from"] == "switch")
    goodput = result["goodput_bytes_per_s"]["total_without_self"] * window
    assert goodput < arrived < 1.2 * goodput
    for row in ports:
        assert float(row["utilisation"]) == pytest.approx(int(row["bytes"]) * 8 / 32e9 / window, abs=1e-5)
    busiest = max(float(row["utilisation"]) for row in ports)
    assert busiest == pytest.approx(network["links"]["utilisation_max"], abs=1e-5)
    fullest = max((row for row in queues if row["from"] == "switch"), key=lambda row: int(row["max_bytes"]))
    assert int(fullest["max_bytes"]) == network["fullest_queues"][0]["max_bytes"] > 0
    for row in queues:
        assert int(row["p50_bytes"]) <= int(row["p90_bytes"]) <= int(row["p99_bytes"]) <= int(row["max_bytes"])
        assert 0 < float(row["mean_bytes"]) <= int(row["max_bytes"])
    interval = network["series"]["interval_s"]
    assert network["series"]["intervals"] * interval >= 4e-3
    in_series = sum(float(row["utilisation"]) * interval for row in series) * 32e9 / 8
    assert in_series >= network["totals"]["bytes"]  # of the whole run, not of the window


def test_looking_changes_nothing(start: Start) -> None:
    folder, watched = finished(start, RUN)
    other, unwatched = finished(start, {**RUN, f"transport.{SIMULATED}.sample_interval": "0"})
    _, closely = finished(start, {**RUN, f"transport.{SIMULATED}.sample_interval": "1us"})
    assert watched["trace_hash"] == unwatched["trace_hash"] == closely["trace_hash"]
    assert "network" not in unwatched
    assert (folder / "network_series.csv").exists()
    assert not (other / "network_series.csv").exists()
    assert closely["network"]["totals"] == watched["network"]["totals"]
    assert closely["network"]["series"]["interval_s"] == 1e-6


@pytest.mark.parametrize("fabric", [RUN[f"transport.{SIMULATED}.fabric"], ""])
def test_a_trace_has_every_message_and_an_end(start: Start, tmp_path: Path, fabric: str) -> None:
    trace = tmp_path / "trace.csv"
    settings = {**RUN, f"transport.{SIMULATED}.fabric": fabric, "run.duration": "1ms", "run.warm_up": "0"}
    _, result = finished(start, {**settings, f"transport.{SIMULATED}.trace": trace})
    lines = table(trace)
    times = [int(line["t_ps"]) for line in lines]
    assert times == sorted(times)
    count = Counter(line["what"] for line in lines)
    assert count["write-posted"] == count["write-landed"] == count["notice-delivered"] > 0
    assert count["message-posted"] >= count["message-delivered"] > 0  # the last ones say goodbye
    posted = {line["number"]: line for line in lines if line["what"] == "write-posted"}
    landed = {line["number"]: line for line in lines if line["what"] == "write-landed"}
    assert posted.keys() == landed.keys()
    for number, line in posted.items():
        assert (line["from"], line["to"], line["bytes"]) == tuple(
            landed[number][key] for key in ("from", "to", "bytes")
        )
        assert int(line["t_ps"]) < int(landed[number]["t_ps"]) or line["from"] == line["to"]
    _, short = finished(
        start, {**settings, f"transport.{SIMULATED}.trace": trace, f"transport.{SIMULATED}.trace_lines": 100}
    )
    lines = table(trace)
    assert len(lines) == 101
    assert lines[-1]["what"] == "end-of-trace"
    assert short["trace_hash"] == result["trace_hash"]


def test_raw_traffic_tells_the_same(start: Start) -> None:
    _, result = finished(
        start,
        {
            "run.task": "net",
            "transport.name": SIMULATED,
            f"transport.{SIMULATED}.fabric": str(ROOT / "fabrics" / "qfx-pfc-pair.toml"),
            "run.nodes": 2,
            "run.warm_up": "1ms",
            "run.duration": "5ms",
            "net.pattern": "one-to-one",
        },
    )
    validate(result, "net_result.schema.json")
    network = result["network"]
    assert network["deadlocks"] == []
    assert "deep" in network["fullest_queues"][0]["port"] or "shallow" in network["fullest_queues"][0]["port"]


def test_a_trace_that_cannot_be_written_is_one_line(start: Start, tmp_path: Path) -> None:
    run = start({**RUN, f"transport.{SIMULATED}.trace": tmp_path / "no" / "trace.csv"})
    assert run.finish() != 0
    said = json.dumps(run.errors + run.reports_as_text())
    assert f"transport.{SIMULATED}.trace cannot be written: " in said
    assert "cannot be made: No such file or directory" in said


@pytest.mark.parametrize("task", ["build", "net"])
def test_a_trace_on_a_full_disk_is_whole_lines_and_the_result_says_what_is_missing(
    start: Start, tmp_path: Path, task: str
) -> None:
    trace = tmp_path / "trace.csv"
    settings = {
        **RUN,
        "run.task": task,
        "run.duration": "3ms",
        "run.warm_up": "0",
        f"transport.{SIMULATED}.trace": trace,
    }
    whole = start(settings)
    assert whole.finish() == 0, whole.story()
    lines = trace.read_text().count("\n")
    room = trace.stat().st_size // 2
    run = start(settings, prefix=["prlimit", f"--fsize={room}:unlimited"])
    assert run.finish() == 0, run.story()
    (listed,) = [file for file in run.result()["incomplete_files"] if file["file"] == "trace.csv"]
    assert listed["reason"] == "File too large"
    assert trace.read_text().endswith("\n")
    assert trace.read_text().count("\n") + listed["missing"] == lines
    assert {len(line) for line in table(trace)} == {6}
    (said,) = [line for line in run.notices if "trace.csv' cannot be written: File too large" in line]
    assert said.endswith("; the run goes on, lines of the trace are missing until there is room")


NETWORK_OF_CHANCE = """
[fabric]
name = "chance"
[hosts.nic]
mtu = "4096B"
header = "82B"
[switches.sw]
kind = "credit"
latency = "100ns"
input_buffer = "128KiB"
[links.c]
rate = "100Gb/s"
length_m = 10
[network]
{seed}
[flow]
transport = "reliable"
[topology]
kind = "leaf-spine"
leaves = 4
hosts_per_leaf = 4
spines = 4
host_link = "c"
uplink = "c"
"""


def test_the_seed_reaches_the_network_unless_its_file_fixes_one(start: Start, tmp_path: Path) -> None:
    def rates(run_seed: int, network_seed: str) -> tuple[float, ...]:
        file = tmp_path / f"chance{run_seed}{network_seed}.toml"
        file.write_text(NETWORK_OF_CHANCE.format(seed=network_seed))
        settings = {
            "transport.name": SIMULATED,
            f"transport.{SIMULATED}.fabric": str(file),
            "run.task": "net",
            "run.nodes": 16,
            "run.duration": "1ms",
            "run.warm_up": "100us",
            "run.seed": run_seed,
            "net.pattern": "pairs",
            "net.message_size": "64KiB",
        }
        _, result = finished(start, settings)
        return tuple(row["bytes_per_s"] for row in result["pairs"])

    assert len({rates(1, ""), rates(2, ""), rates(3, "")}) == 3
    assert rates(1, "seed = 2") == rates(3, "seed = 2") == rates(2, "")
