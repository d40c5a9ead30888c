"""The commands of `incast`."""

import json
import os
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

import incast
from incast.base.console import open_console
from incast.base.errors import EXIT_ABORTED, EXIT_BAD_CONFIG, OneLineError
from incast.base.files import reason_of
from incast.cli.compare import compare
from incast.cli.detached import status, stop
from incast.cli.doctor import doctor
from incast.cli.fabric import fabric_app
from incast.cli.files import import_root, mep_app
from incast.cli.hosts import join
from incast.cli.net import net
from incast.cli.options import UNITS_HELP, JsonOption
from incast.cli.report import report
from incast.cli.reproduce import reproduce
from incast.cli.rio import CONTEXT as RIO_CONTEXT
from incast.cli.rio import rio
from incast.cli.run import run
from incast.cli.scan import scan
from incast.cli.sim import sim
from incast.cli.streams import Streams
from incast.engine.program import engine_info, find_engine
from incast.engine.settings import settings as all_settings

_EXIT_FAILED = 1

app = typer.Typer(
    name="incast",
    help="Event building over any interconnect, real or simulated.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=UNITS_HELP)(run)
app.command()(join)
app.command()(status)
app.command()(stop)
app.command(epilog=UNITS_HELP)(net)
app.command(epilog=UNITS_HELP)(sim)
app.command(context_settings=RIO_CONTEXT, add_help_option=False)(rio)
app.command()(scan)
app.command()(report)
app.command()(compare)
app.command()(reproduce)
app.command()(doctor)
app.command()(import_root)
app.add_typer(mep_app, name="mep")
app.add_typer(fabric_app, name="fabric")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"incast {incast.__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""


@app.command()
def info(as_json: JsonOption = False) -> None:
    """Say which engine and which transports are here, and why one is not."""
    answer = {"python_package": incast.__version__, "engine_path": str(find_engine()), **engine_info()}
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    console = open_console()
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    for key, value in _flattened(answer):
        facts.add_row(key, Text(str(value)))
    console.print(facts)
    transports = answer.get("transports")
    if isinstance(transports, list):
        console.print(_transport_table(transports))


@app.command()
def settings(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="Those whose name or help has all these words.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the settings of a run: default, what is allowed, and what each is (docs/config.md)."""
    wanted = [word.lower() for word in words or []]
    found = [
        setting
        for setting in all_settings().values()
        if all(word in f"{setting.key} {setting.help}".lower() for word in wanted)
    ]
    if as_json:
        typer.echo(json.dumps([asdict(setting) for setting in found], indent=2))
        return
    if not found:
        raise OneLineError(f"no setting has the words {' '.join(wanted)}; `incast settings` lists all", EXIT_BAD_CONFIG)
    for setting in found:
        default = setting.default or "(nothing)"
        typer.echo(f"{setting.key} = {default}  [{setting.allowed}]\n    {setting.help}")


def _flattened(answer: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Every single fact with its name; lists of objects have tables of their own."""
    facts: list[tuple[str, Any]] = []
    for key, value in answer.items():
        if isinstance(value, dict):
            facts += _flattened(value, f"{prefix}{key} ")
        elif not isinstance(value, list):
            facts.append((f"{prefix}{key}".replace("_", " "), value))
    return facts


def _transport_table(transports: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("transport", "here", "what it is, or why it is not here"):
        table.add_column(heading)
    for transport in transports:
        here = bool(transport.get("available"))
        words = str(transport.get("summary" if here else "reason", ""))
        state = Text("yes", style="green") if here else Text("no", style="yellow")
        table.add_row(Text(str(transport.get("name", "?"))), state, Text(words))
    return table


def run_command_line() -> None:
    """Runs the command line; an error that has a plain reason is one line on standard error."""
    try:
        status = _run_command_line()
    except KeyboardInterrupt:  # while it says what was wrong
        status = EXIT_ABORTED
    sys.exit(status)


def _run_command_line() -> int | str | None:
    streams = Streams()
    status: int | str | None = 0
    try:
        _check_words()
        app()
    except OneLineError as error:
        status = _complain(str(error), error.exit_status)
    except KeyboardInterrupt:
        status = EXIT_ABORTED
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        status = _complain(f"{where}{reason_of(error)}", _EXIT_FAILED)
    except SystemExit as end:
        status = end.code
    if (trouble := streams.trouble()) is not None:
        status = status or _complain(f"standard output: {trouble}", _EXIT_FAILED)
    return status


def _check_words() -> None:
    """What is not UTF-8 can be neither printed nor written into JSON."""
    for word in sys.argv[1:]:
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            shown = os.fsencode(word).decode("utf-8", "backslashreplace")
            raise OneLineError(f"'{shown}' is not UTF-8; allowed: words and paths in UTF-8", 2)


def _complain(line: str, status: int) -> int:
    open_console(stderr=True).print(f"incast: {line}", style="red", markup=False, soft_wrap=True)
    return status
