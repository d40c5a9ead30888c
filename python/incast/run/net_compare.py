"""`incast net --compare`: the same traffic over several transports, in turn (docs/net.md).

Machines drift: what runs first and what runs last see different ones. So each round measures every transport once, and
the next round begins with another one. A figure is the median of the rounds; the smallest and the largest stand by it.
A transport that is not here is named with the reason, and the others are measured without it.
"""

import json
import re
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
from incast.base.errors import EXIT_ABORTED, EXIT_BAD_CONFIG, OneLineError
from incast.base.files import leave_file
from incast.engine.idle import IdleRule, usable_cores
from incast.engine.program import engine_info
from incast.run.execution import check, conclude, read_result, watch
from incast.run.net import RESULT_NAME, clear
from incast.run.net_summary import BUFFERS
from incast.run.request import RunRequest, default_nodes, nodes_of, said_of

DEFAULT_SIZES = ("4KiB", "64KiB", "1MiB")
DEFAULT_ROUNDS = 3
PING_BYTES = 64
_FEW_NODES = 2
_FOLDER = re.compile(r"\d\d\d+-[\w.-]+")
_WRITES = {"net.operation": "write", "net.measure": "bandwidth"}  # nothing else is compared
_PINGS = (
    "net.measure=latency", f"net.message_size={PING_BYTES}", "net.queues=1", "net.outstanding=1", "net.sends=auto",
)  # fmt: skip
_ALL_ALIKE = ("net.producers=auto", "net.consumers=auto")  # which a pattern other than bipartite has not
# One buffer for all peers, so that what differs between few nodes and many is what a peer costs.
_FOR_MEMORY = (
    *_PINGS, *_ALL_ALIKE, "net.pattern=all-to-all", "net.buffers=one", "net.working_set=auto", "net.verify=false",
    "run.duration=1s", "run.warm_up=0s",
)  # fmt: skip
_RATE, _TIME, _SIZE = (1e9, "GB/s"), (1e3, "µs"), (1e3, "kB")  # the units of the table, for all its rows


@dataclass
class Compared:
    """One transport, and what its rounds gave."""

    name: str  # as it was asked for
    settings: tuple[str, ...]
    listed: Mapping[str, Any]  # what the engine says of the transport (`incast info`)
    goodput: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)  # by bytes of a message
    pings: list[Mapping[str, Any]] = field(default_factory=list)
    bytes_per_peer: list[float] = field(default_factory=list)
    left_out: str = ""  # why it is not measured, or no longer

    def is_a(self, trait: str) -> bool:
        """Whether it has that trait; one that cannot be loaded has none."""
        return bool(self.listed.get("traits", {}).get(trait))

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


def parse_compared(text: str, listed: Sequence[Mapping[str, Any]]) -> list[Compared]:
    """`tcp,shm,tcp:streams=4`: names, and behind a colon settings of that transport, joined by `+`. `listed` are the
    transports of `incast info --json`, those that are not here included.
    """
    by_name = {each["name"]: each for each in listed}
    simulated = [name for name, each in by_name.items() if each.get("traits", {}).get("simulated")]
    names = ", ".join(name for name in by_name if name not in simulated)
    allowed = f"allowed: a list of {names}, each with settings of its own where wanted (tcp:streams=4)"
    made: list[Compared] = []
    for word in text.split(","):
        name, colon, given = word.strip().partition(":")
        if name in simulated:
            raise OneLineError(
                f"--compare {name}: simulated and measured figures do not share a table; {allowed}", EXIT_BAD_CONFIG
            )
        if name not in by_name:
            raise OneLineError(f"--compare {word.strip() or text!r}: no transport; {allowed}", EXIT_BAD_CONFIG)
        pairs = given.split("+") if colon else []
        if any("=" not in pair for pair in pairs):
            raise OneLineError(f"--compare {word.strip()}: settings are KEY=VALUE; {allowed}", EXIT_BAD_CONFIG)
        settings = (f"transport.name={name}", *(f"transport.{name}.{pair}" for pair in pairs))
        made.append(Compared(word.strip(), settings, by_name[name]))
    if len(made) < 2 or len({each.name for each in made}) < len(made):
        raise OneLineError(f"--compare {text}: needs two transports or more, each once; {allowed}", EXIT_BAD_CONFIG)
    return made


