"""`incast scan`: takes the readings of a scan file, one row each, and can be stopped and continued at any time."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from incast import units
from incast.console import open_console
from incast.engine import EXIT_NO_ENGINE, EngineError, find_engine, stop_signals
from incast.files import ForceOption, give_up_folder, new_folder, reason_of, replace_file, writing_output
from incast.idle import usable_cores
from incast.lab import extra
from incast.lab.diagnosis import diagnose_directory
from incast.lab.fabric_text import fabric_setting
from incast.lab.journal import Journal, directory_name, load_plan, remove_scan, summary_of
from incast.lab.plan import EXIT_BAD_SCAN, Plan, Point, Reading, read_plan
from incast.lab.runner import COMPLETE, Taken, Watch, take_readings
from incast.lab.table import CSV_NAME, PARQUET_NAME, Columns, Row, figures, headline, write_tables
from incast.live import VIRTUAL_TIME
from incast.quantity import setting_text
from incast.settings import present

_RESULTS_FOLDER = Path("incast-results")
_BASE_NAME = "base.toml"
_CHECK_TIMEOUT_S = 60.0
_EXIT_FAILED_POINTS = 1
_EXIT_INTERRUPTED = 130
_REDRAW_S = 0.2


# --- what the engine says of the points before anything is measured


def refusals(plan: Plan, folder: Path) -> dict[int, str]:
    """The engine's line for each point that it refuses, by number; files that it needs are written to that folder."""
    engine, base = find_engine(), write_base(folder, plan)
    networks = [fabric_setting(folder, point.fabric) for point in plan.points]
    with ThreadPoolExecutor(max_workers=usable_cores()) as pool:
        lines = pool.map(lambda point, network: _refusal(engine, base, point, network), plan.points, networks)
        return {point.number: line for point, line in zip(plan.points, lines, strict=True) if line is not None}


