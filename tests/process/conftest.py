"""Fixtures of the process tests."""

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Run, Start, process_state, wait_until

# Programs inherit what is ignored: under nohup a hang-up would end none.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def engine_path() -> Path:
    named = os.environ.get("INCAST_NODE")
    folder = Path(os.environ.get("INCAST_BIN_DIR", ROOT / "build" / "release" / "bin"))
    return Path(named) if named else folder / "incast-node"


# The modules of the same build, for tests and their children: before a test imports incast.consumer.
os.environ.setdefault("INCAST_CONSUMER_MODULE", str(engine_path().parent.parent / "lib" / "_consumer.abi3.so"))
os.environ.setdefault("INCAST_SOURCE_LIBRARY", str(engine_path().parent.parent / "lib" / "libincast_source.so.1"))


@pytest.fixture(scope="session")
def engine() -> Path:
    """The program under test: INCAST_NODE, or the one of the build folder."""
    path = engine_path()
    assert os.access(path, os.X_OK), f"{path} is not there: build it, or name it in INCAST_NODE"
    return path


@pytest.fixture
def name(tmp_path: Path) -> str:
    """One that no other test on this host has."""
    return f"test-{os.getpid()}-{tmp_path.name}"[:64]


@pytest.fixture
def start(engine: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts runs; whatever a test leaves behind is ended. Node processes must be gone with their coordinator, and
    neither shared memory nor a socket or pipe may be left in a file system.
    """
    runs: list[Run] = []

    def begin(
        settings: dict[str, Any],
        *arguments: str,
        token: str = "",
        prefix: Sequence[str] = (),
        output: Path | None = None,
    ) -> Run:
        output = output or tmp_path / f"run{len(runs)}"
        runs.append(Run(engine, output, settings, *arguments, token=token, prefix=prefix))
        return runs[-1]

    yield begin
    for run in runs:
        nodes = run.all_node_pids()
        run.abandon()
        for pid in nodes:
            wait_until(lambda pid=pid: process_state(pid) in ("", "Z"), f"the end of node process {pid}")
        left = [file for file in run.output.rglob("*") if not (file.is_file() or file.is_dir())]
        # That of a coordinator that was killed is harmless: the next run there takes its place.
        assert [file.name for file in left if file != run.output / "control"] == []
        if run.process.returncode >= 0:
            assert left == []
    assert not list(Path("/dev/shm").glob("*incast*"))
