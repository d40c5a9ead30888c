"""`incast bridge zmq`: what it measures, its tables and figures, what it refuses; the measuring program is a fake."""

import io
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from incast.base.errors import OneLineError
from incast.base.places import CHECKOUT
from incast.bridges.zmq import BREAKDOWN, BUFFER_SCAN, RING_SCAN, SPEED, Wanted
from incast.bridges.zmq_program import (
    LATENCY,
    STREAM,
    Case,
    ReadingError,
    find_bridge,
    parse_ways,
    reading_of,
    stages_of,
)
from incast.bridges.zmq_tables import tables
from incast.cli.bridge import print_zmq
from incast.figures.datasets import load
from incast.figures.report import make_parts
from incast.figures.scan_figures import Choice
from incast.figures.style import LIGHT, themed
from incast.figures.zmq_document import BEGIN, END, write_document
from rich.console import Console

from tests.lab.conftest import InProcess

# A round trip takes 2 us over tcp, 1 us else; over ipc nobody answers.
FAKE = """#!/bin/sh
case $1 in
serve) case $3 in ipc*) echo "zmq_measure: ipc://*: no luck" >&2; exit 1;; esac
  echo "${3%%:*}://here"
  [ -n "$INCAST_ZMQ_STAGES" ] && echo '{"post": {"ns": 3000, "turns": 3}}' > "$INCAST_ZMQ_STAGES"
  echo '{"messages": 9, "all_messages": 12, "seconds": 0.5, "cpu_s": 9e-6}';;
ask) echo measuring
  [ -n "$INCAST_ZMQ_STAGES" ] && echo '{"encode": {"ns": 6000, "turns": 3}}' > "$INCAST_ZMQ_STAGES"
  case $3 in tcp*) ns=2000;; *) ns=1000;; esac
  echo "{\\"messages\\": 10, \\"all_messages\\": 12, \\"seconds\\": 0.5, \\"cpu_s\\": 1e-5, \\"round_trip_ns\\":" \\
    "{\\"min\\": 1, \\"p50\\": $ns, \\"p99\\": 3000, \\"mean\\": 2}}";;
esac
"""


