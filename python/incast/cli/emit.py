"""`incast emit`: boards that send datagrams or streams (docs/dataflow.md). The program `incast-emit` does it all."""

import os

import typer

from incast.engine.program import find_program


def emit(context: typer.Context) -> None:
    """Be detector boards that send to readout units by UDP or TCP, with losses on request."""
    program = str(find_program("incast-emit"))
    os.execv(program, [program, *(context.args or ["--help"])])
