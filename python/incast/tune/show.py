"""What a person sees of a tuning: a line for each reading while it goes on, and its outcome at the end."""

import statistics
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from incast.base import units
from incast.base.units import VIRTUAL_TIME
from incast.engine.quantity import Scalar, setting_text
from incast.tune.goal import LATENCY_COLUMN, Goal
from incast.tune.outcome import Outcome, Step
from incast.tune.readings import CONFIRM, DEFAULT_NUMBER, WHOLE, Seen, Tried
from incast.tune.space import Axis, differing, words

_SHOWN = 8  # points in the table
_NOTABLE_DRIFT = 1.1


class TuneView:
    """A line for each reading."""

    def __init__(self, console: Console, goal: Goal, seconds: float, budget_s: float) -> None:
        self._console, self._goal = console, goal
        self._seconds, self._budget_s = seconds, budget_s

    def on_seen(self, seen: Seen) -> None:
        """A reading is done."""
        line = Text(f"[{seen.spent_s:.0f}/{self._budget_s:.0f} s] ", style="dim")
        line.append(f"{seen.wanted.purpose}: ", style="")
        line.append("defaults" if seen.number == DEFAULT_NUMBER else words(seen.wanted.axes), style="default")
        line.append(": ")
        figure = self._goal.figure(seen)
        if figure is None:
            line.append(f"{seen.figures['status']}: {seen.figures['reason']}", style="red")
        else:
            line.append(self._goal.shown(figure), style="green")
            line.append(f" ({seen.wanted.length:g})" if seen.wanted.length != WHOLE else "")
            if seen.figures.get("time_domain") == "virtual":
                line.append(f" {VIRTUAL_TIME}", style="magenta")
            if not self._goal.score(seen).good:
                line.append(f" {_beyond(self._goal, seen)}", style="yellow")
            if seen.figures.get("idle") is False:
                line.append(f", NOT IDLE: {seen.figures['not_idle_reason']}", style="yellow")
        self._console.print(line, soft_wrap=True)


def _beyond(goal: Goal, seen: Seen) -> str:
    if share := goal.dead(seen):
        return f"dead time, or triggers not taken or built: {units.fraction(share)}"
    return f"beyond a bound: latency (p99) {units.duration_ns(seen.number_of(LATENCY_COLUMN))}"


def show(console: Console, outcome: Outcome, settings_file: str | None, lines: Sequence[str] = ()) -> None:
    """The outcome; `lines` stand at its end."""
    if outcome.virtual:
        console.print(Text(f"{VIRTUAL_TIME}: every rate and time below is simulated", style="bold magenta"))
    for text in _headline(outcome):
        console.print(text)
    if outcome.best is not None:
        console.print()
        console.print(_settings(outcome, outcome.best))
        console.print()
        console.print(_around(outcome, outcome.best))
    console.print()
    console.print(_table(outcome))
    console.print()
    for text in _limits(outcome):
        console.print(text)
    for line in lines:
        console.print(line, soft_wrap=True)
    if settings_file is not None:
        console.print(f"settings in {settings_file}: incast run {settings_file}", soft_wrap=True)


