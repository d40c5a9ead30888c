"""`incast doctor`: what of this host, or of others, would spoil a measurement (docs/doctor.md)."""

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
from incast.cli.hosts import HostfileOption, HostsOption, SshOption, slots_of
from incast.cli.options import JsonOption
from incast.doctor.checks import CHECKS, findings
from incast.doctor.cluster import TOGETHER, look_at
from incast.doctor.host import FAULT, Finding, Host
from incast.doctor.ports import Port
from incast.doctor.ports import ports as ports_of
from incast.engine.program import ENGINE_NAME, engine_version, find_engine

_EXIT_FAULTS = 1
_WIDTH = 80


def doctor(
    root: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Look below this folder instead: a copy of another host's /sys, /proc and /dev."
        ),
    ] = Path("/"),
    *,
    hosts: HostsOption = None,
    hostfile: HostfileOption = None,
    ports: Annotated[
        str | None,
        typer.Option(metavar="PORT-PORT", help="Data ports to try between the hosts. (default: any that are free)"),
    ] = None,
    ssh: SshOption = "ssh",
    as_json: JsonOption = False,
) -> None:
    """Look for what would spoil a measurement: value, what would be right, the command that mends it, and why.

    With --hosts of each of them, and between them: ports that do not answer, clocks, sizes of packets.

    Reads only, and changes nothing. Status 0: nothing, or advice alone; 1: at least one fault.
    """
    if not root.is_dir():
        raise OneLineError(f"--root {root}: no folder; allowed: one with sys and proc in it", EXIT_BAD_CONFIG)
    names = [check.name for check in CHECKS]
    if slots := slots_of(hosts, hostfile, None):
        there: list[Port] = []
        names += TOGETHER
        places = [str(find_engine().resolve()), ENGINE_NAME]
        version, _ = engine_version()
        found = look_at([each.host for each in slots], ssh, ports=_range(ports), places=places, version=version)
    else:
        if ports is not None:
            raise OneLineError(
                f"--ports {ports}: no hosts are given; allowed: with --hosts or --hostfile", EXIT_BAD_CONFIG
            )
        host = Host(root)
        there, found = ports_of(host), findings(host)
    if as_json:
        whole = {
            "schema": 1,
            "hosts": [each.host for each in slots],
            "checks": names,
            "ports": [_facts(port) for port in there],
            "findings": [asdict(each) for each in found],
        }
        typer.echo(json.dumps(whole, indent=2))
    else:
        console = open_console()
        console.width = min(console.width, _WIDTH)
        _print(console, there, found, names, [each.host for each in slots])
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


def _range(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    low, _, high = text.partition("-")
    high = high or low
    if not (low.isdecimal() and high.isdecimal() and 0 < int(low) <= int(high) < 65536):
        raise OneLineError(f"--ports {text}: allowed: PORT-PORT, each in 1..65535", EXIT_BAD_CONFIG)
    return int(low), int(high)


def _print(console: Console, there: list[Port], found: list[Finding], names: list[str], hosts: list[str]) -> None:
    if hosts:
        console.print(f"{len(hosts)} hosts", highlight=False)
    elif there:
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
        where = f"{each.host}, {each.where}" if each.host else each.where
        console.print(Text(f"{each.level} ({each.check}): {where}: {each.value}", style=style))
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim", no_wrap=True)
        rows.add_column()
        for label, words in (("right", each.right), ("mend", each.command), ("why", each.reason)):
            rows.add_row(label, Text(words))
        console.print(Padding(rows, (0, 0, 0, 2)))
    faults = sum(each.level == FAULT for each in found)
    console.print()
    console.print(f"faults: {faults}, advice: {len(found) - faults}, of {len(names)} checks", highlight=False)
