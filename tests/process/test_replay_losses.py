"""Sources that end early, have gaps, begin again or are shifted: nothing that is not complete is called so.

The engine's result, the printed summary, `incast mep check` of what was written, and a count of the input files by a
program of its own (input_count.py) must agree exactly. INCAST_REPLAY_FOLDERS says how many random folders are tried.
"""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from input_count import Count, Expected, RefusedError, count_built, expect
from published import read_meps
from replay_folders import RandomFolder, mfp, run_of, write
from rich.console import Console
from support import ROOT, Run, Start, check_accounting
from test_documents import validate
from transports import ONE_THREAD, SHARED_MEMORY, SOCKETS

sys.path.insert(0, str(ROOT / "python"))
from incast.base.errors import EXIT_BAD_CONFIG, EXIT_INCOMPLETE
from incast.data.mep import check
from incast.data.mep_export import export_meps
from incast.data.mep_rearrange import merge
from incast.run.summary import print_summary

FOLDERS = int(os.environ.get("INCAST_REPLAY_FOLDERS", "12"))
FIRST_SEED = int(os.environ.get("INCAST_REPLAY_SEED", "1"))

TOKEN = "0123456789abcdef0123456789abcdef"
QUICK: dict[str, Any] = {"source.kind": "mfp", "sink.kind": "mep", "sink.fsync": "never"}


def replay(start: Start, folder: Path, built: Path, **more: Any) -> Run:
    settings = {key.replace("__", "."): value for key, value in more.items()}
    return start({**QUICK, "source.path": folder, "sink.path": built, "run.nodes": 2, **settings})


def summary_of(result: dict[str, Any]) -> dict[str, str]:
    """The rows of the printed summary by their label."""
    screen = Console(file=io.StringIO(), width=400, color_system=None)
    print_summary(screen, result, Path("/results"))
    assert isinstance(screen.file, io.StringIO)
    rows = (line.strip().partition("  ") for line in screen.file.getvalue().splitlines())
    return {label: " ".join(text.split()) for label, _, text in rows}


def plain(row: str) -> int:
    """The number that a row begins with, its thousands apart."""
    found = re.match(r"[0-9 ]+", row)
    assert found, row
    return int(found[0].replace(" ", ""))


def check_agreement(result: dict[str, Any], built: Path) -> Count:
    """What the engine says is what the summary shows, `incast mep check` finds, and a reader of its own counts."""
    validate(result, "result.schema.json")
    check_accounting(result)
    report = check(built)
    assert report.ok, report.lines()
    counted = count_built(built)
    assert counted.events == report.events == result["events"]
    assert counted.incomplete == report.incomplete_events == result["incomplete_events"]
    assert report.complete_events == result["complete_events"] == counted.events - counted.incomplete
    told = {flag: {"events": report.flag_events[flag], "mfps": report.flags[flag]} for flag in report.flags}
    assert counted.flags() == told == result["flags"]
    rows = summary_of(result)
    assert plain(rows["events"]) == result["events"]
    assert (plain(rows["incomplete"]), plain(rows["lost"])) == (result["incomplete_events"], 0)
    for flag, counts in result["flags"].items():
        assert plain(rows[flag]) == counts["events"]
    assert ("left out" in rows) == bool(result["inputs"]["left_out_events"])
    return counted


def check_inputs(result: dict[str, Any], run: Run, expected: Expected) -> None:
    """Each file that does not fit is named, with exact counts."""
    inputs = result["inputs"]
    assert (inputs["files"], inputs["first_event"]) == (expected.files, expected.first)
    uneven = {file["source"]: file for file in inputs["uneven"]}
    assert set(uneven) == set(expected.left_out) | set(expected.absent)
    for source, file in uneven.items():
        found = (file["left_out_mfps"], file["left_out_events"])
        assert found == expected.left_out.get(source, (0, 0)), file
        assert file["absent_events"] == expected.absent.get(source, 0), file
        assert file["events"] == expected.in_file[source]
    warnings = [text for text in run.notices if text.startswith("source-")]
    assert len(warnings) == min(5, len(uneven))
    assert all(any(f"{file['file']} " in line for line in warnings) for file in list(uneven.values())[:5])


