"""The figures of a scan: a heat map of two of its axes, and curves with error bars."""

import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from incast.base.errors import OneLineError
from incast.engine.quantity import Scalar, common_unit, number_of, setting_text
from incast.figures.datasets import Scan, scan_conditions
from incast.figures.run_figures import Drawing, draw_cells, scale_of, titled, unit_of
from incast.figures.style import Theme, finish, new_figure, series_style
from incast.scan.plan import EXIT_BAD_SCAN
from incast.scan.table import Columns, Row, headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COUNTERS = ("point", "repeat")
_PANELS_MAX = 12
_CURVES_MAX = 12
_LOG_RATIO = 7.9  # from the least to the greatest value of an axis


@dataclass(frozen=True)
class Choice:
    """What a person wants drawn: a column of the table, and which axes; None: chosen by the data."""

    value: str | None = None
    x: str | None = None
    y: str | None = None


@dataclass(frozen=True)
class _Axis:
    key: str
    values: list[Scalar]  # in order

    @property
    def numbers(self) -> list[float] | None:
        """The same as numbers, where all of them are."""
        if common_unit(self.values) is None:
            return None
        found = [number_of(value) for value in self.values]
        return [value for value in found if value is not None] if None not in found else None

    @property
    def label(self) -> str:
        """The key without its section, in words."""
        return self.key.rpartition(".")[2].replace("_", " ") + f"  ({self.key})"


def _axes_of(scan: Scan, choice: Choice) -> list[_Axis]:
    """Those with more than one value; the chosen ones first, then by how many values they have."""
    axes = []
    for key in scan.plan.axes:
        values = {setting_text(point.axes[key]): point.axes[key] for point in scan.plan.points if key in point.axes}
        listed = list(values.values())
        axis = _Axis(key, listed)
        if axis.numbers is not None:
            axis = _Axis(key, sorted(listed, key=lambda value: number_of(value) or 0.0))
        if len(listed) > 1:
            axes.append(axis)
    for wanted in (choice.x, choice.y):
        if wanted is not None and wanted not in [axis.key for axis in axes]:
            allowed = ", ".join(axis.key for axis in axes) or "none, nothing varies"
            raise OneLineError(f"--x, --y: {wanted} is no axis of {scan.directory}; allowed: {allowed}", EXIT_BAD_SCAN)
    first = [choice.x, choice.y]
    return sorted(axes, key=lambda axis: (first.index(axis.key) if axis.key in first else 2, -len(axis.values)))


def _value_column(scan: Scan, rows: Sequence[Row], choice: Choice) -> str:
    types = Columns(scan.plan).types
    if choice.value is not None:
        if types.get(choice.value) not in (int, float):
            numbers = ", ".join(
                name for name, kind in types.items() if kind in (int, float) and name not in ("point", "repeat")
            )
            raise OneLineError(f"--value {choice.value}: no column with numbers; allowed: {numbers}", EXIT_BAD_SCAN)
        return choice.value
    return headline(next((row for row in rows if row["status"] == "complete"), rows[0]))[0]


def scan_drawings(scan: Scan, domain: str, prefix: str, choice: Choice) -> list[Drawing]:
    """Of the measured or the simulated rows: a heat map if two axes vary, and curves."""
    rows = scan.of_domain(domain)
    if not rows:
        return []
    axes, column = _axes_of(scan, choice), _value_column(scan, rows, choice)
    if not axes:
        return []
    points = {point.number: point.axes for point in scan.plan.points}
    by_point: dict[int, list[Row]] = {}
    for row in rows:
        by_point.setdefault(row["point"], []).append(row)
    cells = _Cells(scan, domain, prefix, column, axes, points, by_point)
    return [*_heat_maps(cells), *_curves(cells)]


@dataclass(frozen=True)
class _Panel:
    """One figure of several: the values of the axes that it does not show, its scale and its rows."""

    given: dict[str, Scalar]
    factor: float
    unit: str
    rows: list[Row]

    def title(self, column: str) -> str:
        """What is drawn, and for which values of the other axes."""
        return _title_of(column) + "".join(f", {key} = {setting_text(value)}" for key, value in self.given.items())

    def name(self, prefix: str, kind: str) -> str:
        """Of its files."""
        return "-".join(part for part in (f"{prefix}-{kind}", _file_part(self.given)) if part)


