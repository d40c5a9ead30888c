"""Files that a full disk cannot tear: whole or not at all, and the run goes on without them."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from incast.base.console import open_console
from incast.base.errors import EXIT_BAD_CONFIG, OneLineError

# What the engine and this package write into the directory of a run (docs/running.md).
FILES_OF_A_RUN = (
    "result.json", "result.json.part", "samples.jsonl", "audit.jsonl", "ledger.bin", "config.toml", "log.txt",
    "machine.jsonl", "dips.json", "diagnosis.json", "metrics.json", "network_ports.csv", "network_queues.csv",
    "network_series.csv", "flows.csv", "flows.parquet",
)  # fmt: skip


def reason_of(error: OSError) -> str:
    """In words."""
    return error.strerror or str(error)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """An OSError within that names no file is of that one: a full disk does not say which it was."""
    try:
        yield
    except OSError as error:
        error.filename = str(path) if error.filename is None else error.filename
        raise


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Writes one that is not there yet: all of it, or no file. OSError of that name."""
    with named(path), path.open("xb") as out:
        try:
            yield out
            out.flush()
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def replace_file(path: Path, content: str | bytes) -> None:
    """A reader, or a crash, sees the old file or the new one. OSError, of that name: the old one is still there."""
    new = path.with_name(path.name + ".new")
    try:
        with new.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        error.filename = str(path)
        raise


def lengthen_file(path: Path, content: str) -> None:
    """The same of a file that is there, and is rewritten in its place if the disk has no room for a second one."""
    try:
        replace_file(path, content)
    except OSError:
        new = content.encode()
        with named(path), path.open("r+b", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, len(new))  # all of it has room, or nothing is touched
            file.write(new)
            file.truncate(len(new))


def incomplete_file(path: Path, missing: int | None, reason: str) -> dict[str, Any]:
    """As in `incomplete_files` of result.json. `missing`: records; None: the file is not there."""
    return {"file": path.name, "missing": missing, "reason": reason}


def leave_file(path: Path, content: str) -> list[dict[str, Any]]:
    """Writes one that is good to have: if it cannot be, that is said, and it is in the list that comes back."""
    try:
        replace_file(path, content)
    except OSError as error:
        open_console(stderr=True).print(
            f"warning: {path} is not written: {reason_of(error)}", style="yellow", markup=False, soft_wrap=True
        )
        return [incomplete_file(path, None, reason_of(error))]
    return []


class LineFile:
    """Whole lines at the end of a file. One that cannot be written is left out and counted; later ones are tried."""

    def __init__(self, path: Path) -> None:
        """The file is opened with the first line."""
        self.path = path
        self.missing = 0
        self.reason = ""  # of the last line that is missing
        self._descriptor = -1
        self._bytes = 0  # of whole lines

    def append(self, line: str, *, synchronise: bool = False) -> bool:
        """With its end. False: nothing of it is in the file."""
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                self._bytes = os.fstat(self._descriptor).st_size
            self._write(line.encode("utf-8", errors="replace"))
            if synchronise:
                os.fdatasync(self._descriptor)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._bytes)
            self.missing += 1
            self.reason = reason_of(error)
            return False
        self._bytes += len(line.encode("utf-8", errors="replace"))
        return True

    def _write(self, content: bytes) -> None:
        at = self._bytes
        while content:
            written = os.pwrite(self._descriptor, content, at)
            at, content = at + written, content[written:]

    def incomplete(self) -> list[dict[str, Any]]:
        """For `incomplete_files`; empty if nothing is missing."""
        return [incomplete_file(self.path, self.missing, self.reason)] if self.missing else []

    def bytes(self) -> int:
        """Of the whole lines."""
        return self._bytes

    def close(self) -> None:
        """It is opened anew with the next line."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def writing_output(folder: Path) -> Iterator[None]:
    """What goes wrong with that folder is one line about --output."""
    try:
        yield
    except OSError as error:
        what = "" if error.filename is None or Path(error.filename) == folder else f"{error.filename}: "
        raise OneLineError(
            f"--output {folder}: {what}{reason_of(error)}; allowed: a folder that can be written", EXIT_BAD_CONFIG
        ) from error


def new_folder(wanted: Path) -> Path:
    """Makes that folder, or `wanted-2` and so on: whoever makes it has it, and nobody else."""
    candidate, number = wanted, 2
    with writing_output(wanted):
        while True:
            try:
                candidate.mkdir()
            except FileNotFoundError:
                wanted.parent.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                candidate, number = wanted.with_name(f"{wanted.name}-{number}"), number + 1
            else:
                return candidate


def give_up_folder(folder: Path) -> None:
    """Removes one that new_folder() made, if nothing is in it."""
    with suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Those of these names; the folder too, if nothing else is in it."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
