"""`incast scan`: takes the readings of a scan file, one row each, and can be stopped and continued at any time."""

from pathlib import Path
from typing import Annotated

import typer

from incast.base.console import open_console
from incast.base.errors import OneLineError
from incast.cli.hosts import HostOptions
from incast.cli.options import ForceOption, spelled_out
from incast.scan.cluster import Cluster
from incast.scan.plan import EXIT_BAD_SCAN, make_plan
from incast.scan.points import check_points
from incast.scan.points_table import points_table
from incast.scan.scan import announce, carry_out, empty_folder, folder_of, given_up_if_empty
from incast.scan.sweep import sweep_content

_ORIGIN = Path("incast scan")  # stands where the name of a scan file would
_DURATION = "10s"
_WARM_UP = "1s"


@spelled_out
def scan(
    file: Annotated[Path | None, typer.Argument(metavar="SCAN.toml", help="What to scan (docs/scanning.md).")] = None,
    *,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,...",
            help="Instead of a file: values of a setting of docs/config.md; may be repeated, for every combination.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="With --sweep: a setting of all points; may be repeated."),
    ] = None,
    net: Annotated[bool, typer.Option("--net", help="With --sweep: raw traffic, as incast net.")] = False,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"With --sweep: measured time of a point. (default: {_DURATION})")
    ] = None,
    warm_up: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"With --sweep: time before it. (default: {_WARM_UP})")
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=1000, help="With --sweep: how often each point is taken. (default: 1)"),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Continue the scan in that folder, where it was stopped.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: take failed points again, too.")
    ] = False,
    jobs: Annotated[int, typer.Option(metavar="N", min=0, help="Simulated points at a time; 0: one per core.")] = 0,
    executor: Annotated[
        str | None,
        typer.Option(metavar="dask:HOST:PORT", help="Simulated points go to the workers of that scheduler of Dask."),
    ] = None,
    hosts: HostOptions,
    check: Annotated[bool, typer.Option("--check", help="Only check the file, and say what would be done.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the results go. (default: incast-results/scan-<UTC time>-<file>)"),
    ] = None,
    force: ForceOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Say on standard output, in JSON, what was done.")] = False,
) -> None:
    """Measure a grid or a list of settings; one table with a row per point and repeat.

    The points come from a file (docs/scanning.md), or from --sweep.

    Ctrl-C stops it; `incast scan --resume DIR` goes on. Points that fail are in the table, with the reason.
    """
    screen = open_console(stderr=True)
    cluster = None if executor is None else Cluster(executor)
    of_sweeps = {
        "--set": settings, "--net": net or None, "--duration": duration, "--warm-up": warm_up, "--repeats": repeats,
    }  # fmt: skip
    if sweep:
        if file is not None or resume is not None:
            raise OneLineError("--sweep stands instead of a scan file and of --resume", EXIT_BAD_SCAN)
        numbers = {
            "kind": "net" if net else "run",
            "title": "sweep",
            "seconds": duration or _DURATION,
            "warm_up_seconds": warm_up or _WARM_UP,
            "repeats": repeats or 1,
        }
        plan = make_plan(_ORIGIN, sweep_content(sweep, settings or [], {}, numbers))
        folder = empty_folder(output, "sweep", force=force)
    else:
        if wrong := [option for option, value in of_sweeps.items() if value is not None]:
            raise OneLineError(f"{wrong[0]} goes with --sweep; the scan file says it for itself", EXIT_BAD_SCAN)
        plan, folder = folder_of(file, resume, output, force=force)
    with given_up_if_empty(folder, ours=output is None and resume is None):
        places = hosts.places()
        if resume is None or check:
            check_points(str(file or resume or _ORIGIN), plan, screen, places)
        if check:
            announce(screen, plan, None, plan.readings())
            return
        if cluster is not None:
            cluster.check()
        rows, status = carry_out(
            plan, folder, jobs, retry_failed=retry_failed, as_json=as_json, cluster=cluster, hosts=places
        )
    if sweep and not as_json:
        open_console().print(points_table(plan, rows))
    if status:
        raise typer.Exit(status)
