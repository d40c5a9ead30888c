"""The tidy table of a scan: a row per point and repeat, the unit in the name of every column (docs/scanning.md)."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from incast.base import extras
from incast.base.files import replace_file
from incast.engine.quantity import Scalar, common_unit, number_of, setting_text
from incast.evidence.result import Result, at
from incast.scan.plan import Plan

Row = dict[str, Any]
CSV_NAME = "table.csv"
PARQUET_NAME = "table.parquet"
# What stands before the axes: what was measured, when, and whether it may be believed.
HEAD: dict[str, type] = {
    "point": int, "repeat": int, "kind": str, "time_domain": str, "status": str, "reason": str,
}  # fmt: skip
_SPREADS = ("min", "mean", "max")


def _spread(column: str, unit: str, *path: str) -> dict[str, tuple[type, tuple[str, ...]]]:
    return {f"{column}_{key}_{unit}": (float, (*path, key)) for key in _SPREADS}


_LATENCIES = ("min", "p50", "p95", "p99", "p999", "max")
RATE = "bytes_per_s"
# Column, its type, and where it stands in result.json.
RUN_FIGURES: dict[str, tuple[type, tuple[str, ...]]] = {
    "goodput_without_self_bytes_per_s": (float, ("goodput_bytes_per_s", "total_without_self")),
    "goodput_bytes_per_s": (float, ("goodput_bytes_per_s", "total")),
    **_spread("readout_unit", RATE, "goodput_bytes_per_s", "per_ru"),
    **_spread("builder_unit", RATE, "goodput_bytes_per_s", "per_bu"),
    **_spread("over_time", RATE, "goodput_bytes_per_s", "over_time"),
    "events_per_s": (float, ("events_per_s",)),
    "events": (int, ("events",)),
    "incomplete_events": (int, ("incomplete_events",)),
    "lost_events": (int, ("lost_events",)),
    "redelivered_events": (int, ("redelivered_events",)),
    "latency_kind": (str, ("latency_ns", "kind")),
    **{f"latency_{key}_ns": (int, ("latency_ns", key)) for key in _LATENCIES},
    "offered_hz": (float, ("triggers", "offered_hz")),
    "accepted_hz": (float, ("triggers", "accepted_hz")),
    "dead_time_fraction": (float, ("dead_time_fraction",)),
    "builders_waiting_fraction": (float, ("bu_wait_fraction",)),
    "busiest_link_fraction": (float, ("network", "links", "utilisation_max")),
    "verified": (str, ("verified",)),
    "verify_errors": (int, ("verify_errors",)),
    "cpu_s_per_gb": (float, ("cpu_s_per_gb",)),
    "cpu_s": (float, ("cpu", "seconds")),
    "cpu_polling_s": (float, ("cpu", "polling_seconds")),
    "cpu_sink_s": (float, ("cpu", "sink_seconds")),
    "credits": (int, ("sizes", "credits")),
    "packing_events": (int, ("sizes", "packing")),
    "mfp_bytes": (int, ("sizes", "mfp_bytes")),
    "slot_bytes": (int, ("sizes", "slot_bytes")),
    "working_set_bytes": (int, ("sizes", "working_set_bytes")),
    "self_traffic": (str, ("self_traffic",)),
}
NET_FIGURES: dict[str, tuple[type, tuple[str, ...]]] = {
    "throughput_bytes_per_s": (float, ("bytes_per_s", "total")),
    **_spread("sender", RATE, "bytes_per_s", "per_sender"),
    **_spread("receiver", RATE, "bytes_per_s", "per_receiver"),
    **_spread("pair", RATE, "bytes_per_s", "per_pair"),
    **_spread("over_time", RATE, "bytes_per_s", "over_time"),
    "messages_per_s": (float, ("messages_per_s",)),
    "messages": (int, ("messages",)),
    "measure": (str, ("measure",)),
    "operation": (str, ("operation",)),
    "pattern": (str, ("pattern",)),
    "message_bytes": (int, ("message_bytes",)),
    "queues": (int, ("queues",)),
    "outstanding": (int, ("outstanding",)),
    "sends": (int, ("sends",)),
    "ping_bytes": (int, ("ping_bytes",)),
    **{f"round_trip_{key}_ns": (int, ("round_trip_ns", key)) for key in _LATENCIES},
    "busiest_link_fraction": (float, ("network", "links", "utilisation_max")),
    "verified": (str, ("verified",)),
    "verify_errors": (int, ("verify_errors",)),
    "cpu_s_per_gb": (float, ("cpu_s_per_gb",)),
    "useful_cpu_s_per_gb": (float, ("useful_cpu_s_per_gb",)),
    "cpu_s": (float, ("cpu", "seconds")),
    "cpu_polling_s": (float, ("cpu", "polling_seconds")),
    "working_set_bytes": (int, ("sizes", "working_set_bytes")),
}
_COMMON_FIGURES: dict[str, tuple[type, tuple[str, ...]]] = {
    "window_s": (float, ("window", "seconds")),
    "peak_rss_bytes": (int, ("peak_rss_bytes",)),
    "seed": (int, ("seed",)),
    "transport": (str, ("config", "transport", "name")),
    "nodes": (int, ("config", "run", "nodes")),
    "host": (str, ("machine", "host")),
    "cpu_model": (str, ("machine", "cpu_model")),
    "cores": (int, ("machine", "cores")),
    "incast_version": (str, ("versions", "incast")),
    "incast_git": (str, ("versions", "git")),
    "build_type": (str, ("versions", "build_type")),
}
# Behind the figures: what limited them, what else went on, and where the rest of it lies.
TAIL: dict[str, type] = {
    "limited_by": str, "limited_by_confidence": str, "limited_by_evidence": str, "suggestion": str,
    "idle": bool, "not_idle_reason": str, "others_cpu_fraction": float, "stolen_cpu_fraction": float,
    "started_utc": str, "wall_s": float, "exit_status": int, "directory": str,
}  # fmt: skip


def figures_of(kind: str) -> dict[str, tuple[type, tuple[str, ...]]]:
    """The columns that come out of a result of that kind."""
    return {**(NET_FIGURES if kind == "net" else RUN_FIGURES), **_COMMON_FIGURES}


def _typed(value: Any, kind: type) -> Any:
    if value is None or isinstance(value, list | dict):
        return None
    if kind is str:
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return kind(value)


def figures(result: Result, kind: str) -> Row:
    """The figures of one result, None where it has none."""
    return {column: _typed(at(result, path), of) for column, (of, path) in figures_of(kind).items()}


def headline(row: Mapping[str, Any]) -> tuple[str, float | None]:
    """The column that a row is judged by, and its value: goodput, throughput, or the median round trip."""
    if row.get("kind") == "net":
        column = "round_trip_p50_ns" if row.get("measure") in ("latency", "loaded") else "throughput_bytes_per_s"
    else:
        column = "goodput_without_self_bytes_per_s"
    value = row.get(column)
    return column, float(value) if isinstance(value, int | float) else None


class Columns:
    """The columns of a scan's table, in order, with the type of each: bool, int, float or str."""

    def __init__(self, plan: Plan) -> None:
        self._axes: dict[str, tuple[type, str | None]] = {}
        axes: dict[str, type] = {}
        for key in plan.axes:
            values = [point.axes[key] for point in plan.points if key in point.axes]
            kind, numeric = _axis_type(key, values)
            self._axes[key] = kind, numeric
            axes[key] = kind
            if numeric is not None:
                axes[numeric] = float
        measured = {column: of for column, (of, _) in figures_of(plan.kind).items()}
        self.types: dict[str, type] = {**HEAD, **axes, **measured, **TAIL}

    def axis_cells(self, axes: Mapping[str, Scalar]) -> Row:
        """The cells of a point's own settings: as they were written, and where that has a unit, as numbers too."""
        cells: Row = {}
        for key, (kind, numeric) in self._axes.items():
            value = axes.get(key)
            cells[key] = None if value is None else setting_text(value) if kind is str else kind(value)
            if numeric is not None:
                cells[numeric] = number_of(value)
        return cells

    def complete(self, row: Mapping[str, Any]) -> Row:
        """The row with every column, in order; figures it lacks are None."""
        return {column: row.get(column) for column in self.types}


