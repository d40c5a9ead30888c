"""docs/simulation.md, "model your network in ten minutes": the file and the commands are as good as they claim."""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "build/release/bin/incast-node"


@pytest.mark.skipif(not ENGINE.is_file(), reason="the engine is not built")
def test_the_ten_minutes_work(tmp_path: Path) -> None:
    text = (ROOT / "docs/simulation.md").read_text(encoding="utf-8")
    chapter = text.split("## Model your network in ten minutes")[1].split("\n## ")[0]
    blocks = re.findall(r"```(\w*)\n(.*?)```", chapter, re.DOTALL)
    assert [kind for kind, _ in blocks] == ["toml", ""]
    (tmp_path / "mine.toml").write_text(blocks[0][1], encoding="utf-8")
    commands = blocks[1][1].splitlines()
    assert len(commands) >= 6
    environment = {**os.environ, "INCAST_NODE": str(ENGINE), "PYTHONPATH": str(ROOT / "python")}
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "incast"
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    assert (tmp_path / "mine.svg").stat().st_size > 1000
    network = json.loads((tmp_path / "mine" / "result.json").read_text())["network"]
    assert network["fabric"] == "mine"
    assert network["totals"]["hops"] > 1000
    with (tmp_path / "mine" / "network_series.csv").open(newline="") as file:
        flapping = [row for row in csv.DictReader(file) if row["port"] in ("8", "9") and float(row["utilisation"]) > 0]
    down = [row for row in flapping if 3.02e-3 < float(row["t_s"]) < 3.18e-3]
    assert flapping
    assert not down, "cable 4 is down from 3 to 3.2 ms"
    assert (tmp_path / "mine.csv").read_text().startswith("t_ps,what,from,to,number,bytes\n")
