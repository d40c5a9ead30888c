"""`incast reproduce`: the published results as a program."""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from incast.base.console import open_console
from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.cli.options import ForceOption
from incast.engine.idle import usable_cores
from incast.engine.shipped import FOLDERS
from incast.reproduce.document import error_text, value_text, write_document
from incast.reproduce.laboratory import Laboratory, Outcome
from incast.reproduce.model import OFF, OK, RANGE, Row
from incast.reproduce.rows import ROWS

RESULTS_FOLDER = Path("incast-results/reproduce")
_STYLES = {OK: "green", RANGE: "yellow", OFF: "red"}


def rows_named(names: list[str]) -> list[Row]:
    """Rows by id (`16a`) or number (`16`); OneLineError, one line, if one is not there."""
    for name in names:
        if not any(name in (row.id, row.number) for row in ROWS):
            known = ", ".join(dict.fromkeys(row.number for row in ROWS))
            raise OneLineError(f"there is no row {name}; allowed: {known}", EXIT_BAD_CONFIG)
    return [row for row in ROWS if row.id in names or row.number in names]


def fabrics_folder(given: Path | None) -> Path:
    """The shipped fabric files: as given, of the package or checkout, or below the working directory."""
    candidates = [given] if given else [*FOLDERS, Path("fabrics")]
    for candidate in candidates:
        if (candidate / "rapidio-16.toml").is_file():
            return candidate
    raise OneLineError(
        f"no fabric files at {' and '.join(map(str, candidates))}; allowed: --fabrics DIR, the folder of a checkout",
        EXIT_BAD_CONFIG,
    )


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[ROW]...", help="Rows by number or id (docs/reproduction.md).")
    ] = None,
    *,
    all_rows: Annotated[bool, typer.Option("--all", help="All rows.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run everything again, whatever is kept.")] = False,
    jobs: Annotated[int, typer.Option(metavar="N", min=0, help="Runs at a time; 0: one per core.")] = 0,
    fabrics: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The shipped fabric files. (default: those that came with it)")
    ] = None,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Where figures are kept. (default: incast-results/reproduce)")
    ] = RESULTS_FOLDER,
    force: ForceOption = False,
    document: Annotated[
        Path | None, typer.Option("--write-docs", metavar="FILE", help="With --all: write docs/reproduction.md.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as a list of objects.")] = False,
) -> None:
    """Put published results beside ours: conditions, error, class and status of every row.

    All is simulated, in virtual time, by the engine, but for rows 5, 6b and 9, which measure the bridges on this host.
    Simulated figures are kept, and one kept row is run again each time.
    """
    if bool(names) == all_rows:
        raise OneLineError("which rows? allowed: --all, or numbers of rows", EXIT_BAD_CONFIG)
    if document is not None and not all_rows:
        raise OneLineError("--write-docs needs --all", EXIT_BAD_CONFIG)
    rows = list(ROWS) if all_rows else rows_named(names or [])
    screen = open_console(stderr=True)
    laboratory = Laboratory(output, fabrics_folder(fabrics), jobs or usable_cores(), force=force)

    def say(line: str) -> None:
        screen.print(line, style="dim", markup=False, soft_wrap=True)

    outcomes = laboratory.outcomes(rows, fresh=fresh, say=say)
    if document is not None:
        write_document(document, outcomes)
    if as_json:
        typer.echo(json.dumps([each.row.record(each.finding) for each in outcomes], indent=2))
    else:
        _print(open_console(), outcomes)


def _print(console: Console, outcomes: list[Outcome]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("row", "class", "status", "published", "ours", "error", "null", "conditions"):
        table.add_column(heading)
    for each in outcomes:
        row, finding = each.row, each.finding
        table.add_row(
            row.id,
            row.kind,
            Text(finding.status, style=_STYLES.get(finding.status, "dim")),
            value_text(row.published),
            value_text(finding.ours),
            error_text(finding.relative_error),
            error_text(finding.null_model_error),
            Text(f"{row.source}: {row.conditions}"),
        )
    simulated = [each for each in outcomes if not each.row.is_measured]
    if simulated:
        console.print("SIMULATED, virtual time; docs/reproduction.md explains every row", style="magenta")
    console.print(table)
    for each in outcomes:
        if each.row.is_measured:
            console.print(Text(f"row {each.row.id}: {' '.join(each.finding.remarks)}"), soft_wrap=True)
    counts = Counter(each.finding.status.partition(" ")[0] for each in outcomes)
    console.print(", ".join(f"{count} {status}" for status, count in counts.items()))
