"""Options of runs over many hosts, and `incast join` (docs/clusters.md)."""

import getpass
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from incast.base.console import open_console
from incast.base.errors import EXIT_BAD_CONFIG, EXIT_NO_ENGINE, OneLineError
from incast.engine.program import find_engine
from incast.hosts.launch import read_token
from incast.hosts.places import Slots, parse_hosts, read_hostfile
from incast.hosts.spread import (
    BY_HAND,
    LAUNCHERS,
    LOCAL,
    SSH,
    Spread,
    allocated_hosts,
    by_hand,
    must_spread,
    prepare,
)
from incast.run.request import RunRequest, default_nodes, extra_nodes_of, nodes_of

if TYPE_CHECKING:
    from incast.scan.hosts import ScanHosts

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
SshOption = Annotated[
    str, typer.Option(metavar="COMMAND", help="How ssh is called, as 'ssh -F FILE'.", rich_help_panel=_PANEL)
]
_LauncherOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"What starts them: {LAUNCHERS}; srun finds the hosts of its allocation. (default: ssh)",
        rich_help_panel=_PANEL,
    ),
]
_ListenOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]",
        help="Where nodes of other hosts join. (default: the address by which they see this host)",
        rich_help_panel=_PANEL,
    ),
]
_WaitForOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="Start N nodes fewer, and say how others start them.", rich_help_panel=_PANEL),
]
_TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The word that nodes must know. (default: one is made up)", rich_help_panel=_PANEL
    ),
]
_DeployOption = Annotated[
    bool, typer.Option("--deploy", help="Copy the engine to hosts that do not have it.", rich_help_panel=_PANEL)
]
_PortsOption = Annotated[
    str | None,
    typer.Option(metavar="FIRST-LAST", help="Ports at which nodes listen for each other.", rich_help_panel=_PANEL),
]
_InterfaceOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Interface that carries the data on each host, as ib0.", rich_help_panel=_PANEL),
]
_SubnetOption = Annotated[
    str | None,
    typer.Option(metavar="SUBNET", help="Or the subnet that does, as 10.1.0.0/16.", rich_help_panel=_PANEL),
]


@dataclass(frozen=True)
class HostOptions:
    """On which hosts readings are taken, and how the engine gets there."""

    hosts: HostsOption = None
    hostfile: HostfileOption = None
    launcher: _LauncherOption = None
    listen: _ListenOption = None
    deploy: _DeployOption = False
    ssh: SshOption = "ssh"

    def slots(self) -> list[Slots]:
        """The hosts that were given; none: all is to be on this one."""
        return slots_of(self.hosts, self.hostfile, self.launcher)

    def places(self) -> "ScanHosts | None":
        """Of a scan or a tuning, reached and ready; None: this host."""
        if slots := self.slots():
            from incast.scan.hosts import ScanHosts

            return ScanHosts(tuple(slots), self.spread(slots, None, 0))
        self.refuse_without_hosts()
        return None

    def spread(self, slots: list[Slots], nodes: int | None, extra: int) -> Spread:
        """Nodes on these hosts, which have the engine then."""
        launcher = self.launcher or SSH
        return prepare(
            slots,
            nodes,
            extra=extra,
            launcher=launcher,
            listen=self.listen,
            ssh=self.ssh,
            deploy=self.deploy,
            say=say,
        )

    def refuse_without_hosts(self, token_file: str = "") -> None:
        """OneLineError: an option is given that only means something with hosts."""
        far = self.launcher not in (None, LOCAL)
        options = (
            ("--launcher", far), ("--listen", self.listen), ("--deploy", self.deploy), ("--token-file", token_file),
        )  # fmt: skip
        if named := [name for name, given in options if given]:
            raise OneLineError(f"{named[0]}: no hosts are given; allowed: with --hosts or --hostfile", EXIT_BAD_CONFIG)


@dataclass(frozen=True)
class RunHostOptions(HostOptions):
    """The same of one run, which can also wait for nodes that somebody starts, and has a network for its data."""

    wait_for: _WaitForOption = None
    token_file: _TokenFileOption = None
    ports: _PortsOption = None
    interface: _InterfaceOption = None
    subnet: _SubnetOption = None

    @property
    def across(self) -> bool:
        """Whether the run is over several hosts, as far as the options say."""
        return any(each is not None for each in (self.hosts, self.hostfile, self.launcher, self.wait_for))

    def network_settings(self) -> dict[str, str | None]:
        """Which network carries the data, and at which ports."""
        if self.interface is not None and self.subnet is not None:
            raise OneLineError("--interface: not with --subnet; allowed: one of the two", EXIT_BAD_CONFIG)
        if self.subnet is not None and "/" not in self.subnet:
            raise OneLineError(f"--subnet {self.subnet}: no subnet; allowed: one such as 10.1.0.0/16", EXIT_BAD_CONFIG)
        return {"run.ports": self.ports, "run.network": self.interface or self.subnet}

    def over_hosts(self, request: RunRequest) -> RunRequest:
        """The run, spread as the options say; as it is, if they say nothing."""
        token = "" if self.token_file is None else str(self.token_file.absolute())
        if self.token_file is not None:
            read_token(self.token_file)
        if self.wait_for is not None:
            if self.hosts or self.hostfile or self.launcher:
                raise OneLineError(
                    "--wait-for: not with --hosts, --hostfile or --launcher; allowed: alone", EXIT_BAD_CONFIG
                )
            must_spread(request.transport, BY_HAND)
            nodes = nodes_of(request) or default_nodes()
            by_others = by_hand(self.wait_for, nodes, extra_nodes_of(request), self.listen or "", token)
            return replace(request, spread=by_others)
        slots = self.slots()
        if not slots:
            self.refuse_without_hosts(token)
            return request
        must_spread(request.transport, self.launcher or SSH)
        spread = self.spread(slots, nodes_of(request), extra_nodes_of(request))
        return replace(request, spread=replace(spread, token_file=token))


def say(line: str) -> None:
    """A line on the screen."""
    open_console(stderr=True).print(line, markup=False, soft_wrap=True, highlight=False)


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
    them = f"{nodes} nodes join" if nodes > 1 else "1 node joins"
    sys.stderr.write(f"{them} the run at {address}, and ends with it\n")
    words = [str(engine), "--join", address, "--token-file", "-", "--count", str(nodes), "--output", str(output)]
    try:
        os.execv(engine, words)
    except OSError as error:
        raise OneLineError(f"the engine {engine} cannot be started: {error.strerror}", EXIT_NO_ENGINE) from error
