"""`incast rio`: the endpoints of a RapidIO fabric by hand (docs/rapidio.md). The program `softrio` does it all."""

import signal
import subprocess
from typing import Annotated

import typer

from incast.engine.program import find_program


def rio(context: typer.Context, command: Annotated[str, typer.Argument()] = "--help") -> None:
    """Talk to RapidIO endpoints: list, ping, write, read, doorbell, cm, serve, perf, enumerate, switch."""
    # An interrupt is the program's, too: it ends in order, and this after it.
    with subprocess.Popen([str(find_program("softrio")), command, *context.args]) as program:
        for number in (signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda received, _: program.send_signal(received))
        try:
            status = program.wait()
        except KeyboardInterrupt:
            status = program.wait()
    raise typer.Exit(status)
