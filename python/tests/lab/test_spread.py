"""How far repeats lie apart: in the table on the screen, at the end of a scan, in figures and their tables."""

import json
from pathlib import Path
from typing import Any

import pytest
from incast.figures.datasets import SIMULATED, Scan, load
from incast.figures.scan_figures import Choice, scan_drawings
from incast.scan.spread import Spread, spreads, widest

from tests.lab.conftest import InProcess

# Whose paths are drawn by hash: eight flows over four spines, another draw for each seed.
NETWORK = """
[fabric]
name = "chance"
[hosts.nic]
[switches.s]
kind = "credit"
[links.l]
rate = "10Gb/s"
delay = "100ns"
[topology]
kind = "leaf-spine"
leaves = 4
hosts_per_leaf = 4
spines = 4
"""


def reading(point: int, value: float | None, status: str = "complete") -> dict[str, Any]:
    return {"point": point, "status": status, "kind": "run", "goodput_without_self_bytes_per_s": value}


def test_lowest_median_and_highest_of_the_complete_repeats() -> None:
    column = "goodput_without_self_bytes_per_s"
    rows = [reading(2, 30.0), reading(1, 5.0), reading(2, 10.0), reading(2, 20.0), reading(2, 99.0, "too long")]
    rows += [reading(3, None), reading(4, None, "refused")]
    assert spreads(rows) == [Spread(1, column, 1, 5.0, 5.0, 5.0), Spread(2, column, 3, 10.0, 20.0, 30.0)]
    assert widest(rows) == Spread(2, column, 3, 10.0, 20.0, 30.0)
    assert Spread(2, column, 3, 10.0, 20.0, 30.0).share == 1.0
    assert widest([reading(1, 5.0), reading(2, 6.0)]) is None, "one repeat each says nothing of chance"


@pytest.fixture
def repeated(real: InProcess) -> tuple[Path, str, str]:
    """The folder of a sweep with three seeds of two points each, and what was said of it."""
    (real.folder / "chance.toml").write_text(NETWORK)
    said = real(
        "sim", "--net", "--fabric", "chance.toml", "--set", "run.nodes=16", "--set", "net.pattern=pairs",
        "--sweep", "net.message_size=64KiB,256KiB", "--duration", "1ms", "--warm-up", "100us",
        "--repeats", "3", "--output", "out",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    return real.folder / "out", said.stdout, said.stderr


def test_seeds_differ_and_every_table_says_how_far(repeated: tuple[Path, str, str]) -> None:
    folder, table, end = repeated
    scan = load([folder])[0]
    assert isinstance(scan, Scan)
    found = spreads(scan.of_domain(SIMULATED))
    assert [spread.repeats for spread in found] == [3, 3]
    assert all(spread.lowest < spread.highest for spread in found), "the draw of the paths counts"

    words = table.split()
    assert [words.count(word) for word in ("median", "lowest", "highest", "repeats")] == [1, 1, 1, 1]
    assert len([line for line in table.splitlines() if "KiB" in line]) == 2, "a line for each point"
    furthest = widest(scan.of_domain(SIMULATED))
    assert furthest is not None
    assert f"lie up to {100 * furthest.share:.2g} % of their median apart" in end

    curve = next(each for each in scan_drawings(scan, SIMULATED, "a", Choice()) if "curves" in each.name)
    assert "error bars: lowest to highest of 3 repeats; points: their median" in curve.conditions
    assert "3 seeds, from 1 to 3" in curve.conditions
    assert all(".." in row[1] for row in curve.rows)


def test_one_seed_is_called_one_seed(real: InProcess) -> None:
    said = real(
        "sim", "--sweep", "protocol.credits=1,2", "--sweep", "protocol.mfp_size=4KiB,8KiB", "--set", "run.nodes=2",
        "--duration", "1ms", "--warm-up", "0s", "--output", "out", "--json",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    answer = json.loads(said.stdout)
    assert [spread["repeats"] for spread in answer["spreads"]] == [1, 1, 1, 1]
    assert "apart" not in said.stderr
    scan = load([real.folder / "out"])[0]
    assert isinstance(scan, Scan)
    for drawing in scan_drawings(scan, SIMULATED, "a", Choice()):
        assert "one seed, 1: how far other draws of chance lie from it is not shown" in drawing.conditions
        assert all(".." not in cell for row in drawing.rows for cell in row)
