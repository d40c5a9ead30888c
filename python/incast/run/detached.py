"""Runs without a terminal: `incast run --detach`, `incast status`, `incast stop` (docs/running.md, "Long runs").

A detached run is a process in a session of its own, so closing the terminal does not reach it. Beside its result
directory DIR lie

    DIR.run.json    who runs it: process, command, when it began; at the end its exit status
    DIR.log         what a person would have seen; begun anew at 1 MiB, of which the last four are kept (DIR.log.1, ...)
"""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from incast.base.console import open_console
from incast.base.errors import OneLineError
from incast.base.files import (
    FILES_OF_A_RUN,
    LineFile,
    give_up_folder,
    reason_of,
    remove_files,
    replace_file,
    writing_output,
)
from incast.base.patience import Patience
from incast.engine.at_work import engines_writing_to
from incast.hosts.spread import Spread
from incast.run.execution import execute
from incast.run.request import RunRequest

SUFFIX = ".run.json"
_LOG_BYTES = 1 << 20
_LOGS_KEPT = 4
_BEGIN_DEADLINE_S = 60.0
_POLL_S = 0.05
_TAIL_BYTES = 1 << 18
_SCHEMA = 1
_STATE_BYTES = 4096
DIED = "died with no message"
EXIT_NO_RUN = 1
EXIT_BAD_USE = 2


def _beside(output: Path, suffix: str) -> Path:
    return output.with_name(output.name + suffix)