@dataclass(frozen=True)
class _Cells:
    """Everything that is drawn of a scan."""

    scan: Scan
    domain: str
    prefix: str
    column: str
    axes: list[_Axis]
    points: dict[int, dict[str, Scalar]]
    by_point: dict[int, list[Row]]

    def values(self, point: int) -> list[float]:
        """The value in every complete repeat."""
        found = [row.get(self.column) for row in self.by_point.get(point, ()) if row["status"] == "complete"]
        return [float(value) for value in found if isinstance(value, int | float)]

    def all_values(self) -> list[float]:
        """Of all points."""
        return [value for point in self.by_point for value in self.values(point)]

    def number(self, wanted: Mapping[str, Scalar]) -> int | None:
        """The point with these values on its axes, and no other point like it."""
        texts = {key: setting_text(value) for key, value in wanted.items()}
        for point, axes in self.points.items():
            if point in self.by_point and all(
                key in axes and setting_text(axes[key]) == text for key, text in texts.items()
            ):
                return point
        return None

    def note(self, point: int | None) -> str:
        """What stands where there is no value."""
        if point is None:
            return ""
        return str(next((row["status"] for row in self.by_point[point] if row["status"] != "complete"), "no value"))

    def rows_of(self, given: Mapping[str, Scalar]) -> list[Row]:
        """Those of the points with these values."""
        return [
            row
            for point, rows in sorted(self.by_point.items())
            if all(key in self.points[point] and self.points[point][key] == value for key, value in given.items())
            for row in rows
        ]


def _title_of(column: str) -> str:
    unit = unit_of(column)
    words = column.removesuffix(f"_{unit}") if unit else column
    return words.replace("_", " ")


def _combinations(axes: Sequence[_Axis]) -> list[dict[str, Scalar]]:
    keys = [axis.key for axis in axes]
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*(axis.values for axis in axes))]


def _file_part(given: Mapping[str, Scalar]) -> str:
    words = "-".join(f"{key.rpartition('.')[2]}-{setting_text(value)}" for key, value in given.items())
    return re.sub(r"[^A-Za-z0-9_-]+", "-", words)


def _heat_maps(cells: _Cells) -> list[Drawing]:
    """As figure 3 of the RoCE study: one axis across, one up; one map per combination of the others."""
    if len(cells.axes) < 2:
        return []
    across, up, *others = cells.axes
    values = cells.all_values()
    if not values:
        return []
    factor, unit = scale_of(values, unit_of(cells.column))
    maps = []
    for given in _combinations(others)[:_PANELS_MAX]:
        rows = cells.rows_of(given)
        if rows:
            maps.append(_heat_map(cells, across, up, _Panel(given, factor, unit, rows)))
    return maps


def _heat_map(cells: _Cells, across: _Axis, up: _Axis, panel: _Panel) -> Drawing:
    given, factor, unit = panel.given, panel.factor, panel.unit
    table: list[list[float]] = []
    repeats: dict[tuple[int, int], list[float]] = {}
    notes: dict[tuple[int, int], str] = {}
    for row, high in enumerate(up.values):
        line = []
        for column, wide in enumerate(across.values):
            point = cells.number({**given, up.key: high, across.key: wide})
            found = [] if point is None else cells.values(point)
            line.append(statistics.median(found) / factor if found else math.nan)
            repeats[row, column] = [value / factor for value in found]
            if not found:
                notes[row, column] = cells.note(point)
        table.append(line)
    values = [value / factor for value in cells.all_values()]
    # All maps of a scan have one scale, from the lowest median to the highest; so they compare at a glance.
    limits = min(values), max(values)
    title = panel.title(cells.column)

    def draw(theme: Theme) -> "Figure":
        figure = new_figure(
            min(11.0, max(5.5, 2.6 + 0.8 * len(across.values))), min(8.0, max(3.2, 1.6 + 0.5 * len(up.values)))
        )
        axes = figure.subplots()
        small = len(across.values) <= 14 and len(up.values) <= 20
        draw_cells(axes, table, theme, label=f"median, {unit}", text=small, limits=limits, notes=notes)
        axes.set_xticks(range(len(across.values)), [setting_text(value) for value in across.values])
        axes.set_yticks(range(len(up.values)), [setting_text(value) for value in up.values])
        axes.set_xlabel(across.label)
        axes.set_ylabel(up.label)
        titled(axes, title, cells.domain, theme)
        return figure

    headings = [f"{up.key} \\ {across.key}", *(setting_text(value) for value in across.values)]
    text = [
        [
            setting_text(high),
            *(_cell(repeats[row, column]) or notes.get((row, column), "") for column in range(len(across.values))),
        ]
        for row, high in enumerate(up.values)
    ]  # fmt: skip
    name = panel.name(cells.prefix, "heat-map")
    conditions = scan_conditions(cells.scan, panel.rows, given)
    if cells.scan.plan.repeats > 1:
        furthest = max((_share(found) for found in repeats.values() if found), default=0.0)
        conditions = [f"medians of the repeats, which lie up to {100 * furthest:.2g} % of them apart", *conditions]
    return Drawing(name, f"{cells.scan.plan.title}: {title}, {unit}", cells.domain, conditions, draw, headings, text)


