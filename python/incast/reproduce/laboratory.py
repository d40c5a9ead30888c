"""Runs what rows need, and keeps what came out: the same engine, networks and definitions give the same figures.

A row's figures are kept in `rows/ID.json` of the results' folder, under a hash over the engine, the fabric files as the
row changes them, and the row's definition. How figures are judged is not kept. Each time one of the kept rows, the one
whose last check is longest ago, is run again, and must give the same figures to the last bit.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from incast.base.errors import EXIT_BAD_CONFIG, EXIT_PROTOCOL, OneLineError
from incast.base.files import replace_file, writing_output
from incast.engine.fabric_text import fabric_setting
from incast.engine.process import stop_signals
from incast.engine.program import find_engine
from incast.reproduce.model import Fabrics, Figures, Finding, Row
from incast.scan.journal import make_way
from incast.scan.plan import Point, Reading
from incast.scan.points import engine_command, to_directory
from incast.scan.runner import COMPLETE, Order, Taken, Watch, take_readings
from incast.scan.table import figures

_SCHEMA = 1
_TIMEOUT_S = 1800.0
_EXIT_INTERRUPTED = 130
# Columns that are of the machine and the moment, not of the simulated network.
_MOMENTARY = (
    "cpu", "useful_cpu", "peak_rss", "host", "cores", "incast", "build_type", "working_set", "transport",
)  # fmt: skip

RowFigures = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """A row with its finding. `cached`: its figures were kept from an earlier run."""

    row: Row
    finding: Finding
    cached: bool


class Laboratory:
    """A folder of results, for one engine and one folder of fabric files."""

    def __init__(self, folder: Path, fabrics: Path, jobs: int, *, force: bool = False) -> None:
        """`force`: the files of a run or a scan are removed from that folder first."""
        self._force = force
        self._folder = folder
        self._fabrics = Fabrics(fabrics)
        self._jobs = jobs
        self._engine = find_engine()
        self._engine_hash = hashlib.sha256(self._engine.read_bytes()).hexdigest()

    def outcomes(self, rows: Sequence[Row], *, fresh: bool, say: Callable[[str], None]) -> list[Outcome]:
        """Every row with its finding. OneLineError if a run fails, or the spot check finds other figures than kept."""
        found, cached = self._all_figures(rows, fresh=fresh, say=say)
        return [Outcome(row, row.judge(found[row.id], self._fabrics), row.id in cached) for row in rows]

    def figures(self, rows: Sequence[Row], say: Callable[[str], None]) -> dict[str, Figures]:
        """What their runs give, by the row's id; those that are kept are not run. OneLineError as above."""
        return self._all_figures(rows, fresh=False, say=say)[0]

    def _all_figures(
        self, rows: Sequence[Row], *, fresh: bool, say: Callable[[str], None]
    ) -> tuple[dict[str, Figures], set[str]]:
        """And the rows whose figures were kept, and not run again."""
        kept = {row.id: figures for row in rows if not fresh and (figures := self._kept(row)) is not None}
        checked = self._row_to_check(rows, kept)
        wanted = [row for row in rows if row.experiments and (row.id not in kept or row is checked)]

        def take(row: Row, figures: RowFigures) -> None:
            if row is not checked:
                self._keep(row, figures)

        found = self._run(wanted, say, take)
        if checked is not None:
            self._compare(checked, kept[checked.id], found[checked.id])
            say(f"spot check: row {checked.id} run again, and the same")
            self._keep(checked, found[checked.id])
        return (
            {row.id: Figures(found.get(row.id) or kept.get(row.id) or {}) for row in rows},
            {row.id for row in rows if row.id in kept and row is not checked},
        )

    # --- what is kept

    def _path(self, row: Row) -> Path:
        return self._folder / "rows" / f"{row.id}.json"

    def _key(self, row: Row) -> str:
        return hashlib.sha256(f"{self._engine_hash} {row.definition(self._fabrics.folder)}".encode()).hexdigest()

    def _kept(self, row: Row) -> RowFigures | None:
        """None if there is nothing, or only of another engine, network or definition."""
        content = self._content(row)
        return content["figures"] if content.get("key") == self._key(row) else None

    def _content(self, row: Row) -> dict[str, Any]:
        try:
            content = json.loads(self._path(row).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) and content.get("schema") == _SCHEMA else {}

    def _keep(self, row: Row, row_figures: RowFigures) -> None:
        path = self._path(row)
        with writing_output(self._folder):
            path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(
            {
                "schema": _SCHEMA,
                "key": self._key(row),
                "checked_utc": datetime.now(UTC).isoformat(timespec="microseconds"),
                "figures": row_figures,
            },
            indent=1,
        )
        with writing_output(self._folder):
            replace_file(path, text + "\n")

    def _row_to_check(self, rows: Iterable[Row], kept: Mapping[str, RowFigures]) -> Row | None:
        candidates = [row for row in rows if row.experiments and row.id in kept]
        return min(candidates, key=lambda row: str(self._content(row).get("checked_utc")), default=None)

    def _compare(self, row: Row, before: RowFigures, now: RowFigures) -> None:
        for name, one in before.items():
            for column, value in one.items():
                found = now.get(name, {}).get(column)
                if found != value:
                    raise OneLineError(
                        f"row {row.id}, run '{name}': {column} was {value} and is {found}; the same engine and network "
                        f"must give the same: see {self._path(row)}",
                        EXIT_PROTOCOL,
                    )

    @contextmanager
    def _taken_folder(self) -> Iterator[None]:
        """The folder, made and locked. OneLineError: another process has it, or it is that of a run or a scan."""
        folder = self._folder
        make_way(folder, force=self._force)
        with writing_output(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise OneLineError(f"--output {folder}: another process reproduces there", EXIT_BAD_CONFIG) from error
            yield
        finally:
            os.close(lock)

    # --- runs

    def _run(
        self, rows: Sequence[Row], say: Callable[[str], None], take: Callable[[Row, RowFigures], None]
    ) -> dict[str, RowFigures]:
        """The figures of all runs of those rows; what several of them need is run once.

        take(row, figures) as soon as all runs of a row have ended: what has all its figures outlives an interruption.
        """
        numbers: dict[tuple[object, ...], int] = {}
        points: list[Point] = []
        wanted: dict[str, dict[str, int]] = {}
        for row in rows:
            wanted[row.id] = {}
            for experiment in row.experiments:
                point = experiment.point(len(points) + 1, self._fabrics.folder)
                number = numbers.setdefault((point.settings, point.fabric), point.number)
                if number == point.number:
                    points.append(replace(point, axes={"row": f"{row.id}: {experiment.name}"}))
                wanted[row.id][experiment.name] = number
        figures: dict[str, RowFigures] = {}

        def complete(found: Mapping[int, dict[str, Any]]) -> None:
            for row in rows:
                runs = wanted[row.id]
                if row.id not in figures and all(number in found for number in runs.values()):
                    figures[row.id] = {name: found[number] for name, number in runs.items()}
                    take(row, figures[row.id])

        self._take(points, say, complete)
        return figures

    def _take(
        self,
        points: Sequence[Point],
        say: Callable[[str], None],
        complete: Callable[[Mapping[int, dict[str, Any]]], None],
    ) -> None:
        """Runs them. complete(figures of all that have ended so far), by number, after each."""
        found: dict[int, dict[str, Any]] = {}
        failed: list[str] = []
        if not points:
            return
        with (
            self._taken_folder(),
            tempfile.TemporaryDirectory(prefix="runs-", dir=self._folder) as place,
            stop_signals() as asked,
        ):
            folder = Path(place)

            def command(reading: Reading) -> Order:
                directory = folder / f"{reading.point.number:04}"
                network = fabric_setting(folder, reading.point.fabric)
                words = engine_command(self._engine, None, (*reading.point.settings, *network))
                return Order([*words, *to_directory(directory)], directory)

            def done(taken: Taken) -> None:
                point = taken.reading.point
                if taken.status != COMPLETE or taken.result is None:
                    failed.append(f"row {point.axes['row']}: {taken.status}: {taken.reason}")
                else:
                    found[point.number] = _lasting(taken.result)
                say(f"[{len(found) + len(failed)}/{len(points)}] row {point.axes['row']}: {taken.wall_s:.1f} s")
                shutil.rmtree(taken.directory, ignore_errors=True)
                complete(found)

            watch = Watch(lambda _: None, done, lambda: None)
            readings = [Reading(point, 1) for point in points]
            if not take_readings(readings, command, timeout_s=_TIMEOUT_S, jobs=self._jobs, asked=asked, watch=watch):
                raise OneLineError("stopped; rows that were complete are kept", _EXIT_INTERRUPTED)
        if failed:
            raise OneLineError(failed[0] + (f" (and {len(failed) - 1} more)" if failed[1:] else ""), EXIT_PROTOCOL)


def _lasting(result: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that another run of the same engine gives again."""
    kind = "net" if result.get("kind") == "net" else "run"
    return {
        column: value
        for column, value in figures(result, kind).items()
        if value is not None and not column.startswith(_MOMENTARY)
    }