def _start_time(pid: int) -> int | None:
    """In ticks since the machine was started: with the process id it names a process for good. None: it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 1 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


@dataclass(frozen=True)
class Detached:
    """What is known of a detached run from the file beside its result directory."""

    state: Path
    content: dict[str, Any]

    @property
    def output(self) -> Path:
        """The result directory."""
        return self.state.with_name(self.state.name.removesuffix(SUFFIX))

    def is_alive(self) -> bool:
        """Whether its process is there, and is the one that was started."""
        pid = self.content.get("pid")
        return isinstance(pid, int) and _start_time(pid) == self.content.get("start_ticks")

    def words(self) -> str:
        """running, ended with a status, or neither: killed, or the machine was started anew."""
        if (status := self.content.get("exit_status")) is not None:
            return self._result_status() if status == 0 else f"ended with status {status}"
        if self.is_alive():
            return "running"
        left = self.engines()
        if not self.content:
            return f"running as process {left[0]}, not detached" if left else self._result_status()
        return DIED + (f"; its engine goes on as process {left[0]}" if left else "")

    def engines(self) -> list[int]:
        """Engines that write to its directory."""
        return engines_writing_to(self.output)

    def _result_status(self) -> str:
        """complete, or interrupted: as the result says."""
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads((self.output / "result.json").read_text(encoding="utf-8"))["status"])
        return "ended without a result"


def find_run(directory: Path) -> Detached:
    """A detached run, or another one that is or was at work there: whoever started it may be gone."""
    state = _beside(directory, SUFFIX)
    if not state.exists() and ((directory / "log.txt").exists() or engines_writing_to(directory)):
        return Detached(state, {})
    return read_run(state)


def read_run(state: Path) -> Detached:
    try:
        content = json.loads(state.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("schema") != _SCHEMA:
            raise ValueError("no state of a detached run")
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            why = "no detached run"
        else:
            why = reason_of(error) if isinstance(error, OSError) else f"damaged: {error}"
        raise OneLineError(f"{state}: {why}; allowed: the --output of a run", EXIT_NO_RUN) from error
    return Detached(state, content)


def _write(state: Path, content: dict[str, Any]) -> None:
    """Padded, so that a later content needs no more room: on a full disk it takes the place of the one before."""
    text = json.dumps({"schema": _SCHEMA, **content}, indent=2).encode()
    text = text.ljust(max(_STATE_BYTES, len(text) + _STATE_BYTES // 4)) + b"\n"
    try:
        replace_file(state, text)
    except OSError:
        before = state.stat().st_size if state.exists() else 0
        text = text.rstrip()
        if len(text) > before:
            raise
        descriptor = os.open(state, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, text.ljust(before - 1) + b"\n", 0)
        finally:
            os.close(descriptor)


# --- starting


def start(request: RunRequest, *, as_json: bool) -> int:
    """Starts it, waits until the engine is at work or has refused, and says how to look after it."""
    if request.default_name:
        request = request.with_folder()
    elif request.force:
        _forget(request.output)
    else:
        for path in (request.output, _beside(request.output, SUFFIX)):
            if path.exists():
                raise OneLineError(
                    f"--output: {path} is there already; allowed: a name that is not, or --force, which removes an old "
                    "run's files",
                    EXIT_BAD_USE,
                )
    state, log = _beside(request.output, SUFFIX), _beside(request.output, ".log")
    asked = {
        "config": None if request.config is None else str(request.config.resolve()),
        "settings": list(request.settings),
        "transport": request.transport,
        "web": request.web,
        "force": request.force,
        "spread": None if request.spread is None else request.spread.to_json(),
    }
    with writing_output(request.output):
        state.parent.mkdir(parents=True, exist_ok=True)
        _write(state, {"request": asked})
        with log.open("ab") as file:
            subprocess.run(
                [sys.executable, "-m", "incast.run.background", str(state)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                check=False,
                timeout=_BEGIN_DEADLINE_S,
            )
    patience = Patience(_BEGIN_DEADLINE_S)
    samples = request.output / "samples.jsonl"
    while (run := read_run(state)).content.get("exit_status") is None and not samples.exists():
        if patience.is_over():
            raise OneLineError(f"the run did not begin within {_BEGIN_DEADLINE_S:g} s; see {log}", EXIT_NO_RUN)
        time.sleep(_POLL_S)
    if (status_ := run.content.get("exit_status")) and not (request.output / "log.txt").exists():
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["it said nothing"]
        for path in (state, log):
            path.unlink(missing_ok=True)
        give_up_folder(request.output)
        raise OneLineError(lines[-1].removeprefix("incast: ").removeprefix("incast-node: "), status_)
    pid = run.content.get("pid")
    if as_json:
        sys.stdout.write(json.dumps({"output": str(request.output), "pid": pid, "log": str(log)}) + "\n")
        return 0
    screen = open_console()
    for line in (
        f"runs as process {pid}; results in {request.output}, log in {log}",
        f"incast status {request.output}    says how it goes",
        f"incast stop {request.output}      ends it early; what was measured is reported",
    ):
        screen.print(line, markup=False, soft_wrap=True)
    return 0


def _forget(output: Path) -> None:
    """Removes what a detached run has left beside its directory. OneLineError: it is at work."""
    state, log = _beside(output, SUFFIX), _beside(output, ".log")
    running = engines_writing_to(output)
    with contextlib.suppress(OneLineError):
        run = read_run(state)
        if run.content.get("exit_status") is None and run.is_alive():
            running.append(run.content["pid"])
    if running:
        raise OneLineError(
            f"--output {output}: a run is at work there as process {running[0]}; allowed: another folder", EXIT_BAD_USE
        )
    with writing_output(output):
        for path in (state, log, *(_beside(output, f".log.{number}") for number in range(1, _LOGS_KEPT + 1))):
            path.unlink(missing_ok=True)
        if output.is_dir():
            remove_files(output, FILES_OF_A_RUN)


class _RotatingText(io.TextIOBase):
    """A text stream into a log that is begun anew when it is long. What cannot be written is left out."""

    def __init__(self, path: Path) -> None:
        self._file = LineFile(path)
        self._partial = ""

    def writable(self) -> bool:
        """It is."""
        return True

    def close(self) -> None:
        """The log's file, too."""
        self._file.close()
        super().close()

    def write(self, text: str) -> int:
        """Whole lines go to the log."""
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            if self._file.bytes() + len(line) >= _LOG_BYTES:
                self._begin_anew()
            self._file.append(line + "\n")
        return len(text)

    def _begin_anew(self) -> None:
        path = self._file.path
        names = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, _LOGS_KEPT + 1))]
        with contextlib.suppress(OSError):
            for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
                if newer.exists():
                    newer.replace(older)
        self._file.close()
        self._file = LineFile(path)


