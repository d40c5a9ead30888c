"""`incast sim`: a grid of simulated points from the command line (`--sweep`), or flows on a network (`--flows`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from incast.base.console import open_console
from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.cli.options import ForceOption
from incast.engine.quantity import parse
from incast.engine.shipped import fabric_file
from incast.run.flow_patterns import PATTERNS
from incast.run.flows import FlowsRequest, simulate_flows
from incast.scan.plan import EXIT_BAD_SCAN, make_plan
from incast.scan.points import check_points
from incast.scan.points_table import points_table
from incast.scan.scan import carry_out, empty_folder, given_up_if_empty
from incast.scan.sweep import simulated_on, sweep_content

_ORIGIN = Path("incast sim")  # stands where the name of a scan file would
_DURATION = "5ms"
_WARM_UP = "1ms"
_FLOWS = "Flows on a network"


def _seconds(option: str, text: str) -> float:
    found = parse("duration", text)
    if found is None:
        raise OneLineError(f"{option} {text}: allowed: a time with its unit, such as 5ms", EXIT_BAD_SCAN)
    return found


def _bytes(option: str, text: str) -> int:
    found = parse("bytes", text)
    if found is None or found < 1:
        raise OneLineError(f"{option} {text}: allowed: a size of at least a byte, such as 64KiB", EXIT_BAD_CONFIG)
    return round(found)


def _refuse(mode: str, given: Mapping[str, object]) -> None:
    """Options of the other mode."""
    wrong = [option for option, value in given.items() if value is not None]
    if wrong:
        raise OneLineError(f"{wrong[0]} says nothing beside {mode}; allowed: either", EXIT_BAD_CONFIG)


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
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Measured virtual time of a point. (default: {_DURATION})")
    ] = None,
    warm_up: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Virtual time before it. (default: {_WARM_UP})")
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=1000, help="Runs of every point, with other seeds. (default: 1)"),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Points at a time; 0: one per core. (default: 0)")
    ] = None,
    flows: Annotated[
        str | None,
        typer.Option(
            metavar="FLOWS",
            help=f"Flows without the event builder (docs/flows.md): a file (CSV, Parquet, htsim's .cm), or a pattern: "
            f"{', '.join(PATTERNS)}.",
            rich_help_panel=_FLOWS,
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Bytes of each flow of a pattern without sizes. (default: 1MiB)",
            rich_help_panel=_FLOWS,
        ),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            min=0.001,
            max=1.0,
            help="Share of all hosts' links, by payload: web-search, data-mining. (default: 0.5)",
            rich_help_panel=_FLOWS,
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=20_000_000,
            help="Flows of web-search and data-mining. (default: 10000)",
            rich_help_panel=_FLOWS,
        ),
    ] = None,
    senders: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Senders of incast. (default: all hosts but one)", rich_help_panel=_FLOWS
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Seed of flows, routes and all that is random. (default: 1)",
            rich_help_panel=_FLOWS,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End then. (default: when all flows have ended)", rich_help_panel=_FLOWS),
    ] = None,
    no_alone: Annotated[
        bool,
        typer.Option(
            "--no-alone", help="No slowdowns, for which each flow is simulated alone, too.", rich_help_panel=_FLOWS
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the results go. (default: a folder in incast-results)"),
    ] = None,
    force: ForceOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Say on standard output, in JSON, what was done.")] = False,
) -> None:
    """Simulate a grid of settings (--sweep), or flows of others (--flows), in virtual time.

    A grid runs on all cores and gives one table (docs/scanning.md), printed and written: `incast report DIR` draws it,
    `incast scan --resume DIR` goes on with it after Ctrl-C. Flows give their completion times (docs/flows.md).
    """
    of_grids = {
        "--sweep": sweep, "--set": settings, "--net": net or None, "--duration": duration, "--warm-up": warm_up,
        "--repeats": repeats, "--jobs": jobs,
    }  # fmt: skip
    of_flows = {
        "--size": size, "--load": load, "--count": count, "--senders": senders, "--seed": seed, "--until": until,
        "--no-alone": no_alone or None,
    }  # fmt: skip
    _refuse("--flows" if flows is not None else "--sweep", of_grids if flows is not None else of_flows)
    if flows is not None:
        if fabric is None:
            raise OneLineError(f"--flows {flows}: no network; allowed: --fabric FILE", EXIT_BAD_CONFIG)
        asked = FlowsRequest(
            flows,
            fabric,
            1 if seed is None else seed,
            _bytes("--size", size or "1MiB"),
            count or 10_000,
            0.5 if load is None else load,
            senders or 0,
            until,
            not no_alone,
            output,
            force,
        )
        if status := simulate_flows(asked, as_json=as_json):
            raise typer.Exit(status)
        return
    numbers = {
        "kind": "net" if net else "run",
        "title": "sweep",
        "seconds": _seconds("--duration", duration or _DURATION),
        "warm_up_seconds": _seconds("--warm-up", warm_up or _WARM_UP),
        "repeats": repeats or 1,
    }
    plan = make_plan(_ORIGIN, sweep_content(sweep or [], settings or [], simulated_on(fabric), numbers))
    folder = empty_folder(output, "sweep", force=force)
    with given_up_if_empty(folder, ours=output is None):
        check_points(str(_ORIGIN), plan, open_console(stderr=True))
        rows, status = carry_out(plan, folder, jobs or 0, as_json=as_json)
    if not as_json:
        open_console().print(points_table(plan, rows))
    if status:
        raise typer.Exit(status)
