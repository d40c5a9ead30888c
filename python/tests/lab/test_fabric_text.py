"""Networks with values changed by a scan."""

import json
import subprocess
import tomllib
from pathlib import Path

import pytest
from incast.base.errors import OneLineError
from incast.engine.fabric_text import changed, fabric_setting
from incast.scan.plan import read_plan

from tests.conftest import require_engine
from tests.lab.conftest import WriteScan

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted((ROOT / "fabrics").glob("*.toml"))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_only_what_is_changed_is_different(file: Path) -> None:
    text = file.read_text()
    before, after = tomllib.loads(text), tomllib.loads(changed(text, {"network.seed": 7, "new.table.key": "1us"}))
    before.setdefault("network", {})["seed"] = 7
    before["new"] = {"table": {"key": "1us"}}
    assert after == before


def test_the_engine_reads_it_as_the_same_network(tmp_path: Path) -> None:
    engine = require_engine()

    def described(path: Path) -> object:
        asked = [str(engine), "--describe-fabric", str(path)]
        said: object = json.loads(subprocess.run(asked, capture_output=True, timeout=20, check=True).stdout)
        return said

    for name in ("qfx-pfc-pair", "lhcb-run3"):
        path = ROOT / f"fabrics/{name}.toml"
        (setting,) = fabric_setting(tmp_path, changed(path.read_text(), {"network.seed": 1}))
        assert described(Path(setting.partition("=")[2])) == described(path)


def test_values_are_taken_away_and_tables_replaced() -> None:
    text = changed("[a]\nx = 1\ny = 2\n[a.b]\nz = 3\n", {"a.x": None, "a.b": {"w": [1, 2]}})
    assert tomllib.loads(text) == {"a": {"y": 2, "b": {"w": [1, 2]}}}
    assert changed("# as it is\n", {}) == "# as it is\n"


def test_a_way_through_a_value_is_refused() -> None:
    with pytest.raises(OneLineError, match=r"fabric\.a\.x\.y: x is no table"):
        changed("[a]\nx = 1\n", {"a.x.y": 2})


def test_points_of_a_scan_have_their_own_network(write_scan: WriteScan, tmp_path: Path) -> None:
    network = tmp_path / "network.toml"
    network.write_text('[links.cable]\nrate = "1Gb/s"\n')
    grid = f"[set]\ntransport.name = 'sim'\ntransport.sim.fabric = '{network}'\n[grid]\n"
    plan = read_plan(write_scan(grid + "fabric.links.cable.rate = ['2Gb/s', '3Gb/s']\n", head="seconds = 1\n"))
    rates = [tomllib.loads(point.fabric)["links"]["cable"]["rate"] for point in plan.points]
    assert rates == ["2Gb/s", "3Gb/s"]
    assert not any("fabric.links" in setting for point in plan.points for setting in point.settings)
    before = plan.digest()
    network.write_text('[links.cable]\nrate = "1Gb/s"\nlength_m = 3\n')
    again = read_plan(write_scan(grid + "fabric.links.cable.rate = ['2Gb/s', '3Gb/s']\n", head="seconds = 1\n"))
    assert again.digest() != before, "a scan of another network is another scan"


def test_values_of_a_network_need_one(write_scan: WriteScan) -> None:
    with pytest.raises(OneLineError, match=r"fabric\.links\.cable\.rate: allowed: transport\.sim\.fabric"):
        read_plan(write_scan("[grid]\nfabric.links.cable.rate = ['2Gb/s']\n", head="seconds = 1\n"))


@pytest.mark.parametrize("file", sorted((ROOT / "scans").glob("*.toml")), ids=lambda file: file.stem)
def test_shipped_scans_are_accepted_by_the_engine(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    plan = read_plan(file)
    engine = require_engine()
    for point in (plan.points[0], plan.points[-1]):
        settings = (*point.settings, *fabric_setting(tmp_path, point.fabric))
        words = [word for setting in settings for word in ("--set", setting)]
        done = subprocess.run([engine, *words, "--check"], capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr
