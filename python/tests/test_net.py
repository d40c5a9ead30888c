"""`incast net`: options, lists of sizes, tables, efficiency."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from incast.engine.transports import chosen_across
from incast.run.net import like_options, with_efficiency
from incast.run.net_summary import print_net_loaded, print_net_sizes, print_net_summary
from referencing import Registry, Resource
from rich.console import Console

from tests.conftest import Incast

SCHEMAS = Path(__file__).parents[2] / "schema"
QUICK = ("--transport", "inproc", "--messages", "50", "--working-set", "1MiB")


def validate(result: Any) -> None:
    names = [f"{name}.schema.json" for name in ("config", "network", "net_result")]
    config, network, net = (json.loads((SCHEMAS / name).read_text()) for name in names)
    parts = [Resource.from_contents(part) for part in (config, network)]
    registry: Registry[Any] = Registry().with_resources(zip(names, parts, strict=False))
    jsonschema.Draft202012Validator(net, registry=registry).validate(result)


def made(incast: Incast, *options: str) -> dict[str, Any]:
    done = incast("net", *options, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    validate(result)
    return result


def shown(result: dict[str, Any]) -> list[list[str]]:
    """The lines of the tables, by word."""
    screen = Console(file=io.StringIO(), width=200)
    if result["kind"] == "net":
        print_net_summary(screen, result, Path("/results/here"))
    elif result["kind"] == "net-loaded":
        print_net_loaded(screen, result["idle"], result["results"], Path("/results/here"))
    else:
        print_net_sizes(screen, result["results"], Path("/results/here"))
    assert isinstance(screen.file, io.StringIO)
    return [line.split() for line in screen.file.getvalue().splitlines()]


def test_options_become_settings(incast: Incast) -> None:
    incast(
        *("net", "--pattern", "pairs", "--nodes", "6", "--measure", "latency", "--duplex", "--queues", "3"),
        *("--message-size", "4KiB", "--outstanding", "1", "--messages", "7", "--duration", "2s", "--warm-up", "0s"),
        *("--working-set", "1MiB", "--verify", "--seed", "5", "--transport", "shm", "--set", "run.yields=3"),
        *("--operation", "write", "--sends", "1", "--ping-size", "8", "--buffers", "cycled"),
    )
    assert incast.engine_settings() == [
        "net.pattern=pairs",
        "run.nodes=6",
        "transport.name=shm",
        "net.measure=latency",
        "net.duplex=true",
        "net.message_size=4KiB",
        "net.operation=write",
        "net.queues=3",
        "net.outstanding=1",
        "net.sends=1",
        "net.ping_size=8",
        "run.duration=2s",
        "net.messages=7",
        "run.warm_up=0s",
        "net.buffers=cycled",
        "net.working_set=1MiB",
        "net.verify=true",
        "run.seed=5",
        "run.yields=3",
        "run.task=net",
    ]


def test_without_options_only_the_task_is_set(incast: Incast) -> None:
    incast("net")
    assert incast.engine_settings() == ["run.task=net"]


def test_producers_and_consumers_are_a_pattern(incast: Incast) -> None:
    incast("net", "--producers", "3", "--consumers", "1")
    assert incast.engine_settings()[:3] == ["net.pattern=bipartite", "net.producers=3", "net.consumers=1"]


def test_json_is_the_result_and_nothing_else(real_incast: Incast) -> None:
    result = made(real_incast, *QUICK, "--pattern", "many-to-one", "--output", "out")
    assert result == json.loads((real_incast.folder / "out" / "result.json").read_text())
    assert [(pair["from"], pair["to"], pair["messages"]) for pair in result["pairs"]] == [
        (1, 0, 50),
        (2, 0, 50),
        (3, 0, 50),
    ]


def test_the_table_has_the_matrix(real_incast: Incast) -> None:
    result = made(real_incast, *QUICK, "--producers", "1", "--consumers", "2", "--verify")
    for pair, rate in zip(result["pairs"], (2e9, 3e9), strict=True):
        pair["bytes_per_s"] = rate
    lines = shown(result)
    assert ["from", "\\", "to", "1", "2", "sent"] in lines
    row = next(line for line in lines if line[:1] == ["0"])
    assert row[1:3] == ["2.00", "3.00"], "GB/s"
    assert any(line[:4] == ["verification", "full,", "no", "errors"] for line in lines)
    assert any("bipartite," in line for line in lines)


def test_a_simulation_is_labelled(real_incast: Incast) -> None:
    done = real_incast("net", "--transport", "sim", "--messages", "20", "--measure", "latency", "--nodes", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("VIRTUAL TIME")
    assert "round trip" in done.stdout
    assert "one way (half)" in done.stdout


def test_errors_and_losses_are_seen(real_incast: Incast) -> None:
    result = made(real_incast, *QUICK, "--nodes", "2")
    bad = {"verify_errors": 3, "status": "node lost", "reason": "node 1 (sends+receives) lost: killed"}
    bad["nodes"] = [{"node": 1, "roles": "1 (sends+receives)", "lost": True, "why_lost": "killed"}]
    words = [" ".join(line) for line in shown(result | bad)]
    assert "verification header: 3 ERRORS" in words
    assert "node lost: node 1 (sends+receives) lost: killed" in words
    assert "node 1 (sends+receives) killed" in words


@pytest.mark.parametrize("mode", ["bandwidth", "latency"])
def test_a_list_of_sizes_is_measured_one_by_one(real_incast: Incast, mode: str) -> None:
    sizes = made(real_incast, *QUICK, "--message-size", "100,4KiB,100", "--measure", mode, "--output", "out")
    assert [result["message_bytes"] for result in sizes["results"]] == [100, 4096, 100]
    folders = {path.name for path in (real_incast.folder / "out").iterdir()}
    assert folders == {"00-100", "01-4KiB", "02-100", "result.json"}
    for number, folder in enumerate(sorted(folders - {"result.json"})):
        one = json.loads((real_incast.folder / "out" / folder / "result.json").read_text())
        assert one == sizes["results"][number]
    lines = shown(sizes)
    assert ["100", "B"] in [line[:2] for line in lines]
    assert ["4.10", "kB"] in [line[:2] for line in lines]


def test_every_number_of_queues_with_every_size(real_incast: Incast) -> None:
    """Twice as many slots as sends, as figure 3 of J. Phys. Conf. Ser. 331 022008 has them."""
    twice = ("--outstanding", "2", "--sends", "1")
    grid = made(real_incast, *QUICK, *twice, "--queues", "2,4", "--message-size", "100,4KiB", "--output", "out")
    measured = [(one["queues"], one["sends"], one["outstanding"], one["message_bytes"]) for one in grid["results"]]
    assert measured == [(2, 1, 2, 100), (2, 1, 2, 4096), (4, 1, 2, 100), (4, 1, 2, 4096)]
    assert {path.name for path in (real_incast.folder / "out").iterdir()} == {
        *("00-q2-100", "01-q2-4KiB", "02-q4-100", "03-q4-4KiB", "result.json")
    }
    lines = shown(grid)
    assert any(line[:2] == ["queues", "message"] for line in lines)
    assert ["4", "4.10", "kB"] in [line[:3] for line in lines]
    alone = made(real_incast, *QUICK, "--queues", "2,4")
    assert [one["queues"] for one in alone["results"]] == [2, 4]


def test_pings_idle_and_beside_a_load(real_incast: Incast) -> None:
    options = ("--transport", "sim", "--nodes", "2", "--pattern", "one-to-one", "--messages", "400")
    both = made(real_incast, *options, "--measure", "loaded", "--outstanding", "8", "--output", "out")
    assert both["kind"] == "net-loaded"
    (loaded,) = both["results"]
    assert both["idle"]["message_bytes"] == loaded["ping_bytes"] == 64
    # 100 Gb/s: the ping stands behind eight messages at most.
    waiting_ns = 8 * (65536 + 64) / 12.5
    idle = both["idle"]["round_trip_ns"]["p50"]
    assert idle + waiting_ns / 2 < loaded["round_trip_ns"]["p50"] < 1.05 * (idle + waiting_ns)
    lines = shown(both)
    assert any(line[:1] == ["none"] for line in lines)
    assert any(line[:6] == ["1", "x", "8", "x", "65.5", "kB"] for line in lines)
    folders = {path.name for path in (real_incast.folder / "out").iterdir()}
    assert folders == {"00-loaded", "01-idle", "result.json"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--pattern", "ring"), ["net.pattern = ring", "all-to-all"]),
        (("--pattern", "pairs", "--nodes", "3"), ["run.nodes = 3", "even"]),
        (("--message-size", "4KiB,banana"), ["net.message_size = banana: not a size", "512.0 MiB"]),
        (("--message-size", "4KiB,"), ["net.message_size = ", "not a size"]),
        (("--measure", "speed"), ["net.measure = speed", "bandwidth | latency"]),
        (("--queues", "many"), ["net.queues = many", "1..64"]),
        (("--queues", "2,many"), ["net.queues = many", "1..64"]),
        (("--operation", "read", "--measure", "loaded"), ["net.measure = loaded: reads are measured without a load"]),
        (("--basic", "--nodes", "4"), ["--basic measures two nodes"]),
        (("--transport", "pigeon"), ["transport.name = pigeon", chosen_across()]),
        (("--like", "nowhere"), ["--like nowhere", "incast run"]),
    ],
)
def test_bad_options_are_one_line(real_incast: Incast, options: tuple[str, ...], words: list[str]) -> None:
    done = real_incast("net", *options)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr
    assert done.stdout == ""
    assert not list(real_incast.folder.iterdir()), "nothing is left behind by a run that never was"


@pytest.mark.parametrize("roles", ["folded", "split"])
def test_the_efficiency_of_a_run(real_incast: Incast, roles: str) -> None:
    options = ("--transport", "inproc", "--nodes", "3", "--events", "2000", "--mfp-size", "8KiB", "--roles", roles)
    done = real_incast("run", *options, "--sink", "null", "--output", "built", "--json")
    assert done.returncode == 0, done.stderr
    built = json.loads(done.stdout)
    result = made(real_incast, "--like", "built", "--messages", "50", "--working-set", "1MiB", "--output", "raw")
    goodput = built["goodput_bytes_per_s"]["total_without_self"]
    assert result["message_bytes"] == built["sizes"]["mfp_bytes"]
    assert len(result["pairs"]) == (6 if roles == "folded" else 2)
    assert result["efficiency"]["goodput_bytes_per_s"] == goodput
    share = goodput / result["bytes_per_s"]["total"]
    # So short a run may have found the machine quicker than the other one did.
    assert result["efficiency"]["fraction"] == (pytest.approx(share) if share <= 1 else None)
    impossible = {**built, "goodput_bytes_per_s": {"total_without_self": 5 * result["bytes_per_s"]["total"]}}
    efficiency = with_efficiency(result, impossible, real_incast.folder / "built")["efficiency"]
    assert efficiency["fraction"] is None
    assert "more than raw traffic did" in efficiency["reason"]
    assert result == json.loads((real_incast.folder / "raw" / "result.json").read_text())
    assert any(line[:1] == ["efficiency"] for line in shown(result))


def test_another_matrix_gives_no_efficiency(real_incast: Incast) -> None:
    options = ("--transport", "inproc", "--nodes", "3", "--events", "2000", "--mfp-size", "8KiB")
    assert real_incast("run", *options, "--sink", "null", "--output", "built").returncode == 0
    path = real_incast.folder / "built"
    settings, built = like_options(path)
    assert settings["net.pattern"] == "all-to-all"
    for other in (("--pattern", "many-to-one"), ("--message-size", "4KiB"), ("--measure", "latency"), ("--nodes", "4")):
        result = made(real_incast, "--like", "built", *other, "--messages", "50", "--working-set", "1MiB")
        assert "efficiency" not in result, other
        assert with_efficiency(result, built, path) == result


def test_run_repeats_a_measurement_too(real_incast: Incast) -> None:
    """config.toml in a result directory is for `incast run`, whatever the run was for."""
    made(real_incast, *QUICK, "--nodes", "2", "--output", "first")
    done = real_incast("run", "first/config.toml")
    assert done.returncode == 0, done.stderr
    assert "all-to-all" in done.stdout


def test_a_table_on_standard_output(real_incast: Incast) -> None:
    words = ("net", *QUICK, "--nodes", "2", "--csv")
    done = real_incast(*words, "--message-size", "1KiB,4KiB", "--measure", "latency")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["message_bytes"] for row in rows] == ["1024", "4096"]
    for row in rows:
        times = [int(row[f"round_trip_{key}_ns"]) for key in ("min", "p50", "p95", "p99", "p999", "max")]
        assert times == sorted(times)
    (row,) = csv.DictReader(io.StringIO(real_incast(*words).stdout))
    assert row["status"] == "complete"
    assert real_incast(*words, "--json").returncode == 2


def test_rows_of_tables_fit_80_columns(real_incast: Incast) -> None:
    several = made(real_incast, *QUICK, "--nodes", "2", "--message-size", "1KiB,4KiB", "--queues", "1,2")
    for measure in ("bandwidth", "latency"):
        one = made(real_incast, *QUICK, "--nodes", "4", "--measure", measure)
        for result in (one, several):
            screen = Console(file=io.StringIO(), width=80)
            if result["kind"] == "net":
                print_net_summary(screen, result, Path("/results/here"))
            else:
                print_net_sizes(screen, result["results"], Path("/results/here"))
            assert isinstance(screen.file, io.StringIO)
            lines = screen.file.getvalue().splitlines()
            assert max(map(len, lines)) <= 80
            assert not [line for line in lines if re.fullmatch(r" *([kMG]?B/s|[nµm]?s)", line)], "a cell was folded"
