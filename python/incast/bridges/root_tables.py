"""The tables of `incast bridge root`: for a terminal of 80 columns, for a report, and for docs/root.md."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from incast.base import units
from incast.bridges.root import CLIENTS, DUPLEX, EXPERIMENTS
from incast.bridges.root_program import FULL, SOCKET
from incast.bridges.zmq_tables import BridgeTable, size_text

Cases = Sequence[Mapping[str, Any]]


def column_of(case: Mapping[str, Any]) -> str:
    """`rio-tsi721 polled`, in the way's own words where there are no versions; `both` for both directions."""
    words = [case["way"]] + [case["version"]] * (case["version"] != SOCKET.name)
    return " ".join([*words, *(["both"] if case["duplex"] == FULL else [])])


def row_of(result: Mapping[str, Any], case: Mapping[str, Any]) -> int:
    """What goes down the tables, and across the drawings: clients, or the size of a buffer."""
    return int(case["clients"] if result["experiment"] == CLIENTS else case["buffer_bytes"])


def row_text(result: Mapping[str, Any], value: int) -> str:
    """Of that."""
    return str(value) if result["experiment"] == CLIENTS else size_text(value)


def row_heading(result: Mapping[str, Any]) -> str:
    """Of that."""
    return "clients" if result["experiment"] == CLIENTS else "buffer"


def columns_of(result: Mapping[str, Any]) -> dict[str, dict[int, Mapping[str, Any]]]:
    """The cases of each column by what goes down, in order."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for case in result["cases"]:
        found.setdefault(column_of(case), {})[row_of(result, case)] = case
    return found


def tables(result: Mapping[str, Any], *, ranges: bool = False) -> list[BridgeTable]:
    """Those for which there is something. Cells are medians of the rounds; `ranges`: lowest and highest behind them."""
    title = EXPERIMENTS[result["experiment"]].title
    name = result["experiment"]
    found = [
        _table(result, f"{name}-rate", f"{title}: all that arrives, Gb/s", _RATES, ranges=ranges),
        _table(result, f"{name}-cpu", f"{title}: processor seconds for a GB, all processes", _CPU, ranges=ranges),
    ]
    if name == CLIENTS:
        found.insert(1, _table(result, f"{name}-least", f"{title}: the slowest client, Gb/s", _LEAST, ranges=ranges))
    if name == DUPLEX:
        found.insert(1, _gain(result, f"{name}-gain", f"{title}: both ways together, of one way"))
    return [table for table in found if table.rows]


def fitting(found: Sequence[BridgeTable], width: int) -> list[BridgeTable]:
    """Tables that are wider in parts, each with the first column."""
    parts = []
    for table in found:
        columns = list(zip(table.headings, *table.rows, strict=True))
        sizes = [max(map(len, column)) + 2 for column in columns]
        begin = 1
        while begin < len(columns):
            end = begin + 1
            while end < len(columns) and sizes[0] + sum(sizes[begin : end + 1]) <= width:
                end += 1
            headings, *rows = (list(row) for row in zip(columns[0], *columns[begin:end], strict=True))
            parts.append(BridgeTable(table.name, table.title, headings, rows))
            begin = end
    return parts


@dataclass(frozen=True)
class _Figure:
    """What a table has in its cells: a value for each round, and how it is written."""

    values: Callable[[Mapping[str, Any]], Sequence[float]]
    text: Callable[[float], str]


def _gbit(bytes_per_s: float) -> str:
    return f"{8e-9 * bytes_per_s:.2f}"


def _seconds(value: float) -> str:
    return f"{value:.2f}"


_RATES = _Figure(itemgetter("bytes_per_s"), _gbit)
_LEAST = _Figure(lambda case: [min(each) for each in case["each_bytes_per_s"]], _gbit)
_CPU = _Figure(lambda case: [1e9 * each for each in case["cpu_s_per_byte"]], _seconds)


def _table(result: Mapping[str, Any], name: str, title: str, figure: _Figure, *, ranges: bool) -> BridgeTable:
    columns = columns_of(result)
    rows = []
    for value in sorted({value for cases in columns.values() for value in cases}):
        there = [figure.values(cases[value]) if value in cases else () for cases in columns.values()]
        rows.append([row_text(result, value), *(_cell(each, figure.text, ranges) for each in there)])
    return BridgeTable(name, title, [row_heading(result), *columns], rows)


def _gain(result: Mapping[str, Any], name: str, title: str) -> BridgeTable:
    """How many times as much both directions carry together."""
    columns = columns_of(result)
    ways = [name for name in columns if f"{name} both" in columns]
    rows = []
    for value in sorted({value for cases in columns.values() for value in cases}):
        cells = []
        for way in ways:
            one, both = columns[way].get(value), columns[f"{way} both"].get(value)
            cells.append(units.ABSENT if one is None or both is None else f"{_median(both) / _median(one):.2f}")
        rows.append([row_text(result, value), *cells])
    return BridgeTable(name, title, [row_heading(result), *ways], rows if ways else [])


def _median(case: Mapping[str, Any]) -> float:
    return float(statistics.median(case["bytes_per_s"]))


def _cell(values: Sequence[float], text: Callable[[float], str], ranges: bool) -> str:
    if not values:
        return units.ABSENT
    middle = text(statistics.median(values))
    return f"{middle} ({text(min(values))} .. {text(max(values))})" if ranges and len(values) > 1 else middle


def conditions(result: Mapping[str, Any]) -> list[str]:
    """What has to stand beside every figure, a line each."""
    machine, settings = result["machine"], result["settings"]
    load = machine["load"]
    return [
        f"{machine['cpu_model']}, {machine['cores']} cores, {machine['kernel']}; all processes on this host; "
        f"{result['started_utc'][:10]}, incast {result['incast']}",
        f"medians of {settings['rounds']} rounds in turn, {settings['seconds']:g} s each after "
        f"{settings['warm_up_seconds']:g} s of warm-up; {_shape_words(result)}",
        f"load of the machine {min(load):.1f} .. {max(load):.1f}; "
        f"not idle during {result['readings_not_idle']} of {result['readings']} readings",
        *way_lines(result),
    ]


def _shape_words(result: Mapping[str, Any]) -> str:
    if result["experiment"] == CLIENTS:
        sizes = sorted({case["buffer_bytes"] for case in result["cases"]})
        return f"SendRaw of {', '.join(map(size_text, sizes))}"
    if result["experiment"] == DUPLEX:
        return "one SendRaw is one buffer of the ring"
    return "one SendRaw is one buffer of the program"


def way_lines(result: Mapping[str, Any]) -> list[str]:
    """What each way and each version is."""
    return [f"{each['name']}: {each['what']}" for each in (*result["ways"], *result["versions"])]
