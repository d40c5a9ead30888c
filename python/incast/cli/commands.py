"""The commands of `incast`. Each is imported when it is asked for: all of them take longer to load than most to run."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import incast
from incast.base.console import open_console
from incast.base.errors import EXIT_ABORTED, OneLineError
from incast.base.files import reason_of
from incast.cli.streams import Streams

_EXIT_FAILED = 1
# Set by the scripts of `incast --show-completion`.
_COMPLETING = "_INCAST_COMPLETE"


# How quantities are written, for the end of a command's help.
_UNITS = (
    "SIZE: 64K or 64KiB (65536), 64kB (64000), 1M. TIME: 500ms, 90s, 2m, 1h. HZ: 40kHz. RATE: 100Gbps, 12.5GB/s. "
    "`incast settings` lists every setting."
)
# Module and name of each, in the order of the help.
_COMMANDS = {
    "run": ("run", "run"),
    "join": ("hosts", "join"),
    "status": ("detached", "status"),
    "stop": ("detached", "stop"),
    "node": ("node", "node_app"),
    "net": ("net", "net"),
    "sim": ("sim", "sim"),
    "rio": ("rio", "rio"),
    "netdev": ("netdev", "netdev"),
    "dispatch": ("farm", "dispatch"),
    "consume": ("farm", "consume"),
    "forward": ("forward", "forward"),
    "emit": ("emit", "emit"),
    "scan": ("scan", "scan"),
    "tune": ("tune", "tune"),
    "report": ("report", "report"),
    "compare": ("compare", "compare"),
    "reproduce": ("reproduce", "reproduce"),
    "doctor": ("doctor", "doctor"),
    "import-root": ("files", "import_root"),
    "info": ("info", "info"),
    "settings": ("settings", "settings"),
    "config": ("config", "config_app"),
    "man": ("manual", "man"),
    "mep": ("files", "mep_app"),
    "fabric": ("fabric", "fabric_app"),
    "bridge": ("bridge", "bridge_app"),
}
# The program behind it reads its own options.
_PASSES_ON: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    "add_help_option": False,
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "run": {"epilog": _UNITS},
    "net": {"epilog": _UNITS},
    "sim": {"epilog": _UNITS},
    "rio": _PASSES_ON,
    "netdev": _PASSES_ON,
    "dispatch": _PASSES_ON,
    "consume": _PASSES_ON,
    "emit": _PASSES_ON,
}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"incast {incast.__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""


def application(words: Sequence[str] = ()) -> typer.Typer:
    """The program with the command that these words of its command line ask for; with all where they name none.

    The version alone needs none at all.
    """
    app = typer.Typer(
        name="incast",
        help="Event building over any interconnect, real or simulated.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_top)
    command = next((word for word in words if not word.startswith("-")), "")
    wanted = [command] if command in _COMMANDS else [] if list(words) in (["--version"], ["-V"]) else list(_COMMANDS)
    for name in wanted:
        module, attribute = _COMMANDS[name]
        found = getattr(importlib.import_module(f"incast.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name, **_OPTIONS.get(name, {}))(found)
    return app


def run_command_line() -> None:
    """Runs the command line; an error that has a plain reason is one line on standard error."""
    try:
        status = _run_command_line()
    except KeyboardInterrupt:  # while it says what was wrong
        status = EXIT_ABORTED
    sys.exit(status)


def _words() -> list[str]:
    """The words of the command line; while a shell completes one, those of its line that are whole."""
    if _COMPLETING not in os.environ:
        return sys.argv[1:]
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = typed.split()[1:]
    return words if typed[-1:].isspace() else words[:-1]


def _run_command_line() -> int | str | None:
    streams = Streams()
    status: int | str | None = 0
    try:
        _check_words()
        application(_words())()
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
