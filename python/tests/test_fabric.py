"""`incast fabric`, with the engine's own answer."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from incast.cli import app
from incast.engine import EngineError
from incast.fabric import Fabric, draw
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "fabrics").glob("*.toml"))
ENGINE = ROOT / "build/release/bin/incast-node"

pytestmark = pytest.mark.skipif(not ENGINE.is_file(), reason="the engine is not built")


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INCAST_NODE", str(ENGINE))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_fabrics_are_checked_and_drawn(file: Path) -> None:
    fabric = Fabric.read(file)
    assert fabric.name == file.stem
    tiers = fabric.tiers()
    assert sorted(name for tier in tiers for name in tier) == sorted(fabric.switches), "every switch is in a tier"
    picture = ElementTree.fromstring(draw(fabric))
    space = "{http://www.w3.org/2000/svg}"
    drawn = {box.text for box in picture.iter(f"{space}title")}
    assert set(fabric.switches) <= drawn
    assert len(list(picture.iter(f"{space}rect"))) >= len(fabric.switches) + 1
    assert len(list(picture.iter(f"{space}path"))) >= len(fabric.switches)


def test_check_says_what_is_there() -> None:
    said = CliRunner().invoke(app, ["fabric", "check", str(ROOT / "fabrics/ib-qdr-8.toml")])
    assert said.exit_code == 0
    assert said.stdout.endswith("ib-qdr-8, 8 hosts, 1 switches\n")


def test_show_adds_up_cables() -> None:
    said = CliRunner().invoke(app, ["fabric", "show", str(ROOT / "fabrics/qfx5200-8x100-30x25.toml")])
    assert "38 hosts, 1 switches (1 shared-buffer), 38 cables" in said.stdout
    assert "8 cables to hosts: 100 Gb/s, 15 ns" in said.stdout
    assert "30 cables to hosts: 25 Gb/s, 15 ns" in said.stdout
    assert "all hosts together: 1550 Gb/s each way" in said.stdout
    as_json = CliRunner().invoke(app, ["fabric", "show", "--json", str(ROOT / "fabrics/qfx5200-8x100-30x25.toml")])
    assert len(json.loads(as_json.stdout)["cables"]) == 38


def test_a_bad_file_is_one_line_and_status_2(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('[fabric]\nname = "bad"\n[links.cable]\nrate = 100\n')
    with pytest.raises(EngineError) as caught:
        Fabric.read(bad)
    assert str(caught.value).startswith(f"{bad}:4: links.cable.rate = 100: not allowed; allowed: a rate with its unit")
    assert caught.value.exit_status == 2


def test_draw_writes_a_picture(tmp_path: Path) -> None:
    target = tmp_path / "picture.svg"
    said = CliRunner().invoke(
        app, ["fabric", "draw", str(ROOT / "fabrics/roce-two-tier.toml"), "--output", str(target)]
    )
    assert said.exit_code == 0
    assert "16 hosts" in target.read_text(encoding="utf-8")
    nowhere = CliRunner().invoke(
        app, ["fabric", "draw", str(ROOT / "fabrics/ib-qdr-8.toml"), "--output", str(tmp_path / "no/where.svg")]
    )
    assert nowhere.exit_code == 1
