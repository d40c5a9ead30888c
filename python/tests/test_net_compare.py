"""`incast net --compare`: what it measures, in which order, its table, and what it refuses."""

import io
import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from incast.run.net_compare import parse_compared, print_compared
from rich.console import Console

from tests.conftest import DEADLINE_S, Incast, wait_for_line
from tests.test_net import validate

QUICK = ("--messages", "50", "--pattern", "one-to-one", "--nodes", "2")


def shown(whole: dict[str, Any]) -> list[str]:
    screen = Console(file=io.StringIO(), width=80)
    print_compared(screen, whole, Path("here"))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue().splitlines()


def test_every_transport_in_turn(real_incast: Incast) -> None:
    options = ("--compare", "inproc,tcp:streams=2", "--rounds", "2", "--message-size", "100,4KiB")
    done = real_incast("net", *QUICK, "--buffers", "one", *options, "--output", "out", "--json")
    assert done.returncode == 0, done.stderr
    whole = json.loads(done.stdout)
    validate(whole)
    assert whole == json.loads((real_incast.folder / "out" / "result.json").read_text())
    assert [each["name"] for each in whole["transports"]] == ["inproc", "tcp:streams=2"]
    for each in whole["transports"]:
        assert [row["message_bytes"] for row in each["goodput"]] == [100, 4096]
        assert all(len(row["bytes_per_s"]) == 2 and min(row["bytes_per_s"]) > 0 for row in each["goodput"])
        assert len(each["one_way_ns"]["p50"]) == 2
    # Where all nodes are in one process, nothing is known of a peer.
    assert [len(each["bytes_per_peer"]) for each in whole["transports"]] == [0, 2]
    assert (whole["buffers"], whole["left_out"], whole["unfinished"]) == ("one", [], [])
    # Each round begins with another one.
    folders = sorted(path.name for path in (real_incast.folder / "out").iterdir() if path.is_dir())
    order = [name for folder in folders if (name := re.sub(r"^\d\d\d-", "", folder)).endswith("-100")]
    assert order == ["inproc-100", "tcp-streams-2-100", "tcp-streams-2-100", "inproc-100"]
    streamed = next((real_incast.folder / "out").glob("*-tcp-streams-2-100")) / "result.json"
    config = json.loads(streamed.read_text())["config"]
    assert (config["transport"]["tcp"]["streams"], config["net"]["buffers"]) == (2, "one")


def test_settings_of_the_traffic_hinder_neither_pings_nor_what_tells_of_memory(real_incast: Incast) -> None:
    """Those have another pattern, one message in flight, and one buffer, of which not every byte can be verified."""
    old = real_incast.folder / "out" / "007-udp-4KiB" / "result.json"
    old.parent.mkdir(parents=True)
    for file in (old, real_incast.folder / "out" / "result.json"):
        file.write_text("{}")
    pattern = ("--producers", "2", "--consumers", "1", "--duplex", "--queues", "2", "--verify")
    traffic = ("--outstanding", "4", "--sends", "2", "--messages", "20", "--working-set", "1MiB")
    options = (*pattern, *traffic, "--message-size", "100", "--output", "out", "--force")
    done = real_incast("net", "--compare", "inproc,tcp", "--rounds", "1", *options, "--json")
    assert done.returncode == 0, done.stderr
    whole = json.loads(done.stdout)
    assert (whole["pattern"], whole["nodes"], whole["unfinished"]) == ("bipartite", 3, [])
    assert [len(each["one_way_ns"]["p50"]) for each in whole["transports"]] == [1, 1]
    assert [len(each["bytes_per_peer"]) for each in whole["transports"]] == [0, 1]
    assert not old.exists(), "of an earlier comparison"


def test_what_is_not_here_is_named_and_the_others_go_on(real_incast: Incast, tmp_path: Path) -> None:
    """A module that is not there is known before; an address of nobody shows when it is used first."""
    real_incast.environment["INCAST_TRANSPORT_MODULES"] = str(tmp_path / "none")
    absent = "tcp:bind=192.0.2.1"
    options = ("--compare", f"inproc,rio,{absent}", "--rounds", "2", "--message-size", "100", "--json")
    done = real_incast("net", *QUICK, "--working-set", "1MiB", *options, "--output", "out")
    assert done.returncode == 1, done.stderr
    whole = json.loads(done.stdout)
    validate(whole)
    assert [each["name"] for each in whole["transports"]] == ["inproc"]
    assert len(whole["transports"][0]["goodput"][0]["bytes_per_s"]) == 2
    rio, nobody = whole["left_out"]
    assert rio["name"] == "rio"
    assert rio["reason"].startswith("its module ")
    assert nobody["name"] == absent
    assert "192.0.2.1" in nobody["reason"]
    assert f"rio is left out: {rio['reason']}" in done.stderr
    assert len(list((real_incast.folder / "out").glob("*-tcp-*"))) == 1, "what failed at first is not tried again"


