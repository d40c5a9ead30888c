"""`incast fabric list|check|show|draw|sources|fit`: networks described by a file (docs/fabrics.md).

The engine reads and checks the file; here its answer is put into words, or into a picture.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from incast.base.files import replace_file
from incast.cli.files import EXIT_BAD_FILE
from incast.cli.fit import fit_command
from incast.cli.options import JsonOption
from incast.engine import fabric_sources
from incast.engine.fabric import Fabric
from incast.engine.program import engine_answer
from incast.engine.shipped import fabric_file, shipped_fabrics
from incast.figures.topology import draw

fabric_app = typer.Typer(help="Networks for the simulation, described by a file.", no_args_is_help=True)
fabric_app.command("fit")(fit_command)
FileArgument = Annotated[
    Path,
    typer.Argument(metavar="FABRIC", parser=fabric_file, help="A file, or a shipped one's name (docs/fabrics.md)."),
]


@fabric_app.command()
def check(file: FileArgument) -> None:
    """Say in one line whether the file describes a network, or what is wrong with it."""
    fabric = Fabric.read(file)
    typer.echo(f"{file}: {fabric.name}, {fabric.size()}")


@fabric_app.command("list")
def list_shipped() -> None:
    """Name the networks that come with Incast: what --fabric takes in place of a file."""
    for file in shipped_fabrics():
        fabric = Fabric.read(file)
        typer.echo(f"{file.stem:<28} {fabric.size()}")


@fabric_app.command()
def show(file: FileArgument, as_json: JsonOption = False) -> None:
    """Print what the network consists of."""
    if as_json:
        typer.echo(json.dumps(engine_answer("--describe-fabric", str(file)), indent=2))
    else:
        typer.echo("\n".join(Fabric.read(file).lines()))


@fabric_app.command()
def sources(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Networks (docs/fabrics.md).")],
    *,
    as_table: Annotated[bool, typer.Option("--table", help="One row of a Markdown table for each file.")] = False,
) -> None:
    """Say where the parameters come from, by the comments in the file: published, fitted, assumed."""
    try:
        text = fabric_sources.table(files) if as_table else "\n".join(map("\n".join, map(fabric_sources.lines, files)))
    except OSError as error:
        typer.echo(f"incast: {error.filename}: {error.strerror}", err=True)
        raise typer.Exit(EXIT_BAD_FILE) from error
    typer.echo(text.rstrip("\n"))


@fabric_app.command("draw")
def draw_command(
    file: FileArgument,
    output: Annotated[
        Path | None, typer.Option(metavar="SVG", help="Where to; the name of the file with .svg, by default.")
    ] = None,
) -> None:
    """Draw the topology as an SVG picture."""
    target = output or Path(file.with_suffix(".svg").name)
    try:
        replace_file(target, draw(Fabric.read(file)))
    except OSError as error:
        typer.echo(f"incast: {target} cannot be written: {error.strerror}", err=True)
        raise typer.Exit(EXIT_BAD_FILE) from error
    typer.echo(f"{target}")
