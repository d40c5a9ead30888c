"""What a person sees while a run goes on: a live view on a terminal, a plain line now and then anywhere else.

Both write to standard error, so that standard output carries the result alone.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from incast.base import units
from incast.base.console import folded
from incast.base.units import VIRTUAL_TIME
from incast.engine.progress import NodeSample, Notice, Phase, Planned, Progress, Sample

_PLAIN_INTERVAL_S = 2.0
_REFRESH_INTERVAL_S = 0.1
_SPARKLINE_WIDTH = 40
_NODE_ROWS_MAX = 16
_BAR_WIDTH = 14
_LABEL_WIDTH = 10
_JOINING, _WARM_UP, _MEASURING = "joining", "warm-up", "measuring"  # phases, as the engine calls them
_LOST = "lost"
_NOTICE_STYLES = {"info": "cyan", "warning": "yellow", "error": "bold red", "engine": ""}


@dataclass(frozen=True)
class NodeRates:
    """What one node does now, in fragment bytes."""

    name: str
    state: str
    built_bytes_per_s: float
    sent_bytes_per_s: float


class RunView(Protocol):
    """Shows a run's progress between `__enter__` and `__exit__`."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def on_progress(self, progress: Progress) -> None:
        """Takes one report of the engine."""

    def on_tick(self) -> None:
        """Gives the view a chance to redraw; cheap when there is nothing to do."""


class RunState:
    """The run so far, as both views need it. The mean is over the present phase: warm-up must not colour the rest."""

    def __init__(self) -> None:
        self.phase = "start"
        self.sample: Sample | None = None
        self.nodes: list[NodeRates] = []
        self.history: deque[float] = deque(maxlen=_SPARKLINE_WIDTH)
        self._phase_sum = 0.0
        self._phase_samples = 0

    def take(self, progress: Phase | Sample) -> None:
        """Brings the state up to date."""
        if isinstance(progress, Phase):
            if progress.name != self.phase:
                self.phase = progress.name
                self._phase_sum, self._phase_samples = 0.0, 0
            return
        self.nodes = _node_rates(self.sample, progress)
        self.sample = progress
        self.history.append(progress.goodput_bytes_per_s)
        self._phase_sum += progress.goodput_bytes_per_s
        self._phase_samples += 1

    def seconds_left(self, elapsed_s: float, *, virtual: bool) -> float | None:
        """Until nothing more is measured; None: not known. A simulation goes on as fast as in the time elapsed."""
        if self.sample is None or self.sample.left_s is None:
            return None
        if not virtual:
            return self.sample.left_s
        return self.sample.left_s * elapsed_s / self.sample.t_s if self.sample.t_s > 0 else None

    def here(self) -> str:
        """While nodes join: how many have."""
        states = [] if self.sample is None else [node.state for node in self.sample.nodes]
        if self.phase != _JOINING or not states:
            return ""
        return f" ({sum(state != _JOINING for state in states)} of {len(states)} nodes)"

    def mean_goodput_bytes_per_s(self) -> float | None:
        """Mean over the samples of this phase; None before the first."""
        return self._phase_sum / self._phase_samples if self._phase_samples else None


def _node_rates(before: Sample | None, now: Sample) -> list[NodeRates]:
    """Rates over the interval between two samples; a node that was not in the first counts from its start."""
    elapsed_s = now.t_s - (before.t_s if before else 0.0)
    start = {node.name: node for node in before.nodes} if before else {}
    rates = []
    for node in now.nodes:
        earlier = start.get(node.name, NodeSample(node.name, node.state, 0, 0))
        built, sent = node.built_bytes - earlier.built_bytes, node.sent_bytes - earlier.sent_bytes
        per_s = 1.0 / elapsed_s if elapsed_s > 0 else 0.0
        rates.append(NodeRates(node.name, node.state, max(0, built) * per_s, max(0, sent) * per_s))
    return rates