def test_none_of_them_is_here(real_incast: Incast, tmp_path: Path) -> None:
    real_incast.environment["INCAST_TRANSPORT_MODULES"] = str(tmp_path / "none")
    done = real_incast("net", "--compare", "rio,ofi")
    assert done.returncode == 2
    assert done.stderr.startswith("incast: --compare rio,ofi: none of them is here: rio: its module")
    assert done.stderr.count("\n") == 1
    assert not list(real_incast.folder.iterdir())


def test_ctrl_c_ends_it_and_shows_what_there_is(real_incast: Incast) -> None:
    """The measurement that is under way is reported by itself, and nothing else is begun."""
    long = ("--duration", "10min", "--warm-up", "0s", "--pattern", "one-to-one", "--nodes", "2", "--buffers", "one")
    with subprocess.Popen(
        real_incast.command("net", "--compare", "inproc,tcp", "--rounds", "2", *long, "--output", "out", "--json"),
        cwd=real_incast.folder,
        env=real_incast.full_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for_line("measuring", process)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    whole = json.loads(output)
    validate(whole)
    assert (whole["runs"], whole["transports"], whole["left_out"]) == (1, [], [])
    (line,) = whole["unfinished"]
    assert line.startswith("inproc-4KiB: interrupted")


def test_medians_and_the_range_stand_in_the_table() -> None:
    def one(name: str, rates: list[float], errors: int = 0) -> dict[str, Any]:
        goodput = {"message_bytes": 4096, "bytes_per_s": rates, "cpu_s_per_gb": [0.5, None], "verify_errors": errors}
        ways = {"p50": [1000.0, 3000.0, 2000.0], "p99": []}
        return {"name": name, "settings": [], "goodput": [goodput], "one_way_ns": ways, "bytes_per_peer": [2e3, 3e3]}

    whole = {
        **{"schema": 1, "kind": "net-compare", "rounds": 3, "ping_bytes": 64, "pattern": "pairs", "nodes": 4},
        **{"runs": 9, "runs_not_idle": 2, "unfinished": ["shm-pings: aborted: a node was lost"], "buffers": "cycled"},
        "transports": [one("tcp:streams=4+window=16MiB", [3e9, 1e9, 2e9]), one("shm", [5e9], errors=7)],
        "left_out": [{"name": "verbs", "reason": "this host has no RDMA device"}],
    }
    validate(whole)
    lines = shown(whole)
    assert max(len(line) for line in lines) <= 80
    assert lines[:2] == ["pairs, 4 nodes, buffers in a cycle", "median (lowest..highest) of 3 rounds in turn"]
    words = [line.split() for line in lines]
    # Its long name is folded, and no figure is.
    assert ["4.10", "kB", "tcp:streams=4+window=", "2.00", "(1.00..3.00)", "0.500", "0"] in [
        [*line[:2], line[2][:21], *line[3:]] for line in words if len(line) > 2
    ]
    assert ["shm", "5.00", "0.500", "7"] in words
    assert ["tcp:streams=4+window=16MiB", "2.00", "(1.00..3.00)", "-", "2.50", "(2.00..3.00)"] in words
    assert "NOT IDLE: others used the machine during 2 of 9 measurements" in lines
    assert "verbs is left out: this host has no RDMA device" in lines
    assert "without figures: shm-pings: aborted: a node was lost" in lines


def test_settings_of_a_transport() -> None:
    _, tcp = parse_compared("shm, tcp:streams=4+window=1MiB", [{"name": "shm"}, {"name": "tcp"}])
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
        (("--compare", "tcp,shm", "--set", "net.operation=read"), ["net.operation = read: writes are compared"]),
        (("--compare", "tcp,shm", "--set", "net.queues=many"), ["net.queues = many", "1..64"]),
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
