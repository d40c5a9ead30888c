"""`incast bridge root`: what it measures, its tables and figures, what it refuses; the measuring program is a fake."""

import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from incast.base.errors import OneLineError
from incast.bridges.namespaces import hosts_around_a_switch
from incast.bridges.root import CLIENTS, DUPLEX, EXPERIMENTS, VERSIONS_COMPARED
from incast.bridges.root_program import FULL, HALF, VERSIONS, Case, find_bridge, reading_of
from incast.bridges.root_tables import fitting, tables
from incast.cli.bridge import print_root
from incast.figures.datasets import load
from incast.figures.report import make_parts
from incast.figures.root_document import marks, write_document
from incast.figures.scan_figures import Choice
from incast.figures.style import LIGHT, themed
from rich.console import Console

from tests.lab.conftest import InProcess

# Each client brings 1 GB/s. Over shm a buffer of 128 B is too much.
FAKE = """#!/bin/sh
while read what a b c d; do
  [ $what = listen ] || { first=$a; a=$b; b=$c; }
  case "$what" in
  listen) echo "{\\"address\\": \\"$a\\"}";;
  take) rates=1e9; for i in $(seq 2 $a); do rates="$rates, 1e9"; done
    echo "{\\"bytes_per_s\\": [$rates], \\"bytes\\": 1e6, \\"cpu_s\\": 0.001}";;
  send) if [ "$a $b" = "shm://* 128" ]; then echo "root_experiment: no luck" >&2; exit 1; fi
    echo '{"messages": 4, "seconds": 0.1, "cpu_s": 0.001}';;
  exchange*) echo '{"bytes_per_s": [5e8], "bytes": 1e6, "cpu_s": 0.002}';;
  esac
done
"""


@pytest.fixture
def bridge(tmp_path: Path) -> Path:
    program = tmp_path / "bridge" / "bin" / "root_experiment"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE)
    program.chmod(0o755)
    return tmp_path / "bridge"


def result(experiment: str) -> dict[str, Any]:
    wanted = EXPERIMENTS[experiment]
    taken = wanted.cases(["tcp", "rio", "rio-tsi721"], list(VERSIONS), wanted.sizes, 3)
    cases = [
        {
            "way": case.way, "version": case.version, "clients": case.clients, "buffer_bytes": case.buffer_bytes,
            "duplex": case.duplex, "ring": None, "cpu_s_per_byte": [1e-9, 3e-9, 2e-9],
            "bytes_per_s": [1e9, 3e9, 2e9 if case.duplex == HALF else 3e9],
            "each_bytes_per_s": [[1e9 / case.clients] * case.clients] * 3,
        }
        for case in taken
    ]  # fmt: skip
    return {
        "schema": 1, "kind": "root", "experiment": experiment, "time_domain": "real", "incast": "0",
        "started_utc": "2026-01-02T03:04:05", "settings": {"rounds": 3, "seconds": 0.25, "warm_up_seconds": 0.1},
        "machine": {"cpu_model": "A CPU", "cores": 2, "kernel": "Linux 6", "load": [0.5, 3.0]},
        "ways": [{"name": "rio", "what": "RapidIO"}], "versions": [{"name": "polled", "what": "a ring", "source": ""}],
        "cases": cases, "readings": 90, "readings_not_idle": 4, "unfinished": ["rio, polled: no luck"],
    }  # fmt: skip


QUICK = ("--rounds", "1", "--seconds", "0.05", "--warm-up", "0", "--output", "out", "--json")


def test_clients_are_measured_and_kept(real: InProcess, bridge: Path) -> None:
    done = real("bridge", "root", "--bridge", str(bridge), "--over", "tcp,shm", "--clients", "3", *QUICK)
    assert done.returncode == 0, done.stderr
    whole = json.loads(done.stdout)
    assert whole == json.loads((real.folder / "out" / "result.json").read_text())
    assert [(each["way"], each["version"], each["clients"]) for each in whole["cases"]] == [
        (way, version, clients) for way, version in (("tcp", "socket"), ("shm", "doorbell")) for clients in (1, 2, 3)
    ]
    assert [each["bytes_per_s"] for each in whole["cases"][:3]] == [[1e9], [2e9], [3e9]]
    assert whole["cases"][2]["cpu_s_per_byte"][0] == pytest.approx(4e-9)
    again = real("bridge", "root", "--bridge", str(bridge), *QUICK)
    assert again.returncode == 2
    assert "holds result.json of an earlier run; allowed: another folder, or --force" in again.stderr


def test_what_fails_is_named_and_the_rest_is_measured(real: InProcess, bridge: Path) -> None:
    words = ("--experiment", "versions", "--over", "shm", "--version", "doorbell", "--buffer-size", "64,128,256")
    done = real("bridge", "root", "--bridge", str(bridge), *words, *QUICK)
    assert done.returncode == 1
    whole = json.loads(done.stdout)
    assert whole["unfinished"] == ["shm, doorbell, 128 B, 1 client: root_experiment: no luck"]
    assert [each["buffer_bytes"] for each in whole["cases"]] == [64, 256]


def test_both_ways_at_once_is_what_both_received(real: InProcess, bridge: Path) -> None:
    words = ("--experiment", "duplex", "--over", "rio", "--buffer-size", "1MiB")
    done = real("bridge", "root", "--bridge", str(bridge), *words, *QUICK)
    one, both = json.loads(done.stdout)["cases"]
    assert (one["duplex"], both["duplex"]) == (HALF, FULL)
    assert both["each_bytes_per_s"] == [[5e8, 5e8]] and both["bytes_per_s"] == [1e9]
    assert both["ring"] == "buffers=4,buffer_bytes=1048640,batch=1,announce=memory,acknowledge=memory"


