"""`incast rio` hands everything to the engine: options, output, signals and status."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from incast.commands import app
from typer.testing import CliRunner


@pytest.mark.parametrize("arguments", [["list", "--json"], ["ping", "5", "--count", "2"], ["--help"], []])
def test_the_engine_gets_the_arguments(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = tmp_path / "engine"
    engine.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:], flush=True)\nsys.exit(3)\n")
    engine.chmod(0o755)
    monkeypatch.setenv("INCAST_NODE", str(engine))
    assert CliRunner().invoke(app, ["rio", *arguments]).exit_code == 3
    assert capfd.readouterr().out.strip() == str(["rio", *(arguments or ["--help"])])


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_the_engine_gets_the_signals_of_a_switch(number: signal.Signals, tmp_path: Path) -> None:
    engine = tmp_path / "engine"
    waits = f"signal.signal({int(number)}, lambda *_: sys.exit(5))\nprint('ready', flush=True)\nsignal.pause()\n"
    engine.write_text(f"#!{sys.executable}\nimport signal, sys\n{waits}")
    engine.chmod(0o755)
    command = [sys.executable, "-m", "incast", "rio", "switch"]
    environment = {**os.environ, "INCAST_NODE": str(engine)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(20) == 5
