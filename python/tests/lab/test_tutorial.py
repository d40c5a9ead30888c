"""docs/tutorial.md: every command of it runs, and its tables are what comes out.

INCAST_WRITE_TUTORIAL=1 writes the tables and figures of the page anew instead of comparing them.
"""

import csv
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.conftest import InProcess

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tutorial.md"
FILES = PAGE.with_suffix("")
CREDITS = ("1", "2", "4", "8")
CLOSE = 0.05


def commands() -> Iterator[list[str]]:
    """The `incast` commands of all shell blocks, in order."""
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "incast":
                yield words[1:]


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def gbit(row: dict[str, str]) -> str:
    return f"{float(row['goodput_without_self_bytes_per_s']) * 8e-9:.1f}"


def capacity_rows(folder: Path) -> list[list[str]]:
    """The first table of the page: a switch and a size a line, a column for each number of credits."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows_of(folder):
        place = (row["transport.sim.fabric"], row["protocol.mfp_size"])
        found.setdefault(place, {})[row["protocol.credits"]] = gbit(row)
    return [[*place, *(values[credits_] for credits_ in CREDITS)] for place, values in found.items()]


def margin_rows(folder: Path) -> list[list[str]]:
    """The second one: a line for each point."""
    settings = ("transport.sim.fabric", "protocol.mfp_size", "protocol.credits", "source.trigger_rate")
    return [
        [*(row[key] for key in settings), gbit(row), f"{float(row['latency_p99_ns']) / 1000:.0f}"]
        for row in rows_of(folder)
    ]


def table_after(heading: str) -> re.Match[str]:
    """The lines of a table below its two lines of headings."""
    found = re.search(rf"(?<={re.escape(heading)}\n)\|[-|]+\|\n((?:\|.*\|\n)+)", PAGE.read_text())
    assert found is not None, heading
    return found


def compare_or_write(heading: str, rows: list[list[str]]) -> None:
    """Words as they are, numbers to 5 %."""
    table = table_after(heading)
    if os.environ.get("INCAST_WRITE_TUTORIAL"):
        lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
        PAGE.write_text(PAGE.read_text()[: table.start(1)] + lines + PAGE.read_text()[table.end(1) :])
        return
    written = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]
    assert [[about(cell) for cell in row] for row in rows] == [[value(cell) for cell in row] for row in written]


def value(cell: str) -> str | float:
    return float(cell) if re.fullmatch(r"[\d.]+", cell) else cell


def about(cell: str) -> object:
    found = value(cell)
    return pytest.approx(found, rel=CLOSE) if isinstance(found, float) else found


def test_every_command_and_the_tables(real: InProcess) -> None:
    shutil.copytree(FILES, real.folder, dirs_exist_ok=True)
    ran = 0
    for words in commands():
        said = real(*words)
        assert said.returncode == 0, f"incast {' '.join(words)}: {said.stderr}"
        ran += 1
    assert ran > 8
    compare_or_write(
        "| switch | MFPs | 1 credit | 2 credits | 4 credits | 8 credits |", capacity_rows(real.folder / "switches")
    )
    compare_or_write(
        "| switch | MFPs | credits | triggers | goodput, Gbit/s | latency 99 %, µs |",
        margin_rows(real.folder / "margin"),
    )
    for size in ("16KiB", "64KiB"):
        (drawn,) = (real.folder / "switches-page" / "figures").glob(f"*curves-mfp_size-{size}.png")
        if os.environ.get("INCAST_WRITE_TUTORIAL"):
            shutil.copy(drawn, FILES / "figures" / f"credits-{size}.png")


def test_files_that_the_page_names_are_there() -> None:
    names = re.findall(r"\]\(((?:tutorial/)?[\w./-]+\.(?:toml|png|md))", PAGE.read_text())
    assert len(names) > 8
    assert [name for name in names if not (PAGE.parent / name).is_file()] == []
