"""`incast fabric`, with the engine's own answer."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from incast.base.errors import OneLineError
from incast.cli.commands import application
from incast.engine.fabric import Fabric
from incast.engine.shipped import fabric_file
from incast.figures.topology import draw
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
    said = CliRunner().invoke(application(), ["fabric", "check", str(ROOT / "fabrics/ib-qdr-8.toml")])
    assert said.exit_code == 0
    assert said.stdout.endswith("ib-qdr-8, 8 hosts, 1 switch\n")


def test_show_adds_up_cables() -> None:
    said = CliRunner().invoke(application(), ["fabric", "show", str(ROOT / "fabrics/qfx5200-8x100-30x25.toml")])
    assert "38 hosts, 1 switch (1 shared-buffer), 38 cables" in said.stdout
    assert "8 cables to hosts: 100 Gb/s, 15 ns" in said.stdout
    assert "30 cables to hosts: 25 Gb/s, 15 ns" in said.stdout
    assert "all hosts together: 1550 Gb/s each way" in said.stdout
    as_json = CliRunner().invoke(
        application(), ["fabric", "show", "--json", str(ROOT / "fabrics/qfx5200-8x100-30x25.toml")]
    )
    assert len(json.loads(as_json.stdout)["cables"]) == 38


def test_a_bad_file_is_one_line_and_status_2(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('[fabric]\nname = "bad"\n[links.cable]\nrate = 100\n')
    with pytest.raises(OneLineError) as caught:
        Fabric.read(bad)
    assert str(caught.value).startswith(f"{bad}:4: links.cable.rate = 100: not allowed; allowed: a rate with its unit")
    assert caught.value.exit_status == 2


def test_a_name_is_a_shipped_network_unless_there_is_such_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ib-qdr-8", "ib-qdr-8.toml"):
        assert fabric_file(name) == ROOT / "fabrics/ib-qdr-8.toml"
    with pytest.raises(OneLineError, match=r"ib-qdr-9: no such file, .* shipped: .*ib-qdr-8, ") as caught:
        fabric_file("ib-qdr-9")
    assert caught.value.exit_status == 2
    for absent in ("../fabrics/ib-qdr-8", "fabrics/ib-qdr-8.toml", ""):
        assert fabric_file(absent) == Path(absent)
    Path("ib-qdr-8.toml").write_text("")
    assert fabric_file("ib-qdr-8.toml") == Path("ib-qdr-8.toml")


def test_an_installed_package_has_the_shipped_networks(tmp_path: Path) -> None:
    """The package as a wheel holds it: what is copied as it is, and what CMake installs of what needs no build."""
    components = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["install"]["components"]
    assert {"fabrics", "schema"} <= set(components)
    site, tree = tmp_path / "site", tmp_path / "tree"
    shutil.copytree(ROOT / "python/incast", site / "incast", ignore=shutil.ignore_patterns("_engine", "__pycache__"))
    configure = ["cmake", "-S", str(ROOT), "-B", str(tree), "-G", "Ninja", "-DSKBUILD=ON", "-DINCAST_TESTS=OFF"]
    install = ["cmake", "--install", str(tree), "--prefix", str(site), "--component"]
    for command in (configure, [*install, "fabrics"], [*install, "schema"]):
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert sorted(file.name for file in (site / "incast/_fabrics").iterdir()) == [file.name for file in SHIPPED]
    assert [file.name for file in (site / "incast/_schema").iterdir()] == ["config.schema.json"]
    options = ("--fabric", "ib-qdr-8", "--nodes", "2", "--duration", "1ms", "--warm-up", "0s", "--output", "out")
    done = subprocess.run(
        [sys.executable, "-S", "-m", "incast", "run", *options],  # -S: what is installed in place does not come before
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert result["config"]["transport"]["sim"]["fabric"] == str(site / "incast/_fabrics/ib-qdr-8.toml")


def test_draw_writes_a_picture(tmp_path: Path) -> None:
    target = tmp_path / "picture.svg"
    said = CliRunner().invoke(
        application(), ["fabric", "draw", str(ROOT / "fabrics/roce-two-tier.toml"), "--output", str(target)]
    )
    assert said.exit_code == 0
    assert "16 hosts" in target.read_text(encoding="utf-8")
    nowhere = CliRunner().invoke(
        application(),
        ["fabric", "draw", str(ROOT / "fabrics/ib-qdr-8.toml"), "--output", str(tmp_path / "no/where.svg")],
    )
    assert nowhere.exit_code == 1