def compare_transports(request: RunRequest, text: str, sizes: Sequence[str], rounds: int, *, as_json: bool) -> int:
    """Measures what `text` names (parse_compared), and shows the table; the worst exit status of the engine's runs."""
    if rounds < 1:
        raise OneLineError(f"--rounds {rounds}: allowed: 1 or more", EXIT_BAD_CONFIG)
    for key, only in _WRITES.items():
        if (said := said_of(request, key)) not in (None, only):
            raise OneLineError(f"--compare: {key} = {said}: writes are compared; allowed: {only}", EXIT_BAD_CONFIG)
    among = parse_compared(text, engine_info()["transports"])
    sizes = sizes or DEFAULT_SIZES
    for each in among:
        _look(each, request, sizes)
    if all(each.left_out for each in among):
        reasons = "; ".join(f"{each.name}: {each.left_out}" for each in among)
        raise OneLineError(f"--compare {text}: none of them is here: {reasons}", EXIT_BAD_CONFIG)
    if request.default_name:
        name = request.output.name.removesuffix(request.transport) + "compare"
        request = replace(request, output=request.output.with_name(name))
    request = request.with_folder()
    clear(request, _FOLDER)
    screen = open_console(stderr=True)
    for each in among:
        if each.left_out:
            screen.print(f"{each.name} is left out: {each.left_out}", soft_wrap=True)
    measuring = _Measuring(request)
    for number in range(rounds):
        turn = number % len(among)
        measuring.round = f"round {number + 1} of {rounds}"
        for each in (*among[turn:], *among[:turn]):
            measuring.round_of(each, sizes)
    _show(measuring, among, rounds, as_json=as_json)
    return measuring.status


def _look(each: Compared, request: RunRequest, sizes: Sequence[str]) -> None:
    """Leaves it out if it cannot be had here. OneLineError if it could, with other settings."""
    name = each.listed["name"]
    if request.spread is not None and (each.is_a("in_process") or each.is_a("shares_memory")):
        each.left_out = "its nodes are on one host"
        return
    # What one has by itself may be there with other settings: another launcher, another device.
    by_itself = len(each.settings) == 1
    if by_itself and not each.listed["available"]:
        each.left_out = str(each.listed.get("reason", "")).removeprefix(f"transport {name}: ")
        return
    others = (_pings(request), *_for_memory(request).values())
    for settings in (*((f"net.message_size={size}",) for size in sizes), *others):
        try:
            check(replace(request, settings=(*request.settings, *each.settings, *settings)))
        except OneLineError as error:
            if each.listed["available"]:
                raise
            each.left_out = str(error).removeprefix(f"transport {name}: ")
            return


def _pings(request: RunRequest) -> tuple[str, ...]:
    """Between two nodes, where all are on this host."""
    two = (*_ALL_ALIKE, "net.pattern=one-to-one", f"run.nodes={_FEW_NODES}")
    return _PINGS if request.spread is not None else (*_PINGS, *two)


def _for_memory(request: RunRequest) -> dict[int, tuple[str, ...]]:
    """By number of nodes: few, and many. Nothing where some are on other hosts."""
    many = max(nodes_of(request) or default_nodes(), _FEW_NODES + 2)
    numbers = () if request.spread is not None else (_FEW_NODES, many)
    return {nodes: (*_FOR_MEMORY, f"run.nodes={nodes}") for nodes in numbers}


class _Measuring:
    def __init__(self, request: RunRequest) -> None:
        self.status = 0
        self.request = request
        self.round = ""  # for titles
        self.first: Mapping[str, Any] | None = None
        self.unfinished: list[str] = []
        self.stopped = False  # Ctrl-C: nothing else is begun
        self.runs = 0
        self.not_idle = 0  # of these

    def round_of(self, each: Compared, sizes: Sequence[str]) -> None:
        """Every size once, then pings, then what a peer takes."""
        for size in sizes:
            result = self._one(each, (f"net.message_size={size}",), size)
            if result is not None:
                each.goodput.setdefault(result["message_bytes"], []).append(result)
                self.first = self.first or result
        pings = self._one(each, _pings(self.request), "pings")
        each.pings += [] if pings is None else [pings]
        if not each.is_a("in_process"):
            self._memory_of(each)

    def _memory_of(self, each: Compared) -> None:
        """What a further peer adds to the resident memory of the largest process, where each node has its own."""
        found = {}
        for nodes, settings in _for_memory(self.request).items():
            if (result := self._one(each, settings, f"{nodes}-nodes")) is not None:
                found[nodes] = result["peak_rss_bytes"]
        if len(found) == 2:
            (few, less), (many, more) = found.items()
            each.bytes_per_peer.append((more - less) / (many - few))

    def _one(self, each: Compared, settings: Sequence[str], what: str) -> dict[str, Any] | None:
        """Nothing if it did not come to its end, or is not begun. A transport whose first measurement fails is left
        out from then on: what is missing may show no sooner.
        """
        if each.left_out or self.stopped:
            return None
        try:
            result = self._run(each, settings, f"{each.name}-{what}")
        except _NoFiguresError as failed:
            if each.goodput or self.stopped:
                self.unfinished.append(f"{each.name}-{what}: {failed}")
            else:
                each.left_out = str(failed)
            return None
        return result

    def _run(self, each: Compared, settings: Sequence[str], name: str) -> dict[str, Any]:
        folder = f"{self.runs:03}-" + "".join(c if c.isalnum() or c in "._-" else "-" for c in name)
        self.runs += 1
        request = replace(
            self.request,
            settings=(*self.request.settings, *each.settings, *settings),
            output=self.request.output / folder,
        )
        try:
            outcome = watch(request, f"incast net  {name}  {self.round}", unit="messages")
        except OneLineError as error:
            if error.exit_status == EXIT_ABORTED:
                raise
            self.status = max(self.status, error.exit_status)
            raise _NoFiguresError(str(error)) from error
        self.status = max(self.status, outcome.exit_status)
        if outcome.window is not None:
            self.not_idle += IdleRule().broken_by(outcome.window, usable_cores()) is not None
        if outcome.result_path is None:
            raise _NoFiguresError(outcome.why_no_result)
        result = read_result(outcome, outcome.result_path)
        conclude(outcome, result, outcome.result_path)
        self.stopped = result["status"] == "interrupted"
        if result["status"] != "complete":
            raise _NoFiguresError(f"{result['status']}: {result.get('reason') or outcome.last_error}".rstrip(": "))
        return result


