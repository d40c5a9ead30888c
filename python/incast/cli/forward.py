"""`incast forward`: built events of one run become fragments of another (docs/dataflow.md)."""

from typing import Annotated

import typer

from incast.base.errors import OneLineError

_EXIT_FAILED = 1


def forward(
    name: Annotated[str, typer.Argument(help="What consumers of the first stage attach to (sink.name).")],
    to: Annotated[str, typer.Argument(help="What programs of the second stage attach to (source.name).")],
    source: Annotated[int, typer.Option(metavar="ID", min=0, max=65534, help="The source that it is there.")] = 0,
    timeout: Annotated[float, typer.Option(metavar="S", min=0, help="How long to wait for either stage.")] = 60.0,
) -> None:
    """Hand the built events of this host's builder units to a readout unit of this host: two stages of building."""
    from incast.data.forward import ERRORS, Forwarder

    def says(line: str) -> None:
        typer.echo(f"incast forward: {line}", err=True)

    try:
        forwarder = Forwarder(name, to, source, timeout=timeout)
        try:
            forwarder.run(says)
        finally:
            typer.echo(forwarder.done.line())
    except ERRORS as error:
        raise OneLineError(str(error), _EXIT_FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