def _refusal(engine: Path, base: Path | None, point: Point, network: tuple[str, ...]) -> str | None:
    command = [*engine_command(engine, base, (*point.settings, *network)), "--check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"the engine {engine} cannot be started: {error}", EXIT_NO_ENGINE) from error
    if done.returncode == 0:
        return None
    words = (done.stderr.strip().splitlines() or ["the engine refused the configuration without a word"])[-1]
    return words.removeprefix("incast-node: ")


def engine_command(engine: Path, base: Path | None, settings: Sequence[str]) -> list[str]:
    """Without an output directory."""
    overrides = [word for setting in settings for word in ("--set", setting)]
    return [str(engine), *([] if base is None else [str(base)]), *overrides]


def to_directory(directory: Path) -> list[str]:
    """The engine's words for where it writes, and that it ends with this process."""
    return ["--output", str(directory.resolve()), "--progress", "json", "--watched-by", str(os.getpid())]


def wrong_value(plan: Plan, refused: dict[int, str]) -> str | None:
    """The engine's line for a value that is wrong wherever it stands; None if all values are right somewhere.

    Such a value is a mistake in the scan file. One that is refused only beside some others is a point that fails.
    """
    if plan.points and len(refused) == len(plan.points) and len(set(refused.values())) == 1:
        return next(iter(refused.values()))
    for key in plan.axes:
        by_value: dict[str, list[str | None]] = {}
        for point in plan.points:
            if key in point.axes:
                by_value.setdefault(setting_text(point.axes[key]), []).append(refused.get(point.number))
        for lines in by_value.values():
            # The line may be about another key: then the value is not what is wrong.
            if lines[0] is not None and present(key, "")[0] in _keys_of(lines[0]) and set(lines) == {lines[0]}:
                return lines[0]
    return None


def _keys_of(refusal: str) -> list[str]:
    """What the engine names before the value: `run.nodes = 0: ...`, `run.rus + run.bus = 3 + 3: ...`."""
    return refusal.partition(" = ")[0].split(" + ")


def write_base(folder: Path, plan: Plan) -> Path | None:
    """The configuration file below the scan's settings, in that folder; None without one."""
    if not plan.base:
        return None
    path = folder.resolve() / _BASE_NAME
    replace_file(path, plan.base)
    return path


# --- rows


def make_row(plan: Plan, columns: Columns, folder: Path, taken: Taken) -> Row:
    """The row of the table for one reading."""
    point, result = taken.reading.point, taken.result
    domain = None if result is None else result.get("time_domain")
    row: Row = {
        "point": point.number,
        "repeat": taken.reading.repeat,
        "kind": plan.kind,
        "time_domain": domain or ("virtual" if point.simulated else "real"),
        "status": taken.status,
        "reason": taken.reason,
        **columns.axis_cells(point.axes),
        "started_utc": taken.started_utc,
        "wall_s": round(taken.wall_s, 3),
        "exit_status": taken.exit_status,
        "directory": directory_name(folder, taken.directory) if taken.directory.is_dir() else None,
        "idle": taken.idle,
        "not_idle_reason": taken.not_idle_reason,
    }
    if taken.window is not None and taken.window.seconds > 0:
        shares = taken.window.shares(usable_cores())
        row |= {key: shares[key] for key in ("others_cpu_fraction", "stolen_cpu_fraction")}
    if result is not None:
        row |= figures(result, plan.kind)
        found = diagnose_directory(taken.directory, result, taken.window)
        row["limited_by"], row["limited_by_confidence"] = found.limited_by, found.confidence
        row["limited_by_evidence"] = "; ".join(found.evidence)
        row["suggestion"] = found.suggestion
    return columns.complete(row)


# --- what a person sees


@dataclass
class _Pace:
    """How long readings take, to say how much time is left."""

    seconds: float  # expected before there is any
    count: int = 0
    total: float = 0.0

    def mean(self) -> float:
        return self.total / self.count if self.count else self.seconds


class ScanView:
    """A line for each reading; on a terminal also a bar with the time that is left."""

    def __init__(self, console: Console, plan: Plan, left: Sequence[Reading], jobs: int) -> None:
        self._console = console
        self._all = len(plan.points) * plan.repeats
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
        pace = self._pace[simulated]
        pace.count, pace.total = pace.count + 1, pace.total + taken.wall_s
        line = Text(f"[{self._done:>{len(str(self._all))}}/{self._all}] ")
        line.append(f"{reading.point.words()}, repeat {reading.repeat}: ")
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
        line.append(f"   {time_left(self.seconds_left())}", style="dim")
        self._console.print(line, soft_wrap=True)

    def seconds_left(self) -> float:
        """By the mean of what was done so far."""
        simulated = self._waiting[True] * self._pace[True].mean() / max(1, min(self._jobs, self._waiting[True]))
        return simulated + self._waiting[False] * self._pace[False].mean()

    def _render(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        working = ", ".join(f"{each.point.words()}, repeat {each.repeat}" for each in list(self._now.values())[:2])
        more = f" and {len(self._now) - 2} more" if len(self._now) > 2 else ""
        bar = ProgressBar(total=max(1, self._all), completed=self._done, width=30)
        grid.add_row(Text(f"{self._done}/{self._all}"), bar, Text(time_left(self.seconds_left())), Text(working + more))
        return grid


def time_left(seconds: float) -> str:
    """`1 h 5 min left`, to two units."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min left"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60} s left"
    return f"{whole} s left"


def _figure(row: Row) -> str:
    column, value = headline(row)
    return units.duration_ns(value) if column.endswith("_ns") else units.rate(value)


# --- the command


def run_scan(journal: Journal, jobs: int, console: Console, *, retry_failed: bool) -> bool:
    """Takes what is left; False if it was asked to stop. The tables are written in any case."""
    plan, folder = journal.plan, journal.folder
    engine, columns = find_engine(), Columns(plan)
    base = write_base(folder, plan)
    left = journal.left(retry_failed=retry_failed)

    def command(reading: Reading) -> tuple[list[str], Path]:
        directory = journal.clear(reading)
        network = fabric_setting(folder, reading.point.fabric)
        words = engine_command(engine, base, (*reading.settings(), *network))
        return [*words, *to_directory(directory)], directory

    with stop_signals() as asked, ScanView(console, plan, left, jobs) as view:

        def done(taken: Taken) -> None:
            row = make_row(plan, columns, folder, taken)
            journal.add(row)
            view.on_row(taken, row)

        watch = Watch(view.on_start, done, view.on_tick)
        try:
            return take_readings(left, command, timeout_s=plan.timeout_seconds, jobs=jobs, asked=asked, watch=watch)
        finally:
            _write_tables(folder, columns, journal.rows)


def _write_tables(folder: Path, columns: Columns, rows: Sequence[Row]) -> None:
    try:
        write_tables(folder, columns, rows)
    except OSError as error:
        raise EngineError(
            f"{folder / CSV_NAME} is not written: {reason_of(error)}; incast scan --resume {folder} writes it",
            _EXIT_FAILED_POINTS,
        ) from error


def _folder_of(file: Path | None, resume: Path | None, output: Path | None, *, force: bool) -> tuple[Plan, Path]:
    if resume is not None:
        if output is not None:
            raise EngineError("--resume names the folder already; allowed: --output or --resume", EXIT_BAD_SCAN)
        plan = load_plan(resume)
        if file is not None and read_plan(file).digest() != plan.digest():
            raise EngineError(f"--resume {resume}: {file} says other points or settings than were begun there", 2)
        return plan, resume
    if file is None:
        raise EngineError("nothing to scan; allowed: a scan file, or --resume DIR", EXIT_BAD_SCAN)
    plan = read_plan(file)
    return plan, empty_folder(output, file.stem, force=force)


def empty_folder(output: Path | None, name: str, *, force: bool = False) -> Path:
    """Where a new scan of that name goes; EngineError if something is there. `force`: an old scan is removed."""
    if output is None:
        return new_folder(_RESULTS_FOLDER / f"scan-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{name}")
    if force:
        remove_scan(output)
    with writing_output(output):
        if output.exists() and any(output.iterdir()):
            raise EngineError(
                f"{output} is not empty; allowed: another --output, --resume {output}, or --force, which removes an "
                "old scan's files",
                EXIT_BAD_SCAN,
            )
    return output


@contextmanager
def given_up_if_empty(folder: Path, *, ours: bool) -> Iterator[None]:
    """A folder that was made for a scan that is not begun goes again, if its name is `ours`."""
    try:
        yield
    finally:
        if ours:
            give_up_folder(folder)


def check_points(file: str, plan: Plan, screen: Console) -> None:
    """Refuses a scan with a wrong value; says which points the engine will refuse."""
    with tempfile.TemporaryDirectory() as place:
        refused = refusals(plan, Path(place))
    if (line := wrong_value(plan, refused)) is not None:
        raise EngineError(f"{file}: {line}", EXIT_BAD_SCAN)
    if refused:
        number, line = next(iter(refused.items()))
        screen.print(
            f"{len(refused)} of {len(plan.points)} points will fail, the engine refuses them; point {number}: {line}",
            style="yellow",
            markup=False,
            soft_wrap=True,
        )


def scan(
    file: Annotated[Path | None, typer.Argument(metavar="SCAN.toml", help="What to scan (docs/scanning.md).")] = None,
    *,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Continue the scan in that folder, where it was stopped.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: take failed points again, too.")
    ] = False,
    jobs: Annotated[int, typer.Option(metavar="N", min=0, help="Simulated points at a time; 0: one per core.")] = 0,
    check: Annotated[bool, typer.Option("--check", help="Only check the file, and say what would be done.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the results go. (default: incast-results/scan-<UTC time>-<file>)"),
    ] = None,
    force: ForceOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Say on standard output, in JSON, what was done.")] = False,
) -> None:
    """Measure a grid or a list of settings, so many seconds each; one table with a row per point and repeat.

    Ctrl-C stops it; `incast scan --resume DIR` goes on. Points that fail are in the table, with the reason.
    """
    screen = open_console(stderr=True)
    plan, folder = _folder_of(file, resume, output, force=force)
    with given_up_if_empty(folder, ours=output is None and resume is None):
        if resume is None or check:
            check_points(str(file or resume), plan, screen)
        if check:
            _announce(screen, plan, None, plan.readings())
            return
        _, status = carry_out(plan, folder, jobs, retry_failed=retry_failed, as_json=as_json)
    if status:
        raise typer.Exit(status)


def carry_out(
    plan: Plan, folder: Path, jobs: int, *, retry_failed: bool = False, as_json: bool = False
) -> tuple[list[Row], int]:
    """Takes what is left of a scan that was checked, and says what came of it; its rows, and the exit status."""
    screen = open_console(stderr=True)
    with Journal(folder, plan) as journal:
        journal.end_leftovers()
        left = journal.left(retry_failed=retry_failed)
        _announce(screen, plan, folder, left)
        finished = run_scan(journal, jobs or usable_cores(), screen, retry_failed=retry_failed)
        rows = journal.rows
    _report(screen, folder, plan, rows, finished=finished, as_json=as_json)
    failed = any(row["status"] != COMPLETE for row in rows)
    return rows, 0 if finished and not failed else _EXIT_FAILED_POINTS if finished else _EXIT_INTERRUPTED


def _announce(screen: Console, plan: Plan, folder: Path | None, left: Sequence[Reading]) -> None:
    simulated = sum(reading.point.simulated for reading in left)
    parts = [f"{len(plan.points)} points x {plan.repeats} repeats, {plan.seconds:g} s each"]
    parts.append(f"{len(left)} to take ({simulated} simulated)" if simulated else f"{len(left)} to take")
    if folder is not None:
        parts.append(f"results in {folder}")
    screen.print(f"scan {plan.title}: " + "; ".join(parts), markup=False, soft_wrap=True)


def _report(screen: Console, folder: Path, plan: Plan, rows: Sequence[Row], *, finished: bool, as_json: bool) -> None:
    counts: dict[str, Any] = summary_of(rows)
    wanted = len(plan.points) * plan.repeats
    tables = [CSV_NAME] if extra.missing("polars") else [CSV_NAME, PARQUET_NAME]
    lines = [f"{counts['complete']} of {wanted} readings complete, {counts['failed']} failed; {folder / CSV_NAME}"]
    if counts["measured_not_idle"]:
        lines.append(f"NOT IDLE: others used the machine during {counts['measured_not_idle']} of them (column idle)")
    if len(tables) == 1:
        lines.append(f"{PARQUET_NAME} was not written; it needs polars: pip install 'incast[lab]'")
    if not finished:
        lines.append(f"stopped; to go on: incast scan --resume {folder}")
    for line in lines:
        screen.print(line, markup=False, soft_wrap=True)
    if as_json:
        answer = {"directory": str(folder), "finished": finished, "wanted": wanted, **counts, "tables": tables}
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
