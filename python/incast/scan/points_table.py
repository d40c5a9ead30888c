"""What came of a scan, for a person: a table of its points, and which of them is the best."""

import itertools
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from incast.base.units import VIRTUAL_TIME
from incast.base.words import counted
from incast.engine.quantity import setting_text
from incast.scan.plan import Plan
from incast.scan.runner import COMPLETE
from incast.scan.spread import Spread, spreads
from incast.scan.table import Row
from incast.scan.view import figure_text


def points_table(plan: Plan, rows: Sequence[Row]) -> Table:
    """A row per point: its settings, what came of it, and what limited it. Points that failed say why."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", title=_title(rows))
    for key in plan.axes:
        table.add_column(key, justify="right")
    repeated = plan.repeats > 1
    for heading in ("median", "lowest", "highest", "repeats") if repeated else ("in all",):
        table.add_column(heading)
    table.add_column("limited by")
    found = {spread.point: spread for spread in spreads(rows)}
    for point, taken in itertools.groupby(sorted(rows, key=lambda row: row["point"]), key=lambda row: row["point"]):
        listed = list(taken)
        axes = [setting_text(listed[0][key]) if listed[0][key] is not None else "" for key in plan.axes]
        causes = ", ".join(dict.fromkeys(str(row["limited_by"]) for row in listed if row["limited_by"]))
        spread = found.get(point)
        if spread is not None:
            values = (spread.median, spread.lowest, spread.highest) if repeated else (spread.median,)
            cells = [figure_text(spread.column, value) for value in values]
            table.add_row(*axes, *cells, *([str(spread.repeats)] if repeated else []), causes)
        for row in listed:
            if row["status"] != COMPLETE:
                which = f" (repeat {row['repeat']})" if repeated else ""
                table.add_row(*axes, Text(f"{row['status']}: {row['reason']}{which}", style="red"))
    return table


def _title(rows: Sequence[Row]) -> str | None:
    return VIRTUAL_TIME if rows and all(row["time_domain"] == "virtual" for row in rows) else None


def best_lines(plan: Plan, rows: Sequence[Row]) -> list[str]:
    """Which point has the best headline figure, and how sure that is; simulated and measured points apart."""
    lines = []
    for domain, label in (("real", "best point"), ("virtual", f"best point, {VIRTUAL_TIME}")):
        found = spreads([row for row in rows if row["time_domain"] == domain])
        for column in dict.fromkeys(spread.column for spread in found):
            lines += _best_of(plan, label, [spread for spread in found if spread.column == column])
    return lines


def _best_of(plan: Plan, label: str, found: Sequence[Spread]) -> list[str]:
    if len(found) < 2:
        return []
    least = found[0].column.endswith("_ns")  # a latency
    best = (min if least else max)(found, key=lambda spread: spread.median)
    line = f"{label}: {plan.points[best.point - 1].words()}, {figure_text(best.column, best.median)}"
    if best.repeats == 1:
        return [f"{line}; one repeat tells nothing of the noise"]
    alike = sum(_overlap(best, other) for other in found if other is not best)
    if alike:
        return [f"{line}; the repeats of {counted(alike, 'other point')} reach as far"]
    return [f"{line}; no repeat of another point reaches as far"]


def _overlap(one: Spread, other: Spread) -> bool:
    return one.lowest <= other.highest and other.lowest <= one.highest