def test_rings_of_huge_buffers_have_two() -> None:
    assert VERSIONS["polled"].ring_for(256 << 20).startswith("buffers=2,buffer_bytes=268435520,batch=1,")
    assert VERSIONS["cm-ack"].ring_for(0) == (
        "buffers=1,buffer_bytes=2000000,batch=1,announce=message,acknowledge=message"
    )


def test_processor_time_is_that_of_all_processes() -> None:
    server, client = {"bytes_per_s": [2e9, 3e9], "bytes": 10.0, "cpu_s": 1.0}, {"messages": 4, "cpu_s": 0.5}
    found = reading_of(Case("tcp", "socket", 2, 64), [server, client, client])
    assert (found.bytes_per_s, found.cpu_s_per_byte) == ([2e9, 3e9], 0.2)


@pytest.mark.parametrize("experiment", sorted(EXPERIMENTS))
def test_tables_fit_a_terminal_and_say_their_conditions(experiment: str) -> None:
    screen = Console(file=io.StringIO(), width=80)
    print_root(screen, result(experiment), Path("here"))
    assert isinstance(screen.file, io.StringIO)
    lines = screen.file.getvalue().splitlines()
    where = lines.index("A CPU, 2 cores, Linux 6; all processes on this host; 2026-01-02, incast 0")
    assert max(len(line.rstrip()) for line in lines[:where]) <= 80
    assert "load of the machine 0.5 .. 3.0; not idle during 4 of 90 readings" in lines
    assert "NOT IDLE: others used the machine; a trial, no measurement" in lines
    assert "rio, polled: no luck" in lines


def test_a_wide_table_loses_no_column() -> None:
    (whole, *_) = tables(result(VERSIONS_COMPARED))
    parts = fitting([whole], 60)
    assert len(parts) > 1
    assert [name for part in parts for name in part.headings[1:]] == whole.headings[1:]
    assert [cell for part in parts for cell in part.rows[1][1:]] == whole.rows[1][1:]


def test_medians_ranges_and_gains() -> None:
    found = {table.name: table for table in tables(result(DUPLEX), ranges=True)}
    assert found["duplex-rate"].rows[0][1] == "16.00 (8.00 .. 24.00)"
    assert found["duplex-gain"].headings[:2] == ["buffer", "tcp"] and found["duplex-gain"].rows[0][1] == "1.50"
    slowest = next(table for table in tables(result(CLIENTS)) if table.name == "clients-least")
    assert [row[:2] for row in slowest.rows] == [["1", "8.00"], ["2", "4.00"], ["3", "2.67"]]


def test_the_report_draws_it(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(result(CLIENTS)))
    (part,) = make_parts(load([tmp_path]), Choice(None, None, None))
    assert [drawing.name.rpartition("-clients-")[2] for drawing in part.drawings] == ["rate", "cpu"]
    with themed(LIGHT):
        for drawing in part.drawings:
            assert drawing.draw(LIGHT).axes and drawing.rows


def test_a_bridge_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INCAST_ROOT_BRIDGE", os.fspath(tmp_path))
    why = r"not built: nothing at .*/bin/root_experiment; bridges/root/build.sh build/root"
    with pytest.raises(OneLineError, match=why):
        find_bridge(None)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--experiment", "none"), "--experiment none: there is none; allowed: clients, duplex, versions"),
        (("--over", "tcp,udp"), "--over tcp,udp: allowed: a list of tcp, shm, rio, rio-tsi721, tcp-hosts, rio-udp"),
        (("--version", "polled,polled"), "each at most once"),
        (("--over", "shm", "--version", "cm"), "--over shm --version cm: only rio has messages of CM"),
        (("--buffer-size", "63"), "--buffer-size 63: allowed: sizes from 64 B"),
        (("--buffer-size", "512MiB"), "--buffer-size 512MiB: allowed: at most 256MiB"),
    ],
)
def test_what_is_refused(real: InProcess, bridge: Path, words: tuple[str, ...], why: str) -> None:
    done = real("bridge", "root", "--bridge", str(bridge), *words)
    assert done.returncode == 2
    assert why in done.stderr


def test_hosts_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(OneLineError, match="need root and iproute2: this user is not root"), hosts_around_a_switch(2):
        pass


def test_hosts_that_cannot_all_be_made_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(words)
        is_bad = words[1:3] == ["link", "add"]
        return subprocess.CompletedProcess(words, 2 if is_bad else 0, "", "Operation not permitted\n")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(OneLineError, match="Operation not permitted"), hosts_around_a_switch(2):
        pass
    made = [words[3] for words in asked if words[1:3] == ["netns", "add"]]
    assert made and made == [words[3] for words in asked if words[1:3] == ["netns", "delete"]]


def test_the_measured_part_of_the_document_is_written(tmp_path: Path) -> None:
    page = tmp_path / "root.md"
    begin, end = marks(DUPLEX)
    page.write_text(f"Before.\n{begin}\nold\n{end}\nBehind.\n")
    write_document(page, result(DUPLEX))
    text = page.read_text()
    assert text.startswith(f"Before.\n{begin}\n") and text.endswith(f"{end}\nBehind.\n") and "old" not in text
    assert "| 64 KiB | 16.00 | 24.00 |" in text and "**Not idle: a trial, no measurement.**" in text
    assert [path.name for path in tmp_path.glob("*.png")] == ["root-duplex-rate.png"]
    write_document(page, result(DUPLEX))
    assert page.read_text() == text
    with pytest.raises(OneLineError, match="has no lines"):
        write_document(page, result(CLIENTS))
