"""`incast scan` as a person uses it: stopped and continued, with points that fail, and in virtual time."""

import csv
import io
import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from incast.base import units
from incast.engine.idle import Window
from incast.engine.transports import one_thread
from incast.scan.journal import Journal, load_plan, load_rows
from incast.scan.plan import Plan, Point, make_plan, read_plan
from incast.scan.points import wrong_value
from incast.scan.points_table import best_lines, points_table
from incast.scan.runner import Taken
from incast.scan.table import Columns, write_tables
from incast.scan.view import ScanView
from rich.console import Console

from tests.conftest import DEADLINE_S, Incast
from tests.lab.conftest import InProcess, WriteScan

# With INCAST_ALL_COMBINATIONS three times as many.
YIELDS = [0, 10, 100] if os.environ.get("INCAST_ALL_COMBINATIONS") else [10]
GRID = f"[grid]\nprotocol.credits = [1, 2, 3, 4]\nprotocol.parallel_sends = [0, 1, 2, 3]\nrun.yields = {YIELDS}\n"
POINTS = 16 * len(YIELDS)


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def journal_lines(folder: Path) -> int:
    path = folder / "journal.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def stopped_after(incast: Incast, lines: int, folder: Path, how: signal.Signals, *arguments: str) -> int:
    """Starts the command, and sends it a signal once so many readings are done; its exit status."""
    with subprocess.Popen(
        incast.command(*arguments), cwd=incast.folder, env=incast.full_environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + DEADLINE_S
        while journal_lines(folder) < lines:
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline
        process.send_signal(how)
        # Its nodes may hold the pipe for a while when it was killed: what it said is not waited for.
        return process.wait(timeout=DEADLINE_S)


def engines_of(folder: Path) -> list[int]:
    """Processes that write below that folder."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.startswith(os.fsencode(folder) + b"/readings/") for word in words):
                found.append(int(process.name))
    return found


def test_many_points_on_shm_stopped_and_killed_and_continued(real_incast: Incast, write_scan: WriteScan) -> None:
    file = write_scan('transport.name = "shm"\nsink.verify = "header"\n' + GRID)
    folder = real_incast.folder / "out"
    assert stopped_after(real_incast, 3, folder, signal.SIGINT, "scan", str(file), "--output", "out") == 130
    assert not engines_of(folder), "Ctrl-C leaves no engine behind"
    first = journal_lines(folder)
    assert 3 <= first < POINTS
    assert len(rows_of(folder)) == first, "the table is there although it is not complete"

    assert stopped_after(real_incast, first + 3, folder, signal.SIGKILL, "scan", "--resume", "out") == -signal.SIGKILL
    with (folder / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"point": 99, "repe')  # what a crash leaves of a line

    done = real_incast("scan", str(file), "--resume", "out", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["wanted"], answer["complete"], answer["failed"], answer["finished"]) == (POINTS, POINTS, 0, True)
    rows = rows_of(folder)
    keys = Counter((row["point"], row["repeat"]) for row in rows)
    assert len(keys) == len(rows) == journal_lines(folder) == POINTS, "no point twice, none left out"
    axes = {(row["protocol.credits"], row["protocol.parallel_sends"], row["run.yields"]) for row in rows}
    assert len(axes) == POINTS
    assert {row["status"] for row in rows} == {"complete"}
    for row in rows:
        assert row["time_domain"] == "real"
        result = json.loads((folder / row["directory"] / "result.json").read_text())
        assert str(result["config"]["protocol"]["credits"]) == row["protocol.credits"]
        assert str(result["config"]["protocol"]["parallel_sends"]) == row["protocol.parallel_sends"]
        assert result["goodput_bytes_per_s"]["total"] == float(row["goodput_bytes_per_s"])
    table = polars.read_parquet(folder / "table.parquet")
    assert table.height == POINTS
    assert table["protocol.credits"].dtype == polars.Int64
    assert table["goodput_bytes_per_s"].to_list() == [float(row["goodput_bytes_per_s"]) for row in rows]
    again = real_incast("scan", "--resume", "out")
    assert again.returncode == 0
    assert "0 to take" in again.stderr
    assert journal_lines(folder) == POINTS


def test_points_that_fail_are_rows_with_a_reason(real: InProcess, write_scan: WriteScan) -> None:
    file = write_scan(
        'transport.name = "inproc"\n[grid]\nprotocol.ack_per_write = [true, false]\n'
        "protocol.outstanding_writes = [0, 4]\n"
    )
    done = real("scan", str(file), "--output", "out")
    assert done.returncode == 1, done.stderr
    assert "1 of 4 points will fail" in done.stderr
    rows = rows_of(real.folder / "out")
    (bad,) = [row for row in rows if row["status"] != "complete"]
    assert (bad["protocol.ack_per_write"], bad["protocol.outstanding_writes"]) == ("false", "4")
    assert bad["status"] == "refused"
    assert "outstanding_writes" in bad["reason"]
    assert bad["goodput_bytes_per_s"] == ""
    assert len(rows) == 4

    before = journal_lines(real.folder / "out")
    assert real("scan", "--resume", "out").returncode == 1
    assert journal_lines(real.folder / "out") == before, "a point that failed is done"
    assert real("scan", "--resume", "out", "--retry-failed").returncode == 1
    assert journal_lines(real.folder / "out") == before + 1
    assert len(rows_of(real.folder / "out")) == 4, "taken again, and still one row"


def test_a_point_without_end_is_given_up(real: InProcess, write_scan: WriteScan) -> None:
    head = "seconds = 600\nwarm_up_seconds = 0\ntimeout_seconds = 0.3\n"
    file = write_scan("[grid]\nrun.nodes = [2]\n[set]\nsource.prefill_size = '256KiB'\n", head=head)
    done = real("scan", str(file), "--output", "out")
    assert done.returncode == 1, done.stderr
    (row,) = rows_of(real.folder / "out")
    assert row["status"] == "too long"
    assert "0.3 s" in row["reason"]
    assert not engines_of(real.folder / "out")


@pytest.mark.parametrize(
    ("mood", "status", "reason"),
    [
        ("killed", "no result", "killed by SIGKILL"),
        ("silent", "no result", "ended with status 0"),
        ("unreadable-result", "no result", "no readable result"),
        ("lost", "event manager lost", "node 0 is gone"),
    ],
)
def test_an_engine_that_fails_is_a_row(
    fake: InProcess, write_scan: WriteScan, mood: str, status: str, reason: str
) -> None:
    done = fake("scan", str(write_scan("[grid]\nprotocol.credits = [1]\n")), "--output", "out", mood=mood)
    assert done.returncode == 1, done.stderr
    (row,) = rows_of(fake.folder / "out")
    assert row["status"] == status
    assert reason in row["reason"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[grid]\nprotocol.credits = [1, 0]\n", ["protocol.credits = 0", "allowed"]),
        ("[grid]\nprotocol.colour = ['red']\n", ["protocol.colour"]),
        ("protocol.schedule = 'never'\n[grid]\nprotocol.credits = [1, 2]\n", ["protocol.schedule", "never", "allowed"]),
        ("[grid]\ntransport.name = ['pigeon', 'shm']\n", ["transport.name", "pigeon"]),
    ],
)
def test_a_value_that_the_engine_refuses_is_one_line(
    real: InProcess, write_scan: WriteScan, text: str, words: list[str]
) -> None:
    file = write_scan(text)
    done = real("scan", str(file))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    for word in [str(file), *words]:
        assert word in done.stderr
    assert [path.name for path in real.folder.iterdir()] == [file.name], "nothing is left behind"


def test_net_is_scanned_and_simulated_points_are_labelled(real: InProcess, write_scan: WriteScan) -> None:
    head = 'kind = "net"\nseconds = 0.001\nwarm_up_seconds = 0\nrepeats = 2\n'
    file = write_scan(
        '[grid]\nnet.message_size = ["4KiB", "64KiB"]\ntransport.name = ["sim", "inproc"]\n'
        '[set]\nnet.working_set = "1MiB"\n',
        head=head,
    )
    done = real("scan", str(file), "--output", "out", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert "VIRTUAL TIME" in done.stderr
    rows = rows_of(real.folder / "out")
    assert len(rows) == 8
    assert {(row["transport.name"], row["time_domain"]) for row in rows} == {("sim", "virtual"), ("inproc", "real")}
    assert {(row["net.message_size"], row["net.message_size_bytes"]) for row in rows} == {
        ("4KiB", "4096.0"),
        ("64KiB", "65536.0"),
    }
    assert all(float(row["throughput_bytes_per_s"]) > 0 for row in rows)
    assert {row["idle"] for row in rows if row["time_domain"] == "virtual"} == {""}


def test_a_folder_is_not_taken_twice_nor_mixed(real: InProcess, write_scan: WriteScan) -> None:
    text = "[grid]\nprotocol.credits = [1]\n[set]\ntransport.name = 'sim'\n"
    file = write_scan(text, head="seconds = 0.001\nwarm_up_seconds = 0\n")
    assert real("scan", str(file), "--output", "out").returncode == 0
    again = real("scan", str(file), "--output", "out")
    assert again.returncode == 2
    assert "not empty" in again.stderr
    other = write_scan(text, head="seconds = 0.002\nwarm_up_seconds = 0\n", name="other.toml")
    mixed = real("scan", str(other), "--resume", "out")
    assert mixed.returncode == 2
    assert "other points" in mixed.stderr
    nothing = real("scan", "--resume", "absent")
    assert nothing.returncode == 2
    assert nothing.stderr.count("\n") == 1
    with Journal(real.folder / "out", load_plan(real.folder / "out")):
        held = real("scan", "--resume", "out")
    assert held.returncode == 2
    assert "another process" in held.stderr


def test_check_measures_nothing(real: InProcess, write_scan: WriteScan) -> None:
    file = write_scan("[grid]\nprotocol.credits = [1, 2]\n")
    done = real("scan", str(file), "--check")
    assert done.returncode == 0, done.stderr
    assert "2 points" in done.stderr
    assert [path.name for path in real.folder.iterdir()] == [file.name]


# --- the parts


def small_plan(tmp_path: Path) -> Plan:
    file = tmp_path / "small.toml"
    file.write_text("seconds = 1\nrepeats = 2\n[grid]\nprotocol.mfp_size = ['4KiB', '1MiB']\nrun.respawn = [true]\n")
    return read_plan(file)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_journal_cut_anywhere_keeps_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    plan = small_plan(folder)
    with Journal(folder / "scan", plan) as journal:
        for reading in plan.readings():
            journal.add({"point": reading.point.number, "repeat": reading.repeat, "status": "complete"})
    path = folder / "scan" / "journal.jsonl"
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    assert len(load_rows(folder / "scan")) == whole
    with Journal(folder / "scan", plan) as journal:
        left = journal.left()
        assert left == plan.readings()[whole:]
        for reading in left:
            journal.add({"point": reading.point.number, "repeat": reading.repeat, "status": "complete"})
        assert not journal.left()
    assert path.read_bytes() == content


def test_columns_have_units_and_types(tmp_path: Path) -> None:
    columns = Columns(small_plan(tmp_path))
    assert columns.types["protocol.mfp_size"] is str
    assert columns.types["protocol.mfp_size_bytes"] is float
    assert columns.types["run.respawn"] is bool
    assert columns.axis_cells({"protocol.mfp_size": "1MiB", "run.respawn": True}) == {
        "protocol.mfp_size": "1MiB",
        "protocol.mfp_size_bytes": 1048576.0,
        "run.respawn": True,
    }
    units = ("_s", "_ns", "_hz", "_bytes", "_per_s", "_per_gb", "_fraction", "_utc")
    plain = {name for name, kind in columns.types.items() if kind is float and not name.endswith(units)}
    assert not plain, "a column of real numbers says its unit"


def test_the_same_rows_in_both_tables(tmp_path: Path) -> None:
    columns = Columns(small_plan(tmp_path))
    rows: list[dict[str, Any]] = [
        {"point": 1, "repeat": 1, "status": "complete", "goodput_bytes_per_s": 1.5, "run.respawn": True},
        {"point": 2, "repeat": 1, "status": "failed", "reason": 'a "comma", and\na line'},
    ]
    write_tables(tmp_path, columns, rows)
    table = polars.read_parquet(tmp_path / "table.parquet")
    assert table.columns == list(columns.types)
    assert table["reason"].to_list() == [None, 'a "comma", and\na line']
    assert [row["reason"] for row in rows_of(tmp_path)] == ["", 'a "comma", and\na line']
    assert [row["run.respawn"] for row in rows_of(tmp_path)] == ["true", ""]


def taken(tmp_path: Path, window: Window | None) -> Taken:
    reading = small_plan(tmp_path).readings()[0]
    return Taken(reading, tmp_path, "complete", None, 0, {}, window, "2026-01-01T00:00:00Z", 1.0)


def test_a_machine_that_others_use_is_not_idle(tmp_path: Path) -> None:
    quiet = taken(tmp_path, Window(seconds=1, cpu=1, others=0, irq=0, steal=0))
    busy = taken(tmp_path, Window(seconds=1, cpu=1, others=64, irq=0, steal=0))
    short = taken(tmp_path, Window(seconds=0.1, cpu=0.1, others=64, irq=0, steal=0))
    assert (quiet.idle, busy.idle, short.idle, taken(tmp_path, None).idle) == (True, False, None, None)
    assert busy.not_idle_reason is not None
    assert "others" in busy.not_idle_reason


def test_which_refusals_are_a_mistake_of_the_file(tmp_path: Path) -> None:
    points = tuple(Point(k, {"a.b": k % 2, "c.d": k // 2}, (), False) for k in range(4))
    plan = Plan("run", "", 1, 0, 1, 10, ("a.b", "c.d"), "", points)
    assert wrong_value(plan, {}) is None
    assert wrong_value(plan, {3: "a.b = 1: needs another c.d"}) is None, "one combination: a point that fails"
    assert wrong_value(plan, {1: "a.b = 1: no", 3: "a.b = 1: no"}) == "a.b = 1: no"
    assert wrong_value(plan, {1: "c.d too large for a.b", 3: "c.d too large for a.b"}) is None
    assert wrong_value(plan, dict.fromkeys(range(4), "x.y = 3: no")) == "x.y = 3: no"


def test_the_time_that_is_left() -> None:
    assert [units.time_left(seconds) for seconds in (4.4, 65, 3900)] == ["4 s left", "1 min 5 s left", "1 h 5 min left"]


def test_a_sweep_needs_no_file(real: InProcess) -> None:
    words = ("--sweep", "protocol.credits=1,2", "--set", f"transport.name={one_thread()}", "--set", "run.nodes=2")
    done = real("scan", *words, "--duration", "20ms", "--warm-up", "0s", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert "best point: protocol.credits=" in done.stderr
    assert "one repeat: --repeats 3 shows how far results scatter" in done.stderr
    assert "2 points, 1 repeat each, of 0.02 s" in done.stderr
    assert "[1/2] about " in done.stderr
    assert "protocol.credits=1: goodput " in done.stderr
    assert done.stderr.splitlines()[-1] == "figures and tables: incast report out"
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["protocol.credits", "1", "2"]
    assert done.stdout.splitlines()[0].split()[1:3] == ["goodput", "Gbit/s"]
    with (real.folder / "out" / "table.csv").open(newline="") as file:
        assert [row["time_domain"] for row in csv.DictReader(file)] == ["real", "real"]
    for wrong in (("scan.toml", *words), ("--resume", "out", *words), ("scan.toml", "--repeats", "2")):
        assert real("scan", *wrong).returncode == 2


def test_the_best_point_is_as_sure_as_its_repeats() -> None:
    plan = make_plan(Path("scan"), {"seconds": 1, "repeats": 2, "grid": {"run.nodes": [2, 3, 4]}})

    def best(*values: tuple[float, float]) -> list[str]:
        rows = [
            {
                "point": point, "repeat": repeat, "kind": "run", "status": "complete", "time_domain": "real",
                "goodput_without_self_bytes_per_s": value,
            }
            for point, pair in enumerate(values, 1)
            for repeat, value in enumerate(pair, 1)
        ]  # fmt: skip
        return best_lines(plan, rows)

    assert best((1e9, 1.1e9), (2e9, 2.2e9), (3e9, 3.2e9)) == [
        "best point: run.nodes=4, 3.10 GB/s; no repeat of another point reaches as far"
    ]
    assert best((1e9, 1.1e9), (2e9, 3.1e9), (3e9, 3.2e9)) == [
        "best point: run.nodes=4, 3.10 GB/s; the repeats of 1 other point reach as far"
    ]
    assert best((1e9, 1.1e9)) == []


def test_each_switch_has_its_best_point() -> None:
    grid = {"protocol.credits": [1, 2], "transport.sim.fabric": ["one.toml", "two.toml"]}
    plan = make_plan(Path("scan"), {"seconds": 1, "grid": grid})
    rows = [
        {
            "point": point.number, "repeat": 1, "kind": "run", "status": "complete", "time_domain": "virtual",
            "goodput_without_self_bytes_per_s": point.number * 1e9, "limited_by": "", "busiest_link_fraction": 0.98,
            **point.axes,
        }
        for point in plan.points
    ]  # fmt: skip
    assert best_lines(plan, rows)[1:] == ["best of each transport.sim.fabric: one.toml 3.00 GB/s, two.toml 4.00 GB/s"]
    assert "--repeats 3 shows what other seeds give" in best_lines(plan, rows)[0]
    heads = [str(column.header) for column in points_table(plan, rows).columns]
    assert heads[2:] == ["goodput", "Gbit/s", "busiest link", "limited by"]
    assert next(iter(points_table(plan, rows).columns[3].cells)) == "8.00"


def test_the_time_left_follows_the_latest_readings() -> None:
    """The first ones may have been slow: a machine under load, or points that are larger."""
    plan = make_plan(Path("scan"), {"seconds": 1, "warm_up_seconds": 0, "grid": {"run.nodes": list(range(2, 32))}})
    view = ScanView(Console(file=io.StringIO()), plan, plan.readings(), 1)
    assert view.seconds_left() == 60.0
    row = {"status": "failed", "reason": "no"}
    for number, reading in enumerate(plan.readings()[:20]):
        wall_s = 100.0 if number < 10 else 1.0
        view.on_row(Taken(reading, Path(), "failed", None, 1, {}, None, "", wall_s), row)
    assert view.seconds_left() == 10.0
