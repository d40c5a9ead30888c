"""`incast status` and `incast stop`: runs without a terminal, looked after (docs/running.md, "Long runs")."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from incast.base import units
from incast.base.console import open_console
from incast.base.errors import OneLineError
from incast.engine.quantity import parse
from incast.run.detached import EXIT_BAD_USE, EXIT_NO_RUN, SUFFIX, Detached, end, find_run, read_run, report_of


def status(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR...", help="Result directories; else all here and in incast-results."),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="In JSON.")] = False,
) -> None:
    """Say how detached runs go, and how those that ended did."""
    wanted: list[tuple[Callable[[Path], Detached], Path]] = [(find_run, directory) for directory in directories or ()]
    if not directories:
        wanted = [
            (read_run, path)
            for folder in (Path(), Path("incast-results"))
            for path in sorted(folder.glob(f"*{SUFFIX}"))
        ]
    reports, damaged = [], False
    for find, path in wanted:
        try:
            reports.append(report_of(find(path)))
        except OneLineError as error:
            damaged = True
            open_console(stderr=True).print(f"incast: {error}", style="red", markup=False, soft_wrap=True)
    _show_reports(reports, as_json=as_json, none=not wanted)
    if damaged:
        raise typer.Exit(EXIT_NO_RUN)


def _show_reports(reports: Sequence[dict[str, Any]], *, as_json: bool, none: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(reports, indent=2) + "\n")
        return
    screen = open_console()
    if none:
        screen.print("no detached runs here or in incast-results; incast status DIR says how one elsewhere goes")
    for report in reports:
        line = Text(f"{report['output']}: ").append(report["state"], style="bold")
        if report["state"] == "running" and report["seconds"] is not None:
            left = report["seconds_left"]
            parts = [report["phase"], f"{report['seconds']:.0f} s", units.rate(report["goodput_bytes_per_s"])]
            parts += [units.time_left(left)] if left else []
            line.append(f", {', '.join(parts)}, process {report['pid']}")
            late = [node for node in report["nodes"] if node["state"] != "running"]
            line.append("".join(f"; node {node['node']}: {node['state']}" for node in late), style="yellow")
        elif (goodput := report["result_goodput_bytes_per_s"]) is not None:
            line.append(f", {units.rate(goodput)}; incast report {report['output']}")
        screen.print(line, soft_wrap=True)


def stop(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Result directory of a detached run.")],
    *,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="Wait so long for it to drain and report.")] = "2m",
) -> None:
    """End a detached run early: what was admitted is built, and what was measured is reported."""
    limit_s = parse("duration", timeout)
    if limit_s is None:
        raise OneLineError(f"--timeout {timeout}: not a duration; allowed: a time such as 90s or 2m", EXIT_BAD_USE)
    run = find_run(directory)
    screen = open_console()
    # Where whoever watched the engine was killed, the engine is asked itself.
    asked = [run.content["pid"]] if run.is_alive() else run.engines()
    if not asked:
        screen.print(f"{run.output}: {run.words()}; nothing to stop", markup=False, soft_wrap=True)
        return
    ended = end(run, asked, limit_s)
    screen.print(f"{ended.output}: {ended.words()}", markup=False, soft_wrap=True)
    if run.content and ended.content.get("exit_status") != 0:
        raise typer.Exit(EXIT_NO_RUN)
