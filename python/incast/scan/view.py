"""What a person sees of a scan while it goes on."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from incast.base import units
from incast.base.units import VIRTUAL_TIME
from incast.scan.plan import Plan, Reading
from incast.scan.runner import COMPLETE, Taken
from incast.scan.table import Row, headline

_REDRAW_S = 0.2
_LATEST = 6  # readings


@dataclass
class _Pace:
    """How long readings take, to say how much time is left: by the latest, since load and points change."""

    seconds: float  # expected before there is any
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=_LATEST))

    def mean(self) -> float:
        return sum(self.latest) / len(self.latest) if self.latest else self.seconds


class ScanView:
    """A line for each reading; on a terminal also a bar with the time that is left."""

    def __init__(self, console: Console, plan: Plan, left: Sequence[Reading], jobs: int) -> None:
        self._console = console
        self._all, self._repeats = len(plan.points) * plan.repeats, plan.repeats
        self._done = self._all - len(left)
        self._jobs = jobs
        self._waiting = dict.fromkeys((True, False), 0)
        for reading in left:
            self._waiting[reading.point.simulated] += 1
        expected = plan.seconds + plan.warm_up_seconds + 1
        # How long a simulation takes has nothing to do with its own time.
        self._pace = {True: _Pace(1.0), False: _Pace(expected)}
        self._now: dict[tuple[int, int], Reading] = {}
        self._live = Live(console=console, auto_refresh=False, transient=True, get_renderable=self._render)
        self._next_redraw = 0.0
        self._moves = console.is_terminal and not console.is_dumb_terminal

    def __enter__(self) -> "ScanView":
        if self._moves:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._moves:
            self._live.stop()

    def on_start(self, reading: Reading) -> None:
        """An engine was started."""
        self._now[reading.key] = reading

    def on_tick(self) -> None:
        """Redraws now and then."""
        if self._moves and time.monotonic() >= self._next_redraw:
            self._next_redraw = time.monotonic() + _REDRAW_S
            self._live.refresh()

    def on_row(self, taken: Taken, row: Row) -> None:
        """A reading is done."""
        reading = taken.reading
        self._now.pop(reading.key, None)
        self._done += 1
        simulated = reading.point.simulated
        self._waiting[simulated] -= 1
        self._pace[simulated].latest.append(taken.wall_s)
        line = Text(f"[{self._done:>{len(str(self._all))}}/{self._all}] ")
        if left := self.seconds_left():
            line.append(f"about {units.time_left(left)}: ", style="dim")
        line.append(f"{reading.words(self._repeats)}: ")
        if row["status"] == COMPLETE:
            line.append(_figure(row), style="green")
            if row["time_domain"] == "virtual":
                line.append(f" {VIRTUAL_TIME}", style="magenta")
            if row["limited_by"]:
                line.append(f", limited by: {row['limited_by']}")
            if row["idle"] is False:
                line.append(f", NOT IDLE: {row['not_idle_reason']}", style="yellow")
        else:
            line.append(f"{row['status']}: {row['reason']}", style="red")
        self._console.print(line, soft_wrap=not self._moves)

    def seconds_left(self) -> float:
        """By the mean of what was done so far."""
        simulated = self._waiting[True] * self._pace[True].mean() / max(1, min(self._jobs, self._waiting[True]))
        return simulated + self._waiting[False] * self._pace[False].mean()

    def _render(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        working = ", ".join(each.words(self._repeats) for each in list(self._now.values())[:2])
        more = f" and {len(self._now) - 2} more" if len(self._now) > 2 else ""
        bar = ProgressBar(total=max(1, self._all), completed=self._done, width=16)
        left = units.time_left(self.seconds_left())
        now = Text(working + more, no_wrap=True, overflow="ellipsis")
        grid.add_row(Text(f"{self._done}/{self._all}"), bar, Text(left, no_wrap=True), now)
        return grid


def _figure(row: Row) -> str:
    column, value = headline(row)
    return f"{headline_name(column)} {figure_text(column, value)}"


def headline_name(column: str) -> str:
    """What that column is called where people read it."""
    names = {"goodput_without_self_bytes_per_s": "goodput", "throughput_bytes_per_s": "throughput"}
    return names.get(column, "round trip")


def figure_text(column: str, value: float | None) -> str:
    """A headline figure with its unit."""
    return units.duration_ns(value) if column.endswith("_ns") else units.rate(value)
