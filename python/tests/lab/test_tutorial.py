"""docs/tutorial.md: every command of it runs, and its tables are what comes out."""

import csv
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.conftest import InProcess

DOCS = Path(__file__).resolve().parents[3] / "docs"
TEXT = (DOCS / "tutorial.md").read_text()
CLOSE = 0.05


def commands() -> Iterator[list[str]]:
    """The `incast` commands of all shell blocks, in order."""
    for block in re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "incast":
                yield words[1:]


def tables() -> list[list[dict[str, str]]]:
    """The tables of the page as rows by heading."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", TEXT, re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        found.append([dict(zip(lines[0], row, strict=True)) for row in lines[2:]])
    return found


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def gbit(row: dict[str, str]) -> float:
    return float(row["goodput_without_self_bytes_per_s"]) * 8e-9


def test_every_command_and_the_tables(real: InProcess) -> None:
    shutil.copytree(DOCS / "tutorial", real.folder, dirs_exist_ok=True)
    ran = 0
    for words in commands():
        said = real(*words)
        assert said.returncode == 0, f"incast {' '.join(words)}: {said.stderr}"
        ran += 1
    assert ran > 8
    capacity, margin = tables()
    switches = {
        (row["transport.sim.fabric"], row["protocol.mfp_size"], row["protocol.credits"]): gbit(row)
        for row in rows_of(real.folder / "switches")
    }
    written = {
        (row["switch"], row["MFPs"], heading.split()[0]): float(value)
        for row in capacity
        for heading, value in row.items()
        if heading.endswith(("credit", "credits"))
    }
    assert written.keys() == switches.keys()
    assert written == {key: pytest.approx(value, rel=CLOSE) for key, value in switches.items()}
    measured = [
        (
            *(row[f"protocol.{key}"] for key in ("mfp_size", "credits")),
            row["transport.sim.fabric"],
            row["source.trigger_rate"],
            pytest.approx(gbit(row), rel=CLOSE),
            pytest.approx(float(row["latency_p99_ns"]) / 1000, rel=CLOSE),
        )
        for row in rows_of(real.folder / "margin")
    ]
    assert [
        (
            *(row[key] for key in ("MFPs", "credits", "switch", "triggers")),
            *(float(row[key]) for key in ("goodput, Gbit/s", "latency 99 %, µs")),
        )
        for row in margin
    ] == measured
    figures = {path.name for path in (real.folder / "switches-page" / "figures").iterdir()}
    for size in ("16KiB", "64KiB"):
        assert any(name.endswith(f"curves-mfp_size-{size}.png") for name in figures)
        assert f"tutorial/figures/credits-{size}.png" in TEXT


def test_files_that_the_page_names_are_there() -> None:
    names = re.findall(r"\]\(((?:tutorial/)?[\w./-]+\.(?:toml|png|md))", TEXT)
    assert len(names) > 8
    assert [name for name in names if not (DOCS / name).is_file()] == []