def validate(whole: Any) -> None:
    schema = json.loads((CHECKOUT / "schema" / "bridge_zmq_result.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(whole)


@pytest.fixture
def bridge(tmp_path: Path) -> Path:
    program = tmp_path / "bridge" / "bin" / "zmq_measure"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE)
    program.chmod(0o755)
    return tmp_path / "bridge"


def case(section: str, way: str, kind: str, size: int, **more: Any) -> dict[str, Any]:
    figures = {"messages_per_s": [1e5, 3e5, 2e5], "bytes_per_s": [1e5 * size] * 3, "cpu_s_per_message": [5e-6] * 3}
    found = {"section": section, "way": way, "kind": kind, "message_bytes": size, "ring": None, **figures, **more}
    if kind == LATENCY:
        found["round_trip_ns"] = {"p50": [30e3, 10e3, 20e3]}
    return found


def result() -> dict[str, Any]:
    ways = ["tcp", "ipc", "shm", "rio", "rio-tsi721", "rio-udp"]
    cases = [case(SPEED, way, kind, size) for kind in (LATENCY, STREAM) for size in (8, 1 << 20) for way in ways]
    for section, ring in (
        (BUFFER_SCAN, {"buffers": 16, "buffer_bytes": 4096}),
        (RING_SCAN, {"buffers": 4, "buffer_bytes": 4096}),
    ):
        cases += [case(section, "rio", kind, size, ring=ring) for kind, size in ((LATENCY, 8), (STREAM, 1 << 20))]
    stages = {"encode": [1e3, 3e3, 2e3], "post": [6e3] * 3, "wait": [9e9] * 3}
    ring = {"buffers": 16, "buffer_bytes": 4 << 20}
    cases += [
        case(BREAKDOWN, "rio", STREAM, size, ring=ring, pause_us=200, send_ns=stages, receive_ns=stages)
        for size in (8, 1 << 20)
    ]
    machine = {"cpu_model": "A CPU", "cores": 2, "kernel": "Linux 6", "load": [0.5, 3.0]}
    return {
        "schema": 1, "kind": "zmq", "time_domain": "real", "incast": "0", "started_utc": "2026-01-02T03:04:05",
        "machine": machine, "settings": {"rounds": 3, "seconds": 0.5, "warm_up_seconds": 0.1, "spin_us": 0},
        "ways": [{"name": way, "what": f"{way}://"} for way in ways], "cases": cases,
        "readings": 90, "readings_not_idle": 4, "unfinished": ["ring scan, rio: no luck"],
    }  # fmt: skip


def test_each_way_is_measured_and_kept(real: InProcess, bridge: Path) -> None:
    words = ("--over", "tcp,shm", "--message-size", "8", "--rounds", "2", "--seconds", "0.05", "--warm-up", "0")
    done = real("bridge", "zmq", "--bridge", str(bridge), *words, "--output", "out", "--json")
    assert done.returncode == 0, done.stderr
    whole = json.loads(done.stdout)
    assert whole == json.loads((real.folder / "out" / "result.json").read_text())
    validate(whole)
    for wrong in ({**whole, "unheard_of": 1}, {**whole, "cases": [{**whole["cases"][0], "kind": STREAM}]}):
        with pytest.raises(jsonschema.ValidationError):
            validate(wrong)
    assert [(each["way"], each["kind"]) for each in whole["cases"]] == [
        ("tcp", LATENCY), ("shm", LATENCY), ("tcp", STREAM), ("shm", STREAM),
    ]  # fmt: skip
    assert [each["round_trip_ns"]["p50"] for each in whole["cases"][:2]] == [[2000, 2000], [1000, 1000]]
    assert [each["messages_per_s"][0] for each in whole["cases"]] == [20, 20, 18, 18], "of a stream what arrives counts"
    assert whole["cases"][0]["cpu_s_per_message"][0] == pytest.approx(2e-6)
    again = real("bridge", "zmq", "--bridge", str(bridge), *words, "--output", "out")
    assert again.returncode == 2
    assert "holds result.json of an earlier run; allowed: another folder, or --force" in again.stderr


def test_what_fails_is_named_and_the_rest_is_measured(real: InProcess, bridge: Path) -> None:
    words = ("--over", "ipc,rio", "--message-size", "8", "--rounds", "1", "--seconds", "0.05", "--warm-up", "0")
    done = real("bridge", "zmq", "--bridge", str(bridge), *words, "--evaluation", "--output", "out", "--json")
    assert done.returncode == 1
    whole = json.loads(done.stdout)
    validate(whole)
    why = "zmq_measure: ipc://*: no luck"
    assert whole["unfinished"] == [f"speed, ipc, latency, 8 B: {why}", f"speed, ipc, stream, 8 B: {why}"]
    sections = {each["section"] for each in whole["cases"]}
    assert sections == {SPEED, BUFFER_SCAN, RING_SCAN, BREAKDOWN} and {each["way"] for each in whole["cases"]} == {
        "rio"
    }
    broken_down = [each for each in whole["cases"] if each["section"] == BREAKDOWN]
    assert [(each["send_ns"], each["receive_ns"]) for each in broken_down] == [({"encode": [500]}, {"post": [250]})] * 2


def test_tables_fit_a_terminal_and_say_their_conditions() -> None:
    screen = Console(file=io.StringIO(), width=80)
    print_zmq(screen, result(), Path("here"))
    assert isinstance(screen.file, io.StringIO)
    lines = screen.file.getvalue().splitlines()
    where = lines.index("A CPU, 2 cores, Linux 6; both processes on this host; 2026-01-02, incast 0")
    assert max(len(line.rstrip()) for line in lines[:where]) <= 80
    assert [line.split() for line in lines[:3]] == [
        ["Round", "trip,", "small", "messages"],
        ["message", "tcp", "ipc", "shm", "rio", "rio-tsi721", "rio-udp"],
        ["8", "B", *["20.0", "µs"] * 6],
    ]
    assert "load of the machine 0.5 .. 3.0; not idle during 4 of 90 readings" in lines
    assert "NOT IDLE: others used the machine; a trial, no measurement" in lines
    assert "ring scan, rio: no luck" in lines


def test_medians_ranges_and_shares() -> None:
    found = {table.name: table for table in tables(result(), ranges=True)}
    assert found["latency-small"].rows[0][1] == "20.0 µs (10.0 µs .. 30.0 µs)"
    assert found["ring-scan-latency-8"].rows == [["4", "20.0 µs (10.0 µs .. 30.0 µs)"]]
    encode = next(row for row in found["send-rio"].rows if row[0] == "encode")
    assert encode[2] == "25 %", "of 2 us and 6 us; sleep is no work"
    assert found["send-rio"].rows[-1][1] == "8.00 µs"


def test_the_report_draws_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(result()))
    (part,) = make_parts(load([tmp_path]), Choice(None, None, None))
    names = [drawing.name.partition(tmp_path.name.replace("_", "-") + "-")[2] for drawing in part.drawings]
    assert names == [
        "latency-small", "latency-large", "throughput", "buffer-scan-latency-8", "buffer-scan-stream-1048576",
        "ring-scan-latency-8", "ring-scan-stream-1048576", "send-rio", "receive-rio",
    ]  # fmt: skip
    with themed(LIGHT):
        for drawing in (part.drawings[0], part.drawings[4], part.drawings[-1]):
            assert drawing.draw(LIGHT).axes and drawing.rows