class _NoFiguresError(Exception):
    """Why a measurement has none."""


def _show(measuring: _Measuring, among: Sequence[Compared], rounds: int, *, as_json: bool) -> None:
    first = measuring.first
    whole = {
        "schema": 1,
        "kind": "net-compare",
        "rounds": rounds,
        "ping_bytes": PING_BYTES,
        "buffers": None if first is None else first["buffers"],
        "transports": [each.figures() for each in among if each.goodput],
        "left_out": [{"name": each.name, "reason": each.left_out} for each in among if each.left_out],
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
    """A table of goodput and CPU by size, one of what does not depend on it, and what has no figures."""
    rounds = whole["rounds"]
    if whole["pattern"] is not None:
        console.print(f"{whole['pattern']}, {whole['nodes']} nodes, {BUFFERS[whole['buffers']]}")
    console.print(f"median (lowest..highest) of {rounds} rounds in turn" if rounds > 1 else "1 round")
    factor, unit = _RATE
    table = _table("message", "transport", unit, "CPU s/GB", "errors")
    for size in dict.fromkeys(row["message_bytes"] for each in whole["transports"] for row in each["goodput"]):
        named = units.size(size)
        for each in whole["transports"]:
            for row in (row for row in each["goodput"] if row["message_bytes"] == size):
                errors = row["verify_errors"]
                cpu = [value for value in row["cpu_s_per_gb"] if value is not None]
                cells = (named, each["name"], units.of_rounds(row["bytes_per_s"], factor), units.of_rounds(cpu))
                error = Text(units.count(errors), style="bold red" if errors else "")
                table.add_row(*(Text(cell) for cell in cells), error)
                named = ""
    console.print(table)
    console.print()
    (time, time_unit), (memory, memory_unit) = _TIME, _SIZE
    console.print(f"{units.size(whole['ping_bytes'])} one way, and what a further peer takes of memory")
    table = _table("transport", f"p50, {time_unit}", f"p99, {time_unit}", f"{memory_unit} per peer", left=1)
    for each in whole["transports"]:
        times = [units.of_rounds(each["one_way_ns"][key], time) for key in ("p50", "p99")]
        per_peer = units.of_rounds(each["bytes_per_peer"], memory)
        table.add_row(*(Text(cell) for cell in (each["name"], *times, per_peer)))
    console.print(table)
    if whole["runs_not_idle"]:
        words = f"NOT IDLE: others used the machine during {whole['runs_not_idle']} of {whole['runs']} measurements"
        console.print(Text(words, style="yellow"))
    missing = [f"{entry['name']} is left out: {entry['reason']}" for entry in whole["left_out"]]
    for line in (*missing, *(f"without figures: {line}" for line in whole["unfinished"])):
        console.print(Text(line, style="bold yellow"), soft_wrap=not console.is_terminal)
    console.print(f"results in {directory}; incast report {directory} draws them", soft_wrap=True)


def _table(*headings: str, left: int = 2) -> Table:
    """Where it is too wide, names of transports are folded: they have their settings in them."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, heading in enumerate(headings):
        is_name = heading == "transport"
        table.add_column(
            heading,
            justify="left" if number < left else "right",
            overflow="fold" if is_name else "ellipsis",
            no_wrap=not is_name,
        )
    return table
