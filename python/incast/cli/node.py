"""`incast node`: takes nodes out of a run that goes on, and lets them in again."""

from pathlib import Path
from typing import Annotated

import typer

from incast.base.console import open_console
from incast.base.errors import OneLineError
from incast.engine.quantity import parse
from incast.run.detached import EXIT_BAD_USE
from incast.run.node_commands import command

node_app = typer.Typer(
    help="Take nodes out of a run that goes on, and let them in again (docs/running.md).", no_args_is_help=True
)
_Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Result directory of the run.")]
_Nodes = Annotated[list[int], typer.Argument(metavar="NODE...", help="Numbers of nodes.", min=0)]
_Timeout = Annotated[str, typer.Option(metavar="TIME", help="Wait so long for each node.")]


def _do(directory: Path, word: str, nodes: list[int], timeout: str) -> None:
    limit_s = parse("duration", timeout)
    if limit_s is None:
        raise OneLineError(f"--timeout {timeout}: not a duration; allowed: a time such as 90s or 2m", EXIT_BAD_USE)
    screen = open_console()
    for node in nodes:
        screen.print(f"{directory}: {command(directory, word, node, limit_s)}", markup=False, soft_wrap=True)


@node_app.command("out")
def take_out(directory: _Directory, nodes: _Nodes, *, timeout: _Timeout = "30s") -> None:
    """End the nodes' processes. The run goes on: MEPs without their fragments are flagged."""
    _do(directory, "out", nodes, timeout)


@node_app.command("in")
def let_in(directory: _Directory, nodes: _Nodes, *, timeout: _Timeout = "30s") -> None:
    """Start nodes that are out again. Nodes of other hosts may join again."""
    _do(directory, "in", nodes, timeout)


@node_app.command()
def restart(directory: _Directory, nodes: _Nodes, *, timeout: _Timeout = "30s") -> None:
    """Take nodes out and let them in again, one after the other."""
    _do(directory, "restart", nodes, timeout)
