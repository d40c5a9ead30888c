"""Each of examples/ does what it says, and stays short."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Start
from transports import SHARED_MEMORY

EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(path for path in EXAMPLES.iterdir() if path.suffix in {".py", ".sh"})
LINES_MAX = 60
DEADLINE_S = 120
QUICK = {"run.warm_up": "0s", "source.prefill_size": "256KiB", "protocol.mfp_size": "16KiB"}


@pytest.fixture
def environment(engine: Path, tmp_path: Path) -> dict[str, str]:
    """With the word `incast`, and results below the test's folder."""
    program = tmp_path / "bin" / "incast"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m incast "$@"\n')
    program.chmod(0o755)
    path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "python"), "INCAST_NODE": str(engine)}


def run(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def words_of(settings: dict[str, Any]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def test_all_are_short_and_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for path in PROGRAMS:
        assert len(path.read_text().splitlines()) < LINES_MAX, path
        assert f"[{path.name}]({path.name})" in listed
        assert path.stem in Path(__file__).read_text(), "each is run below"


def test_event_sizes_has_every_event(start: Start, tmp_path: Path, environment: dict[str, str]) -> None:
    name = f"event-sizes-{os.getpid()}"
    lossless = start(
        {
            **QUICK,
            "transport.name": SHARED_MEMORY,
            "run.nodes": 2,
            "run.events": 3000,
            "source.size_distribution": "lognormal",
            "sink.kind": "consumer",
            "sink.name": name,
        }
    )
    said = run([sys.executable, str(EXAMPLES / "event_sizes.py"), name, "0", "1"], tmp_path, environment)
    assert lossless.finish(60) == 0, lossless.story()
    built = sum(node["totals"]["built_goodput_bytes"] for node in lossless.result()["nodes"])
    assert said.splitlines()[-1] == f"3000 events, {built} bytes"
    assert sum(int(line.split()[-1]) for line in said.splitlines()[:-1]) == 3000


def test_own_filter_accepts_some(tmp_path: Path, environment: dict[str, str]) -> None:
    settings = {**QUICK, "run.nodes": 3, "run.events": 2000, "protocol.packing": 4}
    words = ["incast", "run", "--transport", SHARED_MEMORY, "--protocol", "push-pull", *words_of(settings)]
    words += ["--size-distribution", "lognormal", "--filter", "python:own_filter:wanted", "--json"]
    result = json.loads(run([*words, "--output", str(tmp_path / "out")], EXAMPLES, environment))
    assert 0 < result["rejected_events"] < result["events"] == 2000


def test_two_hosts_compares_events_with_raw_traffic(tmp_path: Path, environment: dict[str, str]) -> None:
    words = [str(EXAMPLES / "two_hosts.sh"), "one,two", "--launcher", "local", *words_of(QUICK)]
    said = run(words, tmp_path, {**environment, "DURATION": "500ms"})
    assert re.search(r"^efficiency +", said, re.MULTILINE) or "more than raw traffic" in said
    assert (tmp_path / "two-hosts" / "page").is_dir()


def test_switch_buffer_has_a_row_for_every_point(tmp_path: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("matplotlib")
    said = run([str(EXAMPLES / "switch_buffer.sh"), "--duration", "1ms", "--warm-up", "200us"], tmp_path, environment)
    assert "VIRTUAL TIME" in said
    rows = [line for line in said.splitlines() if re.match(r" *\d+KiB +\d ", line)]
    assert len(rows) == 9
    assert (tmp_path / "switch-buffer" / "table.csv").is_file()
