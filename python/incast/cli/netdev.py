"""`incast netdev`: network devices over Incast's channels (docs/netdev.md). The program `incast-netdev` does it all."""

import os
from typing import Annotated

import typer

from incast.engine.program import find_program


def netdev(context: typer.Context, command: Annotated[str, typer.Argument()] = "--help") -> None:
    """Make network devices over RapidIO, shared memory, TCP, UDP or RDMA: up, status, down."""
    program = str(find_program("incast-netdev"))
    os.execv(program, [program, command, *context.args])
