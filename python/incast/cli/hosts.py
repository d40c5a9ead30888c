"""Options of runs over many hosts, and `incast join` (docs/clusters.md)."""

import getpass
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from incast.base.console import open_console
from incast.base.errors import EXIT_BAD_CONFIG, EXIT_NO_ENGINE, OneLineError
from incast.engine.program import find_engine
from incast.hosts.launch import read_token
from incast.hosts.places import Slots, parse_hosts, read_hostfile
from incast.hosts.spread import LAUNCHERS, LOCAL, SSH, allocated_hosts, by_hand, must_reach_others, prepare
from incast.run.request import RunRequest, default_nodes, extra_nodes_of, nodes_of

_PANEL = "Many hosts"
_MOST_TOKEN = 256

HostsOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:N],...",
        help="Where the nodes run: a,b or node[01-16]; behind each :N for so many nodes. (default: this host)",
        rich_help_panel=_PANEL,
    ),
]
HostfileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The same from a file: a host per line, slots=N behind it.", rich_help_panel=_PANEL
    ),
]
LauncherOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"What starts them: {LAUNCHERS}; srun finds the hosts of its allocation. (default: ssh)",
        rich_help_panel=_PANEL,
    ),
]
ListenOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]",
        help="Where nodes of other hosts join. (default: the address by which they see this host)",
        rich_help_panel=_PANEL,
    ),
]
WaitForOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="Start N nodes fewer, and say how others start them.", rich_help_panel=_PANEL),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The word that nodes must know. (default: one is made up)", rich_help_panel=_PANEL
    ),
]
DeployOption = Annotated[
    bool, typer.Option("--deploy", help="Copy the engine to hosts that do not have it.", rich_help_panel=_PANEL)
]
PortsOption = Annotated[
    str | None,
    typer.Option(metavar="FIRST-LAST", help="Ports at which nodes listen for each other.", rich_help_panel=_PANEL),
]
InterfaceOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Interface that carries the data on each host, as ib0.", rich_help_panel=_PANEL),
]
SubnetOption = Annotated[
    str | None,
    typer.Option(metavar="SUBNET", help="Or the subnet that does, as 10.1.0.0/16.", rich_help_panel=_PANEL),
]
SshOption = Annotated[
    str, typer.Option(metavar="COMMAND", help="How ssh is called, as 'ssh -F FILE'.", rich_help_panel=_PANEL)
]


def network_settings(ports: str | None, interface: str | None, subnet: str | None) -> dict[str, str | None]:
    """Which network carries the data, and at which ports."""
    if interface is not None and subnet is not None:
        raise OneLineError("--interface: not with --subnet; allowed: one of the two", EXIT_BAD_CONFIG)
    if subnet is not None and "/" not in subnet:
        raise OneLineError(f"--subnet {subnet}: no subnet; allowed: one such as 10.1.0.0/16", EXIT_BAD_CONFIG)
    return {"run.ports": ports, "run.network": interface or subnet}


def over_hosts(
    request: RunRequest,
    *,
    hosts: str | None,
    hostfile: Path | None,
    launcher: str | None,
    listen: str | None,
    wait_for: int | None,
    token_file: Path | None,
    deploy: bool,
    ssh: str,
) -> RunRequest:
    """The run, spread as the options say; as it is, if they say nothing."""
    token = "" if token_file is None else str(token_file.absolute())
    if token_file is not None:
        read_token(token_file)
    if wait_for is not None:
        if hosts or hostfile or launcher:
            raise OneLineError(
                "--wait-for: not with --hosts, --hostfile or --launcher; allowed: alone", EXIT_BAD_CONFIG
            )
        must_reach_others(request.transport)
        nodes = nodes_of(request) or default_nodes()
        return replace(request, spread=by_hand(wait_for, nodes, extra_nodes_of(request), listen or "", token))
    slots = slots_of(hosts, hostfile, launcher)
    if not slots:
        refuse_without_hosts(launcher=launcher, listen=listen, deploy=deploy, token_file=token)
        return request
    if (launcher or SSH) != LOCAL:
        must_reach_others(request.transport)
    given, extra = nodes_of(request), extra_nodes_of(request)
    how = launcher or SSH
    spread = prepare(slots, given, extra=extra, launcher=how, listen=listen, ssh=ssh, deploy=deploy, say=say)
    return replace(request, spread=replace(spread, token_file=token))


def say(line: str) -> None:
    """A line on the screen."""
    open_console(stderr=True).print(line, markup=False, soft_wrap=True, highlight=False)


def refuse_without_hosts(*, launcher: str | None, listen: str | None, deploy: bool, token_file: str = "") -> None:
    """OneLineError: an option is given that only means something with hosts."""
    far = launcher not in (None, LOCAL)
    options = (("--launcher", far), ("--listen", listen), ("--deploy", deploy), ("--token-file", token_file))
    if named := [name for name, given in options if given]:
        raise OneLineError(f"{named[0]}: no hosts are given; allowed: with --hosts or --hostfile", EXIT_BAD_CONFIG)


def slots_of(hosts: str | None, hostfile: Path | None, launcher: str | None) -> list[Slots]:
    """The hosts that were given; none: all is to be on this one."""
    if hosts is not None and hostfile is not None:
        raise OneLineError("--hosts: not with --hostfile; allowed: one of the two", EXIT_BAD_CONFIG)
    if hosts is not None:
        return parse_hosts(hosts)
    if hostfile is not None:
        return read_hostfile(hostfile)
    return allocated_hosts() if launcher not in (None, LOCAL) else []


def join(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="HOST:PORT, as the run that waits says it.")],
    *,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the run's token. (default: it is asked for)")
    ] = None,
    nodes: Annotated[int, typer.Option(metavar="N", min=1, max=4096, help="So many nodes.")] = 1,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="For the ledger, if the event manager is among them.")
    ] = Path(),
) -> None:
    """Be nodes of a run elsewhere, which waits for them (incast run --wait-for).

    Ctrl-C ends them at once.
    """
    engine = find_engine()
    if token_file is not None:
        token = read_token(token_file)
    elif sys.stdin.isatty():
        token = getpass.getpass(f"token of the run at {address}: ").strip()
    else:
        token = sys.stdin.buffer.readline(_MOST_TOKEN + 2).decode("utf-8", "replace").strip()
    if not token or len(token.encode()) > _MOST_TOKEN:
        raise OneLineError(f"no token; allowed: a line of up to {_MOST_TOKEN} bytes, or --token-file", EXIT_BAD_CONFIG)
    reading, writing = os.pipe()
    os.write(writing, token.encode() + b"\n")
    os.dup2(reading, 0)
    words = [str(engine), "--join", address, "--token-file", "-", "--count", str(nodes), "--output", str(output)]
    try:
        os.execv(engine, words)
    except OSError as error:
        raise OneLineError(f"the engine {engine} cannot be started: {error.strerror}", EXIT_NO_ENGINE) from error
