"""Flows on a simulated network, without the event builder (docs/flows.md): the engine simulates, here it is asked."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from incast.base import extras, units
from incast.base.console import open_console
from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.base.files import give_up_folder, new_folder
from incast.base.units import VIRTUAL_TIME
from incast.engine.fabric import Fabric
from incast.engine.process import EngineRun
from incast.engine.program import find_engine
from incast.evidence.network import network_lines
from incast.run.execution import read_result
from incast.run.flow_patterns import PATTERNS, PatternRequest, flows_text
from incast.run.live import make_view

_FLOWS_CSV = "flows.csv"
_FLOWS_PARQUET = "flows.parquet"
_QUEUES_SHOWN = 5
_QUANTILES = ("p50", "p95", "p99", "p999")


@dataclass(frozen=True)
class FlowsRequest:
    """What to simulate: a file of flows or a pattern, on a network."""

    flows: str  # a pattern's name, or a file
    fabric: Path
    seed: int
    n_bytes: int
    count: int
    load: float
    senders: int
    until: str | None
    alone: bool
    output: Path | None
    force: bool


def simulate_flows(asked: FlowsRequest, *, as_json: bool) -> int:
    """Simulates them and shows what became of them; the exit status."""
    name = asked.flows if asked.flows in PATTERNS else Path(asked.flows).stem
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    output = asked.output or new_folder(Path("incast-results") / f"{stamp}-flows-{name}")
    screen = open_console(stderr=True)
    try:
        with _flows_file(asked) as file, make_view(screen, f"incast sim  {name}", virtual=True, unit="flows") as view:
            words = [str(find_engine()), "--flows", str(file), "--flows-name", asked.flows]
            words += ["--fabric", str(asked.fabric), "--output", str(output), "--seed", str(asked.seed)]
            words += ["--progress", "json", "--watched-by", str(os.getpid())]
            words += [] if asked.until is None else ["--until", asked.until]
            words += [*([] if asked.alone else ["--no-alone"]), *(["--force"] if asked.force else [])]
            outcome = EngineRun(words, view.on_progress, view.on_tick).watch()
    finally:
        if asked.output is None:
            give_up_folder(output)  # of flows that were refused
    if outcome.result_path is None:
        return outcome.exit_status
    result = read_result(outcome, outcome.result_path)
    _leave_parquet(outcome.result_path.parent)
    if as_json:
        print(outcome.result_path.read_text(), end="")
    else:
        print_flows(open_console(), result, outcome.result_path.parent)
    return outcome.exit_status


@contextlib.contextmanager
def _flows_file(asked: FlowsRequest) -> Iterator[Path]:
    """What the engine reads: the file itself, or one that is made of a pattern or of Parquet and then removed."""
    if asked.flows in PATTERNS:
        text = flows_text(asked.flows, _pattern_request(asked))
    elif Path(asked.flows).suffix == ".parquet":
        text = _parquet_text(Path(asked.flows))
    else:
        yield Path(asked.flows)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".csv", prefix="incast-flows-") as made:
        made.write(text)
        made.flush()
        yield Path(made.name)


def _pattern_request(asked: FlowsRequest) -> PatternRequest:
    fabric = Fabric.read(asked.fabric)
    rates = dict.fromkeys(fabric.hosts, 0)
    for cable in fabric.cables:
        for end in cable.ends:
            if end in rates:
                rates[end] = cable.bits_per_s
    return PatternRequest(tuple(rates.values()), asked.seed, asked.n_bytes, asked.count, asked.load, asked.senders)


def _parquet_text(path: Path) -> str:
    polars = extras.need("polars", f"{path}: reading Parquet")
    try:
        return str(polars.read_parquet(path).write_csv())
    except (OSError, polars.exceptions.PolarsError) as error:
        why = str(error).strip().splitlines()
        raise OneLineError(f"{path}: no readable Parquet: {why[0] if why else 'empty'}", EXIT_BAD_CONFIG) from error


def _leave_parquet(folder: Path) -> None:
    """The same table as Parquet, where the library for it is installed."""
    table = folder / _FLOWS_CSV
    if not table.exists() or not extras.is_here("polars"):
        return
    import polars

    with contextlib.suppress(OSError, polars.exceptions.PolarsError):  # flows.csv has it all
        polars.read_csv(table, infer_schema_length=None).write_parquet(folder / _FLOWS_PARQUET)


def print_flows(console: Console, result: dict[str, Any], folder: Path) -> None:
    """Completion times and slowdowns by size, the fullest queues, and what went wrong."""
    console.print(f"{VIRTUAL_TIME}: every time below is simulated, not measured", style="bold magenta")
    flows, network = result["flows"], result["network"]
    console.print(
        f"{network['fabric']}: {network['hosts']} hosts, {flows['offered']} flows, {units.size(flows['bytes'])}",
        markup=False,
        highlight=False,
    )
    words = f"{flows['ended']} have ended in {units.duration_ns(1e9 * result['seconds'])}: {result['status']}"
    console.print(words, style="" if result["status"] == "complete" else "bold red", markup=False, highlight=False)
    rate = units.line_rate(result["bytes_per_s"])
    used = units.fraction(network["links"]["utilisation_max"])
    console.print(f"{rate} delivered; busiest link {network['links']['busiest']}: {used}", highlight=False)
    _print_by_size(console, result["by_size"], "completion_ps", "completion time")
    if result["slowdown_is"] is not None:
        _print_by_size(console, result["by_size"], "slowdown", "slowdown: over the time alone in the empty network")
    _print_queues(console, network["fullest_queues"])
    totals = network["totals"]
    console.print(
        f"{totals['packets']} packets, {totals['dropped']} dropped, {totals['lost']} lost on cables, "
        f"{totals['repeated']} sent again,\n{totals['marked']} marked, {totals['pauses']} pauses",
        highlight=False,
    )
    for line in network_lines(result):
        console.print(line, style="yellow", markup=False, highlight=False)
    console.print(f"results in {folder}", soft_wrap=True, markup=False, highlight=False)


def _table(title: str) -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", title=title, title_justify="left")


def _print_by_size(console: Console, bins: Sequence[dict[str, Any]], key: str, title: str) -> None:
    table = _table(title)
    table.add_column("bytes of a flow")
    for heading in ("delivered", "median", "95 %", "99 %", "99.9 %", "largest"):
        table.add_column(heading, justify="right")
    for number, one in enumerate(bins):
        whole = number == len(bins) - 1
        name = "all" if whole else f"{units.size(one['above_bytes'])} .. {units.size(one['up_to_bytes'])}"
        count = str(one["delivered"])
        if one["delivered"] != one["flows"]:
            count += f" of {one['flows']}"
        values = one[key]
        cells = [units.ABSENT] * 5 if values is None else [_shown(values[name_], key) for name_ in (*_QUANTILES, "max")]
        table.add_row(name, count, *cells)
    console.print(table)


def _shown(value: float, key: str) -> str:
    return units.duration_ns(value / 1000) if key == "completion_ps" else f"{value:.2f}"


def _print_queues(console: Console, queues: Sequence[dict[str, Any]]) -> None:
    if not queues:
        return
    table = _table("fullest queues of switches")
    table.add_column("in front of")
    table.add_column("class", justify="right")
    table.add_column("largest", justify="right")
    table.add_column("mean", justify="right")
    for queue in queues[:_QUEUES_SHOWN]:
        table.add_row(
            queue["port"], str(queue["class"]), units.size(queue["max_bytes"]), units.size(queue["mean_bytes"])
        )
    console.print(table)