class PlainView:
    """One line every two seconds at most, and one for the first sample of each phase; notices at once."""

    def __init__(
        self, console: Console, *, virtual: bool, clock: Callable[[], float] = time.monotonic, unit: str = "events"
    ) -> None:
        self._console = console
        self._unit = unit
        self._virtual = virtual
        self._clock = clock
        self._state = RunState()
        self._started_at = self._next_line_at = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to take down."""

    def on_progress(self, progress: Progress) -> None:
        match progress:
            case Planned():
                print_plan(self._console, progress)
            case Notice():
                print_notice(self._console, progress)
            case Phase():
                self._state.take(progress)
                self._next_line_at = self._clock()
                if (line := phase_line(progress, virtual=self._virtual)) is not None:
                    self._console.print(line, markup=False, highlight=False)
            case Sample():
                self._state.take(progress)
                if self._state.phase != _JOINING and self._clock() >= self._next_line_at:
                    self._next_line_at = self._clock() + _PLAIN_INTERVAL_S
                    self._print_line(progress)
            case _:
                pass

    def on_tick(self) -> None:
        """Nothing moves between reports."""

    def _print_line(self, sample: Sample) -> None:
        parts = [f"{sample.t_s:7.1f} s" + (f" {VIRTUAL_TIME}" if self._virtual else "")]
        parts.append(units.rate(sample.goodput_bytes_per_s))
        if not self._virtual:  # a line has 80 columns
            parts.append(f"mean {units.rate(self._state.mean_goodput_bytes_per_s())}")
        parts.append(f"{units.frequency(sample.events_per_s)} {self._unit}")
        left_s = self._state.seconds_left(self._clock() - self._started_at, virtual=self._virtual)
        if left_s:
            parts.append(units.time_left(left_s))
        if self._state.phase != _MEASURING:
            parts.append(f"[{self._state.phase}]")
        self._console.print("  ".join(parts), markup=False, highlight=False, soft_wrap=True)


class TerminalView:
    """A few lines that stay in place: rates, their recent past, a bar per node. Notices scroll above them."""

    def __init__(
        self,
        console: Console,
        title: str,
        *,
        virtual: bool,
        clock: Callable[[], float] = time.monotonic,
        unit: str = "events",
    ) -> None:
        self._console = console
        self._unit = unit
        self._title = title
        self._virtual = virtual
        self._clock = clock
        self._started_at = clock()
        self._next_refresh_at = 0.0
        self._state = RunState()
        self._live = Live(console=console, auto_refresh=False, transient=True, get_renderable=self.render)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def on_progress(self, progress: Progress) -> None:
        match progress:
            case Planned():
                print_plan(self._console, progress)
            case Notice():
                print_notice(self._console, progress)
            case Phase() | Sample():
                self._state.take(progress)
            case _:
                pass

    def on_tick(self) -> None:
        if self._clock() >= self._next_refresh_at:
            self._next_refresh_at = self._clock() + _REFRESH_INTERVAL_S
            self._live.refresh()

    def render(self) -> RenderableType:
        """The view as it stands now."""
        head = Text().append(self._title, style="bold")
        if self._virtual:
            head.append(f"  {VIRTUAL_TIME}", style="bold magenta")
        elapsed_s = self._clock() - self._started_at
        head.append(f"  {self._state.phase}{self._state.here()}", style="cyan")
        if self._state.phase == _WARM_UP:
            head.append(", not measured", style="cyan")
        head.append(f"  {elapsed_s:.0f} s", style="dim")
        if left_s := self._state.seconds_left(elapsed_s, virtual=self._virtual):
            left = units.time_left(left_s)
            head.append(f", then {left.removesuffix(' left')}" if self._state.phase == _JOINING else f"  {left}")
        sample = self._state.sample
        if sample is None:
            return head
        rates = Table.grid(padding=(0, 2))
        rates.add_row(
            Text("goodput"),
            Text(units.rate(sample.goodput_bytes_per_s), style="bold green"),
            Text(f"mean {units.rate(self._state.mean_goodput_bytes_per_s())}"),
            Text(units.sparkline(list(self._state.history), _SPARKLINE_WIDTH), style="green"),
        )
        rates.add_row(
            Text(self._unit), Text(units.frequency(sample.events_per_s), style="bold"), Text(f"t {sample.t_s:.1f} s")
        )
        return Group(head, rates, _node_bars(self._state.nodes))


def _node_bars(nodes: Sequence[NodeRates]) -> RenderableType:
    """A bar per node against the fastest; of many nodes the first ones and what the rest spans."""
    busiest = {node.name: max(node.built_bytes_per_s, node.sent_bytes_per_s) for node in nodes}
    top = max(busiest.values(), default=0.0) or 1.0
    bars = Table.grid(padding=(0, 2))
    for node in nodes[:_NODE_ROWS_MAX]:
        bars.add_row(
            Text(f"node {node.name}"),
            ProgressBar(total=top, completed=busiest[node.name], width=_BAR_WIDTH, finished_style="bar.complete"),
            Text(f"builds {units.rate(node.built_bytes_per_s)}"),
            Text(f"sends {units.rate(node.sent_bytes_per_s)}"),
            Text(node.state, style="bold red" if node.state == _LOST else "dim"),
        )
    rest = [busiest[node.name] for node in nodes[_NODE_ROWS_MAX:]]
    if rest:
        span = f"{units.rate(min(rest))} to {units.rate(max(rest))}"
        bars.add_row(Text(f"{len(rest)} more"), Text(""), Text(span))
    return bars


def phase_line(phase: Phase, *, virtual: bool) -> str | None:
    """What begins, where that is not plain from the lines before."""
    length = "" if phase.seconds is None else f" for {phase.seconds:g} s" + f" {VIRTUAL_TIME}" * virtual
    if phase.name == _WARM_UP:
        return f"warm-up{length}, not measured"
    return f"measuring{length}" if phase.name == _MEASURING else None


def print_plan(console: Console, plan: Planned) -> None:
    """A row for each thing that the run is about to do."""
    if not console.is_terminal:
        for label, text in plan.rows:
            row = folded(text, first=f"{label:<{_LABEL_WIDTH}}", indent=_LABEL_WIDTH)
            console.print(row, markup=False, highlight=False, soft_wrap=True)
        return
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", no_wrap=True, min_width=_LABEL_WIDTH - 1)
    table.add_column(overflow="fold")
    for label, text in plan.rows:
        table.add_row(Text(label), Text(text))
    console.print(table)


def print_notice(console: Console, notice: Notice) -> None:
    """One line; the engine's own words on its standard error stay as they are."""
    label = "" if notice.level == "engine" else f"{notice.level}: "
    style = _NOTICE_STYLES.get(notice.level, "")
    console.print(label + notice.text, style=style, markup=False, highlight=False, soft_wrap=True)


def make_view(console: Console, title: str, *, virtual: bool, unit: str = "events") -> RunView:
    """The live view where the console is a terminal that can move its cursor, else the plain one; `unit` is counted."""
    if console.is_terminal and not console.is_dumb_terminal:
        return TerminalView(console, title, virtual=virtual, unit=unit)
    return PlainView(console, virtual=virtual, unit=unit)