def _axis_type(key: str, values: Sequence[Scalar]) -> tuple[type, str | None]:
    """The type of an axis as written; and where it is text with a unit, the name of the column with the numbers."""
    if all(isinstance(value, bool) for value in values):
        return bool, None
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return int, None
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return float, None
    unit = common_unit(values)
    return str, f"{key}_{unit}" if unit else None


def write_tables(folder: Path, columns: Columns, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """`table.csv`, and `table.parquet` where the library for it is installed; each replaced as a whole."""
    complete = [columns.complete(row) for row in rows]
    written = [folder / CSV_NAME]
    replace_file(written[0], csv_text(columns.types, complete).encode())
    if extras.is_here("polars"):
        written.append(folder / PARQUET_NAME)
        replace_file(written[1], _parquet(columns, complete))
    return written


def csv_text(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A line with the names, and one for each row; a figure that a row lacks is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(columns)
    writer.writerow(names)
    for row in rows:
        writer.writerow([_csv_cell(row.get(name)) for name in names])
    return text.getvalue()


def csv_of_results(results: Sequence[Result], kind: str) -> str:
    """The figures of these results, a row each: the columns of a scan's table without those of the scan."""
    rows = [{"time_domain": result.get("time_domain"), "status": result.get("status")} for result in results]
    rows = [row | figures(result, kind) for row, result in zip(rows, results, strict=True)]
    return csv_text(["time_domain", "status", *figures_of(kind)], rows)


def _csv_cell(value: Any) -> Any:
    return ("true" if value else "false") if isinstance(value, bool) else value


def _parquet(columns: Columns, rows: Sequence[Row]) -> bytes:
    import polars

    types = {bool: polars.Boolean, int: polars.Int64, float: polars.Float64, str: polars.String}
    schema = {column: types[kind] for column, kind in columns.types.items()}
    buffer = io.BytesIO()
    polars.DataFrame(rows, schema=schema, orient="row").write_parquet(buffer)
    return buffer.getvalue()
