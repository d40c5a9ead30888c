"""`incast net --basic`: reads beside writes, bandwidth beside latency, as table 2 of [S5] has them (docs/net.md).

Four measurements of two nodes, then perftest's programs on the same host's device, then the four in a simulation of the
cluster of [S5]; one table has all beside what was published.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from incast.base import units
from incast.base.console import open_console
from incast.base.files import leave_file
from incast.base.published import TABLE_2, TABLE_2_SOURCE
from incast.engine.shipped import fabric_file
from incast.engine.transports import simulated, simulated_key
from incast.run.execution import check, conclude, read_result, watch
from incast.run.net import clear
from incast.run.perftest import PROGRAMS, Perftest, bytes_per_s, latency_ns, run_perftest
from incast.run.request import RunRequest

OPERATIONS = ("write", "read")
_SIZES = {"bandwidth": 64 << 10, "latency": 2}  # perftest's own
_PEAK_OVER = "100ms"  # the peak is the fastest interval
_QDR = "ib-qdr-8"
FOLDER = re.compile(r"(incast|simulated)-(write|read)-(bandwidth|latency)")
_SIMULATED = ("run.warm_up=1ms", "run.duration=10ms", "net.messages=0")
_ROWS = ("mean", "peak", "min", "typical", "max")


@dataclass
class Column:
    """One way to move the bytes: what it is, and for each operation its figures in bytes/s and ns."""

    name: str
    what: str
    write: dict[str, float | None] = field(default_factory=dict)
    read: dict[str, float | None] = field(default_factory=dict)
    reason: str = ""  # why figures are not there

    def of(self, operation: str) -> dict[str, float | None]:
        """Those of `write` or of `read`."""
        return self.write if operation == "write" else self.read


def basic(request: RunRequest, devices: str | None, options: Sequence[str], *, as_json: bool) -> int:
    """Measures, and shows the table; the worst exit status of the engine's runs."""
    fabric = (f"transport.name={simulated()}", f"{simulated_key('fabric')}={fabric_file(_QDR)}", *_SIMULATED)
    request = replace(request, settings=(f"run.sample_interval={_PEAK_OVER}", *request.settings))
    for settings in ((), fabric):
        check(_one(request, "write", "bandwidth", request.output, settings))
    request = request.with_folder()
    clear(request, FOLDER)
    ours = Column("incast", request.transport)
    status = _four(request, ours, request.output, ())
    programs = Column("perftest", "")
    found = run_perftest(devices, _SIZES, options)
    _fill_programs(programs, found)
    model = Column("simulated", f"{_QDR}, virtual time")
    status = max(status, _four(replace(request, transport=simulated()), model, request.output, fabric))
    published = Column("published", TABLE_2_SOURCE)
    for operation in OPERATIONS:
        published.of(operation).update(TABLE_2[operation])
    columns = [published, ours, programs, model]
    whole = {
        "schema": 1,
        "kind": "net-basic",
        "message_bytes": dict(_SIZES),
        "columns": [
            {"name": each.name, "what": each.what, "write": each.write or None, "read": each.read or None}
            | ({"reason": each.reason} if each.reason else {})
            for each in columns
        ],
    }
    text = json.dumps(whole, indent=2) + "\n"
    leave_file(request.output / "result.json", text)
    if as_json:
        sys.stdout.write(text)
    else:
        print_basic(open_console(), whole, request.output)
    return status


def _four(request: RunRequest, column: Column, output: Path, settings: tuple[str, ...]) -> int:
    status = 0
    for operation in OPERATIONS:
        figures: dict[str, float | None] = {}
        for measure in _SIZES:
            name = f"{column.name}-{operation}-{measure}"
            one = _one(request, operation, measure, output / name, settings)
            outcome = watch(one, f"incast net  {name}", unit="messages")
            status = max(status, outcome.exit_status)
            if outcome.result_path is None:
                column.reason = f"{operation}: {outcome.why_no_result}"
                continue
            result = read_result(outcome, outcome.result_path)
            conclude(outcome, result, outcome.result_path)
            if result["status"] != "complete":
                column.reason = f"{operation}: {result['status']}: {result.get('reason', '')}"
            figures.update(_FIGURES[measure](result))
        column.of(operation).update(figures)
    return status


