"""Settings as the engine's schema has them, and quantities as the engine reads them."""

import inspect
import os
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from incast.base.console import folded
from incast.cli.commands import application
from incast.cli.net import net
from incast.cli.options import option
from incast.cli.run import run
from incast.engine.quantity import parse
from incast.engine.settings import present, present_config, schema, settings
from incast.engine.transports import chosen_across, transports
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
_LISTED = [
    line.split("|") for line in (ROOT / "tests/quantities.txt").read_text().splitlines() if not line.startswith("#")
]


@pytest.mark.parametrize(("kind", "text", "value"), _LISTED)
def test_quantities_are_read_as_the_engine_reads_them(kind: str, text: str, value: str) -> None:
    found = parse(kind, text)
    if value == "no":
        assert found is None
    else:
        assert found == pytest.approx(float(value), rel=1e-12)


def test_every_unit_is_of_one_kind() -> None:
    names = [name for units in schema()["x-units"].values() for name in units if name]
    assert len(names) == len(set(names))


def test_options_have_the_words_of_the_engine() -> None:
    said = option("transport.name", "What moves the data.").help
    names = [each.name for each in transports()]
    assert said == f"What moves the data. {' | '.join(('auto', *names))}. (default: auto)"
    assert option("protocol.mfp_size").metavar == "SIZE"
    assert "pull-write" in option("protocol.scheme").help


@pytest.mark.parametrize("command", [run, net])
def test_no_option_of_a_setting_is_written_by_hand(command: Callable[..., Any]) -> None:
    always = {"fabric", "trace", "settings", "output", "force", "check_only", "as_json"}
    by_hand = always | {
        "detach",
        "web",
        "web_listen",
        "like",
        "basic_",
        "perftest",
        "perftest_options",
        "compare",
        "rounds",
    }
    by_hand |= {
        "as_csv",
        "hosts",
        "hostfile",
        "launcher",
        "listen",
        "wait_for",
        "token_file",
        "deploy",
        "ssh",
    }
    helps = {option(key).help.partition("(default: ")[2] for key in settings()}
    for name, hint in typing.get_type_hints(command, include_extras=True).items():
        for info in getattr(hint, "__metadata__", ()):
            if isinstance(info, typer.models.OptionInfo) and name not in by_hand:
                assert (info.help or "").partition("(default: ")[2] in helps, f"{name}: {info.help}"
    assert inspect.signature(command).parameters.keys() > always


def test_every_setting_is_listed_for_people() -> None:
    said = CliRunner().invoke(application(), ["settings"])
    assert said.exit_code == 0
    words = " ".join(said.stdout.split())
    assert max(map(len, said.stdout.splitlines())) <= 80
    for setting in settings().values():
        default = setting.default or "(nothing)"
        assert " ".join(f"{setting.key} = {default} [{setting.allowed}] {setting.help}".split()) in words
    few = CliRunner().invoke(application(), ["settings", chosen_across(), "STAGING"]).stdout
    assert few.startswith(f"transport.{chosen_across()}.staging = 64KiB  [8.0 KiB..16.0 MiB]\n")


def test_former_names_become_the_present_ones() -> None:
    section = f"transport.{chosen_across()}"
    assert present(f"{section}.hello_timeout_ms", "1500") == (f"{section}.hello_timeout", "1500ms")
    assert present("protocol.slot_bytes", "64KiB") == ("protocol.slot_size", "64KiB")
    assert present("run.nodes", "4") == ("run.nodes", "4")
    old = {
        "run": {"nodes": 4},
        "source": {"prefill_bytes": "65536"},
        "transport": {chosen_across(): {"hello_timeout_ms": "20"}},
    }
    assert present_config(old) == {
        "run": {"nodes": 4},
        "source": {"prefill_size": "65536"},
        "transport": {chosen_across(): {"hello_timeout": "20ms"}},
    }


def test_help_starts_no_engine(tmp_path: Path) -> None:
    engine = tmp_path / "engine"
    engine.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    engine.chmod(0o755)
    for command in ("run", "net", "sim"):
        done = subprocess.run(
            [sys.executable, "-m", "incast", command, "--help"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env={**os.environ, "INCAST_ENGINE": str(engine), "COLUMNS": "200"},
        )
        assert "64KiB (65536)" in " ".join(done.stdout.split()), "how quantities are written"
    assert not (tmp_path / "started").exists()


def test_settings_fit_80_columns() -> None:
    """Lines are folded between words; one that is longer stays whole."""
    said = CliRunner().invoke(application(), ["settings"]).stdout
    assert "run.nodes = " in said
    assert [line for line in said.splitlines() if len(line) > 80 and len(line.split()) > 1] == []
    long = "long/path/" + "x" * 90
    assert folded(f"a {long} b", first="to  ", indent=4).splitlines() == ["to  a", f"    {long}", "    b"]
