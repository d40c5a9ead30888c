"""`incast run --consumers N`: farm nodes that come and go with the run (docs/farm.md)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT
from transports import SHARED_MEMORY, SIMULATED

FABRIC = ROOT / "fabrics" / "one-switch-64.toml"


def incast(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "incast", "run", *words]
    return subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False
    )


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_farm_nodes_take_every_event_of_the_run(engine: Path, tmp_path: Path) -> None:
    assert engine.is_file()
    words = ("--transport", SHARED_MEMORY, "--nodes", "2", "--packing", "20", "--events", "20000")
    done = incast(*words, "--consumers", "3", "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    farm, result = read(tmp_path / "out" / "farm.json"), read(tmp_path / "out" / "result.json")
    meps = result["accounting"]["meps_committed"]
    assert meps == 1000
    assert (farm["dispatcher"]["taken_meps"], farm["dispatcher"]["done_meps"]) == (meps, meps)
    assert (farm["dispatcher"]["joined_nodes"], farm["dispatcher"]["repeated_meps"]) == (3, 0)
    assert sum(node["meps"] for node in farm["nodes"]) == meps
    assert result["consumers"]["refused"] == 0, "who comes before a builder unit is ready is not refused"
    assert f"3 farm nodes took {meps} of {meps} MEPs" in done.stderr


def test_in_a_simulated_network_they_are_hosts(engine: Path, tmp_path: Path) -> None:
    assert engine.is_file()
    config = tmp_path / "run.toml"
    config.write_text(f'[transport]\nname = "{SIMULATED}"\n[transport.{SIMULATED}]\nfabric = "{FABRIC}"\n')
    words = (str(config), "--nodes", "4", "--events", "2000")
    done = incast(*words, "--consumers", "6", "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    result = read(tmp_path / "out" / "result.json")
    assert result["farm"]["nodes"] == 6
    assert result["farm"]["done_meps"] == result["accounting"]["meps_committed"] > 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--consumers", "0"), "--consumers 0: allowed: 1 to 255 farm nodes"),
        (("--consumers", "2", "--sink", "null"), "--consumers 2 --sink null: farm nodes are the sink; leave one out"),
        (("--consumers", "2", "--detach"), "--consumers 2: runs in this terminal and on this host only"),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], line: str, tmp_path: Path) -> None:
    done = incast(*words, "--output", str(tmp_path / "out"))
    assert done.returncode == 2
    assert line in done.stderr
    assert not (tmp_path / "out").exists()
