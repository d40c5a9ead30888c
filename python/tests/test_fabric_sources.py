"""`incast fabric sources`: what the comments in network files say."""

from pathlib import Path

from incast.cli.commands import application
from incast.engine.fabric_sources import CLASSES, parameters, table
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "fabrics").glob("*.toml"))

TEXT = """
# assumed: this is about the file
[fabric]
name = "a"
[hosts.nic]
mtu = "4096B"      # assumed
header = "66B"     # arithmetic: 20 and 46
ack = "66B"        # the same
[links.x]
rate = "10Gb/s"    # [S1], table 2
weights = [1, 2]   # IBTA volume 1
length_m = 3       # fitted: to a latency
"""


def test_every_parameter_has_the_class_of_its_comment() -> None:
    found = {one.key: one.kind for one in parameters(TEXT)}
    assert found == {
        "hosts.nic.mtu": "assumed",
        "hosts.nic.header": "arithmetic",
        "hosts.nic.ack": "arithmetic",
        "links.x.rate": "published",
        "links.x.weights": "document",
        "links.x.length_m": "fitted",
    }
    assert {one.key: one.value for one in parameters(TEXT)}["links.x.weights"] == "[1, 2]"


def test_the_table_of_the_shipped_networks_is_current() -> None:
    written = (ROOT / "docs" / "fabric-sources.md").read_text(encoding="utf-8")
    made = table(SHIPPED)
    assert written.endswith(made), "the table of docs/fabric-sources.md: incast fabric sources --table fabrics/*.toml"


def test_the_command_prints_the_least_certain_last() -> None:
    said = CliRunner().invoke(application(), ["fabric", "sources", str(ROOT / "fabrics/rapidio-16.toml")])
    assert said.exit_code == 0
    kinds = [CLASSES.index(line.split()[0]) for line in said.stdout.splitlines()]
    assert kinds == sorted(kinds)
    assert len(kinds) == len(parameters((ROOT / "fabrics/rapidio-16.toml").read_text()))
    missing = CliRunner().invoke(application(), ["fabric", "sources", "no/such.toml"])
    assert missing.exit_code == 1
    assert "no/such.toml" in missing.output
