"""`incast rio` hands everything to the program softrio: options, output, signals and status."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from incast.base.errors import EXIT_NO_ENGINE
from incast.cli.commands import application
from typer.testing import CliRunner


def make_programs(folder: Path, text: str) -> Path:
    """An engine, and beside it a softrio that does that; the engine's path."""
    for name, does in (("incast-node", ""), ("softrio", text)):
        (folder / name).write_text(f"#!{sys.executable}\n{does}")
        (folder / name).chmod(0o755)
    return folder / "incast-node"


@pytest.mark.parametrize("arguments", [["list", "--json"], ["ping", "5", "--count", "2"], ["--help"], []])
def test_the_program_gets_the_arguments(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = make_programs(tmp_path, "import sys\nprint(sys.argv[1:], flush=True)\nsys.exit(3)\n")
    monkeypatch.setenv("INCAST_NODE", str(engine))
    assert CliRunner().invoke(application(), ["rio", *arguments]).exit_code == 3
    assert capfd.readouterr().out.strip() == str(arguments or ["--help"])


def test_a_missing_program_is_one_line(tmp_path: Path) -> None:
    engine = make_programs(tmp_path, "")
    (tmp_path / "softrio").unlink()
    environment = {**os.environ, "INCAST_NODE": str(engine)}
    command = [sys.executable, "-m", "incast", "rio", "list"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == EXIT_NO_ENGINE
    assert "softrio" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_the_program_gets_the_signals_of_a_switch(number: signal.Signals, tmp_path: Path) -> None:
    waits = f"signal.signal({int(number)}, lambda *_: sys.exit(5))\nprint('ready', flush=True)\nsignal.pause()\n"
    engine = make_programs(tmp_path, f"import signal, sys\n{waits}")
    command = [sys.executable, "-m", "incast", "rio", "switch"]
    environment = {**os.environ, "INCAST_NODE": str(engine)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(20) == 5
