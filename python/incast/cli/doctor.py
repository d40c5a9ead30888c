"""`incast doctor`: what of this host is not as RDMA needs it (docs/doctor.md)."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from incast.base.console import open_console
from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.cli.options import JsonOption
from incast.doctor.checks import CHECKS, findings
from incast.doctor.host import FAULT, Finding, Host
from incast.doctor.ports import Port, ports

_EXIT_FAULTS = 1
_WIDTH = 80


def doctor(
    root: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Look below this folder instead: a copy of another host's /sys, /proc and /dev."
        ),
    ] = Path("/"),
    as_json: JsonOption = False,
) -> None:
    """Look for what RDMA needs and this host lacks: value, what would be right, the command that mends it, and why.

    Reads only, and changes nothing. Status 0: nothing, or advice alone; 1: at least one fault.
    """
    if not root.is_dir():
        raise OneLineError(f"--root {root}: no folder; allowed: one with sys and proc in it", EXIT_BAD_CONFIG)
    host = Host(root)
    there, found = ports(host), findings(host)
    if as_json:
        whole = {
            "schema": 1,
            "checks": [check.name for check in CHECKS],
            "ports": [_facts(port) for port in there],
            "findings": [asdict(each) for each in found],
        }
        typer.echo(json.dumps(whole, indent=2))
    else:
        console = open_console()
        console.width = min(console.width, _WIDTH)
        _print(console, there, found)
    raise typer.Exit(_EXIT_FAULTS if any(each.level == FAULT for each in found) else 0)


def _facts(port: Port) -> dict[str, str | int | None]:
    usable = port.routable
    return {
        "device": port.device,
        "port": port.number,
        "link": "iWARP" if port.iwarp else "RoCE" if port.roce else port.link,
        "state": port.state,
        "rate": port.rate,
        "interface": port.netdev,
        "gid_index": None if usable is None else usable.index,
        "gid": None if usable is None else usable.ipv4 or usable.gid,
    }


def _print(console: Console, there: list[Port], found: list[Finding]) -> None:
    if there:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for heading in ("device", "port", "link", "state", "rate", "interface", "GID index"):
            table.add_column(heading)
        for port in there:
            facts = _facts(port)
            gid = "-" if facts["gid"] is None else f"{facts['gid_index']}: {facts['gid']}"
            cells = [facts[key] for key in ("device", "port", "link", "state", "rate", "interface")]
            table.add_row(*(Text("-" if cell in (None, "") else str(cell)) for cell in cells), Text(gid))
        console.print(table)
    else:
        console.print("no RDMA device on this host")
    for each in found:
        console.print()
        style = "bold red" if each.level == FAULT else "bold yellow"
        console.print(Text(f"{each.level} ({each.check}): {each.where}: {each.value}", style=style))
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim", no_wrap=True)
        rows.add_column()
        for label, words in (("right", each.right), ("mend", each.command), ("why", each.reason)):
            rows.add_row(label, Text(words))
        console.print(Padding(rows, (0, 0, 0, 2)))
    faults = sum(each.level == FAULT for each in found)
    if there or found:
        console.print()
        console.print(f"faults: {faults}, advice: {len(found) - faults}, of {len(CHECKS)} checks")
