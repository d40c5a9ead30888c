"""The measured readings of a scan over many hosts: how each is spread (docs/clusters.md).

A scan that was begun over hosts goes on over the same ones: its table never holds what was measured elsewhere.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from incast.base.errors import OneLineError
from incast.base.files import replace_file, writing_output
from incast.hosts.places import Slots, spread
from incast.hosts.spread import LOCAL, SSH, Spread, must_spread
from incast.run.request import RunRequest, default_nodes, extra_nodes_of, nodes_of, transport_of
from incast.scan.journal import HOSTS_NAME
from incast.scan.plan import EXIT_BAD_SCAN, Reading


@dataclass(frozen=True)
class ScanHosts:
    """Those that were asked for, and the spread of a run with a node on each."""

    slots: tuple[Slots, ...]
    spread: Spread

    def command(self, engine: Path, base: Path | None, reading: Reading, directory: Path) -> tuple[list[str], Spread]:
        """The coordinator's command line, and where its nodes are. OneLineError: it cannot be."""
        transport = transport_of(base, reading.settings(), across=True)
        must_spread(transport, self.spread.launcher)
        request = RunRequest(base, reading.settings(), directory.resolve(), transport)
        nodes = nodes_of(request) or default_nodes()
        slots = self.slots
        # Of hosts without a number of their own the first ones are enough for few nodes.
        if nodes < len(slots) and all(each.nodes is None for each in slots) and self.spread.launcher in (LOCAL, SSH):
            slots = slots[:nodes]
        places = spread(slots, nodes, extra_nodes_of(request))
        hosts = len(places)
        meet_at, engines = self.spread.meet_at[:hosts], self.spread.engines[:hosts]
        chosen = replace(self.spread, places=places, meet_at=meet_at, engines=engines, nodes=nodes)
        return replace(request, spread=chosen).command(engine), chosen


def check_hosts(folder: Path, hosts: ScanHosts | None, *, begun: bool) -> None:
    """Remembers those of a scan; one that was `begun` in that folder had the same, or none. OneLineError: not so."""
    file = folder / HOSTS_NAME
    slots = () if hosts is None else hosts.slots
    named = ",".join(each.host if each.nodes is None else f"{each.host}:{each.nodes}" for each in slots)
    had = file.read_text(encoding="utf-8").strip() if file.is_file() else ""
    if begun and had != named:
        was = f"--hosts {had}" if had else "no --hosts"
        raise OneLineError(f"{folder}: the scan there was begun with {was}; allowed: the same", EXIT_BAD_SCAN)
    if named != had:
        with writing_output(folder):
            replace_file(file, named + "\n")