def check_ending(run: Run, status: int, share: float, most: float = 0.01) -> None:
    result = run.result()
    assert status == (EXIT_INCOMPLETE if share > most else 0), run.story()
    assert result["status"] == ("incomplete" if share > most else "complete")
    assert ("fail_above_incomplete" in result.get("reason", "")) == (share > most)


def check_replay(run: Run, folder: Path, built: Path, repeat: int = 1) -> Expected:
    """A run over that folder that has an end of its own, and drops nothing."""
    status = run.finish()
    expected = expect(folder, repeat)
    result = run.result()
    assert check_agreement(result, built) == Count(
        expected.events, expected.incomplete, expected.flag_events, expected.flag_mfps
    )
    check_inputs(result, run, expected)
    check_ending(run, status, expected.share())
    return expected


CASES: dict[str, Callable[[int], bytes]] = {
    "short in the middle": lambda source: run_of(source, 0, 2) + mfp(source, 8, [100]) + run_of(source, 9, 3),
    "begins again": lambda source: run_of(source, 0, 5) + run_of(source, 0, 5),
    "gap": lambda source: run_of(source, 0, 5) + run_of(source, 24, 4) if source else run_of(source, 0, 10),
    "ends early": lambda source: run_of(source, 0, 5 if source else 10),
    "shifted": lambda source: run_of(source, 1 if source else 0, 10),
    "empty": lambda source: b"" if source else run_of(source, 0, 10),
    "goes back": lambda source: run_of(source, 100, 5) + run_of(source, 0, 5),
}
# Events, incomplete ones, and what is left out of each file.
COUNTS = {
    "short in the middle": (8, 0, [13, 13]),
    "begins again": (20, 0, [20, 20]),
    "gap": (40, 4, [0, 0]),
    "ends early": (40, 20, [0, 0]),
    "shifted": (40, 40, [0, 40]),
    "empty": (40, 40, [0, 0]),
    "goes back": (20, 0, [20, 20]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_there_is_counted_and_named(start: Start, tmp_path: Path, case: str) -> None:
    folder = write(tmp_path / "in", [(source, CASES[case](source)) for source in (0, 1)])
    transport = SHARED_MEMORY if case == "gap" else ONE_THREAD
    expected = check_replay(
        replay(start, folder, tmp_path / "out", transport__name=transport), folder, tmp_path / "out"
    )
    events, incomplete, left_out = COUNTS[case]
    assert (expected.events, expected.incomplete) == (events, incomplete)
    assert [expected.left_out.get(source, (0, 0))[1] for source in (0, 1)] == left_out


def test_files_of_a_node_that_joins_are_counted_and_named(engine: Path, start: Start, tmp_path: Path) -> None:
    """Each host has its own folder of that name. The one that joins has no other file than its own, which begins later
    than the run and goes on behind its end.
    """
    write(tmp_path / "one" / "in", [(0, run_of(0, 0, 10)), (1, run_of(1, 0, 10))])
    write(tmp_path / "two" / "in", [(1, run_of(1, 8, 9))])
    settings = {**QUICK, "source.path": "in", "sink.path": tmp_path / "out", "run.nodes": 2, "transport.name": SOCKETS}
    settings["run.fail_above_incomplete"] = "0.2"
    alone = ["env", "-C", str(tmp_path / "one")]
    run = start(settings, "--spawn", "1", "--listen", "127.0.0.1:0", token=TOKEN, prefix=alone)
    listening = run.wait_for(lambda report: report["type"] == "listening", "address")
    command = [str(engine), "--join", listening["address"]]
    with subprocess.Popen(command, cwd=tmp_path / "two", env={**os.environ, "INCAST_TOKEN": TOKEN}) as other:
        try:
            status = run.finish()
            assert other.wait(30) == 0
        finally:
            other.kill()
    assert status == 0, run.story()
    inputs = run.result()["inputs"]
    host = socket.gethostname()
    assert (inputs["files"], inputs["first_event"], inputs["events"]) == (2, 0, 40)
    assert inputs["elsewhere"] == [{"host": host, "files": 1}]
    (uneven,) = inputs["uneven"]
    assert (uneven["host"], uneven["file"], uneven["events"], uneven["first_event"]) == (host, "source-1.mfp", 36, 8)
    assert (uneven["absent_events"], uneven["left_out_events"]) == (8, 4)
    said = f"{host}: source-1.mfp holds 36 events from 8 on, the run has 40 from 0 on; 8 are without it, flagged desync"
    assert any(line.startswith(said) for line in run.notices), run.notices
    counted = check_agreement(run.result(), tmp_path / "out")
    assert (counted.events, counted.flag_events) == (40, {"desync": 8})


def test_an_end_of_run_packet_holds_no_events(start: Start, tmp_path: Path) -> None:
    mark = mfp(0, 0, [0] * 4)
    mark = mark[:8] + b"\xff" * 8 + mark[16:]
    folder = write(tmp_path / "in", [(0, run_of(0, 1000, 3) + mark)])
    run = replay(start, folder, tmp_path / "out", transport__name=ONE_THREAD, run__nodes=1)
    assert check_replay(run, folder, tmp_path / "out").events == 12
    assert run.result()["inputs"]["uneven"] == []


def test_a_repeat_with_a_short_end_is_sent_whole(start: Start, tmp_path: Path) -> None:
    files = [(source, run_of(source, 0, 1) + mfp(source, 4, [8])) for source in (0, 1)]
    folder = write(tmp_path / "in", files)
    run = replay(start, folder, tmp_path / "out", transport__name=ONE_THREAD, source__repeat=7)
    assert check_replay(run, folder, tmp_path / "out", repeat=7).events == 35


@pytest.mark.parametrize(("most", "status"), [("0.5", 0), ("0.49", EXIT_INCOMPLETE), ("0", EXIT_INCOMPLETE), ("1", 0)])
def test_the_share_that_fails_a_run_can_be_set(start: Start, tmp_path: Path, most: str, status: int) -> None:
    folder = write(tmp_path / "in", [(0, run_of(0, 0, 10)), (1, run_of(1, 0, 5))])
    settings = {"run__fail_above_incomplete": most, "transport__name": ONE_THREAD}
    run = replay(start, folder, tmp_path / "out", **settings)
    assert run.finish() == status, run.story()
    assert run.result()["incomplete_events"] == 20


def test_of_many_files_a_few_are_named(start: Start, tmp_path: Path) -> None:
    files = [(source, run_of(source, 0, 10 if source < 3 else 9)) for source in range(12)]
    folder = write(tmp_path / "in", files)
    run = replay(start, folder, tmp_path / "out", transport__name=ONE_THREAD)
    assert check_replay(run, folder, tmp_path / "out").incomplete == 4
    assert "and 4 more files do not fit the run; result.json lists all" in run.notices


@pytest.mark.parametrize("transport", [ONE_THREAD, SHARED_MEMORY])
def test_what_is_dropped_is_incomplete(start: Start, tmp_path: Path, transport: str) -> None:
    """Overload does not depend on the machine's speed: triggers come at a rate that no memory could take."""
    folder = write(tmp_path / "in", [(0, run_of(0, 0, 50)), (1, run_of(1, 0, 49))])
    run = replay(
        start,
        folder,
        tmp_path / "out",
        **DROPPING,
        source__repeat=100,
        transport__name=transport,
    )
    status = run.finish()
    counted = check_agreement(run.result(), tmp_path / "out")
    assert counted.events == 20_000
    assert counted.flag_events["dropped"] == run.result()["triggers"]["events_with_drops"] > 0
    assert counted.flag_events["desync"] <= 400
    check_ending(run, status, counted.incomplete / counted.events)


DROPPING: dict[str, Any] = {
    "protocol__credits": 1,
    "source__policy": "drop",
    "source__trigger_rate": "10MHz",
    "source__memory": "8KiB",
}


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + FOLDERS))
def test_all_counts_agree_on_any_folder(start: Start, tmp_path: Path, seed: int) -> None:
    made = RandomFolder(seed)
    folder = made.write(tmp_path / "in")
    print(f"seed {seed}: {made}")
    built = tmp_path / "out"
    settings: dict[str, Any] = {"transport__name": SHARED_MEMORY if seed % 6 == 0 else ONE_THREAD}
    dropping = seed % 4 == 3
    repeat = 40 if dropping else 1 + seed % 3
    settings |= {"source__repeat": repeat} | (DROPPING if dropping else {})
    if dropping and (made.packing > 8 or "wide" in made.faults.values()):  # less than the MFPs in flight is refused
        settings["source__memory"] = "2MiB" if "wide" in made.faults.values() else "16KiB"
    run = replay(start, folder, built, **settings)
    try:
        expected = expect(folder, repeat)
    except RefusedError:
        assert run.finish() == EXIT_BAD_CONFIG
        return
    if not dropping:
        check_replay(run, folder, built, repeat)
        return
    status = run.finish()
    counted = check_agreement(run.result(), built)
    check_inputs(run.result(), run, expected)
    assert counted.events == expected.events
    assert counted.incomplete >= expected.incomplete
    for flag, mfps in counted.flag_mfps.items():
        assert flag == "dropped" or mfps <= expected.flag_mfps[flag]
    check_ending(run, status, max(expected.share() if expected.left_out else 0, counted.incomplete / counted.events))


