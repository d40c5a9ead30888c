"""`incast sim --sweep`: a grid of simulated points from the command line, a scan without a scan file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from incast.base import units
from incast.base.console import open_console
from incast.base.errors import OneLineError
from incast.base.units import VIRTUAL_TIME
from incast.cli.options import ForceOption
from incast.engine.quantity import parse, setting_text
from incast.engine.shipped import fabric_file
from incast.scan.plan import EXIT_BAD_SCAN, Plan, make_plan
from incast.scan.points import check_points
from incast.scan.runner import COMPLETE
from incast.scan.scan import carry_out, empty_folder, given_up_if_empty
from incast.scan.sweep import sweep_content
from incast.scan.table import Row, headline

_ORIGIN = Path("incast sim")  # stands where the name of a scan file would


def _seconds(option: str, text: str) -> float:
    found = parse("duration", text)
    if found is None:
        raise OneLineError(f"{option} {text}: allowed: a time with its unit, such as 5ms", EXIT_BAD_SCAN)
    return found


def sim(
    *,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,...",
            help="Values of a setting of docs/config.md, or of the network (fabric.KEY); every combination.",
        ),
    ] = None,
    fabric: Annotated[
        Path | None,
        typer.Option(
            metavar="FABRIC",
            parser=fabric_file,
            help="Network to simulate, a file or a shipped one's name (docs/fabrics.md). (default: ideal)",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of all points; may be repeated."),
    ] = None,
    net: Annotated[bool, typer.Option("--net", help="Raw traffic, as incast net, instead of event building.")] = False,
    duration: Annotated[str, typer.Option(metavar="TIME", help="Measured virtual time of a point.")] = "5ms",
    warm_up: Annotated[str, typer.Option(metavar="TIME", help="Virtual time before it.")] = "1ms",
    repeats: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Of every point, with other seeds.")] = 1,
    jobs: Annotated[int, typer.Option(metavar="N", min=0, help="Points at a time; 0: one per core.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the results go. (default: incast-results/scan-<UTC time>-sweep)"),
    ] = None,
    force: ForceOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Say on standard output, in JSON, what was done.")] = False,
) -> None:
    """Simulate a grid of settings in virtual time, on all cores; one table (docs/scanning.md), printed and written.

    `incast report DIR` draws it, `incast scan --resume DIR` goes on with it after Ctrl-C.
    """
    numbers = {
        "kind": "net" if net else "run",
        "title": "sweep",
        "seconds": _seconds("--duration", duration),
        "warm_up_seconds": _seconds("--warm-up", warm_up),
        "repeats": repeats,
    }
    plan = make_plan(_ORIGIN, sweep_content(sweep or [], settings or [], fabric, numbers))
    folder = empty_folder(output, "sweep", force=force)
    with given_up_if_empty(folder, ours=output is None):
        check_points(str(_ORIGIN), plan, open_console(stderr=True))
        rows, status = carry_out(plan, folder, jobs, as_json=as_json)
    if not as_json:
        open_console().print(_table(plan, rows))
    if status:
        raise typer.Exit(status)


def _table(plan: Plan, rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", title=VIRTUAL_TIME)
    for key in plan.axes:
        table.add_column(key, justify="right")
    for heading in ("repeat", "in all", "limited by"):
        table.add_column(heading)
    for row in rows:
        column, value = headline(row)
        shown = units.duration_ns(value) if column.endswith("_ns") else units.rate(value)
        axes = [setting_text(row[key]) if row[key] is not None else "" for key in plan.axes]
        result = Text(shown) if row["status"] == COMPLETE else Text(f"{row['status']}: {row['reason']}", style="red")
        table.add_row(*axes, str(row["repeat"]), result, str(row["limited_by"] or ""))
    return table
