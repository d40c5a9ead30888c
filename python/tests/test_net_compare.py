"""`incast net --compare`: what it measures, in which order, its table, and what it refuses."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from incast.run.net_compare import parse_compared, print_compared
from rich.console import Console

from tests.conftest import Incast
from tests.test_net import validate

QUICK = ("--messages", "50", "--working-set", "1MiB", "--pattern", "one-to-one", "--nodes", "2")


def shown(whole: dict[str, Any]) -> list[str]:
    screen = Console(file=io.StringIO(), width=80)
    print_compared(screen, whole, Path("here"))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue().splitlines()


def test_every_transport_in_turn(real_incast: Incast) -> None:
    options = ("--compare", "inproc,tcp,tcp:streams=2", "--rounds", "2", "--message-size", "100,4KiB")
    done = real_incast("net", *QUICK, *options, "--output", "out", "--json")
    assert done.returncode == 0, done.stderr
    whole = json.loads(done.stdout)
    validate(whole)
    assert whole == json.loads((real_incast.folder / "out" / "result.json").read_text())
    assert [each["name"] for each in whole["transports"]] == ["inproc", "tcp", "tcp:streams=2"]
    for each in whole["transports"]:
        assert [row["message_bytes"] for row in each["goodput"]] == [100, 4096]
        assert all(len(row["bytes_per_s"]) == 2 and min(row["bytes_per_s"]) > 0 for row in each["goodput"])
        assert len(each["one_way_ns"]["p50"]) == 2
    inproc, tcp, streams = whole["transports"]
    assert inproc["bytes_per_peer"] is None, "all nodes are in one process"
    assert tcp["bytes_per_peer"] is not None and streams["bytes_per_peer"] is not None
    # Each round begins with another one.
    folders = sorted(path.name for path in (real_incast.folder / "out").iterdir() if path.is_dir())
    order = [name for folder in folders if (name := re.sub(r"^\d\d-\d-", "", folder)).endswith("-100")]
    assert order == ["inproc-100", "tcp-100", "tcp-streams-2-100", "tcp-100", "tcp-streams-2-100", "inproc-100"]
    streamed = next((real_incast.folder / "out").glob("*-tcp-streams-2-100")) / "result.json"
    assert json.loads(streamed.read_text())["config"]["transport"]["tcp"]["streams"] == 2


def test_medians_and_the_range_stand_in_the_table() -> None:
    def one(name: str, rates: list[float], errors: int = 0) -> dict[str, Any]:
        goodput = {"message_bytes": 4096, "bytes_per_s": rates, "cpu_s_per_gb": [0.5, None], "verify_errors": errors}
        ways = {"p50": [1000.0, 3000.0, 2000.0], "p99": []}
        return {"name": name, "settings": [], "goodput": [goodput], "one_way_ns": ways, "bytes_per_peer": 2048.0}

    whole = {
        **{"schema": 1, "kind": "net-compare", "rounds": 3, "ping_bytes": 64, "pattern": "pairs", "nodes": 4},
        **{"runs": 9, "runs_not_idle": 2, "unfinished": ["shm-pings: aborted: a node was lost"]},
        "transports": [one("tcp", [3e9, 1e9, 2e9]), one("shm", [5e9], errors=7)],
    }
    validate(whole)
    lines = shown(whole)
    assert max(len(line) for line in lines) <= 80
    (tcp,) = (line.split() for line in lines if "tcp" in line and "GB/s" in line)
    assert tcp == ["4.10", "kB", "tcp", "2.00", "GB/s", "1.00", "GB/s", "3.00", "GB/s", "0.5", "0"]
    (shm,) = (line.split() for line in lines if "shm" in line and "GB/s" in line)
    assert shm[-1] == "7"
    assert ["tcp", "2.00", "µs", "-", "2.05", "kB"] in [line.split() for line in lines]
    assert "NOT IDLE: others used the machine during 2 of 9 measurements" in lines
    assert "shm-pings: aborted: a node was lost" in lines


def test_settings_of_a_transport() -> None:
    _, tcp = parse_compared("shm, tcp:streams=4+window=1MiB")
    assert tcp.settings == ("transport.name=tcp", "transport.tcp.streams=4", "transport.tcp.window=1MiB")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--compare", "tcp,sim"), ["--compare sim", "simulated and measured", "shm"]),
        (("--compare", "tcp,pigeon"), ["--compare 'pigeon'", "allowed: a list of", "tcp"]),
        (("--compare", "tcp,"), ["--compare '", "no transport"]),
        (("--compare", "tcp"), ["two transports or more"]),
        (("--compare", "tcp,tcp"), ["each once"]),
        (("--compare", "tcp,shm:fast"), ["--compare shm:fast: settings are KEY=VALUE"]),
        (("--compare", "tcp,tcp:streams=many"), ["transport.tcp.streams = many"]),
        (("--compare", "tcp,shm", "--transport", "udp"), ["not allowed beside it: --transport"]),
        (("--compare", "tcp,shm", "--rounds", "0"), ["--rounds 0", "1 or more"]),
    ],
)
def test_bad_options_are_one_line(real_incast: Incast, options: tuple[str, ...], words: list[str]) -> None:
    done = real_incast("net", *options)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr
    assert done.stdout == ""
