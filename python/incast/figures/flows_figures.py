"""Figures of flows on a simulated network: completion times and slowdowns by size (docs/reports.md)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from incast.base import units
from incast.figures.datasets import Run, run_conditions
from incast.figures.network_figures import network_drawings
from incast.figures.run_figures import Drawing, plain_log, scale_of, titled
from incast.figures.style import Theme, finish, new_figure, series_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_QUANTILES = {"p50": "median", "p95": "95 %", "p99": "99 %", "p999": "99.9 %", "max": "largest"}


def flows_drawings(run: Run, prefix: str) -> list[Drawing]:
    """What became of the flows, then of the network."""
    found = [
        _by_size(run, f"{prefix}-completion", "completion_ps", "Completion time"),
        _by_size(run, f"{prefix}-slowdown", "slowdown", "Slowdown, over the time alone in the empty network"),
    ]
    return [drawing for drawing in found if drawing is not None] + network_drawings(run, prefix)


def size_words(bins: Sequence[Mapping[str, Any]], index: int) -> str:
    """Of the flows in a bin: `up to 10.0 kB`; the last has them all."""
    return "all" if index == len(bins) - 1 else f"up to {units.size(bins[index]['up_to_bytes'])}"


def _by_size(run: Run, name: str, key: str, what: str) -> Drawing | None:
    """A line for each quantile along the sizes; None: no flow has such a figure."""
    bins = run.result["by_size"]
    shown = [index for index in range(len(bins)) if bins[index][key] is not None]
    if not shown:
        return None
    in_ns = 1e-3 if key == "completion_ps" else 1.0
    values = {quantile: [bins[index][key][quantile] * in_ns for index in shown] for quantile in _QUANTILES}
    factor, unit = scale_of(values["p50"], "ns") if key == "completion_ps" else (1.0, "times")
    labels = [size_words(bins, index) for index in shown]

    def draw(theme: Theme) -> "Figure":
        figure = new_figure()
        axes = figure.subplots()
        for index, (quantile, words) in enumerate(_QUANTILES.items()):
            scaled = [value / factor for value in values[quantile]]
            # No line leads to the flows of all sizes, which are no larger size.
            style = series_style(theme, index)
            axes.plot(range(len(scaled) - 1), scaled[:-1], label=words, **style)
            axes.plot([len(scaled) - 1], scaled[-1:], **style)
        plain_log(axes, "y")
        axes.set_xticks(range(len(labels)), labels)
        axes.set_xlabel("bytes of a flow")
        axes.set_ylabel(f"{unit}, logarithmic")
        finish(axes)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8.5)
        titled(axes, f"{what}: {run.name}" if key == "completion_ps" else f"Slowdown: {run.name}", run.domain, theme)
        return figure

    headings = ["bytes of a flow", "flows", *(f"{words}, {unit}" for words in _QUANTILES.values())]
    rows = [
        [label, _delivered(bins[index]), *(f"{values[quantile][place] / factor:.4g}" for quantile in _QUANTILES)]
        for place, (index, label) in enumerate(zip(shown, labels, strict=True))
    ]
    return Drawing(name, f"{what}: {run.name}", run.domain, run_conditions(run), draw, headings, rows)


def _delivered(one: Mapping[str, Any]) -> str:
    text = units.count(one["delivered"])
    return text if one["delivered"] == one["flows"] else f"{text} of {units.count(one['flows'])}"
