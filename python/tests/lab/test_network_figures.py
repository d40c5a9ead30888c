"""Figures of a simulated network: what a run on a fabric shows, with the tables of its network and without."""

import json
from pathlib import Path
from typing import Any

import pytest
from incast.engine.fabric import Fabric
from incast.figures.datasets import Run, load
from incast.figures.network_figures import PORTS_NAME, SERIES_NAME, network_drawings
from incast.figures.style import page_svg
from incast.figures.topology import lay_out

from tests.lab.conftest import InProcess

FABRICS = Path(__file__).resolve().parents[3] / "fabrics"


@pytest.fixture
def run(real: InProcess) -> Run:
    """Two milliseconds on 8 hosts and one switch."""
    fabric = str(FABRICS / "ib-qdr-8.toml")
    options = ("--fabric", fabric, "--nodes", "8", "--duration", "1ms", "--warm-up", "100us", "--sink", "null")
    done = real("run", *options, "--output", "out")
    assert done.returncode == 0, done.stderr
    found = load([real.folder / "out"])[0]
    assert isinstance(found, Run)
    for name in (PORTS_NAME, SERIES_NAME):
        (found.directory / name).unlink(missing_ok=True)  # each test has its own
    return found


def with_network(run: Run, queues: list[dict[str, Any]]) -> Run:
    network = {"fullest_queues": queues, "window": {"begin_s": 2e-5, "end_s": 4e-5}}
    (run.directory / "result.json").write_text(json.dumps({**run.result, "network": network}))
    found = load([run.directory])[0]
    assert isinstance(found, Run)
    return found


def test_topology_of_the_fabric(run: Run) -> None:
    (drawing,) = network_drawings(run, "x")
    assert drawing.title == "Topology: 8 hosts, InfiniBand QDR 4x, one switch (out)"
    assert len(drawing.rows) == 8
    assert drawing.rows[0] == ["host0 - switch", "1", "32.0 Gbit/s", "-"]
    svg = page_svg(drawing.draw, 1)
    assert all(f">host{n}<" in svg for n in range(8))


def test_cables_are_coloured_by_what_they_carried(run: Run) -> None:
    lines = ["port,from,to,bits_per_s,utilisation", "0,host0,switch,1,0.25", "1,switch,host0,1,0.75"]
    (run.directory / PORTS_NAME).write_text("\n".join(lines) + "\n")
    (drawing,) = network_drawings(run, "x")
    assert [row[3] for row in drawing.rows] == ["75.0", *["-"] * 7]
    assert "used, % of the" in page_svg(drawing.draw, 1)


def test_the_fullest_queues_over_time(run: Run) -> None:
    head = "t_s,port,from,to,utilisation,queue_mean_bytes,queue_max_bytes,marked,dropped,lost,pauses_heard,paused"
    rows = [
        f"{step * 1e-5:.6f},{port},{ends},0.5,{mean},{2 * mean},0,{dropped},0,0,0"
        for step in range(5)
        for port, ends, mean, dropped in (
            (1, "switch,host0", 1024 * step, step % 2),
            (3, "switch,host1", 10, 0),
            (0, "host0,switch", 9000, 0),
        )
    ]
    (run.directory / SERIES_NAME).write_text("\n".join([head, *rows]) + "\n")
    most = {"switch to host0 (cable 0)": 8192, "switch to host1 (cable 1)": 20}
    run = with_network(run, [{"port": port, "max_bytes": most[port]} for port in most])
    _, drawing = network_drawings(run, "x")
    # Of switches, and none that never held a hundredth of the fullest.
    assert drawing.rows == [
        ["switch to host0", "2", "4", "8"],
        ["packets dropped", "2 in all", "1", "-"],
    ]
    assert drawing.label == "SIMULATED, virtual time"
    svg = page_svg(drawing.draw, 1)
    assert "switch to host0" in svg
    assert "measured window" in svg
    assert "packets dropped" in svg


def test_without_its_file_there_is_no_topology(run: Run) -> None:
    result = json.loads((run.directory / "result.json").read_text())
    result["config"]["transport"]["sim"]["fabric"] = "gone.toml"
    (run.directory / "result.json").write_text(json.dumps(result))
    found = load([run.directory])[0]
    assert isinstance(found, Run)
    assert network_drawings(found, "x") == []


def test_layout_has_every_cable_once() -> None:
    fabric = Fabric.read(FABRICS / "roce-two-tier.toml")
    layout = lay_out(fabric)
    assert sum(len(line.cables) for line in layout.lines) == len(fabric.cables)
    assert len({box.name for box in layout.boxes}) == len(layout.boxes)
    thick = [layout.thickness(line) for line in layout.lines]
    assert max(thick) == pytest.approx(4.0)
