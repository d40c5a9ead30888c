"""`incast info`: which engine and which transports are here, and what the host is made of."""

import json
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import incast
from incast.base import units
from incast.base.console import COLUMNS, open_console
from incast.cli.options import JsonOption
from incast.doctor.host import Host
from incast.doctor.topology import topology
from incast.engine.program import engine_info, find_engine


def info(as_json: JsonOption = False) -> None:
    """Say which engine and which transports are here, why one is not, and where memory, cores and links are."""
    answer = {"python_package": incast.__version__, "engine_path": str(find_engine()), **engine_info()}
    answer["topology"] = topology(Host())
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
        console.print(_transport_table(transports), width=console.width if console.is_terminal else COLUMNS)
    _print_topology(console, answer["topology"])


def _print_topology(console: Console, found: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("memory node", "cores", "memory"):
        table.add_column(heading)
    for node in found["numa_nodes"]:
        memory = "-" if node["memory_bytes"] is None else units.size(node["memory_bytes"])
        table.add_row(str(node["node"]), node["cores"] or "none", memory)
    if found["numa_nodes"]:
        console.print(table)
    if found["shared_caches"]:
        console.print(f"last cache shared by cores {'; '.join(found['shared_caches'])}", highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("link", "state", "rate", "MTU", "memory node"):
        table.add_column(heading)
    for link in found["links"]:
        rate = link["rate_bits_per_s"]
        cells = (link["name"], link["state"], rate and f"{rate / 1e9:g} Gb/s", link["mtu"], link["numa_node"])
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in cells))
    if found["links"]:
        console.print(table)


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
        if untested := transport.get("untested_on_hardware"):
            table.add_row("", "", Text(f"untested on hardware: {untested}", style="dim"))
    return table
