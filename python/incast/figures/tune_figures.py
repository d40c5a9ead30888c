"""Figures and tables of a tuning: what was found, and what each setting does around it (docs/reports.md)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from incast.base import units
from incast.engine.quantity import setting_text
from incast.figures.datasets import Tuned, scan_conditions
from incast.figures.run_figures import Drawing, scale_of, titled
from incast.figures.style import Theme, finish, new_figure, series_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LENGTHS = {0.25: "quarter readings", 0.5: "half readings", 1.0: "whole readings"}
_STEPS_MAX = 60


def tune_drawings(tuned: Tuned, prefix: str) -> list[Drawing]:
    """All points, and those around the best."""
    found = [_points(tuned, f"{prefix}-points"), _around(tuned, f"{prefix}-around")]
    return [drawing for drawing in found if drawing is not None]


def figure_words(tuned: Tuned, point: Mapping[str, Any] | None) -> str:
    """The figure of a point, with its unit."""
    value = None if point is None else point["figure"]
    if value is None:
        return units.ABSENT
    return {"bytes_per_s": units.rate, "ns": units.duration_ns}.get(str(tuned.outcome["unit"]), units.frequency)(value)


def changed_settings(tuned: Tuned, point: Mapping[str, Any]) -> str:
    """Those in which a point differs from the defaults."""
    defaults = tuned.outcome["defaults"]
    texts = {key: setting_text(value) for key, value in point["settings"].items()}
    changed = [f"{key}={text}" for key, text in texts.items() if text != setting_text(defaults[key])]
    return " ".join(changed) or "defaults"


def tune_conditions(tuned: Tuned) -> list[str]:
    """What has to be known of a figure of this tuning, one line each."""
    _, *others = scan_conditions(tuned.scan, tuned.scan.rows)
    return [f"goal: {tuned.outcome['goal']}; whole readings of {tuned.scan.plan.seconds:g} s", *others]


def _points(tuned: Tuned, name: str) -> Drawing | None:
    """The points from the best to the worst, by their longest readings; the range of the rounds at the end."""
    points = [point for point in tuned.outcome["points"] if point["figure"] is not None]
    if not points:
        return None
    factor, unit = scale_of([point["figure"] for point in points], str(tuned.outcome["unit"]))
    default = tuned.outcome.get("default")

    def draw(theme: Theme) -> "Figure":
        figure = new_figure()
        axes = figure.subplots()
        for index, (length, words) in enumerate(_LENGTHS.items()):
            places = [place for place, point in enumerate(points) if point["longest"] == length]
            if places:
                style = series_style(theme, 2 - index) | {"linestyle": ""}
                axes.plot(
                    [place + 1 for place in places],
                    [points[place]["figure"] / factor for place in places],
                    label=words,
                    **style,
                )
        for place, point in enumerate(points):
            if len(point["rounds"]) > 1:
                ends = [min(point["rounds"]) / factor, max(point["rounds"]) / factor]
                axes.plot([place + 1] * 2, ends, color=theme.text, lw=1.2, marker="_", ms=8)
        if default is not None and default["figure"] is not None:
            axes.axhline(default["figure"] / factor, color=theme.muted, lw=1.2, ls="--", label="the defaults")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("points, the best first; lines: from the lowest to the highest of the rounds at the end")
        axes.set_ylabel(unit)
        finish(axes)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8.5)
        titled(axes, f"Points: {tuned.name}", tuned.domain, theme)
        return figure

    rows = [
        [
            f"{point['figure'] / factor:.4g}" + ("" if point["good"] else " (beyond a bound)"),
            f"{point['longest']:g}",
            str(point["readings"]),
            changed_settings(tuned, point),
        ]
        for point in points
    ]
    headings = [unit, "longest reading, of a whole one", "readings", "settings that are not default"]
    title = f"What was measured: {tuned.name}"
    return Drawing(name, title, tuned.domain, tune_conditions(tuned), draw, headings, rows)


def _around(tuned: Tuned, name: str) -> Drawing | None:
    """One setting changed: its figure over that of the best point."""
    best = tuned.outcome["best"]
    steps = [
        (f"{key.rpartition('.')[2].replace('_', ' ')} {setting_text(step['value'])}", key, step)
        for key, listed in tuned.outcome["around"].items()
        for step in listed
        if step["ratio"] is not None
    ][:_STEPS_MAX]
    if best is None or not steps:
        return None
    keys = list(dict.fromkeys(key for _, key, _ in steps))

    def draw(theme: Theme) -> "Figure":
        figure = new_figure(8.0, 1.5 + 0.26 * len(steps))
        axes = figure.subplots()
        axes.axvline(1.0, color=theme.muted, lw=1.2, ls="--")
        for place, (_, key, step) in enumerate(steps):
            style = series_style(theme, keys.index(key)) | {"linestyle": ""}
            axes.plot([step["ratio"]], [place], **style)
        axes.set_yticks(range(len(steps)), [words for words, _, _ in steps])
        axes.set_ylim(len(steps) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.set_xlabel("figure over that of the best point, by readings of the same length")
        finish(axes, grid="both")
        titled(axes, f"One setting changed: {tuned.name}", tuned.domain, theme)
        return figure

    rows = [
        [
            key,
            setting_text(best["settings"][key]),
            setting_text(step["value"]),
            f"{step['ratio']:.3f}" + ("" if step["good"] else " (beyond a bound)"),
        ]
        for _, key, step in steps
    ]
    headings = ["setting", "of the best", "changed to", "figure over the best one's"]
    title = f"Around the best, one setting changed: {tuned.name}"
    return Drawing(name, title, tuned.domain, tune_conditions(tuned), draw, headings, rows)
