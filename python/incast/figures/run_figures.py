"""The figures of a report: each a drawing with its title, its conditions, and its numbers as a table.

A figure is of measured data or of simulated data, never of both, and says which in its corner.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from incast.base import units
from incast.evidence.result import at, number
from incast.figures.datasets import SIMULATED, Run, run_conditions
from incast.figures.style import SCALE, Draw, Theme, finish, new_figure, series_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES_MAX = 10
_MATRIX_TEXT_MAX = 12
_SHORT = 0.3  # of the longest interval
_QUANTILES = (("p50", "50 %"), ("p99", "99 %"), ("p999", "99.9 %"), ("max", "max"))


@dataclass(frozen=True)
class Drawing:
    """One figure; `rows` are its numbers, below `headings`."""

    name: str  # of its files
    title: str
    domain: str
    conditions: list[str]
    draw: Draw
    headings: list[str]
    rows: list[list[str]]

    @property
    def label(self) -> str:
        """What kind of data it shows."""
        return domain_label(self.domain)


def domain_label(domain: str) -> str:
    """`measured`, or in capitals that it is not."""
    return "SIMULATED, virtual time" if domain == SIMULATED else "measured"


def scale_of(values: Sequence[float], unit: str) -> tuple[float, str]:
    """Divide by the first, and write the second on the axis. Rates are in bits, as networks are sold."""
    top = max((abs(value) for value in values), default=0.0)
    if unit == "bytes_per_s":
        for factor, name in ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
            if top * 8 >= factor:
                return factor / 8, name
        return 1 / 8, "bit/s"
    steps = {
        "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")),
        "bytes": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1.0, "B")),
        "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
        "hz": ((1e6, "MHz"), (1e3, "kHz"), (1.0, "Hz")),
        "per_s": ((1e6, "M/s"), (1e3, "k/s"), (1.0, "1/s")),
    }
    for factor, name in steps.get(unit, ()):
        if top >= factor:
            return factor, name
    return 1.0, unit.replace("_", " ")


def unit_of(column: str) -> str:
    """The unit in a column's name."""
    for unit in ("bytes_per_s", "s_per_gb", "per_s", "bytes", "ns", "hz", "fraction", "s"):
        if column.endswith(f"_{unit}"):
            return unit
    return ""


def titled(axes: "Axes", drawing_title: str, domain: str, theme: Theme) -> None:
    """The title at the left, and what kind of data it is at the right."""
    axes.set_title(drawing_title, loc="left", fontsize=11, fontweight="bold")
    weight = "bold" if domain == SIMULATED else "normal"
    axes.annotate(
        domain_label(domain),
        (1, 1),
        xytext=(0, 20),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=8.5,
        fontweight=weight,
        color=theme.text if domain == SIMULATED else theme.muted,
    )


# --- one run


def run_drawings(run: Run, prefix: str) -> list[Drawing]:
    """Throughput over time; of raw traffic the matrix, of open loop what became of the triggers."""
    found = [over_time(run, prefix), matrix(run, prefix) if run.is_net else triggers(run, prefix)]
    return [drawing for drawing in found if drawing is not None]


@dataclass(frozen=True)
class _Series:
    name: str
    times: list[float]
    rates: list[float]


def _over_time_series(run: Run) -> tuple[list[_Series], tuple[float, float] | None]:
    """By node, bytes per second of what it built (or sent, where it builds nothing); and when was measured."""
    names = {node["node"]: str(node.get("roles", node["node"])) for node in run.result.get("nodes", ())}
    series: dict[int, _Series] = {}
    measured: list[float] = []
    samples = run.samples()
    # What is left of an interval where a phase ends is too short for a rate: a few packets more or less.
    shortest = _SHORT * max(
        (float(sample["interval_s"]) for sample in samples if sample["phase"] == "measuring"), default=0
    )
    for sample in samples:
        node = sample["node"]
        one = series.setdefault(node, _Series(f"node {names.get(node, node)}", [], []))
        builds = "BU" in names.get(node, "BU") or "receives" in names.get(node, "")
        rate = sample["built_goodput_bytes_per_s" if builds else "sent_goodput_bytes_per_s"]
        if sample["interval_s"] > shortest and sample["phase"] in ("warm-up", "measuring", "draining"):
            one.times.append(float(sample["t"]))
            one.rates.append(float(rate))
        if sample["phase"] == "measuring":
            measured += [float(sample["t"]) - float(sample["interval_s"]), float(sample["t"])]
    listed = [one for _, one in sorted(series.items()) if len(one.times) > 1]
    return listed, (min(measured), max(measured)) if measured else None


