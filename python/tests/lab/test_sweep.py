"""`incast sim --sweep`."""

import csv
import json
from pathlib import Path

import pytest

from tests.lab.conftest import InProcess

ROOT = Path(__file__).resolve().parents[3]
QDR = ROOT / "fabrics/ib-qdr-8.toml"


def test_a_grid_of_a_setting_and_a_value_of_the_network(real: InProcess) -> None:
    said = real(
        "sim", "--net", "--fabric", str(QDR), "--sweep", "fabric.hosts.hca.transmit_limit=8Gb/s,16Gb/s",
        "--sweep", "net.message_size=64KiB,256KiB", "--set", "run.nodes=2", "--set", "net.pattern=one-to-one",
        "--set", "net.outstanding=4", "--duration", "2ms", "--output", "out",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    with (real.folder / "out/table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["time_domain"] for row in rows] == ["virtual"] * 4
    rates = {
        (row["fabric.hosts.hca.transmit_limit"], row["net.message_size"]): float(row["throughput_bytes_per_s"])
        for row in rows
    }
    for size in ("64KiB", "256KiB"):
        assert rates["8Gb/s", size] == pytest.approx(1e9, rel=0.05)
        assert rates["16Gb/s", size] == pytest.approx(2e9, rel=0.05)
    assert "virtual" in said.stdout.lower()
    assert "fabric.hosts.hca.transmit_limit" in said.stdout
    assert len([line for line in said.stdout.splitlines() if "256KiB" in line]) == 2


def test_json_says_what_was_done(real: InProcess) -> None:
    said = real(
        "sim", "--sweep", "protocol.credits=1,2", "--set", "run.nodes=2", "--duration", "1ms", "--warm-up", "0s",
        "--output", "out", "--json",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    answer = json.loads(said.stdout)
    assert (answer["complete"], answer["wanted"], answer["directory"]) == (2, 2, "out")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "says no points"),
        (["--sweep", "protocol.credits"], "--sweep protocol.credits: allowed: KEY=VALUE"),
        (["--sweep", "credits=1,2"], "grid.credits: allowed: keys of docs/config.md"),
        (["--sweep", "protocol.credits=1,1"], "each value once"),
        (["--sweep", "protocol.credits=1,many"], "protocol.credits"),
        (["--sweep", "fabric.links.cable.rate=1Gb/s"], "transport.sim.fabric"),
        (["--sweep", "protocol.credits=1", "--duration", "5 parsecs"], "--duration 5 parsecs: allowed: a time"),
        (["--sweep", "fabric.hosts.hca.colour=red", "--fabric", str(QDR)], "colour"),
        (["--sweep", "protocol.credits=1", "--fabric", "absent.toml"], "absent.toml"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(real: InProcess, options: list[str], words: str) -> None:
    said = real("sim", *options)
    assert said.returncode == 2, said.stdout
    assert said.stderr.count("\n") == 1, said.stderr
    assert words in said.stderr
    assert not list(real.folder.iterdir())
