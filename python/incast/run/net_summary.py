"""Raw traffic as tables: one measurement with its matrix, or several of them (schema/net_result.schema.json)."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from incast.base import units
from incast.base.units import VIRTUAL_TIME
from incast.evidence.findings import Diagnosis
from incast.run.summary import QUANTILES, file_rows, in_lines, limit_rows, network_rows

# A wider matrix fits no terminal; the result has it all.
_MATRIX_NODES_MAX = 16
_MATRIX_HEAD, _MATRIX_CELL = 12, 7  # columns of the screen that the first one and each other one of it take
BUFFERS = {"cycled": "buffers in a cycle", "one": "one buffer again and again"}  # what a sender sends
# Of a table, whose lines have 80 columns.
_FEW_QUANTILES = tuple(entry for entry in QUANTILES if entry[1] != "p95")

Result = Mapping[str, Any]


def print_net_summary(console: Console, result: Result, directory: Path, diagnosis: Diagnosis | None = None) -> None:
    """The figures and the matrix of one measurement, and the directory that has everything else of it."""
    _print_virtual_time(console, result)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for label, text in (*_rows(result), *network_rows(result, diagnosis), *limit_rows(diagnosis), *file_rows(result)):
        table.add_row(label, text)
    console.print(table)
    console.print(_matrix(result, console.width))
    _print_directory(console, directory)


def print_net_sizes(console: Console, results: Sequence[Result], directory: Path) -> None:
    """A row for each message size, or number of queues, or both."""
    _print_virtual_time(console, results[0])
    console.print(_what_ran(results[0], results))
    latency = results[0]["measure"] != "bandwidth"
    several = _vary(results, "queues")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    some_wrong = any(result["verify_errors"] for result in results)
    with_efficiency = any("efficiency" in result for result in results)
    if latency:
        headings = [name for name, _ in _FEW_QUANTILES]
    else:
        headings = ["total", "slowest\npair", "slowest\nreceiver", "CPU\ns/GB", "useful\ns/GB"]
    headings = [*(["queues"] * several), "message", *headings, "messages"]
    for heading in [*headings, *(["errors"] * some_wrong), *(["efficiency"] * with_efficiency)]:
        table.add_column(heading, justify="right")
    for result in results:
        rates = result["bytes_per_s"]
        if latency:
            figures = [units.duration_ns(result["round_trip_ns"][key]) for _, key in _FEW_QUANTILES]
        else:
            figures = [units.rate(rates["total"])]
            figures += [units.rate(rates[of]["min"]) for of in ("per_pair", "per_receiver")]
            figures += [_seconds(result[key]) for key in ("cpu_s_per_gb", "useful_cpu_s_per_gb")]
        figures.append(units.frequency(result["messages_per_s"]))
        first = [*([str(result["queues"])] * several), units.size(result["message_bytes"])]
        cells = [Text(figure) for figure in (*first, *figures)]
        if some_wrong:
            wrong = result["verify_errors"]
            cells.append(Text(units.count(wrong), style="bold red" if wrong else ""))
        if with_efficiency:
            cells.append(Text(units.fraction(result.get("efficiency", {}).get("fraction"))))
        table.add_row(*cells)
    console.print(table)
    if latency:
        reads = results[0]["operation"] == "read"
        words = "from the post of a read to its completion" if reads else "round trips; one way is half of each"
        console.print(words, style="dim")
    _print_directory(console, directory)


def print_net_loaded(console: Console, idle: Result | None, results: Sequence[Result], directory: Path) -> None:
    """Round trips of pings: a row without a load, and one for each load."""
    _print_virtual_time(console, results[0])
    first = results[0]
    text = _what_ran(first, results)
    text.append(f", pings of {units.size(first['ping_bytes'])}, round trips")
    console.print(text)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("load of a pair")
    for name in (*(name for name, _ in _FEW_QUANTILES), "moved"):
        table.add_column(name, justify="right")
    for result in (idle, *results):
        if result is None:
            continue
        load = "none"
        if result is not idle:
            sends = "" if result["sends"] == result["outstanding"] else f", {result['sends']} sent"
            load = f"{result['queues']} x {result['outstanding']} x {units.size(result['message_bytes'])}{sends}"
        times = result["round_trip_ns"]
        figures = [units.duration_ns(times[key]) for _, key in _FEW_QUANTILES]
        moved = units.ABSENT if result is idle else units.rate(result["bytes_per_s"]["total"])
        table.add_row(load, *figures, moved)
    console.print(table)
    _print_directory(console, directory)


def _vary(results: Sequence[Result], key: str) -> bool:
    return len({result[key] for result in results}) > 1


def _print_directory(console: Console, directory: Path) -> None:
    # On one line whatever its length, so that it can be copied.
    console.print(f"results in {directory}", soft_wrap=True, markup=False, highlight=False)


def _print_virtual_time(console: Console, result: Result) -> None:
    if result["time_domain"] == "virtual":
        words = f"{VIRTUAL_TIME}: every rate and time below is simulated, not measured on this machine"
        console.print(words, style="bold magenta")


def _what_ran(result: Result, among: Sequence[Result] = ()) -> Text:
    """What ran, without what differs `among` several."""
    duplex = ", duplex" if result["duplex"] else ""
    text = Text(f"{result['transport']}, {result['pattern']}{duplex}, {result['nodes_in_pattern']} nodes")
    pairs, queues = (f"{n} {word}{'' if n == 1 else 's'}" for n, word in _counted(result))
    if several := list(dict.fromkeys(str(one["queues"]) for one in among))[1:]:
        queues = f"{result['queues']}, {', '.join(several)} queues"
    slots = " or more" if len({one["outstanding"] for one in among}) > 1 else ""
    text.append(f", {pairs} x {queues} x {min([result['outstanding'], *(one['outstanding'] for one in among)])}{slots}")
    text.append(" in flight")
    if result["sends"] != result["outstanding"]:
        text.append(f" ({result['sends']} sent and not complete)")
    if result["operation"] == "read":
        text.append(", reads")
    if not among:
        text.append(f", messages of {units.size(result['message_bytes'])}")
    text.append(f", {BUFFERS[result['buffers']]}")
    if result["status"] != "complete":
        reason = result.get("reason")
        text.append(f"\n{result['status']}" + (f": {reason}" if reason else ""), style="bold yellow")
    return text


def _counted(result: Result) -> Iterable[tuple[int, str]]:
    return (len(result["pairs"]), "pair"), (result["queues"], "queue")


def _spread(spread: Mapping[str, float] | None) -> Text:
    if spread is None:
        return Text("too short to say", style="dim")
    low, mean, high = (units.rate(spread[key]) for key in ("min", "mean", "max"))
    return Text(f"min {low}   mean {mean}   max {high}")


def _seconds(value: float | None) -> str:
    return units.ABSENT if value is None else f"{value:.3g}"


def _quantiles(times: Mapping[str, float]) -> Text:
    return in_lines([f"{name} {units.duration_ns(times[key])}" for name, key in QUANTILES if key in times])


def _verification(result: Result) -> Text:
    if result["verify_errors"]:
        return Text(f"{result['verified']}: {units.count(result['verify_errors'])} ERRORS", style="bold red")
    if result["verified"] == "full":
        return Text(f"full, no errors in {units.count(result['verified_messages'])} messages", style="green")
    return Text("order and heads alone, no errors", style="green")


def _rows(result: Result) -> Iterable[tuple[str, Text]]:
    rates = result["bytes_per_s"]
    yield "net", _what_ran(result)
    total = f"{units.rate(rates['total'])}   ({units.line_rate(rates['total'])})"
    yield "total", Text(total, style="bold")
    if result["round_trip_ns"] is not None:
        label = "read" if result["operation"] == "read" else "ping" if result["measure"] == "loaded" else "round trip"
        yield label, _quantiles(result["round_trip_ns"])
    if result["one_way_ns"] is not None:
        yield "one way (half)", _quantiles(result["one_way_ns"])
    for label, key in (
        ("per sender", "per_sender"),
        ("per receiver", "per_receiver"),
        ("per pair", "per_pair"),
        ("over time", "over_time"),
    ):
        yield label, _spread(rates[key])
    yield "messages", Text(f"{units.count(result['messages'])}   ({units.frequency(result['messages_per_s'])})")
    if efficiency := result.get("efficiency"):
        words = f"{units.fraction(efficiency['fraction'])}   ({units.rate(efficiency['goodput_bytes_per_s'])} goodput)"
        yield "efficiency", Text(f"{words} of {efficiency['result']}", style="bold")
        if "reason" in efficiency:
            yield "", Text(efficiency["reason"], style="yellow")
    yield "verification", _verification(result)
    cpu, useful = _seconds(result["cpu_s_per_gb"]), _seconds(result["useful_cpu_s_per_gb"])
    yield "CPU", Text(f"{cpu} s/GB   ({useful} s/GB without polling in vain)")
    yield "peak memory", Text(f"{units.size(result['peak_rss_bytes'])}   (largest process)")
    for node in result["nodes"]:
        for key in ("why_lost", "failure", "note"):
            if node.get(key):
                yield f"node {node['roles']}", Text(str(node[key]), style="red")


def _matrix(result: Result, width: int) -> Table | Text:
    """From rows to columns, in one unit: rates, or in a ping-pong the median round trip in µs."""
    senders = [entry["node"] for entry in result["senders"]]
    receivers = [entry["node"] for entry in result["receivers"]]
    columns = _MATRIX_HEAD + _MATRIX_CELL * (len(receivers) + 1)
    if max(len(senders), len(receivers)) > _MATRIX_NODES_MAX or columns > width:
        words = f"{len(senders)} senders and {len(receivers)} receivers: the matrix is in result.json"
        return Text(words, style="dim")
    latency = result["measure"] == "latency"
    pairs = {(pair["from"], pair["to"]): pair for pair in result["pairs"]}
    factor, unit = (
        (1e3, "µs")
        if latency
        else units.common_rate([result["bytes_per_s"]["total"], *(pair["bytes_per_s"] for pair in result["pairs"])])
    )

    def cell(value: float | None) -> str:
        return units.ABSENT if value is None else units.plain(value / factor)

    def of_pair(pair: Mapping[str, Any] | None) -> str:
        if pair is None:
            return ""
        return cell(pair.get("round_trip_ns", {}).get("p50") if latency else pair["bytes_per_s"])

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(f"p50 in {unit}\nfrom \\ to" if latency else f"{unit}\nfrom \\ to", style="bold")
    for node in receivers:
        table.add_column(str(node), justify="right", vertical="bottom")
    if not latency:
        table.add_column("sent", justify="right", style="dim", vertical="bottom")
    for entry in result["senders"]:
        cells = [of_pair(pairs.get((entry["node"], node))) for node in receivers]
        table.add_row(str(entry["node"]), *cells, *([] if latency else [cell(entry["bytes_per_s"])]))
    if not latency:
        received = [cell(entry["bytes_per_s"]) for entry in result["receivers"]]
        table.add_row("received", *received, cell(result["bytes_per_s"]["total"]), style="dim")
    return table
