"""Fixtures of the process tests."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Run, Start, process_state, wait_until


@pytest.fixture(scope="session")
def engine() -> Path:
    """The program under test: INCAST_NODE, or the one of the build folder."""
    named = os.environ.get("INCAST_NODE")
    folder = Path(os.environ.get("INCAST_BIN_DIR", ROOT / "build" / "release" / "bin"))
    path = Path(named) if named else folder / "incast-node"
    assert os.access(path, os.X_OK), f"{path} is not there: build it, or name it in INCAST_NODE"
    return path


@pytest.fixture
def start(engine: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts runs; whatever a test leaves behind is ended, and node processes must be gone with their coordinator."""
    runs: list[Run] = []

    def begin(settings: dict[str, Any], *arguments: str, token: str = "") -> Run:
        runs.append(Run(engine, tmp_path / f"run{len(runs)}", settings, *arguments, token=token))
        return runs[-1]

    yield begin
    for run in runs:
        nodes = run.all_node_pids()
        run.abandon()
        for pid in nodes:
            wait_until(lambda pid=pid: process_state(pid) in ("", "Z"), f"the end of node process {pid}")
