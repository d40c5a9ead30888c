"""Figures of a simulated network: its topology, and its queues over time (docs/reports.md).

The topology is what the engine says of the fabric's file. What cables and queues did is read from the tables that a run
on the packet model leaves in its directory (network_ports.csv, network_series.csv); without them there is the topology.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from incast.base import units
from incast.base.errors import OneLineError
from incast.engine.fabric import Fabric
from incast.evidence.result import at, number
from incast.figures.datasets import Run, run_conditions
from incast.figures.run_figures import Drawing, scale_of, titled
from incast.figures.style import SCALE, Theme, finish, new_figure, series_style
from incast.figures.topology import Layout, Line, lay_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PORTS_NAME = "network_ports.csv"
SERIES_NAME = "network_series.csv"
_QUEUES_MAX = 6  # drawn one by one: as many as there are colours
_TRIFLE = 0.01
_INCH = 90.0  # pixels of a layout
_EVENTS = (("marked", "packets marked"), ("dropped", "packets dropped"), ("pauses_heard", "pauses heard"))


def network_drawings(run: Run, prefix: str) -> list[Drawing]:
    """Of a run on the packet model; of other runs none."""
    found = [topology(run, prefix), queues(run, prefix)]
    return [drawing for drawing in found if drawing is not None]


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError:
        return []


# --- topology


def topology(run: Run, prefix: str) -> Drawing | None:
    """Hosts, switches and cables; coloured by how much they were used, where that is known."""
    if run.fabric_file is None:
        return None
    try:
        fabric = Fabric.read(run.fabric_file)
    except OneLineError:
        return None  # the file is no longer where it was, or is another one now
    layout = lay_out(fabric)
    used = {(row["from"], row["to"]): float(row["utilisation"]) for row in _rows(run.directory / PORTS_NAME)}
    shares = [_most_used(line, used) for line in layout.lines]

    def draw(theme: Theme) -> "Figure":
        import matplotlib as mpl
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        height = layout.height - layout.top
        width = min(10.0, max(7.0, layout.width / _INCH))
        figure = new_figure(width, min(7.0, max(2.6, height / _INCH)) + 0.5)
        axes = figure.subplots()
        colours = mpl.colormaps[SCALE]
        for line, share in zip(layout.lines, shares, strict=True):
            _draw_line(axes, line, layout, theme.muted if share is None else colours(share))
        _draw_boxes(axes, layout, theme)
        axes.set_xlim(0, layout.width)
        axes.set_ylim(layout.height, layout.top - 4)
        axes.axis("off")
        if used:
            scale = ScalarMappable(Normalize(0, 100), SCALE)
            bar = figure.colorbar(scale, ax=axes, label="used, % of the cable's busier direction", pad=0.01, shrink=0.8)
            bar.outline.set_visible(False)
        titled(axes, f"{fabric.name}: {run.name}", run.domain, theme)
        return figure

    rows = [
        [
            " - ".join(line.boxes),
            str(len(line.cables)),
            units.line_rate(line.bits_per_s / 8),
            units.ABSENT if share is None else f"{100 * share:.1f}",
        ]
        for line, share in zip(layout.lines, shares, strict=True)
    ]
    title = f"Topology: {fabric.description} ({run.name})"
    headings = ["between", "cables", "rate of all, each way", "busiest direction used, %"]
    return Drawing(f"{prefix}-topology", title, run.domain, run_conditions(run), draw, headings, rows)


def _most_used(line: Line, used: dict[tuple[str, str], float]) -> float | None:
    known = [
        used[ends] for cable in line.cables for ends in (cable.ends, (cable.ends[1], cable.ends[0])) if ends in used
    ]
    return min(max(known), 1.0) if known else None


def _draw_line(axes: "Axes", line: Line, layout: Layout, colour: object) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    curve = Curve([line.begin, line.bend, line.end], [Curve.MOVETO, Curve.CURVE3, Curve.CURVE3])
    axes.add_patch(PathPatch(curve, fill=False, edgecolor=colour, linewidth=0.7 * layout.thickness(line)))


def _draw_boxes(axes: "Axes", layout: Layout, theme: Theme) -> None:
    from matplotlib.patches import Rectangle

    for box in layout.boxes:
        edge = theme.series[0] if box.kind == "host" else theme.series[1]
        # The page's background shows through: a box stands out by its edge, and no line is seen behind its name.
        face = "none" if theme.background == "none" else theme.background
        corner = (box.x - box.half_width, box.y - 14)
        axes.add_patch(
            Rectangle(corner, 2 * box.half_width, 28, facecolor=face, edgecolor=edge, linewidth=1.5, zorder=3)
        )
        axes.text(box.x, box.y, box.label, ha="center", va="center", fontsize=8, zorder=4)


# --- queues over time


@dataclass(frozen=True)
class _Queue:
    name: str
    times: list[float]
    mean_bytes: list[float]
    most_bytes: float


def queues(run: Run, prefix: str) -> Drawing | None:
    """The fullest queues by interval, and below them what they led to."""
    rows = _rows(run.directory / SERIES_NAME)
    fullest = _fullest(run, rows)
    if not fullest:
        return None
    times = sorted({float(row["t_s"]) for row in rows})
    events = {words: _sums(rows, times, key) for key, words in _EVENTS}
    events = {words: values for words, values in events.items() if any(values)}
    factor, unit = scale_of([queue.most_bytes for queue in fullest], "bytes")
    time_factor, time_unit = scale_of(times, "s")
    window = [number(run.result, "network", "window", key) for key in ("begin_s", "end_s")]

    def draw(theme: Theme) -> "Figure":
        figure = new_figure(8.0, 5.4 if events else 4.2)
        panels = figure.subplots(2, 1, sharex=True) if events else [figure.subplots()]
        for index, queue in enumerate(fullest):
            style = series_style(theme, index) | {"marker": ""}
            shown = [time / time_factor for time in queue.times]
            panels[0].plot(shown, [value / factor for value in queue.mean_bytes], label=queue.name, **style)
        panels[0].set_ylabel(f"mean of each interval, {unit}")
        for index, (words, values) in enumerate(events.items()):
            style = series_style(theme, index) | {"marker": ""}
            panels[1].plot([time / time_factor for time in times], values, label=words, **style)
            panels[1].set_ylabel("in each interval, all ports")
        for axes in panels:
            if window[0] is not None and window[1] is not None:
                ends = (window[0] / time_factor, window[1] / time_factor)
                axes.axvspan(*ends, color=theme.muted, alpha=0.15, lw=0, label="measured window")
            axes.set_ylim(bottom=0)
            finish(axes)
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8.5)
        panels[-1].set_xlabel(f"virtual time, {time_unit}")
        titled(panels[0], f"The fullest queues: {run.name}", run.domain, theme)
        return figure

    table = [
        [
            queue.name,
            f"{sum(queue.mean_bytes) / len(times) / factor:.4g}",
            f"{max(queue.mean_bytes) / factor:.4g}",
            f"{queue.most_bytes / factor:.4g}",
        ]
        for queue in fullest
    ]
    table += [
        [words, f"{sum(values):.0f} in all", f"{max(values):.0f}", units.ABSENT] for words, values in events.items()
    ]
    headings = [
        "port",
        f"mean over time, {unit}",
        f"highest mean of an interval, {unit}",
        f"most in the measured window, {unit}",
    ]
    title = f"Queue occupancy over time: {run.name}"
    return Drawing(f"{prefix}-queues", title, run.domain, run_conditions(run), draw, headings, table)


def _fullest(run: Run, rows: Sequence[dict[str, str]]) -> list[_Queue]:
    """Of switches, by what the result says of them; what a hundredth of the fullest never held is left out."""
    listed = at(run.result, ("network", "fullest_queues"))
    known = listed if isinstance(listed, list) else []
    most: dict[str, float] = {}
    for queue in known:
        most[queue["port"]] = max(most.get(queue["port"], 0.0), float(queue["max_bytes"]))
    least = max(most.values(), default=0.0) * _TRIFLE
    by_port: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        by_port.setdefault(f"{row['from']} to {row['to']} (cable {int(row['port']) // 2})", []).append(row)
    return [
        _Queue(
            port.rpartition(" (")[0],
            [float(row["t_s"]) for row in by_port[port]],
            [float(row["queue_mean_bytes"]) for row in by_port[port]],
            bytes_,
        )
        for port, bytes_ in most.items()
        if port in by_port and bytes_ > least
    ][:_QUEUES_MAX]


def _sums(rows: Sequence[dict[str, str]], times: Sequence[float], key: str) -> list[float]:
    """Over all ports, by interval."""
    sums = dict.fromkeys(times, 0.0)
    for row in rows:
        sums[float(row["t_s"])] += float(row[key])
    return [sums[time] for time in times]
