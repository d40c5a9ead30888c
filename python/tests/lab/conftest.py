"""Scans to test with: as small as the engine allows."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from incast.base.errors import OneLineError
from incast.cli.commands import application

from tests.conftest import Incast

# Two nodes, little memory to fill, milliseconds: what is tested is the scan, not the engine.
QUICK = """
seconds = 0.02
warm_up_seconds = 0
[set]
run.nodes = 2
source.prefill_size = "256KiB"
protocol.mfp_size = "4KiB"
"""


@pytest.fixture
def write_scan(tmp_path: Path) -> "WriteScan":
    """Writes a scan file below the settings above, unless it has its own."""
    return WriteScan(tmp_path)


class WriteScan:
    """`write_scan(text)` gives the path of the file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, text: str, *, head: str = QUICK, name: str = "scan.toml") -> Path:
        """The file, in the test's folder."""
        path = self._folder / name
        path.write_text(head + text)
        return path


@dataclass(frozen=True)
class Said:
    """What a command said, and its exit status."""

    returncode: int
    stdout: str
    stderr: str


class InProcess:
    """Runs commands within the test's own process: starting Python for each of them takes longer than they do."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._capsys = capsys
        self._patch = patch

    def __call__(self, *arguments: str, mood: str = "well") -> Said:
        """One command line without the word `incast`; `mood` is how a fake engine behaves."""
        self._patch.setenv("FAKE_ENGINE", mood)
        self._capsys.readouterr()
        error_line = ""
        try:
            code = application(arguments)(list(arguments), standalone_mode=False)
        except OneLineError as error:
            code, error_line = error.exit_status, f"incast: {error}\n"
        said = self._capsys.readouterr()
        return Said(int(code or 0), said.out, said.err + error_line)


def _within(incast: Incast, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> InProcess:
    for key, value in {**incast.environment, "COLUMNS": "400"}.items():
        patch.setenv(key, value)
    patch.chdir(incast.folder)
    return InProcess(incast.folder, capsys, patch)


@pytest.fixture
def fake(incast: Incast, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> InProcess:
    """Commands in this process with the engine that behaves as told."""
    return _within(incast, capsys, monkeypatch)


@pytest.fixture
def real(real_incast: Incast, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> InProcess:
    """Commands in this process with the real engine."""
    return _within(real_incast, capsys, monkeypatch)
