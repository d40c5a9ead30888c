"""Building and dispatch in one simulated network: the farm of docs/farm.md in virtual time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

SETTINGS = {
    "transport.sim.rate": "100Gb/s",
    "transport.sim.latency": "2us",
    "run.nodes": "4",
    "run.warm_up": "1ms",
    "run.duration": "5ms",
    "protocol.mfp_size": "16KiB",
    "sink.kind": "farm",
    "sink.window": "16",
    "farm.nodes": "6",
}


def run(engine: Path, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """With keys whose points are double underscores."""
    settings = SETTINGS | {key.replace("__", "."): value for key, value in more.items()}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words += ["--set", "transport.name=sim"]
    return subprocess.run(
        [str(engine), *words, "--output", str(folder)], capture_output=True, text=True, check=False, timeout=120
    )


def result(engine: Path, folder: Path, **more: str) -> dict[str, Any]:
    """Of a run that succeeds."""
    done = run(engine, folder, **more)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return found


def test_a_farm_takes_all_that_is_built(engine: Path, tmp_path: Path) -> None:
    """With a farm that drops what it gets, every MEP that is built comes to a farm node, once."""
    found = result(engine, tmp_path / "run")
    farm = found["farm"]
    assert found["status"] == "complete"
    assert found["lost_events"] == 0
    assert farm["nodes"] == 6
    assert farm["dispatchers_of_each"] == 4
    assert farm["repeated_meps"] == farm["lost_nodes"] == 0
    built = found["goodput_bytes_per_s"]["total"]
    assert farm["goodput_bytes_per_s"]["total"] == pytest.approx(built, rel=0.1)
    rates = farm["goodput_bytes_per_s"]["per_node"]
    assert rates["min"] > 0.5 * rates["max"], "credits balance it"
    assert found["sink"]["committed_means"] == "finished by a farm node of the simulated network"


def test_the_same_seed_gives_the_same_farm(engine: Path, tmp_path: Path) -> None:
    """Bit by bit."""
    one, two = result(engine, tmp_path / "one", farm__work="50us"), result(engine, tmp_path / "two", farm__work="50us")
    assert one["trace_hash"] == two["trace_hash"]
    assert one["farm"] == two["farm"]


def test_a_slow_farm_makes_building_wait(engine: Path, tmp_path: Path) -> None:
    """Six farm nodes of two processes, a MEP of each in 100 us: 120 000 MEPs a second, whatever could be built."""
    farm = result(engine, tmp_path / "run", farm__processes="2", farm__work="100us", run__duration="20ms")["farm"]
    assert farm["done_meps"] == pytest.approx(0.02 * 6 * 2 / 100e-6, rel=0.02)
    assert farm["idle_fraction"]["max"] < 0.02


def test_a_slow_network_makes_the_farm_wait(engine: Path, tmp_path: Path) -> None:
    """One MEP at a time of one dispatcher: a farm node is idle for the way there and back."""
    farm = result(
        engine,
        tmp_path / "run",
        transport__sim__latency="100us",
        farm__dispatchers="1",
        farm__window="1",
        farm__work="100us",
        farm__nodes="4",
        run__warm_up="5ms",
        run__duration="20ms",
    )["farm"]
    # Two latencies, and the bytes of a MEP: 60 KiB and something at 100 Gb/s.
    assert farm["idle_fraction"]["mean"] == pytest.approx(205 / 305, abs=0.02)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"transport__name": "inproc"}, "sink.kind = farm"),
        ({"sink__policy": "drop"}, "sink.policy = drop"),
        ({"farm__nodes": "0"}, "farm.nodes = 0"),
        ({"farm__window": "65"}, "farm.window = 65"),
        ({"protocol__self_traffic": "pointer"}, "protocol.self_traffic = pointer"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(engine: Path, tmp_path: Path, more: dict[str, str], says: str) -> None:
    """Key, value, what is allowed."""
    if "transport__name" in more:
        settings = {key: value for key, value in SETTINGS.items() if not key.startswith("transport.")}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        words += ["--set", "transport.name=inproc", "--output", str(tmp_path / "run")]
        done = subprocess.run([str(engine), *words], capture_output=True, text=True, check=False, timeout=60)
    else:
        done = run(engine, tmp_path / "run", **more)
    assert done.returncode == 2
    assert says in done.stderr
    assert "allowed" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_fabric_without_room_for_the_farm(engine: Path, tmp_path: Path) -> None:
    """Farm nodes are hosts of the fabric, behind the run's nodes."""
    done = run(engine, tmp_path / "run", transport__sim__fabric=str(ROOT / "fabrics" / "ib-qdr-8.toml"))
    assert done.returncode != 0
    assert "farm node 4: node 8: fabric 'ib-qdr-8' has 8 hosts" in done.stderr + done.stdout


def test_the_page_s_program(engine: Path, tmp_path: Path) -> None:
    """The smallest of each table, and where they are put."""
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- tables: begin -->\nold\n<!-- tables: end -->\nafter\n", encoding="utf-8")
    command = [sys.executable, str(ROOT / "scans" / "farm_network.py"), "--small", "--write", str(page)]
    environment = os.environ | {"INCAST_NODE": str(engine)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert "old" not in text
    assert text.startswith("before")
    assert text.endswith("after\n")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| one network") or "own" in line]
    assert len(rows) == 3
    shared, own = [float(row[5]) for row in rows[:2]], float(rows[2][5])
    assert own > max(shared), "one network carries both, at a cost"
