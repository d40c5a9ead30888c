"""`incast fabric fit`: hidden values are found from raw traffic alone, or it is said that they cannot be."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NETWORK = """[fabric]
name = "two"
[hosts.nic]
message_cost = "{cost}"
[switches.sw]
kind = "shared-buffer"
latency = "500ns"
pfc = {{ classes = [0], xoff = "{xoff}", headroom = "200KiB" }}
[links.c]
rate = "40Gb/s"
delay = "100ns"
[flow]
ack_packets = 8
[topology]
kind = "single-switch"
hosts = 2
"""


def incast(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "incast", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_a_hidden_value_is_found_and_what_nothing_reaches_is_undetermined(tmp_path: Path) -> None:
    hidden, guess, fitted = (tmp_path / name for name in ("hidden.toml", "guess.toml", "fitted.toml"))
    hidden.write_text(NETWORK.format(cost="650ns", xoff="200KiB"))
    guess.write_text(NETWORK.format(cost="200ns", xoff="600KiB"))
    window = ("--duration", "1ms", "--warm-up", "200us")
    ping = ("--measure", "latency", "--message-size", "64,16KiB")
    measured = incast(
        "net", "--fabric", hidden, "--nodes", "2", "--seed", "7", *ping, *window, "--output", tmp_path / "m"
    )
    assert measured.returncode == 0, measured.stderr
    free = ("--free", "hosts.nic.message_cost=100ns..1500ns", "--free", "switches.sw.pfc.xoff=100KiB..1MiB")
    fit = (
        "fabric",
        "fit",
        guess,
        tmp_path / "m",
        *free,
        *window,
        "--keep",
        tmp_path / "kept.jsonl",
        "--output",
        fitted,
    )
    early = incast(*fit, "--budget", "15", "--json")
    assert early.returncode == 0, early.stderr
    cut = json.loads(early.stdout)
    assert cut["ended_by_budget"] == "search"
    assert cut["networks"] <= 15
    assert {each["verdict"] for each in cut["values"]} <= {"open", "undetermined"}
    said = incast(*fit, "--json")
    assert said.returncode == 0, said.stderr
    content = json.loads(said.stdout)
    assert content["ended_by_budget"] is None
    assert content["networks_simulated_now"] == content["networks"] - cut["networks"], "it goes on from there"
    cost, xoff = content["values"]
    assert cost["verdict"] == "found"
    assert cost["value"] == pytest.approx(650e-9, rel=0.05)
    assert xoff["verdict"] == "undetermined"
    one, other = (each["switches.sw.pfc.xoff"] for each in xoff["equal_results"])
    assert abs(one - other) > 0.05 * max(one, other)
    plain = incast(*fit)
    assert f"{content['networks']} networks simulated, {content['networks']} of them before" in plain.stdout
    assert incast("fabric", "check", fitted).returncode == 0
    assert "# hosts.nic.message_cost" in fitted.read_text()


def test_what_is_no_result_of_net_is_one_line(tmp_path: Path) -> None:
    network, other = tmp_path / "a.toml", tmp_path / "result.json"
    network.write_text(NETWORK.format(cost="650ns", xoff="200KiB"))
    other.write_text("{}")
    for words, line in (
        ((network, other, "--free", "links.c.rate"), "no result of `incast net`"),
        ((network, other), "no free value; allowed: --free KEY=LOW..HIGH"),
    ):
        said = incast("fabric", "fit", *words)
        assert said.returncode == 2
        assert line in said.stderr
        assert len(said.stderr.strip().splitlines()) == 1
