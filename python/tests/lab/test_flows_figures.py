"""Figures of flows: completion times by size, as the result has them, and the network's."""

import json
from pathlib import Path

import pytest
from incast.figures.datasets import SIMULATED, Run, load
from incast.figures.report import make_parts
from incast.figures.scan_figures import Choice
from incast.figures.style import page_svg

from tests.lab.conftest import InProcess


@pytest.fixture
def flows(real: InProcess) -> Run:
    """A hundred flows on 64 hosts."""
    options = ("--flows", "web-search", "--count", "100", "--load", "0.5", "--fabric", "two-tiers-64")
    done = real("sim", *options, "--output", "out")
    assert done.returncode == 0, done.stderr
    (found,) = load([real.folder / "out"])
    assert isinstance(found, Run)
    return found


def test_flows_have_a_part_of_their_own(flows: Run, real: InProcess) -> None:
    (part,) = make_parts([flows], Choice())
    assert (part.heading, part.domain) == ("Flows out", SIMULATED)
    (table,) = part.tables
    assert ["flows", "100 of 100 have ended"] in table.rows
    names = [drawing.name.removeprefix("simulated-flows-1-out-") for drawing in part.drawings]
    assert names == ["completion", "slowdown", "topology", "queues"]
    bins = [one for one in flows.result["by_size"] if one["completion_ps"] is not None]
    completion, slowdown = part.drawings[:2]
    assert len(completion.rows) == len(bins)
    assert completion.rows[-1][:2] == ["all", "100"]
    unit = {"µs": 1e6, "ms": 1e9}[completion.headings[2].rpartition(", ")[2]]
    for row, one in zip(completion.rows, bins, strict=True):
        wanted = [one["completion_ps"][key] / unit for key in ("p50", "p95", "p99", "p999", "max")]
        assert [float(cell) for cell in row[2:]] == pytest.approx(wanted, rel=1e-3)
    assert float(slowdown.rows[-1][2]) >= 1
    assert all("SIMULATED" in page_svg(drawing.draw, 1) for drawing in part.drawings)
    assert any("web-search" in line for line in completion.conditions)
    assert real("compare", "out", "out").stderr == (
        "incast: out and out do not compare; allowed: two runs, two of incast net, or two scans\n"
    )


def test_flows_that_never_ended_are_said(flows: Run) -> None:
    """Of a size of which none was delivered there is no figure; slowdowns may not have been asked for."""
    result = json.loads(json.dumps(flows.result))
    first = result["by_size"][0]
    first |= {"delivered": 0, "completion_ps": None}
    result |= {"status": "stuck", "slowdown_is": None}
    result["flows"]["ended"] -= first["flows"]
    for one in result["by_size"]:
        one["slowdown"] = None
    (Path(flows.directory) / "result.json").write_text(json.dumps(result))
    (part,) = make_parts(load([flows.directory]), Choice())
    assert ["status", "stuck"] in part.tables[0].rows
    assert [drawing.name.rpartition("-")[2] for drawing in part.drawings] == ["completion", "topology", "queues"]
    assert len(part.drawings[0].rows) == len(result["by_size"]) - 1