def _headline(outcome: Outcome) -> list[Text]:
    goal, tried = outcome.goal, len(outcome.points)
    readings = sum(len(point.readings) for point in outcome.points)
    failed = sum(point.failed for point in outcome.points)
    lines = [Text(f"goal: {goal.words}; {tried} points, {readings} readings, {failed} points failed")]
    if outcome.best is None:
        if failed == tried:
            reason = outcome.points[0].readings[-1].figures.get("reason")
            lines.append(Text(f"every point failed; the defaults: {reason}", style="bold red"))
        else:
            lines.append(Text("no point kept the bounds; the nearest ones stand first below", style="bold red"))
        return lines
    figure, default = outcome.figure(outcome.best), outcome.figure(outcome.default)
    text = Text("best ", style="")
    text.append(goal.shown(figure or 0.0), style="bold green")
    text.append(f"   defaults {goal.shown(default) if default is not None else 'failed'}")
    ratios = outcome.ratios()
    if outcome.best.number == DEFAULT_NUMBER:
        text.append("   nothing that was tried is better than the defaults")
    elif ratios:
        middle = statistics.median(ratios)
        text.append(f"   {middle:.2f} x", style="bold")
        text.append(f" ({min(ratios):.2f}..{max(ratios):.2f} in {len(ratios)} rounds)" if len(ratios) > 1 else "")
    elif default and figure:
        text.append(f"   {figure / default:.2f} x")
    lines.append(text)
    if not outcome.confirmed:
        lines.append(Text("not confirmed: no fresh readings beside the defaults were taken", style="yellow"))
    elif ratios and outcome.best.number != DEFAULT_NUMBER and min(ratios) <= 1 <= max(ratios):
        lines.append(Text("the rounds differ by more than the gain: it may be none", style="yellow"))
    if outcome.judge.drift.span > _NOTABLE_DRIFT:
        lines.append(
            Text(
                f"the machine drifted: the defaults gave {outcome.judge.drift.span:.2f} x more at times"
                f" ({outcome.judge.drift.references} readings); taken out of the search, not of the rounds",
                style="yellow",
            )
        )
    return lines


def _grid(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _settings(outcome: Outcome, best: Tried) -> Table:
    table = _grid("setting", "best", "default")
    for axis in outcome.axes:
        mine, usual = setting_text(best.axes[axis.key]), setting_text(axis.default)
        table.add_row(axis.key, Text(mine, style="bold" if mine != usual else "dim"), usual or "(nothing)")
    return table


def _around(outcome: Outcome, best: Tried) -> Table:
    table = _grid("around it, one setting changed", "(best) and others: figure over the best one's")
    for key, steps in outcome.steps().items():
        shown = "   ".join(map(_step_words, steps)) or "others were not measured"
        table.add_row(key, f"({setting_text(best.axes[key])})   {shown}")
    return table


def _step_words(step: Step) -> str:
    ratio = "failed" if step.ratio is None else f"{step.ratio:.2f}"
    return f"{setting_text(step.value)}: {ratio}" + ("" if step.good or step.ratio is None else " (beyond)")


def _table(outcome: Outcome) -> Table:
    table = _grid("figure", "latency p99", "readings", "settings that are not default")
    ordered = outcome.judge.best_first(outcome.points)
    shown = ordered[:_SHOWN]
    shown += [point for point in ordered[_SHOWN:] if point.number == DEFAULT_NUMBER]
    for point in shown:
        figure = outcome.figure(point)
        last = point.readings[-1]
        beyond = "" if outcome.judge.standing(point)[1].good else " (beyond)"
        table.add_row(
            str(last.figures["status"]) if figure is None else outcome.goal.shown(figure) + beyond,
            units.duration_ns(last.number_of(LATENCY_COLUMN)),
            _lengths(point),
            "defaults" if point.number == DEFAULT_NUMBER else _changed(point.axes, outcome.axes),
        )
    return table


def _lengths(point: Tried) -> str:
    fresh = sum(each.wanted.purpose == CONFIRM for each in point.readings)
    others = len(point.readings) - fresh
    return f"{others}+{fresh}" if fresh else str(others)


def _changed(axes: Mapping[str, Scalar], all_axes: Sequence[Axis]) -> str:
    keys = differing({axis.key: axis.default for axis in all_axes}, axes)
    return words({key: axes[key] for key in keys})


def _limits(outcome: Outcome) -> list[Text]:
    last = None if outcome.best is None else outcome.last_reading(outcome.best)
    if last is None or not last.figures.get("limited_by"):
        return []
    confidence = last.figures.get("limited_by_confidence")
    lines = [
        Text(
            f"limited by  {last.figures['limited_by']}"
            + (f" (confidence: {confidence})" if confidence != "none" else "")
        )
    ]
    if evidence := last.figures.get("limited_by_evidence"):
        lines.append(Text(str(evidence), style="dim"))
    if suggestion := last.figures.get("suggestion"):
        lines.append(Text(f"to try      {suggestion}"))
    return lines
