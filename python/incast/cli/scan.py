"""`incast scan`: takes the readings of a scan file, one row each, and can be stopped and continued at any time."""

from pathlib import Path
from typing import Annotated

import typer

from incast.base.console import open_console
from incast.cli.hosts import HostOptions
from incast.cli.options import ForceOption, spelled_out
from incast.scan.cluster import Cluster
from incast.scan.points import check_points
from incast.scan.scan import announce, carry_out, folder_of, given_up_if_empty


@spelled_out
def scan(
    file: Annotated[Path | None, typer.Argument(metavar="SCAN.toml", help="What to scan (docs/scanning.md).")] = None,
    *,
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
    """Measure a grid or a list of settings, so many seconds each; one table with a row per point and repeat.

    Ctrl-C stops it; `incast scan --resume DIR` goes on. Points that fail are in the table, with the reason.
    """
    screen = open_console(stderr=True)
    cluster = None if executor is None else Cluster(executor)
    plan, folder = folder_of(file, resume, output, force=force)
    with given_up_if_empty(folder, ours=output is None and resume is None):
        places = hosts.places()
        if resume is None or check:
            check_points(str(file or resume), plan, screen, places)
        if check:
            announce(screen, plan, None, plan.readings())
            return
        if cluster is not None:
            cluster.check()
        _, status = carry_out(
            plan, folder, jobs, retry_failed=retry_failed, as_json=as_json, cluster=cluster, hosts=places
        )
    if status:
        raise typer.Exit(status)