def _one(request: RunRequest, operation: str, measure: str, output: Path, settings: tuple[str, ...]) -> RunRequest:
    own = [
        "net.pattern=one-to-one", "run.nodes=2", f"net.operation={operation}", f"net.measure={measure}",
        f"net.message_size={_SIZES[measure]}",
    ]  # fmt: skip
    # A ping-pong has one message in flight, and nobody sends what is read.
    if measure == "latency":
        own.append("net.outstanding=1")
    if measure == "latency" or operation == "read":
        own.append("net.sends=auto")
    return replace(request, settings=(*request.settings, *settings, *own), output=output)


def _bandwidth(result: Mapping[str, Any]) -> dict[str, float | None]:
    rates = result["bytes_per_s"]
    real = result["time_domain"] == "real"
    return {
        "mean": rates["total"],
        "peak": None if rates["over_time"] is None else rates["over_time"]["max"],
        "cpu_cores": result["cpu"]["cores"] if real else None,
    }


def _latency(result: Mapping[str, Any]) -> dict[str, float | None]:
    """As perftest has them: half a round trip of a write, the whole of a read; the median is the typical one."""
    times = result["one_way_ns"] or result["round_trip_ns"]
    return {"min": times["min"], "typical": times["p50"], "max": times["max"]}


_FIGURES: dict[str, Callable[[Mapping[str, Any]], dict[str, float | None]]] = {
    "bandwidth": _bandwidth,
    "latency": _latency,
}


def _fill_programs(column: Column, found: Perftest) -> None:
    column.what, column.reason = found.device, found.reason
    for operation, measure in PROGRAMS:
        reading = found.readings.get((operation, measure))
        if reading is None:
            continue
        figures = column.of(operation)
        if measure == "bandwidth":
            figures["mean"], figures["peak"] = (bytes_per_s(reading, which) for which in ("average", "peak"))
            figures["cpu_cores"] = reading.cpu_s / reading.wall_s if reading.wall_s > 0 else None
        else:
            figures |= {which: latency_ns(reading, which) for which in ("min", "typical", "max")}


def print_basic(console: Console, whole: Mapping[str, Any], directory: Path) -> None:
    """Published and ours side by side, as the paper's table 2 has them."""
    columns = whole["columns"]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    for column in columns:
        table.add_column(column["name"], justify="right")
    names = {"mean": "mean", "peak": "peak", "min": "least", "typical": "typical", "max": "most"}
    for operation in OPERATIONS:
        for row in _ROWS:
            shown = units.rate if row in ("mean", "peak") else units.duration_ns
            cells = [shown((column[operation] or {}).get(row)) for column in columns]
            table.add_row(f"{operation}, {names[row]}", *cells)
        cores = [(column[operation] or {}).get("cpu_cores") for column in columns]
        table.add_row(f"{operation}, CPU", *(units.ABSENT if each is None else f"{each:.2f} cores" for each in cores))
    console.print(table)
    sizes = whole["message_bytes"]
    console.print(
        f"rates of {units.size(sizes['bandwidth'])} messages, latencies of {sizes['latency']} B: half a round trip of "
        "a write, the whole of a read; typical is the median",
        style="dim",
    )
    for column in columns:
        if column["what"]:
            console.print(f"{column['name']}: {column['what']}", style="dim", soft_wrap=True, markup=False)
        if column.get("reason"):
            console.print(f"{column['name']}: {column['reason']}", style="yellow", soft_wrap=True, markup=False)
    console.print(f"results in {directory}", soft_wrap=True, markup=False, highlight=False)
