"""What a scan has done so far, on the disk: survives Ctrl-C, `kill -9` and a crash of the machine between two lines.

A scan's folder holds

    plan.json       the plan, with everything that decides what is measured; never changes
    journal.jsonl   one line per finished reading: its row of the table; appended and synchronised, never rewritten
    readings/P-R/   the result directory of repeat R of point P, as the engine wrote it
    table.csv, table.parquet   made of the journal

The journal alone says what is done. A reading without a line is taken again, and what is left of it is removed.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from incast.base.errors import OneLineError
from incast.base.files import FILES_OF_A_RUN, reason_of, remove_files, replace_file, writing_output
from incast.base.patience import Patience
from incast.engine.at_work import engines_writing_to
from incast.engine.process import kill_group_of
from incast.scan.plan import EXIT_BAD_SCAN, Plan, Point, Reading
from incast.scan.table import Row

HOSTS_NAME = "hosts.txt"  # those that measure, where they were given
PLAN_NAME = "plan.json"
TUNE_NAME = "tune.json"  # of a tuning (docs/tuning.md), whose readings lie as those of a scan do
TUNE_RESULTS = ("best.toml", "tuning.json")
JOURNAL_NAME = "journal.jsonl"
READINGS_NAME = "readings"
_SCHEMA = 1
_LEFTOVER_DEADLINE_S = 15.0
EXIT_LEFTOVER = 1


def remove_scan(folder: Path) -> None:
    """What a scan has written there, and nothing else. OneLineError: a scan is at work, or it cannot be removed."""
    if not is_scan(folder):
        return
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with writing_output(folder):
            for place in (folder / READINGS_NAME, folder / "fabrics"):
                for reading in place.glob("*-*"):
                    remove_files(reading, FILES_OF_A_RUN)
                remove_files(place, [file.name for file in place.glob("*.toml")])
            own = (PLAN_NAME, JOURNAL_NAME, "table.csv", "table.parquet", "base.toml", HOSTS_NAME)
            remove_files(folder, (*own, TUNE_NAME, *TUNE_RESULTS))
    except BlockingIOError as error:
        raise OneLineError(f"{folder}: another process is taking this scan", EXIT_BAD_SCAN) from error
    finally:
        os.close(lock)


def make_way(folder: Path, *, force: bool) -> None:
    """A folder of a run or a scan is refused; with `force`, what that has written there is removed, and no more."""
    held = [name for name in (PLAN_NAME, *FILES_OF_A_RUN) if (folder / name).exists()]
    if not held:
        return
    if running := engines_writing_to(folder):
        raise OneLineError(
            f"--output {folder}: a run is at work there as process {running[0]}; allowed: another folder", EXIT_BAD_SCAN
        )
    if not force:
        raise OneLineError(
            f"--output {folder}: holds {held[0]} of a run or a scan; allowed: another folder, or --force, which "
            "removes its files",
            EXIT_BAD_SCAN,
        )
    remove_scan(folder)
    with writing_output(folder):
        remove_files(folder, FILES_OF_A_RUN)


def is_scan(folder: Path) -> bool:
    """Whether that folder is one of a scan."""
    return (folder / PLAN_NAME).is_file()


def load_plan(folder: Path) -> Plan:
    """The plan of a scan's folder; OneLineError, one line, if there is none."""
    path = folder / PLAN_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != _SCHEMA:
            raise ValueError(f"schema {content['schema']}, and this version reads {_SCHEMA}")
        fields = content["plan"]
        points = tuple(
            Point(each["number"], each["axes"], tuple(each["settings"]), each["simulated"], each.get("fabric", ""))
            for each in fields["points"]
        )
        return Plan(**{**fields, "axes": tuple(fields["axes"]), "points": points})
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = "not there" if isinstance(error, FileNotFoundError) else str(error)
        raise OneLineError(f"{folder} is no folder of a scan: {PLAN_NAME}: {why}", EXIT_BAD_SCAN) from error


def load_rows(folder: Path) -> list[Row]:
    """The rows of what is done, by point and repeat; of a reading that was taken again, the last."""
    rows: dict[tuple[int, int], Row] = {}
    for row in _lines(folder / JOURNAL_NAME)[0]:
        rows[row["point"], row["repeat"]] = row
    return [rows[key] for key in sorted(rows)]