def test_what_is_missing_may_be_error_banks_of_lhcb(start: Start, tmp_path: Path) -> None:
    """The same counts, and the bytes that `incast mep export` makes of the run that says it in our way."""
    cut = mfp(1, 20, [100, 0, 0, 0], types=bytes([7, 0xF5, 0xF5, 0xF5]))
    banks = mfp(2, 20, [0, 5, 0, 0], types=bytes([92, 96, 8, 8]))
    files = [
        (0, run_of(0, 0, 10)),
        (1, run_of(1, 0, 5) + cut + run_of(1, 28, 3)),
        (2, run_of(2, 0, 5) + banks + run_of(2, 24, 4)),
    ]
    folder = write(tmp_path / "in", files)
    reports, exported = [], []
    for missing in ("incast", "lhcb"):
        built = tmp_path / missing
        run = replay(start, folder, built, sink__missing=missing, transport__name=ONE_THREAD)
        assert run.finish() == EXIT_INCOMPLETE, run.story()
        result = run.result()
        check_accounting(result)
        report = check(built)
        assert report.ok, report.lines()
        told = {flag: {"events": report.flag_events[flag], "mfps": report.flags[flag]} for flag in report.flags}
        assert told == result["flags"]
        assert report.incomplete_events == result["incomplete_events"]
        reports.append((result["flags"], report.events, report.incomplete_events, report.bytes))
        export_meps([built], tmp_path / f"{missing}.mep")
        exported.append((tmp_path / f"{missing}.mep").read_bytes())
        merged = merge([built], tmp_path / f"{missing}-as-it-is.mep")
        assert merged.meps == report.meps
    assert reports[0] == reports[1]
    assert reports[0][0] == {"truncated": {"events": 4, "mfps": 1}, "desync": {"events": 4, "mfps": 1}}
    assert exported[0] == exported[1] == (tmp_path / "lhcb-as-it-is.mep").read_bytes()
    kinds = Counter(fragment.kind for mep in read_meps(exported[1]) for mfp in mep for fragment in mfp.fragments)
    assert (kinds[92], kinds[93], kinds[96]) == (1, 3, 5)
    assert max(kinds) < 0xF0
