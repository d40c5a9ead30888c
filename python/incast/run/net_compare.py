"""`incast net --compare`: the same traffic over several transports, in turn (docs/net.md).

Machines drift: what runs first and what runs last see different ones. So each round measures every transport once, and
the next round begins with another one. A figure is the median of the rounds; the smallest and the largest stand by it.
"""

import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from incast.base import units
from incast.base.console import open_console
from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.base.files import leave_file
from incast.engine.idle import IdleRule, usable_cores
from incast.engine.transports import is_simulated, transports
from incast.run.execution import conclude, read_result, watch
from incast.run.net import RESULT_NAME, check, clear
from incast.run.request import RunRequest, default_nodes, nodes_of

DEFAULT_SIZES = ("4KiB", "64KiB", "1MiB")
DEFAULT_ROUNDS = 3
PING_BYTES = 64
_FEW_NODES = 2
_FOLDER = re.compile(r"\d\d-\d-[\w.-]+")
_PINGS = ("net.measure=latency", f"net.message_size={PING_BYTES}", "net.queues=1", "net.outstanding=1")
# Rings of one size, so that what differs between few nodes and many is what a peer costs.
_FOR_MEMORY = (*_PINGS, "net.pattern=all-to-all", "net.working_set=1MiB", "run.duration=1s", "run.warm_up=0s")


@dataclass
class Compared:
    """One transport, and what its rounds gave."""

    name: str  # as it was asked for
    settings: tuple[str, ...]
    goodput: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)  # by bytes of a message
    pings: list[Mapping[str, Any]] = field(default_factory=list)
    bytes_per_peer: float | None = None

    def figures(self) -> dict[str, Any]:
        """As the result has them: a value for each round, in order."""
        return {
            "name": self.name,
            "settings": list(self.settings),
            "goodput": [
                {
                    "message_bytes": size,
                    "bytes_per_s": [result["bytes_per_s"]["total"] for result in results],
                    "cpu_s_per_gb": [result["cpu_s_per_gb"] for result in results],
                    "verify_errors": sum(result["verify_errors"] for result in results),
                }
                for size, results in self.goodput.items()
            ],
            "one_way_ns": {key: [result["one_way_ns"][key] for result in self.pings] for key in ("p50", "p99")},
            "bytes_per_peer": self.bytes_per_peer,
        }


def parse_compared(text: str) -> list[Compared]:
    """`tcp,shm,tcp:streams=4`: names, and behind a colon settings of that transport, joined by `+`."""
    known = [each.name for each in transports() if not each.simulated]
    allowed = f"allowed: a list of {', '.join(known)}, each with settings of its own where wanted (tcp:streams=4)"
    made: list[Compared] = []
    for word in text.split(","):
        name, colon, given = word.strip().partition(":")
        if is_simulated(name):
            raise OneLineError(
                f"--compare {name}: simulated and measured figures do not share a table; {allowed}", EXIT_BAD_CONFIG
            )
        if name not in known:
            raise OneLineError(f"--compare {word.strip() or text!r}: no transport; {allowed}", EXIT_BAD_CONFIG)
        pairs = given.split("+") if colon else []
        if any("=" not in pair for pair in pairs):
            raise OneLineError(f"--compare {word.strip()}: settings are KEY=VALUE; {allowed}", EXIT_BAD_CONFIG)
        settings = (f"transport.name={name}", *(f"transport.{name}.{pair}" for pair in pairs))
        made.append(Compared(word.strip(), settings))
    if len(made) < 2 or len({each.name for each in made}) < len(made):
        raise OneLineError(f"--compare {text}: needs two transports or more, each once; {allowed}", EXIT_BAD_CONFIG)
    return made


def compare_transports(
    request: RunRequest, among: Sequence[Compared], sizes: Sequence[str], rounds: int, *, as_json: bool
) -> int:
    """Measures, and shows the table; the worst exit status of the engine's runs."""
    if rounds < 1:
        raise OneLineError(f"--rounds {rounds}: allowed: 1 or more", EXIT_BAD_CONFIG)
    sizes = sizes or DEFAULT_SIZES
    for each in among:
        for size in sizes:
            check(replace(request, settings=(*request.settings, *each.settings, f"net.message_size={size}")))
    request = request.with_folder()
    clear(request, _FOLDER)
    measuring = _Measuring(request)
    for number in range(rounds):
        turn = number % len(among)
        for each in (*among[turn:], *among[:turn]):
            measuring.round_of(each, sizes)
    if request.spread is None:
        for each in among:
            measuring.memory_of(each)
    _show(measuring, among, rounds, as_json=as_json)
    return measuring.status