def over_time(run: Run, prefix: str) -> Drawing | None:
    """A line per node; of many nodes the range, the mean and the slowest."""
    series, window = _over_time_series(run)
    if not series or not any(rate for one in series for rate in one.rates):
        return None
    factor, unit = scale_of([rate for one in series for rate in one.rates], "bytes_per_s")
    seconds = "virtual seconds" if run.domain == SIMULATED else "seconds"

    def draw(theme: Theme) -> "Figure":
        figure = new_figure()
        axes = figure.subplots()
        if window is not None:
            axes.axvspan(*window, color=theme.muted, alpha=0.12, lw=0, label="measured window")
        if len(series) <= _LINES_MAX:
            for index, one in enumerate(series):
                style = series_style(theme, index) | ({"marker": ""} if len(one.times) > 40 else {"markersize": 3.5})
                axes.plot(one.times, [rate / factor for rate in one.rates], label=one.name, **style)
        else:
            _draw_band(axes, series, factor, theme)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"{seconds} since the start")
        axes.set_ylabel(f"{'received' if run.is_net else 'built'} per node, {unit}")
        finish(axes)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8.5)
        titled(axes, f"Throughput over time: {run.name}", run.domain, theme)
        return figure

    rows = [_spread_row(one, window, factor) for one in series]
    title = f"Throughput over time per node: {run.name}"
    figures = (f"{name}, {unit}" for name in ("lowest", "1 %", "5 %", "median", "mean", "highest"))
    headings = ["node", *figures, "intervals in the window"]
    return Drawing(f"{prefix}-over-time", title, run.domain, run_conditions(run), draw, headings, rows)


def triggers(run: Run, prefix: str) -> Drawing | None:
    """Open loop: triggers offered and taken, and how full the memory of the readout units was, by interval."""
    intervals = at(run.result, ("triggers", "over_time"))
    if not isinstance(intervals, list) or len(intervals) < 2:
        return None
    times = [float(each["t"]) for each in intervals]
    rates = {
        name: [float(each[key]) for each in intervals]
        for name, key in (
            ("offered", "offered_hz"),
            ("taken", "accepted_hz"),
            ("inhibited", "inhibited_hz"),
            ("dropped", "dropped_hz"),
        )
    }
    rates = {name: values for name, values in rates.items() if name in ("offered", "taken") or any(values)}
    shares = {
        name: [100 * float(each[key]) for each in intervals]
        for name, key in (("memory in use", "occupancy"), ("dead time", "dead_time_fraction"))
    }
    factor, unit = scale_of([value for values in rates.values() for value in values], "hz")
    seconds = "virtual seconds" if run.domain == SIMULATED else "seconds"

    def draw(theme: Theme) -> "Figure":
        figure = new_figure(8.0, 5.4)
        upper, lower = figure.subplots(2, 1, sharex=True)
        for axes, lines, scale in ((upper, rates, factor), (lower, shares, 1.0)):
            for index, (name, values) in enumerate(lines.items()):
                style = series_style(theme, index) | {"marker": ""}
                axes.plot(times, [value / scale for value in values], label=name, **style)
            axes.set_ylim(bottom=0)
            finish(axes)
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8.5)
        upper.set_ylabel(f"triggers, {unit}")
        lower.set_ylabel("readout units, %")
        lower.set_xlabel(f"{seconds} since the start")
        titled(upper, f"Triggers and readout memory: {run.name}", run.domain, theme)
        return figure

    headings = [seconds, *(f"{name}, {unit}" for name in rates), *(f"{name}, %" for name in shares)]
    rows = [
        [
            f"{time:.4g}",
            *(f"{values[k] / factor:.4g}" for values in rates.values()),
            *(f"{values[k]:.3g}" for values in shares.values()),
        ]
        for k, time in enumerate(times)
    ]
    title = f"Triggers and readout memory over time: {run.name}"
    return Drawing(f"{prefix}-triggers", title, run.domain, run_conditions(run), draw, headings, rows)


