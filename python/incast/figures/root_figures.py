"""What ROOT reached, as `incast bridge root` measured it: the papers' figures (docs/root.md)."""

from collections.abc import Mapping, Sequence
from typing import Any

from incast.bridges.root import CLIENTS
from incast.bridges.root_tables import columns_of, conditions, row_heading, row_text, tables
from incast.figures.datasets import MEASURED, Bridge
from incast.figures.run_figures import Drawing
from incast.figures.zmq_figures import drawn_lines

_DRAWN = ("rate", "cpu")


def root_drawings(bridge: Bridge, prefix: str) -> list[Drawing]:
    """All that arrives, and what it costs; below each, the table with the ranges over the rounds."""
    result = bridge.result
    by_name = {table.name.rpartition("-")[2]: table for table in tables(result, ranges=True)}
    found = []
    for name in _DRAWN:
        table = by_name.get(name)
        if table is None:
            continue
        lines = {
            column: {value: _values(name, case) for value, case in sorted(cases.items())}
            for column, cases in columns_of(result).items()
        }
        ticks = {value: row_text(result, value) for value in sorted({v for one in lines.values() for v in one})}
        is_rate = name == "rate"
        draw = drawn_lines(
            lines,
            "bytes_per_s" if is_rate else "s",
            ticks,
            (table.title.rpartition(", Gb/s")[0] or table.title, row_heading(result)),
            is_log=result["experiment"] != CLIENTS,
        )
        found.append(
            Drawing(f"{prefix}-{table.name}", table.title, MEASURED, conditions(result), draw, table.headings,
                    table.rows)
        )  # fmt: skip
    return found


def _values(name: str, case: Mapping[str, Any]) -> Sequence[float]:
    if name == "rate":
        rates: Sequence[float] = case["bytes_per_s"]
        return rates
    return [1e9 * each for each in case["cpu_s_per_byte"]]
