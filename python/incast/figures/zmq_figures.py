"""What ZeroMQ reached over the transports, as `incast bridge zmq` measured it: the figures of [S4] (docs/zeromq.md)."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from incast.bridges.zmq import BREAKDOWN, BUFFER_SCAN, RING_SCAN, SCANNED, SPEED
from incast.bridges.zmq_program import LATENCY, STREAM
from incast.bridges.zmq_tables import (
    SIDES,
    BridgeTable,
    Cases,
    conditions,
    is_small,
    of_section,
    ring_words,
    round_trips,
    size_text,
    sizes_of,
    stage_medians,
    tables,
    ways_of,
)
from incast.figures.datasets import MEASURED, Bridge
from incast.figures.run_figures import Drawing, plain_log, scale_of, titled
from incast.figures.style import Theme, finish, new_figure, series_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Values = Callable[[Mapping[str, Any]], Sequence[float]]


@dataclass(frozen=True)
class _Sheet:
    """What all drawings of a result have: the result, its tables, and how their files begin."""

    result: Mapping[str, Any]
    by_name: Mapping[str, BridgeTable]
    prefix: str

    def drawing(self, name: str, draw: Callable[[BridgeTable], Callable[[Theme], "Figure"]]) -> Drawing | None:
        """Of the table of that name, if there is one."""
        table = self.by_name.get(name)
        if table is None:
            return None
        rings = ring_words(self.result, name)
        said = [*([rings] if rings else []), *conditions(self.result)]
        return Drawing(f"{self.prefix}-{name}", table.title, MEASURED, said, draw(table), table.headings, table.rows)


def zmq_drawings(bridge: Bridge, prefix: str) -> list[Drawing]:
    """Those for which there are figures."""
    result = bridge.result
    sheet = _Sheet(result, {table.name: table for table in tables(result, ranges=True)}, prefix)
    latency, stream = (of_section(result, SPEED, kind) for kind in (LATENCY, STREAM))
    small = [each for each in latency if is_small(each["message_bytes"])]
    large = [each for each in latency if not is_small(each["message_bytes"])]
    found = [
        _curves(sheet, "latency-small", small, round_trips, "ns"),
        _curves(sheet, "latency-large", large, round_trips, "ns"),
        _curves(sheet, "throughput", stream, _rates, "bytes_per_s"),
    ]
    for section, column in ((BUFFER_SCAN, "buffer_bytes"), (RING_SCAN, "buffers")):
        for kind, size in SCANNED:
            cases = [each for each in of_section(result, section, kind) if each["message_bytes"] == size]
            found.append(_scan(sheet, f"{section.replace('_', '-')}-{kind}-{size}", cases, column))
    breakdowns = of_section(result, BREAKDOWN)
    found += [
        _stages(sheet, [each for each in breakdowns if each["way"] == way], side)
        for side in SIDES
        for way in ways_of(breakdowns)
    ]
    return [drawing for drawing in found if drawing is not None]


def _rates(case: Mapping[str, Any]) -> Sequence[float]:
    values: Sequence[float] = case["bytes_per_s"]
    return values


def drawn_lines(
    lines: Mapping[str, Mapping[int, Sequence[float]]],
    unit: str,
    ticks: Mapping[int, str],
    words: tuple[str, str],  # title, and what goes across
    *,
    is_log: bool = True,  # what goes across
) -> Callable[[Theme], "Figure"]:
    """A line for each name, through the medians, with the lowest and the highest value at each point."""
    everything = [value for points in lines.values() for values in points.values() for value in values]
    factor, named = scale_of(everything, unit)
    title, across = words

    def draw(theme: Theme) -> "Figure":
        figure = new_figure()
        axes = figure.subplots()
        for index, (name, points) in enumerate(lines.items()):
            middle = [statistics.median(values) / factor for values in points.values()]
            ends = [
                [m - min(values) / factor for m, values in zip(middle, points.values(), strict=True)],
                [max(values) / factor - m for m, values in zip(middle, points.values(), strict=True)],
            ]
            axes.errorbar(list(points), middle, yerr=ends, capsize=3, label=name, **series_style(theme, index))
        if is_log:
            axes.set_xscale("log", base=2)
        axes.minorticks_off()
        axes.set_xticks(list(ticks), list(ticks.values()))
        if unit == "ns":
            plain_log(axes, "y")
        else:
            axes.set_ylim(bottom=0)
        axes.set_xlabel(across)
        axes.set_ylabel(f"{named}, median")
        finish(axes)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8.5)
        titled(axes, title, MEASURED, theme)
        return figure

    return draw


def _curves(sheet: _Sheet, name: str, cases: Cases, values: Values, unit: str) -> Drawing | None:
    """A line for each way, over sizes of messages."""
    lines = {
        way: {each["message_bytes"]: values(each) for each in cases if each["way"] == way} for way in ways_of(cases)
    }
    ticks = {size: size_text(size) for size in sizes_of(cases)}
    return sheet.drawing(name, lambda table: drawn_lines(lines, unit, ticks, (table.title, "message")))


def _scan(sheet: _Sheet, name: str, cases: Cases, column: str) -> Drawing | None:
    """A line for each way, over sizes of buffers or lengths of rings."""
    if not cases:
        return None
    is_latency = cases[0]["kind"] == LATENCY
    read: Values = round_trips if is_latency else _rates
    lines = {way: {each["ring"][column]: read(each) for each in cases if each["way"] == way} for way in ways_of(cases)}
    values = sorted({value for points in lines.values() for value in points})
    is_size = column == "buffer_bytes"
    ticks = {value: size_text(value) if is_size else str(value) for value in values}
    other = cases[0]["ring"]["buffers" if is_size else "buffer_bytes"]
    across = f"size of a buffer, {other} of them" if is_size else f"buffers of a ring, of {size_text(other)} each"
    unit = "ns" if is_latency else "bytes_per_s"
    return sheet.drawing(name, lambda table: drawn_lines(lines, unit, ticks, (table.title, across)))


def _stages(sheet: _Sheet, cases: Cases, side: str) -> Drawing | None:
    """A bar for each size of message: what share of the work each stage has."""
    medians = [stage_medians(case, side) for case in cases]

    def drawn(table: BridgeTable) -> Callable[[Theme], "Figure"]:
        def draw(theme: Theme) -> "Figure":
            figure = new_figure(8.0, 2.4 + 0.3 * len(cases))
            axes = figure.subplots()
            lefts = [0.0] * len(cases)
            for index, (stage, words) in enumerate(SIDES[side].items()):
                shares = [100 * each[stage] / max(sum(each.values()), 1e-9) for each in medians]
                count = len(theme.series)
                colour, hatch = theme.series[index % count], "" if index < count else "//"
                axes.barh(range(len(cases)), shares, left=lefts, label=words, color=colour, hatch=hatch)
                lefts = [left + share for left, share in zip(lefts, shares, strict=True)]
            axes.set_yticks(range(len(cases)), [size_text(case["message_bytes"]) for case in cases])
            axes.set_ylim(len(cases) - 0.5, -0.5)
            axes.set_xlim(0, 100)
            axes.set_xlabel("% of the time that the I/O thread works")
            finish(axes, grid="x")
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8.5)
            titled(axes, table.title, MEASURED, theme)
            return figure

        return draw

    return sheet.drawing(f"{side}-{cases[0]['way']}", drawn)
