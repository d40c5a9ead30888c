"""What came of a scan, for a person: a table of its points, and which of them is the best."""

import itertools
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from incast.base import units
from incast.base.units import VIRTUAL_TIME
from incast.base.words import counted
from incast.engine.quantity import number_of, setting_text
from incast.scan.plan import Plan
from incast.scan.runner import COMPLETE
from incast.scan.spread import Spread, spreads
from incast.scan.table import Row
from incast.scan.view import figure_text, headline_name


def points_table(plan: Plan, rows: Sequence[Row]) -> Table:
    """A row per point: its settings, what came of it, and what limited it. Points that failed say why."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", title=_title(rows))
    for key in plan.axes:
        table.add_column(key, justify="right")
    repeated = plan.repeats > 1
    found = {spread.point: spread for spread in spreads(rows)}
    columns = list(dict.fromkeys(spread.column for spread in found.values()))
    name = headline_name(columns[0]) if len(columns) == 1 else "figure"
    bits = any(column.endswith("_per_s") for column in columns)
    for heading in (
        f"{name}, median" if repeated else name,
        *(["Gbit/s"] if bits else []),
        *(["lowest", "highest", "repeats"] if repeated else []),
    ):
        table.add_column(heading)
    links = any(row.get("busiest_link_fraction") is not None for row in rows)
    if links:
        table.add_column("busiest link")
    table.add_column("limited by")
    for point, taken in itertools.groupby(sorted(rows, key=lambda row: row["point"]), key=lambda row: row["point"]):
        listed = list(taken)
        axes = [setting_text(listed[0][key]) if listed[0][key] is not None else "" for key in plan.axes]
        causes = ", ".join(dict.fromkeys(str(row["limited_by"]) for row in listed if row["limited_by"]))
        spread = found.get(point)
        if spread is not None:
            cells = [figure_text(spread.column, spread.median)]
            if bits:
                of_bits = spread.column.endswith("_per_s")
                cells.append(units.plain(8e-9 * spread.median) if of_bits else units.ABSENT)
            if repeated:
                cells += [figure_text(spread.column, value) for value in (spread.lowest, spread.highest)]
                cells.append(str(spread.repeats))
            if links:
                shares = [share for row in listed if (share := row.get("busiest_link_fraction")) is not None]
                cells.append(units.fraction(max(shares, default=None)))
            table.add_row(*axes, *cells, causes)
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
            alike = [spread for spread in found if spread.column == column]
            lines += _best_of(plan, label, alike, virtual=domain == "virtual")
            lines += _best_of_each(plan, alike)
    return lines


def _best(found: Sequence[Spread]) -> Spread:
    least = found[0].column.endswith("_ns")  # a latency
    return (min if least else max)(found, key=lambda spread: spread.median)


def _best_of_each(plan: Plan, found: Sequence[Spread]) -> list[str]:
    """The best of each network, transport, protocol, ...: of each axis of words, where there are other axes, too."""
    lines = []
    for key in plan.axes if len(plan.axes) > 1 else ():
        groups: dict[str, list[Spread]] = {}
        for spread in found:
            value = plan.points[spread.point - 1].axes.get(key)
            if isinstance(value, str) and number_of(value) is None:
                groups.setdefault(value, []).append(spread)
        if len(groups) > 1:
            each = [(value, _best(spreads_)) for value, spreads_ in groups.items()]
            words = (f"{value} {figure_text(best.column, best.median)}" for value, best in each)
            lines.append(f"best of each {key}: {', '.join(words)}")
    return lines


def _best_of(plan: Plan, label: str, found: Sequence[Spread], *, virtual: bool) -> list[str]:
    if len(found) < 2:
        return []
    best = _best(found)
    line = f"{label}: {plan.points[best.point - 1].words()}, {figure_text(best.column, best.median)}"
    if best.repeats == 1:
        others = "what other seeds give" if virtual else "how far results scatter"
        return [f"{line}; one repeat: --repeats 3 shows {others}"]
    alike = sum(_overlap(best, other) for other in found if other is not best)
    if alike:
        return [f"{line}; the repeats of {counted(alike, 'other point')} reach as far"]
    return [f"{line}; no repeat of another point reaches as far"]


def _overlap(one: Spread, other: Spread) -> bool:
    return one.lowest <= other.highest and other.lowest <= one.highest