def main(state: Path) -> int:
    """What the detached process does."""
    detached = read_run(state)
    content, asked = dict(detached.content), detached.content["request"]
    content |= {
        "pid": os.getpid(),
        "start_ticks": _start_time(os.getpid()),
        "started_utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    _write(state, content)
    # Absolute, so that its engine is found by it.
    config, output = asked["config"], detached.output.resolve()
    request = RunRequest(
        None if config is None else Path(config),
        tuple(asked["settings"]),
        output,
        asked["transport"],
        asked.get("web"),
        force=bool(asked.get("force")),
        spread=None if asked.get("spread") is None else Spread.from_json(asked["spread"]),
        watched=False,  # if this process is killed, its engine goes on, and `incast stop` finds it
    )
    stream = _RotatingText(_beside(detached.output, ".log"))
    status = 1
    try:
        with contextlib.redirect_stderr(stream), contextlib.redirect_stdout(stream):
            status = execute(request, as_json=False)
    except OneLineError as error:
        stream.write(f"incast: {error}\n")
        status = error.exit_status
    except OSError as error:
        stream.write(f"incast: {error.filename or 'error'}: {reason_of(error)}\n")
    finally:
        ended = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with contextlib.suppress(OSError):
            _write(state, {**content, "exit_status": status, "ended_utc": ended})
        stream.close()
    return status


# --- looking after it


def _last_samples(directory: Path) -> list[dict[str, Any]]:
    """The last sample of each node, from the end of a file that may be long."""
    latest: dict[int, dict[str, Any]] = {}
    with contextlib.suppress(OSError), (directory / "samples.jsonl").open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        for line in file.read().split(b"\n"):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                sample = json.loads(line)
                latest[int(sample["node"])] = sample
    return [latest[node] for node in sorted(latest)]


def _metrics_of(directory: Path) -> list[str]:
    """Where its nodes can be scraped (docs/metrics.md)."""
    with contextlib.suppress(OSError, ValueError, LookupError):
        return list(json.loads((directory / "metrics.json").read_text(encoding="utf-8"))[0]["targets"])
    return []


def _result_goodput(directory: Path) -> float | None:
    """Of a run that has ended with a result: without what nodes sent to themselves."""
    try:
        found = json.loads((directory / "result.json").read_text(encoding="utf-8"))
        return float(found["goodput_bytes_per_s"]["total_without_self"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def report_of(run: Detached) -> dict[str, Any]:
    samples = _last_samples(run.output)
    return {
        "output": str(run.output),
        "state": run.words(),
        "pid": run.content.get("pid"),
        "started_utc": run.content.get("started_utc"),
        "ended_utc": run.content.get("ended_utc"),
        "exit_status": run.content.get("exit_status"),
        "phase": samples[0]["phase"] if samples else None,
        "seconds": max((sample["t"] for sample in samples), default=None),
        "seconds_left": min((left for sample in samples if (left := sample.get("left_s")) is not None), default=None),
        "goodput_bytes_per_s": sum(sample["built_goodput_bytes_per_s"] for sample in samples) if samples else None,
        "result_goodput_bytes_per_s": _result_goodput(run.output),
        "metrics": _metrics_of(run.output),
        "nodes": [{"node": sample["node"], "state": sample["state"], "seconds": sample["t"]} for sample in samples],
    }


def end(run: Detached, pids: Sequence[int], limit_s: float) -> Detached:
    """Asks those processes to end the run early, and waits; what became of it. OneLineError: it goes on."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)
    patience = Patience(limit_s)
    while run.is_alive() or run.engines():
        if patience.is_over():
            raise OneLineError(f"{run.output}: did not end within {limit_s:g} s; it is still asked to", EXIT_NO_RUN)
        time.sleep(_POLL_S)
    return read_run(run.state) if run.content else run