def _spread_row(one: _Series, window: tuple[float, float] | None, factor: float) -> list[str]:
    inside = [
        rate / factor
        for time, rate in zip(one.times, one.rates, strict=True)
        if window is None or window[0] < time <= window[1]
    ]
    if not inside:
        return [one.name, *([units.ABSENT] * 6), "0"]
    ordered = sorted(inside)
    # Of n intervals the k-th lowest, k the smallest number that is at least n times the percentage.
    low = (ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.01, 0.05, 0.5))
    values = (ordered[0], *low, statistics.fmean(ordered), ordered[-1])
    return [one.name, *(f"{value:.4g}" for value in values), str(len(inside))]


def _draw_band(axes: "Axes", series: Sequence[_Series], factor: float, theme: Theme) -> None:
    """Nodes report at times of their own: each holds its last rate until the next."""
    import numpy as np

    times = np.array(sorted({time for one in series for time in one.times}))
    table = np.array(
        [
            np.asarray(one.rates)[np.clip(np.searchsorted(one.times, times), 0, len(one.times) - 1)] / factor
            for one in series
        ]
    )
    colour = theme.series[0]
    axes.fill_between(times, table.min(axis=0), table.max(axis=0), color=colour, alpha=0.25, lw=0, label="all nodes")
    axes.plot(times, table.mean(axis=0), color=colour, label=f"mean of {len(series)} nodes")
    slowest = int(table.mean(axis=1).argmin())
    axes.plot(times, table[slowest], color=theme.series[1], ls="--", label=f"slowest: {series[slowest].name}")


def matrix(run: Run, prefix: str) -> Drawing | None:
    """Raw traffic from rows to columns: rates, or median round trips."""
    pairs = run.result.get("pairs") or []
    if not pairs:
        return None
    latency = run.result.get("measure") == "latency"
    values: dict[tuple[int, int], float] = {}
    for pair in pairs:
        value = number(pair, "round_trip_ns", "p50") if latency else number(pair, "bytes_per_s")
        if value is not None:
            values[pair["from"], pair["to"]] = value
    if not values:
        return None
    senders, receivers = (sorted({key[side] for key in values}) for side in (0, 1))
    factor, unit = scale_of(list(values.values()), "ns" if latency else "bytes_per_s")
    what = "median round trip" if latency else "rate"

    def draw(theme: Theme) -> "Figure":
        side = min(8.0, max(4.4, 0.55 * len(receivers) + 2.2))
        figure = new_figure(side + 1.0, min(7.5, max(3.2, 0.45 * len(senders) + 1.8)))
        axes = figure.subplots()
        cells = [[values.get((a, b), math.nan) / factor for b in receivers] for a in senders]
        draw_cells(axes, cells, theme, label=f"{what}, {unit}", text=len(receivers) <= _MATRIX_TEXT_MAX)
        axes.set_xticks(range(len(receivers)), [str(node) for node in receivers])
        axes.set_yticks(range(len(senders)), [str(node) for node in senders])
        axes.invert_yaxis()  # as a matrix is written
        axes.set_xlabel("to node")
        axes.set_ylabel("from node")
        titled(axes, f"Per pair: {run.name}", run.domain, theme)
        return figure

    headings = ["from \\ to", *(str(node) for node in receivers)]
    rows = [[str(a), *(f"{values[a, b] / factor:.4g}" if (a, b) in values else "" for b in receivers)] for a in senders]
    title = f"Matrix per pair, {what} in {unit}: {run.name}"
    return Drawing(f"{prefix}-matrix", title, run.domain, run_conditions(run), draw, headings, rows)


