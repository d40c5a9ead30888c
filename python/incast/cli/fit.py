"""`incast fabric fit`: free values of a network's file from measured `incast net` results (docs/fabric-fit.md)."""

import json
from pathlib import Path
from typing import Annotated

import typer

from incast.base.console import open_console
from incast.base.files import writing_output
from incast.cli.options import JsonOption
from incast.engine.shipped import fabric_file
from incast.fit.fit import FitRequest, as_json, fit, lines, write_network


def fit_command(
    network: Annotated[
        Path,
        typer.Argument(metavar="FABRIC", parser=fabric_file, help="A file, or a shipped one's name (docs/fabrics.md)."),
    ],
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULT...", help="Results of incast net: folders, or result.json.")
    ],
    *,
    free: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=LOW..HIGH",
            help="A value to find, such as hosts.nic.message_cost=0ns..5us; may be repeated. (default: those with "
            "'# free LOW..HIGH' behind them in the file)",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the network with what was found.")] = None,
    duration: Annotated[str, typer.Option(metavar="TIME", help="Virtual time of each simulated point.")] = "2ms",
    warm_up: Annotated[str, typer.Option(metavar="TIME", help="Virtual time before it.")] = "500us",
    noise: Annotated[
        float, typer.Option(metavar="SHARE", help="Figures closer than this share count as equal.")
    ] = 0.002,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the places where the search begins.")] = 1,
    jobs: Annotated[int, typer.Option(metavar="N", min=0, help="Simulations at a time; 0: one per core.")] = 0,
    budget: Annotated[
        int, typer.Option(metavar="N", min=1, help="Networks to simulate at most; then the best so far is shown.")
    ] = 500,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep what was simulated there; a later call does not simulate it again."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Find values of a network from measured incast net results, and say what these cannot tell."""
    asked = FitRequest(
        network=network,
        results=tuple(results),
        free=tuple(free or ()),
        duration=duration,
        warm_up=warm_up,
        noise=noise,
        seed=seed,
        jobs=jobs,
        budget=budget,
        keep=keep,
        output=output,
    )
    found = fit(asked, open_console(stderr=True))
    if output is not None:
        with writing_output(output):
            write_network(found, asked)
    if json_:
        typer.echo(json.dumps(as_json(found), indent=2))
        return
    console = open_console()
    for line in lines(found):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if output is not None:
        console.print(f"{output}", markup=False, highlight=False, soft_wrap=True)
