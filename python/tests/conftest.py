"""Engines to test the front end with: a fake one that misbehaves on demand, and the real one where it is built."""

import itertools
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from incast.base.errors import OneLineError
from incast.engine.program import ENGINE_VARIABLE, find_engine

# Programs inherit what is ignored: under nohup a hang-up would end none.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A loaded machine is slow to start Python twice; a hang is much longer than this.
DEADLINE_S = 60.0


@dataclass
class Incast:
    """Runs the command `incast` as a person does, in a folder of its own, with the engine chosen by the test."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def full_environment(self, mood: str = "well") -> dict[str, str]:
        """What the command sees; `mood` is how the fake engine behaves."""
        inherited = {key: value for key, value in os.environ.items() if key not in {"FORCE_COLOR", "NO_COLOR"}}
        return inherited | self.environment | {"FAKE_ENGINE": mood, "COLUMNS": "200"}

    def command(self, *arguments: str) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "incast", *arguments]

    def __call__(self, *arguments: str, mood: str = "well") -> subprocess.CompletedProcess[str]:
        """Runs it to its end."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.full_environment(mood),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def engine_arguments(self) -> list[str]:
        """The command line that the fake engine got."""
        arguments: list[str] = json.loads((self.folder / "arguments.json").read_text())
        return arguments

    def engine_settings(self) -> list[str]:
        """What came after every --set, in order."""
        words = self.engine_arguments()
        return [value for word, value in itertools.pairwise(words) if word == "--set"]


@pytest.fixture
def fake_engine(tmp_path: Path) -> Path:
    """A program that can be started like incast-node."""
    program = tmp_path / "bin" / "incast-node"
    program.parent.mkdir()
    script = Path(__file__).parent / "fake_engine.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def incast(tmp_path: Path, fake_engine: Path) -> Incast:
    """The command with the fake engine."""
    folder = tmp_path / "work"
    folder.mkdir()
    return Incast(folder, {ENGINE_VARIABLE: str(fake_engine), "FAKE_ENGINE_ARGUMENTS": str(folder / "arguments.json")})


def require_engine() -> Path:
    """The real engine; skips where it is not built, fails where INCAST_REQUIRE_ENGINE is set."""
    try:
        return find_engine()
    except OneLineError as error:
        if os.environ.get("INCAST_REQUIRE_ENGINE"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def real_incast(tmp_path: Path) -> Incast:
    """The command with the real engine."""
    return Incast(tmp_path, {ENGINE_VARIABLE: str(require_engine())})


def wait_for_line(text: str, process: subprocess.Popen[str]) -> str:
    """What came on standard error up to and with the line that holds `text`."""
    assert process.stderr is not None
    seen = ""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        deadline = time.monotonic() + DEADLINE_S
        while text not in seen:
            assert selector.select(max(0.0, deadline - time.monotonic())), f"no {text!r} in {seen!r}"
            chunk = os.read(process.stderr.fileno(), 4096).decode()
            assert chunk, f"no {text!r} in {seen!r}"
            seen += chunk
    return seen
