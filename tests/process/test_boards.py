"""Boards that send datagrams (EB-C9): what they made is built, flagged, or was never heard of, and nothing else.

The count is independent of the engine's: `incast-emit --record` says what became of every packet of every board, and
the MEP files say what was built. INCAST_BOARDS=1 runs the large cases, 32 boards for 8 readout and 8 builder units.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from boards_support import DESYNC, LATE, built, total
from support import ROOT, Run, Start, check_accounting, wait_until
from transports import ONE_THREAD, SHARED_MEMORY

MANY = "INCAST_BOARDS" in os.environ
FRAGMENT = 200


@dataclass
class Emitted:
    """What boards say that they sent."""

    said: dict[str, Any]
    fates: dict[int, dict[int, str]] = field(default_factory=dict)  # by source and event; of a restarted one, the first

    def sums(self, name: str) -> int:
        return sum(board[name] for board in self.said["boards"])


def addresses(run: Run, units: int) -> list[str]:
    """Where the boards of each readout unit send to, in the order of their sources."""
    found: dict[int, str] = {}

    def told(report: dict[str, Any]) -> bool:
        pattern = r"boards? of sources? (\d+)(?: to \d+)? (?:send|connect)s? to (\S+)"
        if match := re.search(pattern, report.get("text", "")):
            found[int(match[1])] = match[2]
        return len(found) == units

    run.wait_for(told, "addresses of all readout units", 60)
    return [found[first] for first in sorted(found)]


def emit(engine: Path, folder: Path, to: list[str], **options: Any) -> Emitted:
    record = folder / "record"
    words = [str(engine.with_name("incast-emit")), "--to", ",".join(to), "--record", str(record)]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    emitted = Emitted(json.loads(done.stdout))
    fates: dict[int, dict[int, str]] = defaultdict(dict)
    for line in record.read_text().splitlines():
        source, first, events, fate = line.split()
        for event in range(int(first), int(first) + int(events)):
            fates[int(source)].setdefault(event, fate)
    emitted.fates = dict(fates)
    return emitted


def boards_run(start: Start, folder: Path, rus: int, per_ru: int, events: int, **more: Any) -> Run:
    settings = {
        "source.kind": "udp",
        "source.sources_per_ru": per_ru,
        "source.patience": "2s",
        "sink.kind": "mep",
        "sink.path": folder / "built",
        "run.events": events,
        "protocol.packing": 16,
        "protocol.detection_deadline": "20s",
        "protocol.late_after": "20s",
        "run.fail_above_incomplete": 1,
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    settings.setdefault("run.nodes", rus)
    return start(settings)


def check_boards(result: dict[str, Any], emitted: Emitted) -> None:
    """What result.json has of every source is what its board says."""
    counts = {board["source"]: board for node in result["nodes"] for board in node.get("boards", [])}
    for board in emitted.said["boards"]:
        own = counts[board["source"]]
        assert own["packets"] == board["packets"] - board["lost_packets"] + board["twice_packets"]
        assert own["taken_events"] == board["events"] - board["lost_events"]
        assert own["lost_events"] == board["lost_events"]
        assert own["duplicate_events"] == board["twice_events"]
        assert own["late_events"] == own["stray_events"] == own["restarts"] == own["jumps"] == 0


def check_sums(run: Run, emitted: Emitted, folder: Path, events: int) -> dict[int, dict[int, str]]:
    """What is complete, flagged and lost is what was emitted, source by source and event by event."""
    assert run.finish(120) == 0, run.story()
    result = run.result()
    check_accounting(result)
    check_boards(result, emitted)
    found = built(folder)
    assert sorted(found) == sorted(emitted.fates)
    for source, fates in emitted.fates.items():
        assert sorted(found[source]) == list(range(events))  # nothing is unaccounted for
        for event, flag in found[source].items():
            assert (flag == "ok") == (fates.get(event, "lost") != "lost"), (source, event, flag, fates.get(event))
    incomplete = {event for states in found.values() for event, flag in states.items() if flag != "ok"}
    # Events of a MEP are incomplete together.
    meps = {event // 16 for event in incomplete}
    assert result["incomplete_events"] == sum(min(16, events - 16 * mep) for mep in meps)
    assert result["complete_events"] == events - result["incomplete_events"]
    assert total(result, "board_overflow_datagrams") == 0
    assert total(result, "board_refused_datagrams") == 0
    return found


CASES = {
    "whole": {},
    "lost": {"loss": "0.1%"},
    "lost-often": {"loss": "5%"},
    "twice": {"duplicate": "3%"},
    "reordered": {"reorder": "3%"},
    "all": {"loss": "1%", "duplicate": "2%", "reorder": "2%"},
}


def size() -> dict[str, int]:
    return {"rus": 8, "per_ru": 4, "events": 16000} if MANY else {"rus": 2, "per_ru": 2, "events": 16000}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("format_", ["mfp", "mef"])
def test_what_boards_sent_adds_up(start: Start, engine: Path, tmp_path: Path, case: str, format_: str) -> None:
    shape = size()
    run = boards_run(start, tmp_path, **shape, transport__name=SHARED_MEMORY, source__format=format_)
    to = addresses(run, shape["rus"])
    assert len(set(to)) == shape["rus"]
    emitted = emit(
        engine,
        tmp_path,
        to,
        boards=shape["rus"] * shape["per_ru"],
        events=shape["events"],
        packing=16,
        fragment_size=FRAGMENT,
        spread=0.5,
        rate="2kHz" if MANY else "10kHz",
        format=format_,
        **CASES[case],
    )
    assert emitted.sums("events") == shape["rus"] * shape["per_ru"] * shape["events"]
    found = check_sums(run, emitted, tmp_path, shape["events"])
    counted = run.result()
    assert total(counted, "board_lost_events") == emitted.sums("lost_events")
    assert total(counted, "board_events") == emitted.sums("events") - emitted.sums("lost_events")
    assert total(counted, "board_duplicate_events") == emitted.sums("twice_events")
    assert total(counted, "board_late_events") == total(counted, "board_stray_events") == 0
    flagged = [flag for states in found.values() for flag in states.values() if flag != "ok"]
    assert len(flagged) == emitted.sums("lost_events")
    assert set(flagged) <= {LATE}
    if "loss" in CASES[case]:
        assert emitted.sums("lost_events") > 0
    if "duplicate" in CASES[case]:
        assert emitted.sums("twice_events") > 0


def test_a_board_that_restarts_falls_silent_or_packs_anew_is_told(start: Start, engine: Path, tmp_path: Path) -> None:
    shape = {"rus": 8, "per_ru": 4, "events": 16000} if MANY else {"rus": 2, "per_ru": 3, "events": 8000}
    run = boards_run(
        start, tmp_path, **shape, transport__name=SHARED_MEMORY, source__patience="300ms", source__window=16
    )
    to = addresses(run, shape["rus"])
    half = shape["events"] // 2
    emitted = emit(
        engine,
        tmp_path,
        to,
        boards=shape["rus"] * shape["per_ru"],
        events=shape["events"],
        packing=16,
        fragment_size=FRAGMENT,
        rate="2kHz" if MANY else "1kHz",
        restart=f"1@{half}",
        silent=f"3@{half}",
        repack=f"4@{half}:5",
    )
    assert run.finish(120) == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert total(result, "board_restarts") == 1
    found = built(tmp_path)
    for source, states in found.items():
        assert sorted(states) == list(range(shape["events"]))
        for event, flag in states.items():
            if event < half or source not in (1, 3):
                assert flag == "ok", (source, event, flag)
            elif source == 3:
                assert flag == LATE
            else:
                # The first packets after a restart might be of a board that sent something twice.
                assert flag == DESYNC or (flag == LATE and event < half + 16 * 8), (event, flag)
    assert emitted.said["boards"][3]["silent"]
    told = " ".join(run.notices)
    assert "source 1 counts events from 0 again" in told
    assert "source 3 is silent, while others send" in told
    assert "source 4 sends 5 events in a packet now" in told
    sent = sum(total(result, f"board_{what}_events") for what in ("duplicate", "late", "stray")) + total(
        result, "board_events"
    )
    assert sent == emitted.sums("events")


def test_a_readout_unit_without_any_board_holds_up_nobody(start: Start, engine: Path, tmp_path: Path) -> None:
    run = boards_run(start, tmp_path, 2, 2, 320, transport__name=SHARED_MEMORY, source__patience="100ms")
    to = addresses(run, 2)
    emit(engine, tmp_path, to[:1], boards=2, events=320, packing=16, rate="10kHz")
    assert run.finish() == 0, run.story()
    result = run.result()
    check_accounting(result)
    found = built(tmp_path)
    assert {source: set(states.values()) for source, states in found.items()} == {
        0: {"ok"},
        1: {"ok"},
        2: {LATE},
        3: {LATE},
    }
    assert all(sorted(states) == list(range(320)) for states in found.values())


def test_wrong_settings_are_one_line(start: Start) -> None:
    common = {"source.kind": "udp", "sink.kind": "null", "protocol.packing": 4, "transport.name": ONE_THREAD}
    for wrong, said in (
        ({"sink.kind": "verify"}, "sink.kind = verify"),
        ({"protocol.packing": "auto"}, "protocol.packing = auto"),
        ({"source.address": "nowhere"}, "source.address = nowhere"),
        ({"source.address": "192.0.2.1"}, "192.0.2.1"),
        ({"source.port": 65535, "run.nodes": 2}, "source.port = 65535"),
        ({"source.largest_mfp": 64, "protocol.packing": 100}, "source.largest_mfp"),
        ({"source.trigger_rate": "1kHz"}, "source.trigger_rate"),
        ({"source.first_id": 65534, "run.nodes": 2}, "source.first_id = 65534"),
    ):
        run = start({**common, **wrong})
        assert run.finish() != 0
        assert any(said in line for line in [*run.errors, *run.notices]), (said, run.errors)


def test_strangers_are_refused_and_told(start: Start, engine: Path, tmp_path: Path) -> None:
    run = boards_run(start, tmp_path, 1, 1, 160, transport__name=ONE_THREAD)
    to = addresses(run, 1)
    emit(engine, tmp_path, to, boards=1, first_id=7, events=32, packing=16)
    emit(engine, tmp_path, to, boards=1, events=160, packing=16)
    assert run.finish() == 0, run.story()
    assert total(run.result(), "board_refused_datagrams") == 2
    assert run.result()["complete_events"] == 160
    assert "it is of source 7" in " ".join(run.notices)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "nowhere"], "--to nowhere"),
        (["--to", "127.0.0.1:1", "--loss", "2"], "--loss 2"),
        (["--to", "127.0.0.1:1", "--restart", "1"], "--restart 1"),
        (["--to", "127.0.0.1:1,[::1]:1"], "IPv4 and IPv6"),
        (["--to", "127.0.0.1:1", "--packing", "1000", "--fragment-size", "1000"], "a datagram holds"),
        (["--to", "127.0.0.1:1", "--boards", "65535", "--first-id", "9"], "--first-id 9"),
    ],
)
def test_wrong_words_are_one_line(engine: Path, words: list[str], said: str) -> None:
    done = subprocess.run([engine.with_name("incast-emit"), *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_the_commands_of_the_document(engine: Path, tmp_path: Path) -> None:
    """docs/dataflow.md as it stands, but for the ports, which the kernel chooses here."""
    text = (ROOT / "docs" / "dataflow.md").read_text()
    blocks = [block.replace("\\\n", "") for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]
    run, emit_, check = (shlex.split(block.removesuffix("\n").removesuffix("&")) for block in blocks[:3])
    incast = [sys.executable, "-m", "incast"]
    environment = {**os.environ, "INCAST_NODE": str(engine), "PYTHONPATH": str(ROOT / "python")}
    run[run.index("udp:47100")] = "udp:0"
    with (tmp_path / "stdout").open("w") as out:
        running = subprocess.Popen(
            [*incast, *run[1:]], cwd=tmp_path, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        log = tmp_path / "run" / "log.txt"

        def told() -> dict[str, str]:
            text = log.read_text() if log.exists() else ""
            return dict(re.findall(r"boards of sources (\d+) to \d+ send to (\S+)", text))

        wait_until(lambda: len(told()) == 2, "both addresses", 60)
        to = told()
        emit_[emit_.index("--to") + 1] = f"{to['0']},{to['2']}"
        sent = subprocess.run(
            [*incast, *emit_[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        assert [board["events"] for board in json.loads(sent.stdout)["boards"]] == [16000] * 4
        assert running.wait(60) == 0, (tmp_path / "stdout").read_text()
    finally:
        running.kill()
        running.wait()
    checked = subprocess.run(
        [*incast, *check[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 0, checked.stdout
    assert "16000" in checked.stdout.replace(" ", "").replace(",", "")
