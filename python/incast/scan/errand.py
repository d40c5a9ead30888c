"""A simulated reading that is taken on another machine: what a worker of a cluster is sent, and what it brings back.

The scan's folder need not be there. What the engine reads is written below a folder of the worker, laid out as the
scan's own, and what the engine wrote comes back as if it had been written in the scan's own.
"""

import functools
import json
import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from incast.base.errors import OneLineError
from incast.base.extras import need
from incast.engine.fabric_text import fabric_setting
from incast.engine.program import engine_version, find_engine
from incast.scan.plan import Reading
from incast.scan.points import engine_command, to_directory, write_base
from incast.scan.runner import Order, Taken, Watch, take_readings

LIBRARY = "distributed"
PURPOSE = "a scan over a cluster"
# Of the files of a run: those that name others.
_TEXTS = {".json", ".jsonl", ".toml", ".txt"}


@dataclass(frozen=True)
class Errand:
    """What a worker is sent."""

    reading: Reading
    base: str  # the text of the configuration file below all settings, or nothing
    network: str  # the text of the simulated network, or nothing
    folder: str  # of the scan, absolute, and where the engine writes, below it
    directory: str
    begun_in: str  # relative names of files count from there, where it is there
    engine: str  # as engine_here() says it
    timeout_s: float


@dataclass(frozen=True)
class Brought:
    """What comes back. `wrong`: why this worker takes no reading, and then there is none."""

    wrong: str = ""
    taken: Taken | None = None  # its result, if it has one, is among the files
    has_result: bool = False
    files: tuple[tuple[str, bytes], ...] = ()


@functools.cache
def engine_here() -> str:
    """The version of this host's engine, with the state of its sources."""
    version, sources = engine_version()
    return f"{version} ({sources})"


def host_state() -> tuple[str, str]:
    """The engine's version here, or nothing and why there is none."""
    try:
        return engine_here(), ""
    except OneLineError as error:
        return "", str(error)


def wrong_engine(found: str, why: str, wanted: str) -> str:
    """Nothing if the engine found is the one wanted, or one line."""
    if why:
        return why
    return "" if found == wanted else f"its engine is version {found}, this one {wanted}"


def take(errand: Errand) -> Brought:
    """Runs within a worker. A reading that nobody waits for any longer is ended."""
    worker = need(LIBRARY, PURPOSE).get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state != "cancelled"

    try:
        if why := wrong_engine(*host_state(), errand.engine):
            return Brought(wrong=f"{socket.gethostname()}: {why}")
        with tempfile.TemporaryDirectory(dir=worker.local_directory, prefix="incast-") as place:
            return _take_in(Path(place).resolve(), errand, is_wanted)
    except (OSError, OneLineError) as error:
        return Brought(wrong=f"{socket.gethostname()}: {error}")


def _take_in(place: Path, errand: Errand, is_wanted: Callable[[], bool]) -> Brought:
    reading = errand.reading
    base = write_base(place, errand.base)
    words = engine_command(find_engine(), base, (*reading.settings(), *fabric_setting(place, errand.network)))
    directory = place / errand.directory
    directory.parent.mkdir(parents=True)
    begun_in = Path(errand.begun_in)
    asked, ask = os.pipe()
    found: list[Taken] = []

    def look() -> None:
        if not is_wanted():
            os.write(ask, b"x")

    try:
        take_readings(
            [reading],
            lambda _: Order(
                [*words, *to_directory(directory)], directory, folder=begun_in if begun_in.is_dir() else None
            ),
            timeout_s=errand.timeout_s,
            jobs=1,
            asked=asked,
            watch=Watch(lambda _: None, found.append, look),
        )
    finally:
        os.close(asked)
        os.close(ask)
    if not found:
        return Brought()
    (taken,) = found
    files = tuple(
        (path.name, _renamed(path, str(place), errand.folder)) for path in sorted(directory.glob("*")) if path.is_file()
    )
    reason = None if taken.reason is None else taken.reason.replace(str(place), errand.folder)
    return Brought("", replace(taken, reason=reason, result=None), taken.result is not None, files)


def _renamed(path: Path, here: str, there: str) -> bytes:
    content = path.read_bytes()
    if path.suffix in _TEXTS:
        content = content.replace(here.encode(), json.dumps(there)[1:-1].encode())
    return content