class _Measuring:
    def __init__(self, request: RunRequest) -> None:
        self.status = 0
        self.request = request
        self.first: Mapping[str, Any] | None = None
        self.unfinished: list[str] = []
        self.runs = 0
        self.not_idle = 0  # of these

    def round_of(self, each: Compared, sizes: Sequence[str]) -> None:
        """Every size once, then pings."""
        for size in sizes:
            result = self._one(each, (f"net.message_size={size}",), f"{each.name}-{size}")
            if result is not None:
                each.goodput.setdefault(result["message_bytes"], []).append(result)
                self.first = self.first or result
        two = () if self.request.spread is not None else ("net.pattern=one-to-one", f"run.nodes={_FEW_NODES}")
        pings = self._one(each, (*_PINGS, *two), f"{each.name}-pings")
        each.pings += [] if pings is None else [pings]

    def memory_of(self, each: Compared) -> None:
        """What a further peer adds to the resident memory of the largest process, where each node has its own."""
        if any(one.in_process for one in transports() if f"transport.name={one.name}" in each.settings):
            return
        many = max(nodes_of(self.request) or default_nodes(), _FEW_NODES + 2)
        sizes = []
        for nodes in (_FEW_NODES, many):
            result = self._one(each, (*_FOR_MEMORY, f"run.nodes={nodes}"), f"{each.name}-{nodes}-nodes")
            sizes += [] if result is None else [result["peak_rss_bytes"]]
        if len(sizes) == 2:
            each.bytes_per_peer = (sizes[1] - sizes[0]) / (many - _FEW_NODES)

    def _one(self, each: Compared, settings: Sequence[str], name: str) -> dict[str, Any] | None:
        folder = f"{self.runs:02}-{len(each.pings)}-" + "".join(c if c.isalnum() or c in "._-" else "-" for c in name)
        self.runs += 1
        request = replace(
            self.request,
            settings=(*self.request.settings, *each.settings, *settings),
            output=self.request.output / folder,
        )
        outcome = watch(request, f"incast net  {name}", unit="messages")
        self.status = max(self.status, outcome.exit_status)
        if outcome.window is not None:
            self.not_idle += IdleRule().broken_by(outcome.window, usable_cores()) is not None
        if outcome.result_path is None:
            self.unfinished.append(f"{name}: the engine ended with status {outcome.exit_status}")
            return None
        result = read_result(outcome, outcome.result_path)
        conclude(outcome, result, outcome.result_path)
        if result["status"] != "complete":
            self.unfinished.append(f"{name}: {result['status']}: {result.get('reason', '')}")
            return None
        return result


def _show(measuring: _Measuring, among: Sequence[Compared], rounds: int, *, as_json: bool) -> None:
    first = measuring.first
    whole = {
        "schema": 1,
        "kind": "net-compare",
        "rounds": rounds,
        "ping_bytes": PING_BYTES,
        "transports": [each.figures() for each in among],
        "runs": measuring.runs,
        "runs_not_idle": measuring.not_idle,
        "unfinished": measuring.unfinished,
        "pattern": None if first is None else first["pattern"],
        "nodes": None if first is None else first["nodes_in_pattern"],
    }
    text = json.dumps(whole, indent=2) + "\n"
    leave_file(measuring.request.output / RESULT_NAME, text)
    if as_json:
        sys.stdout.write(text)
    else:
        print_compared(open_console(), whole, measuring.request.output)


def print_compared(console: Console, whole: Mapping[str, Any], directory: Path) -> None:
    """A table of goodput and CPU by size, and one of what does not depend on it."""
    rounds = whole["rounds"]
    where = "" if whole["pattern"] is None else f"{whole['pattern']}, {whole['nodes']} nodes, "
    console.print(f"{where}{rounds} round{'s' * (rounds > 1)} in turn: medians, and the range", highlight=False)
    table = _table("message", "transport", "goodput", "lowest", "highest", "CPU s/GB", "errors")
    sizes = dict.fromkeys(row["message_bytes"] for each in whole["transports"] for row in each["goodput"])
    for size in sizes:
        named = units.size(size)
        for each in whole["transports"]:
            for row in each["goodput"]:
                if row["message_bytes"] != size:
                    continue
                rates, errors = row["bytes_per_s"], row["verify_errors"]
                cells = [named, each["name"], *(units.rate(of(rates)) for of in (statistics.median, min, max))]
                cpu = [value for value in row["cpu_s_per_gb"] if value is not None]
                cells.append(f"{statistics.median(cpu):.3g}" if cpu else units.ABSENT)
                style = "bold red" if errors else ""
                table.add_row(*(Text(cell) for cell in cells), Text(units.count(errors), style=style))
                named = ""
    console.print(table)
    console.print()
    table = _table("transport", f"one way, {units.size(whole['ping_bytes'])}, p50", "p99", "memory per peer", left=1)
    for each in whole["transports"]:
        cells = [
            units.duration_ns(statistics.median(values)) if (values := each["one_way_ns"][key]) else units.ABSENT
            for key in ("p50", "p99")
        ]
        per_peer = each["bytes_per_peer"]
        cells.append(units.ABSENT if per_peer is None else units.size(max(per_peer, 0)))
        table.add_row(*(Text(cell) for cell in (each["name"], *cells)))
    console.print(table)
    if whole["runs_not_idle"]:
        words = f"NOT IDLE: others used the machine during {whole['runs_not_idle']} of {whole['runs']} measurements"
        console.print(Text(words, style="yellow"))
    for line in whole["unfinished"]:
        console.print(Text(line, style="bold yellow"))
    console.print(f"results in {directory}", soft_wrap=True, markup=False, highlight=False)


def _table(*headings: str, left: int = 2) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right")
    return table