def _curves(cells: _Cells) -> list[Drawing]:
    """Along the first axis, a curve for each value of the second, a figure for each combination of the others."""
    along, *rest = cells.axes
    curves_of = rest[:1]
    values = cells.all_values()
    if not values or (curves_of and len(curves_of[0].values) > _CURVES_MAX):
        return []
    factor, unit = scale_of(values, unit_of(cells.column))
    figures = []
    for given in _combinations(rest[1:])[:_PANELS_MAX]:
        rows = cells.rows_of(given)
        if rows:
            figures.append(_curve_figure(cells, along, curves_of, _Panel(given, factor, unit, rows)))
    return figures


def _curve_figure(cells: _Cells, along: _Axis, curves_of: Sequence[_Axis], panel: _Panel) -> Drawing:
    given, factor, unit = panel.given, panel.factor, panel.unit
    curves: list[tuple[str, list[tuple[int, list[float]]]]] = []
    for one in _combinations(curves_of):
        line = []
        for index, value in enumerate(along.values):
            point = cells.number({**given, **one, along.key: value})
            found = [] if point is None else cells.values(point)
            if found:
                line.append((index, [each / factor for each in found]))
        name = ", ".join(f"{key.rpartition('.')[2].replace('_', ' ')} {setting_text(v)}" for key, v in one.items())
        if line:
            curves.append((name, line))
    places = along.numbers or [float(index) for index in range(len(along.values))]
    logarithmic = along.numbers is not None and min(places) > 0 and max(places) / min(places) > _LOG_RATIO
    title = panel.title(cells.column)
    repeats = cells.scan.plan.repeats

    def draw(theme: Theme) -> "Figure":
        figure = new_figure()
        axes = figure.subplots()
        for index, (name, line) in enumerate(curves):
            x = [places[place] for place, _ in line]
            middle = [statistics.median(found) for _, found in line]
            below = [m - min(found) for m, (_, found) in zip(middle, line, strict=True)]
            above = [max(found) - m for m, (_, found) in zip(middle, line, strict=True)]
            bars = [below, above] if repeats > 1 else None
            axes.errorbar(x, middle, yerr=bars, capsize=3, label=name or None, **series_style(theme, index))
        if logarithmic:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(places, [setting_text(value) for value in along.values])
        axes.set_ylim(bottom=0)
        axes.set_xlabel(along.label)
        axes.set_ylabel(f"{unit}, median" if repeats > 1 else unit)
        finish(axes)
        if any(name for name, _ in curves):
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8.5)
        titled(axes, title, cells.domain, theme)
        return figure

    what = f"median (lowest..highest), {unit}" if repeats > 1 else unit
    headings = [along.key, *(f"{name or 'value'}: {what}" for name, _ in curves)]
    text = [
        [setting_text(value), *(_cell(dict(line).get(index)) for _, line in curves)]
        for index, value in enumerate(along.values)
    ]
    name = panel.name(cells.prefix, "curves")
    conditions = scan_conditions(cells.scan, panel.rows, given)
    if repeats > 1:
        conditions = [f"error bars: lowest to highest of {repeats} repeats; points: their median", *conditions]
    return Drawing(name, f"{cells.scan.plan.title}: {title}, {unit}", cells.domain, conditions, draw, headings, text)


def _cell(values: list[float] | None) -> str:
    if not values:
        return ""
    median = f"{statistics.median(values):.4g}"
    return median if len(values) == 1 else f"{median} ({min(values):.4g}..{max(values):.4g})"


def _share(values: list[float]) -> float:
    """From the lowest to the highest, as a share of the median."""
    median = statistics.median(values)
    return (max(values) - min(values)) / median if median else 0.0


def limits_table(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """What limited the points, and how many of them."""
    counts: dict[str, int] = {}
    for row in rows:
        if row["status"] == "complete":
            cause: Any = row.get("limited_by") or "not known"
            counts[cause] = counts.get(cause, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])