def test_scans_and_breakdowns_are_of_channels() -> None:
    wanted = Wanted(parse_ways("tcp,ipc,shm"), speed=False, scan=True, breakdown=True)
    assert {case.way for _, case in wanted.cases()} == {"shm"}


def test_stages_are_for_one_message() -> None:
    threads = [{"post": {"ns": 900, "turns": 4}}, {"post": {"ns": 100, "turns": 1}, "wait": {"ns": 50, "turns": 1}}]
    assert stages_of(threads, 10) == {"post": 100.0, "wait": 5.0}


def test_a_reading_without_messages_is_none() -> None:
    said = {"messages": 3, "all_messages": 3, "seconds": 1.0, "cpu_s": 0.1}
    with pytest.raises(ReadingError, match="too short"):
        reading_of(Case("tcp", STREAM, 8), said, said | {"messages": 0, "seconds": 0.0}, [{}, {}])


def test_a_bridge_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INCAST_ZMQ", os.fspath(tmp_path))
    with pytest.raises(OneLineError, match=r"not built: nothing at .*/bin/zmq_measure; bridges/zmq/build.sh build/zmq"):
        find_bridge(None)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--over", "tcp,udp"), "--over tcp,udp: allowed: a list of tcp, ipc, shm, rio, rio-tsi721, rio-udp"),
        (("--over", "tcp,tcp"), "each at most once"),
        (("--over", "tcp", "--scan"), "only channels have rings and stages; allowed: shm, rio"),
        (("--message-size", "8,0"), "--message-size 8,0: allowed: sizes from 1 B to 1 GiB"),
    ],
)
def test_what_is_refused(real: InProcess, bridge: Path, words: tuple[str, ...], why: str) -> None:
    done = real("bridge", "zmq", "--bridge", str(bridge), *words)
    assert done.returncode == 2
    assert why in done.stderr


def test_the_measured_part_of_the_document_is_written(tmp_path: Path) -> None:
    page = tmp_path / "zeromq.md"
    page.write_text(f"Before.\n{BEGIN}\nold\n{END}\nBehind.\n")
    small = result() | {"cases": [each for each in result()["cases"] if each["section"] == BREAKDOWN]}
    write_document(page, small)
    text = page.read_text()
    assert text.startswith(f"Before.\n{BEGIN}\n") and text.endswith(f"{END}\nBehind.\n") and "old" not in text
    assert "load of the machine 0.5 .. 3.0; not idle during 4 of 90 readings" in text
    assert "**Not idle: a trial, no measurement.**" in text
    assert "A ring of 16 buffers of 4 MiB; messages one by one, 200, 200 us apart" in text
    assert "| encode | 2.00 µs | 25 % | 2.00 µs | 25 % |" in text
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["zeromq-receive-rio.png", "zeromq-send-rio.png"]
    write_document(page, small)
    assert page.read_text() == text
    page.write_text("No marks.\n")
    with pytest.raises(OneLineError, match="has no lines"):
        write_document(page, small)
