"""`incast rio` hands everything to the engine: options, output and status."""

import sys
from pathlib import Path

import pytest
from incast.cli import app
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
