"""Transports beside each other, as `incast net --compare` measured them: goodput and CPU by size, latency."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from incast.base import units
from incast.figures.datasets import MEASURED, Comparison, comparison_conditions
from incast.figures.run_figures import Drawing, plain_log, scale_of, titled
from incast.figures.style import Theme, finish, new_figure, series_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FIGURES = (("bytes_per_s", "Raw throughput"), ("cpu_s_per_gb", "CPU time"))
_UNITS = {"bytes_per_s": "bytes_per_s", "cpu_s_per_gb": "CPU s per GB"}
_MARKS = "points: median of the rounds; bars: lowest to highest"


def comparison_drawings(comparison: Comparison, prefix: str) -> list[Drawing]:
    """Those for which there are figures."""
    curves = [_curves(comparison, key, title, prefix) for key, title in _FIGURES]
    return [drawing for drawing in (*curves, _latency(comparison, prefix)) if drawing is not None]


def _curves(comparison: Comparison, key: str, title: str, prefix: str) -> Drawing | None:
    found: dict[str, dict[int, list[float]]] = {}
    for each in comparison.result["transports"]:
        lines = {row["message_bytes"]: [value for value in row[key] if value is not None] for row in each["goodput"]}
        found[each["name"]] = {size: values for size, values in lines.items() if values}
    everything = [value for line in found.values() for values in line.values() for value in values]
    if not everything:
        return None
    sizes = sorted({size for line in found.values() for size in line})
    factor, unit = scale_of(everything, _UNITS[key])

    def draw(theme: Theme) -> "Figure":
        figure = new_figure()
        axes = figure.subplots()
        for index, (name, line) in enumerate(found.items()):
            middle, ends = _middle_and_ends(list(line.values()), factor)
            axes.errorbar(list(line), middle, yerr=ends, capsize=3, label=name, **series_style(theme, index))
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
        axes.set_xticks(sizes, [units.size(size) for size in sizes])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("message")
        axes.set_ylabel(f"{unit}, median")
        finish(axes)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8.5)
        titled(axes, title, MEASURED, theme)
        return figure

    headings = ["message", *(f"{name}: median (lowest..highest), {unit}" for name in found)]
    rows = [
        [units.size(size), *(units.of_rounds(line.get(size, []), factor) for line in found.values())] for size in sizes
    ]
    conditions = [_MARKS, *comparison_conditions(comparison)]
    return Drawing(f"{prefix}-{key.replace('_', '-')}", title, MEASURED, conditions, draw, headings, rows)


def _middle_and_ends(groups: Sequence[Sequence[float]], factor: float) -> tuple[list[float], list[list[float]]]:
    """Medians, and how far below and above them the values of each group reach."""
    middle = [statistics.median(values) / factor for values in groups]
    below = [m - min(values) / factor for m, values in zip(middle, groups, strict=True)]
    above = [max(values) / factor - m for m, values in zip(middle, groups, strict=True)]
    return middle, [below, above]


def _latency(comparison: Comparison, prefix: str) -> Drawing | None:
    entries = [
        (each["name"], each["one_way_ns"]) for each in comparison.result["transports"] if each["one_way_ns"]["p50"]
    ]
    if not entries:
        return None
    factor, unit = 1e3, "µs"

    def draw(theme: Theme) -> "Figure":
        figure = new_figure(8.0, 1.6 + 0.42 * len(entries))
        axes = figure.subplots()
        for which, (key, label) in enumerate((("p50", "50 %"), ("p99", "99 %"))):
            middle, ends = _middle_and_ends([ways[key] for _, ways in entries], factor)
            style = series_style(theme, which) | {"linestyle": ""}
            axes.errorbar(middle, range(len(entries)), xerr=ends, capsize=3, label=label, **style)
        axes.set_yticks(range(len(entries)), [name for name, _ in entries])
        axes.set_ylim(len(entries) - 0.5, -0.5)
        plain_log(axes, "x")
        axes.set_xlabel(f"one way, {units.size(comparison.result['ping_bytes'])}, {unit}, logarithmic")
        finish(axes, grid="x")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8.5)
        titled(axes, "Latency", MEASURED, theme)
        return figure

    headings = ["transport", *(f"{share}: median (lowest..highest), {unit}" for share in ("50 %", "99 %"))]
    rows = [[name, *(units.of_rounds(ways[key], factor) for key in ("p50", "p99"))] for name, ways in entries]
    conditions = [_MARKS, *comparison_conditions(comparison)]
    return Drawing(f"{prefix}-latency", "Latency", MEASURED, conditions, draw, headings, rows)


def memory_rows(comparison: Comparison) -> list[list[str]]:
    """Of each transport what a further peer adds to the largest process, in kB."""
    return [[each["name"], units.of_rounds(each["bytes_per_peer"], 1e3)] for each in comparison.result["transports"]]
