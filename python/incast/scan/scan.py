"""A scan from its plan to its tables; it can be stopped and continued at any time."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from incast.base import extras
from incast.base.console import open_console
from incast.base.errors import OneLineError
from incast.base.files import give_up_folder, new_folder, reason_of, writing_output
from incast.base.words import counted
from incast.engine.fabric_text import fabric_setting
from incast.engine.idle import usable_cores
from incast.engine.process import stop_signals
from incast.engine.program import find_engine
from incast.evidence.diagnosis import diagnose_directory
from incast.scan.cluster import Cluster
from incast.scan.hosts import ScanHosts, check_hosts
from incast.scan.journal import TUNE_NAME, Journal, directory_name, load_plan, remove_scan, summary_of
from incast.scan.plan import EXIT_BAD_SCAN, Plan, Reading, read_plan
from incast.scan.points import engine_command, to_directory, write_base
from incast.scan.points_table import best_lines
from incast.scan.runner import COMPLETE, Command, Order, Taken, Watch, take_readings
from incast.scan.spread import spreads, widest
from incast.scan.table import CSV_NAME, PARQUET_NAME, Columns, Row, figures, write_tables
from incast.scan.view import ScanView, figure_text

_RESULTS_FOLDER = Path("incast-results")
_EXIT_FAILED_POINTS = 1
_EXIT_INTERRUPTED = 130


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


def orders(journal: Journal, hosts: ScanHosts | None = None) -> Command:
    """How each reading of that folder is taken, here or on the hosts; its directory is emptied first."""
    engine, base = find_engine(), write_base(journal.folder, journal.plan.base)

    def order(reading: Reading) -> Order:
        directory = journal.clear(reading)
        if hosts is not None and not reading.point.simulated:
            over, spread = hosts.command(engine, base, reading, directory)
            return Order(over, directory, spread)
        network = fabric_setting(journal.folder, reading.point.fabric)
        words = engine_command(engine, base, (*reading.settings(), *network))
        return Order([*words, *to_directory(directory)], directory)

    return order


def run_scan(
    journal: Journal,
    jobs: int,
    console: Console,
    *,
    retry_failed: bool,
    cluster: Cluster | None = None,
    hosts: ScanHosts | None = None,
) -> bool:
    """Takes what is left; False if it was asked to stop. The tables are written in any case.

    `jobs`: simulated readings at a time, 0: as many as there are cores, here or in the cluster that takes them.
    """
    plan, folder, columns = journal.plan, journal.folder, Columns(journal.plan)
    left, command = journal.left(retry_failed=retry_failed), orders(journal, hosts)
    at_a_time = jobs or (usable_cores() if cluster is None else cluster.at_a_time)
    with stop_signals() as asked, ScanView(console, plan, left, at_a_time) as view:

        def done(taken: Taken) -> None:
            row = make_row(plan, columns, folder, taken)
            journal.add(row)
            view.on_row(taken, row)

        watch = Watch(view.on_start, done, view.on_tick)
        with writing_tables(journal, columns):
            if cluster is not None:
                far = [reading for reading in left if reading.point.simulated]
                left = [reading for reading in left if not reading.point.simulated]
                if not cluster.take(journal, far, jobs=jobs, asked=asked, watch=watch):
                    return False
            return take_readings(
                left, command, timeout_s=plan.timeout_seconds, jobs=at_a_time, asked=asked, watch=watch
            )


@contextmanager
def writing_tables(journal: Journal, columns: Columns) -> Iterator[None]:
    """Behind what is done within, however that ends, the tables are written; OneLineError: they are not.

    What went wrong within is said before that.
    """
    try:
        yield
    except BaseException:
        with suppress(OneLineError):
            _write_tables(journal, columns)
        raise
    _write_tables(journal, columns)


def _write_tables(journal: Journal, columns: Columns) -> None:
    try:
        write_tables(journal.folder, columns, journal.rows)
    except OSError as error:
        raise OneLineError(
            f"{journal.folder / CSV_NAME} is not written: {reason_of(error)}; {journal.resume} writes it",
            _EXIT_FAILED_POINTS,
        ) from error


def folder_of(file: Path | None, resume: Path | None, output: Path | None, *, force: bool) -> tuple[Plan, Path]:
    if resume is not None:
        if output is not None:
            raise OneLineError("--resume names the folder already; allowed: --output or --resume", EXIT_BAD_SCAN)
        if (resume / TUNE_NAME).exists():
            raise OneLineError(f"{resume} is of a tuning; allowed: incast tune --resume {resume}", EXIT_BAD_SCAN)
        plan = load_plan(resume)
        if file is not None and read_plan(file).digest() != plan.digest():
            raise OneLineError(f"--resume {resume}: {file} says other points or settings than were begun there", 2)
        return plan, resume
    if file is None:
        raise OneLineError("nothing to scan; allowed: a scan file, --sweep KEY=A,B,... or --resume DIR", EXIT_BAD_SCAN)
    plan = read_plan(file)
    return plan, empty_folder(output, file.stem, force=force)


def empty_folder(output: Path | None, name: str, *, force: bool = False, kind: str = "scan") -> Path:
    """Where a new scan of that name goes; OneLineError if something is there. `force`: an old scan is removed."""
    if output is None:
        return new_folder(_RESULTS_FOLDER / f"{kind}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{name}")
    if force:
        remove_scan(output)
    with writing_output(output):
        if output.exists() and any(output.iterdir()):
            raise OneLineError(
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


def carry_out(
    plan: Plan,
    folder: Path,
    jobs: int,
    *,
    retry_failed: bool = False,
    as_json: bool = False,
    cluster: Cluster | None = None,
    hosts: ScanHosts | None = None,
) -> tuple[list[Row], int]:
    """Takes what is left of a scan that was checked, and says what came of it; its rows, and the exit status."""
    screen = open_console(stderr=True)
    with Journal(folder, plan) as journal:
        check_hosts(folder, hosts, begun=bool(journal.rows))
        journal.end_leftovers()
        left = journal.left(retry_failed=retry_failed)
        announce(screen, plan, folder, left)
        finished = run_scan(journal, jobs, screen, retry_failed=retry_failed, cluster=cluster, hosts=hosts)
        rows = journal.rows
    _report(screen, folder, plan, rows, finished=finished, as_json=as_json)
    failed = any(row["status"] != COMPLETE for row in rows)
    return rows, 0 if finished and not failed else _EXIT_FAILED_POINTS if finished else _EXIT_INTERRUPTED


def announce(screen: Console, plan: Plan, folder: Path | None, left: Sequence[Reading]) -> None:
    simulated = sum(reading.point.simulated for reading in left)
    parts = [f"{counted(len(plan.points), 'point')}, {counted(plan.repeats, 'repeat')} each, of {plan.seconds:g} s"]
    parts.append(f"{len(left)} to take ({simulated} simulated)" if simulated else f"{len(left)} to take")
    if folder is not None:
        parts.append(f"results in {folder}")
    screen.print(f"scan {plan.title}: " + "; ".join(parts), markup=False, soft_wrap=True)


def _report(screen: Console, folder: Path, plan: Plan, rows: Sequence[Row], *, finished: bool, as_json: bool) -> None:
    counts: dict[str, Any] = summary_of(rows)
    wanted = len(plan.points) * plan.repeats
    tables = [CSV_NAME, PARQUET_NAME] if extras.is_here("polars") else [CSV_NAME]
    lines = [f"{counts['complete']} of {wanted} readings complete, {counts['failed']} failed; {folder / CSV_NAME}"]
    far = widest(rows)
    if far is not None:
        ends = f"{figure_text(far.column, far.lowest)} to {figure_text(far.column, far.highest)}"
        words = plan.points[far.point - 1].words()
        lines.append(f"repeats of a point lie up to {100 * far.share:.2g} % of their median apart: {words}, {ends}")
    lines += best_lines(plan, rows)
    if counts["measured_not_idle"]:
        lines.append(f"NOT IDLE: others used the machine during {counts['measured_not_idle']} of them (column idle)")
    if len(tables) == 1:
        lines.append(f"{PARQUET_NAME} was not written; it {extras.what_to_install('polars')}")
    if not finished:
        lines.append(f"stopped; to go on: incast scan --resume {folder}")
    elif counts["complete"]:
        lines.append(f"figures and tables: incast report {folder}")
    for line in lines:
        screen.print(line, markup=False, soft_wrap=True)
    if as_json:
        answer = {"directory": str(folder), "finished": finished, "wanted": wanted, **counts, "tables": tables}
        answer["spreads"] = [asdict(spread) for spread in spreads(rows)]
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