def draw_cells(
    axes: "Axes",
    cells: Sequence[Sequence[float]],
    theme: Theme,
    *,
    label: str,
    text: bool,
    limits: tuple[float, float] | None = None,
    notes: Mapping[tuple[int, int], str] | None = None,
) -> None:
    """A heat map with its scale and, unless it is large, its numbers; a cell that is not a number shows its note."""
    import matplotlib as mpl
    import numpy as np

    data = np.ma.masked_invalid(np.array(cells, dtype=float))
    low, high = limits or (float(data.min()), float(data.max()))
    if high <= low:
        low, high = (0.0, high) if high > 0 else (low, low + 1)
    colours = mpl.colormaps[SCALE]
    edges = [np.arange(size + 1) - 0.5 for size in (data.shape[1], data.shape[0])]
    mesh = axes.pcolormesh(*edges, data, cmap=colours, vmin=low, vmax=high, edgecolors="none")
    axes.set_facecolor("none")
    for row in range(data.shape[0]):
        for column in range(data.shape[1]):
            if data[row, column] is np.ma.masked:
                note = (notes or {}).get((row, column), "")
                _no_value(axes, column, row, note, theme)
            elif text:
                share = (float(data[row, column]) - low) / (high - low)
                # Light cells are at the upper end of the scale, whatever the page behind it.
                colour = "#111111" if share > 0.45 else "#f5f5f5"
                shown = f"{data[row, column]:.3g}"
                axes.text(column, row, shown, ha="center", va="center", fontsize=8.5, color=colour)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0)
    if axes.figure is not None:
        bar = axes.figure.colorbar(mesh, ax=axes, label=label, pad=0.02)
        bar.outline.set_visible(False)


def _no_value(axes: "Axes", column: int, row: int, note: str, theme: Theme) -> None:
    from matplotlib.patches import Rectangle

    place = (column - 0.5, row - 0.5)
    axes.add_patch(Rectangle(place, 1, 1, fill=False, hatch="////", lw=0, edgecolor=theme.grid))
    if note:
        axes.text(column, row, note, ha="center", va="center", fontsize=7.5, color=theme.muted)


# --- runs side by side


def side_by_side(runs: Sequence[Run], domain: str, prefix: str) -> list[Drawing]:
    """Of runs of one kind: the headline with its range over time, and the latencies."""
    builds = [run for run in runs if not run.is_net]
    rates = [run for run in runs if run.is_net and run.result.get("measure") != "latency"]
    found = [
        _rates(builds, domain, f"{prefix}-goodput", "Goodput without self", "goodput_bytes_per_s") if builds else None,
        _rates(rates, domain, f"{prefix}-throughput", "Raw throughput", "bytes_per_s") if rates else None,
        _latencies(runs, domain, f"{prefix}-latency"),
    ]
    return [drawing for drawing in found if drawing is not None]


