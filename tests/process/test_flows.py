"""`incast sim --flows`: traces and patterns on a simulated network, and what is wrong with them."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT
from test_documents import validate

TRACE = "start_us,source,destination,bytes\n0,0,1,1000000\n0,2,1,1000000\n50,3,0,5000\n"
FABRIC = str(ROOT / "fabrics" / "one-switch-64.toml")


def sim(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "incast", "sim", "--fabric", FABRIC, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "flows.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def result_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def test_a_trace_gives_each_flow_its_time(trace: Path, tmp_path: Path) -> None:
    said = sim("--flows", trace, "--output", tmp_path / "out")
    assert said.returncode == 0, said.stderr
    assert "VIRTUAL TIME" in said.stdout
    assert "slowdown" in said.stdout
    assert max(map(len, said.stdout.splitlines()[:-1])) <= 80
    result = result_of(tmp_path / "out")
    validate(result, "flows_result.schema.json")
    assert (result["status"], result["flows"]["ended"]) == ("complete", 3)
    flows = rows(tmp_path / "out")
    # Two share the link to host 1: each takes twice as long as alone, but for the beginning. The third has its way.
    assert [round(float(row["slowdown"]), 1) for row in flows] == [2.0, 2.0, 1.0]
    assert int(flows[0]["completion_ps"]) > 2 * 1_000_000 * 8 / 100e9 * 1e12
    # The table of one run is the trace of another, which gives the same.
    again = sim("--flows", tmp_path / "out" / "flows.csv", "--output", tmp_path / "again", "--no-alone", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["trace_hash"] == result["trace_hash"]
    assert result_of(tmp_path / "again")["slowdown_is"] is None


def test_a_pattern_follows_from_its_seed(tmp_path: Path) -> None:
    words = ("--flows", "web-search", "--load", "0.4", "--count", "40", "--no-alone", "--json", "--seed")
    hashes = []
    for number, seed in enumerate(("1", "1", "2")):
        said = sim(*words, seed, "--output", tmp_path / str(number))
        assert said.returncode == 0, said.stderr
        hashes.append(json.loads(said.stdout)["trace_hash"])
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_end_can_be_given(trace: Path, tmp_path: Path) -> None:
    said = sim("--flows", trace, "--output", tmp_path / "out", "--until", "60us")
    assert said.returncode == 0, said.stderr
    result = result_of(tmp_path / "out")
    assert (result["status"], result["flows"]["ended"]) == ("out of time", 1)
    assert rows(tmp_path / "out")[0]["completion_ps"] == ""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (TRACE + "1,0,64,5\n", "5: destination = '64': no host of fabric 'one-switch-64'; allowed: 0 to 63"),
        (TRACE + "-1,0,1,5\n", "5: start = '-1': allowed: a time from 0"),
        ("nothing of the kind\n", "1: no column 'start'"),
        ("\x7fELF\0\0", "1: a byte of 0: no text"),
        ("Nodes 64\nConnections 1\n0->1 id 1 trigger 1 size 5\n", "3: trigger = '1': allowed"),
    ],
)
def test_a_wrong_trace_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    said = sim("--flows", path, "--output", tmp_path / "out")
    assert said.returncode == 2
    assert f"{path}:{line}" in said.stderr
    assert len(said.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out" / "result.json").exists()


def test_options_of_the_other_mode_are_refused(trace: Path) -> None:
    for words in (("--flows", str(trace), "--duration", "5ms"), ("--sweep", "run.nodes=2", "--load", "0.5")):
        said = sim(*words)
        assert said.returncode == 2
        assert f"{words[2]} says nothing beside {words[0]}" in said.stderr
