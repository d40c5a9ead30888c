"""`incast dispatch` and `incast consume`: built events for a farm over the network (docs/farm.md).

The program `incast-farm` does it all.
"""

import os
from typing import Annotated, NoReturn

import typer

from incast.engine.program import find_program


def dispatch(context: typer.Context, name: Annotated[str, typer.Argument()] = "--help") -> None:
    """Hand the events of this host's builder units to farm nodes over the network: NAME ADDRESS."""
    _become("dispatch", name, context.args)


def consume(context: typer.Context, address: Annotated[str, typer.Argument()] = "--help") -> None:
    """Be a farm node: take events over the network, for processes of this host: ADDRESS..."""
    _become("consume", address, context.args)


def _become(command: str, word: str, words: list[str]) -> NoReturn:
    program = str(find_program("incast-farm"))
    os.execv(program, [program, command, word, *words])
