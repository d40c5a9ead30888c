"""`incast info`: which engine and which transports are here."""

import json
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

import incast
from incast.base.console import open_console
from incast.cli.options import JsonOption
from incast.engine.program import engine_info, find_engine


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
