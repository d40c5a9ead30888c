"""`incast report`: one page that needs nothing else, and its figures as PNG and PDF (docs/reports.md)."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from incast.base import extras
from incast.base.console import open_console
from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.base.files import writing_output
from incast.figures.datasets import Scan, load
from incast.figures.report import PAGE_NAME, make_parts, render, write_report
from incast.figures.scan_figures import Choice


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Directories of incast run, net, scan, tune, bridge and sim --flows."),
    ],
    *,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where the page and its figures go.")] = Path("report"),
    title: Annotated[str, typer.Option(metavar="TEXT", help="Title of the page.")] = "Incast report",
    value: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Scan: what is drawn. (default: goodput or throughput)")
    ] = None,
    x: Annotated[str | None, typer.Option("--x", metavar="KEY", help="Scan: the setting that goes across.")] = None,
    y: Annotated[str | None, typer.Option("--y", metavar="KEY", help="Scan: the setting that goes up.")] = None,
    dark: Annotated[bool, typer.Option("--dark", help="PNG figures for dark slides, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Say in JSON what was written.")] = False,
) -> None:
    """Make one page that needs no network, and PNG and PDF figures, of runs and scans.

    Throughput over time, runs side by side, latency, the matrix per pair, heat maps and curves of scans.
    """
    for library in ("matplotlib", "jinja2"):
        extras.need(library, "incast report")
    datasets = load(directories)
    for option, given in (("--value", value), ("--x", x), ("--y", y)):
        if given is not None and not any(isinstance(each, Scan) for each in datasets):
            words = f"{option} {given}: only scans have columns to choose from, and none of these is a scan"
            raise OneLineError(words, EXIT_BAD_CONFIG)
    parts = make_parts(datasets, Choice(value, x, y))
    if not parts:
        raise OneLineError("nothing to report: these scans have no readings yet", 1)
    page = render(parts, [str(directory) for directory in directories], title, datetime.now(UTC))
    with writing_output(output):
        written = write_report(parts, output, page, dark=dark)
    if as_json:
        sys.stdout.write(json.dumps({"directory": str(output), "files": written}, indent=2) + "\n")
        return
    screen = open_console()
    screen.print(f"{output / PAGE_NAME}, {len(written) - 1} files of figures", markup=False, soft_wrap=True)