def _rates(runs: Sequence[Run], domain: str, name: str, title: str, section: str) -> Drawing | None:
    entries: list[tuple[str, float, float | None, float | None]] = []
    for run in runs:
        mean = run.headline[1]
        total, low, high = (
            number(run.result, section, "total"),
            *(number(run.result, section, "over_time", key) for key in ("min", "max")),
        )
        if mean is None:
            continue
        # The range over time is of everything built; of it the same part as of the mean is without self.
        part = mean / total if total else 1.0
        entries.append((run.name, mean, None if low is None else low * part, None if high is None else high * part))
    if not entries:
        return None
    factor, unit = scale_of([entry[3] or entry[1] for entry in entries], "bytes_per_s")

    def draw(theme: Theme) -> "Figure":
        figure = new_figure(8.0, 1.5 + 0.42 * len(entries))
        axes = figure.subplots()
        for index, (_, mean, low, high) in enumerate(entries):
            axes.barh(index, mean / factor, color=theme.series[0], height=0.6)
            if low is not None and high is not None:
                axes.plot([low / factor, high / factor], [index, index], color=theme.text, lw=1.4, marker="|", ms=9)
            axes.annotate(
                f"{mean / factor:.3g}",
                (max(mean, high or 0.0) / factor, index),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
            )
        axes.set_yticks(range(len(entries)), [entry[0] for entry in entries])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.margins(x=0.12)
        axes.set_xlabel(f"{unit}; bar: mean of the window, line: lowest to highest interval")
        finish(axes, grid="x")
        titled(axes, title, domain, theme)
        return figure

    rows = [
        [label, f"{mean / factor:.4g}", *(units.ABSENT if value is None else f"{value / factor:.4g}" for value in ends)]
        for label, mean, *ends in entries
    ]
    headings = ["run", f"mean, {unit}", f"lowest interval, {unit}", f"highest interval, {unit}"]
    return Drawing(name, title, domain, _conditions_of(runs), draw, headings, rows)


def _latencies(runs: Sequence[Run], domain: str, name: str) -> Drawing | None:
    entries: list[tuple[str, str, list[float]]] = []
    shown: list[Run] = []
    for run in runs:
        latency = run.result.get("round_trip_ns") if run.is_net else run.result.get("latency_ns")
        if not isinstance(latency, Mapping) or not latency.get("count", 1):
            continue
        values = [number(latency, key) for key, _ in _QUANTILES]
        kind = "round trip" if run.is_net else str(latency.get("kind"))
        if all(value is not None and value > 0 for value in values):
            entries.append((run.name, kind, [value for value in values if value is not None]))
            shown.append(run)
    if not entries:
        return None
    factor, unit = scale_of([min(values) for *_, values in entries], "ns")

    def draw(theme: Theme) -> "Figure":
        figure = new_figure(8.0, 1.7 + 0.42 * len(entries))
        axes = figure.subplots()
        for index, (_, _, values) in enumerate(entries):
            scaled = [value / factor for value in values]
            axes.plot(scaled, [index] * len(scaled), color=theme.muted, lw=1)
            for which, (value, (_, words)) in enumerate(zip(scaled, _QUANTILES, strict=True)):
                style = series_style(theme, which) | {"linestyle": ""}
                axes.plot([value], [index], **style, label=words if index == 0 else None)
        plain_log(axes, "x")
        axes.set_yticks(range(len(entries)), [f"{label} ({kind})" for label, kind, _ in entries])
        axes.set_ylim(len(entries) - 0.5, -0.5)
        axes.set_xlabel(f"latency, {unit}, logarithmic; quantiles are at most 3.2 % off")
        finish(axes, grid="x")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8.5)
        titled(axes, "Latency", domain, theme)
        return figure

    headings = ["run", "kind", *(f"{words}, {unit}" for _, words in _QUANTILES)]
    rows = [[label, kind, *(f"{value / factor:.4g}" for value in values)] for label, kind, values in entries]
    return Drawing(name, "Latency distribution", domain, _conditions_of(shown), draw, headings, rows)


_DECADES_WITH_STEPS = 2e3  # highest over lowest


def plain_log(axes: "Axes", which: Literal["x", "y"]) -> None:
    """A logarithmic axis, of what is drawn already, with numbers as people write them: also within a decade, unless
    there are so many decades that they would touch.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < _DECADES_WITH_STEPS * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _conditions_of(runs: Sequence[Run]) -> list[str]:
    """Of several runs those of each, with its name; of one run its own."""
    if len(runs) == 1:
        return run_conditions(runs[0])
    return [f"{run.name}: {'; '.join(run_conditions(run)[:2])}" for run in runs] + run_conditions(runs[0])[2:3]