def _lines(path: Path) -> tuple[list[Row], int]:
    """The whole lines, and the bytes they take; a last line without its end is what a crash leaves."""
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    rows: list[Row] = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            row = json.loads(line)
            row["point"], row["repeat"]
        except (ValueError, KeyError, TypeError) as error:
            raise OneLineError(f"{path}: line {number} is damaged: {error}", EXIT_BAD_SCAN) from error
        rows.append(row)
    return rows, len(whole)


class Journal:
    """The folder of one scan, for the one process that fills it."""

    def __init__(self, folder: Path, plan: Plan, command: str = "incast scan") -> None:
        """Takes the folder for itself. OneLineError if another process has it, or a scan with other points.

        `command`: that goes on with it.
        """
        self.folder = folder
        self.plan = plan
        self.resume = f"{command} --resume {folder}"
        with writing_output(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise OneLineError(f"{folder}: another process is taking this scan", EXIT_BAD_SCAN) from error
        try:
            with writing_output(folder):
                self._begin()
        except BaseException:
            os.close(self._lock)
            raise

    def _begin(self) -> None:
        if is_scan(self.folder):
            if load_plan(self.folder).digest() != self.plan.digest():
                raise OneLineError(
                    f"{self.folder}: the scan there has other points or settings; allowed: another --output",
                    EXIT_BAD_SCAN,
                )
        else:
            text = json.dumps({"schema": _SCHEMA, "plan": asdict(self.plan)}, indent=1) + "\n"
            replace_file(self.folder / PLAN_NAME, text)
        path = self.folder / JOURNAL_NAME
        rows, whole_bytes = _lines(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.ftruncate(self._file, whole_bytes)
        os.lseek(self._file, 0, os.SEEK_END)
        os.fsync(self._lock)
        self._rows = {(row["point"], row["repeat"]): row for row in rows}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
        os.close(self._lock)

    @property
    def rows(self) -> list[Row]:
        """What is done, by point and repeat."""
        return [self._rows[key] for key in sorted(self._rows)]

    def left(self, *, retry_failed: bool = False) -> list[Reading]:
        """The readings that are not done, in the order of the plan."""
        done = {key for key, row in self._rows.items() if not (retry_failed and row["status"] != "complete")}
        return [reading for reading in self.plan.readings() if reading.key not in done]

    def add(self, row: Row) -> None:
        """The reading is done once this returns, whatever happens after it."""
        line = (json.dumps(row) + "\n").encode()
        whole = os.lseek(self._file, 0, os.SEEK_CUR)
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fdatasync(self._file)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, whole)
            raise OneLineError(
                f"{self.folder / JOURNAL_NAME}: {reason_of(error)}; this reading is to be taken again: {self.resume}",
                EXIT_LEFTOVER,
            ) from error
        self._rows[row["point"], row["repeat"]] = row

    def directory(self, reading: Reading) -> Path:
        """Where the engine writes that reading."""
        return self.folder / READINGS_NAME / f"{reading.point.number:04}-{reading.repeat}"

    def clear(self, reading: Reading) -> Path:
        """The same, with nothing there."""
        directory = self.directory(reading)
        shutil.rmtree(directory, ignore_errors=True)
        with writing_output(self.folder):
            directory.parent.mkdir(exist_ok=True)
        return directory

    def end_leftovers(self) -> int:
        """Ends engines that an earlier process of this scan left behind when it was killed; how many those were.

        An engine is known by its `--output` within this folder, which no other process writes to while we hold it.
        """
        ended: set[int] = set()
        patience = Patience(_LEFTOVER_DEADLINE_S)
        while left := self._leftovers():
            if patience.is_over():
                raise OneLineError(f"{self.folder}: process {left[0]} of an earlier scan does not end", EXIT_LEFTOVER)
            for pid in left:
                kill_group_of(pid)
            ended.update(left)
            time.sleep(0.02)
        return len(ended)

    def _leftovers(self) -> list[int]:
        return engines_writing_to(self.folder / READINGS_NAME, below=True)


def directory_name(folder: Path, directory: Path) -> str:
    """As it stands in the table: relative, so that the folder may be moved."""
    return str(directory.relative_to(folder))


def summary_of(rows: Iterable[Row]) -> dict[str, Any]:
    """How many readings there are of which sort."""
    listed = list(rows)
    return {
        "readings": len(listed),
        "complete": sum(row["status"] == "complete" for row in listed),
        "failed": sum(row["status"] != "complete" for row in listed),
        "measured_not_idle": sum(row.get("idle") is False for row in listed),
    }
