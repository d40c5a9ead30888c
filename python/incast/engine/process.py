"""Starts the engine, watches it to its end, and says how it ended.

The engine does all the work and all the checking of a configuration; this module only carries options to it and its
reports back.
"""

import contextlib
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from incast.base.errors import EXIT_ABORTED, EXIT_NO_ENGINE, EXIT_PROTOCOL, OneLineError
from incast.base.patience import Patience
from incast.engine.idle import MeasuredPhase, Window
from incast.engine.progress import LineReader, Notice, Phase, Progress, ResultWritten, parse_progress

# A library may print a line of its own on the engine's standard output; this many and nothing else is another program.
_FOREIGN_LINES_MAX = 100
_POLL_S = 0.25
# Nodes that outlive their launcher notice it by their detection deadline and end; then their pipes close.
_ORPHAN_GRACE_S = 10.0


@dataclass(frozen=True)
class Outcome:
    """How a run ended: the engine's exit status (0: as asked) and its result file, where there is one."""

    exit_status: int
    result_path: Path | None
    window: Window | None = None  # what the machine did in the measured phase, where the engine came to its end
    incomplete: tuple[dict[str, Any], ...] = ()  # files beside the engine's that are not whole, as in the result
    last_error: str = ""  # that the engine told of

    @property
    def why_no_result(self) -> str:
        """Where there is none: what the engine said last."""
        return self.last_error or f"the engine ended with status {self.exit_status}"


@contextlib.contextmanager
def stop_signals() -> Iterator[int]:
    """Gives a descriptor on which each request to stop arrives as a byte: Ctrl-C, SIGTERM, a closed terminal.

    A program that was started to ignore a closed terminal (nohup) goes on without it.
    """
    asked, ask = os.pipe()
    os.set_blocking(ask, False)
    os.set_blocking(asked, False)
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)

    def note(_signal: int, _frame: FrameType | None) -> None:
        """Python writes the byte; a handler must exist for that."""

    previous_descriptor = signal.set_wakeup_fd(ask, warn_on_full_buffer=False)
    previous_handlers = [(number, signal.signal(number, note)) for number in signals]
    try:
        yield asked
    finally:
        signal.set_wakeup_fd(previous_descriptor)
        for number, handler in previous_handlers:
            signal.signal(number, handler)
        os.close(asked)
        os.close(ask)


class EngineRun:
    """One run of the engine, watched from start to end. Use once."""

    def __init__(
        self,
        command: Sequence[str],
        on_progress: Callable[[Progress], None],
        on_tick: Callable[[], None],
        *,
        orphan_grace_s: float = _ORPHAN_GRACE_S,
        input_: bytes = b"",
    ) -> None:
        """`on_progress` gets every report in order; `on_tick` is called a few times a second whatever happens. `input_`
        is what the engine reads, a few bytes.
        """
        self._command = list(command)
        self._on_progress = on_progress
        self._on_tick = on_tick
        self._orphan_grace_s = orphan_grace_s
        self._input = input_
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: OneLineError | None = None
        self._result_path: Path | None = None
        self._machine: MeasuredPhase | None = None
        self.pid = 0  # of the engine, once it has started
        self._view_error: Exception | None = None
        self._last_error = ""
        self._reports = 0
        self._foreign_lines = 0
        self._first_foreign_line = ""
        self._stop_requests = 0

    def watch(self) -> Outcome:
        """Runs the engine to its end. Must be called on the main thread, where Python delivers signals."""
        with stop_signals() as asked:
            process = self._process = self._start()
            self.pid = process.pid
            self._machine = MeasuredPhase(process.pid)
            try:
                self._follow(process, asked)
            except BaseException:
                kill_group_of(process.pid)
                raise
            finally:
                status = process.wait()
                for pipe in (process.stdout, process.stderr):
                    if pipe is not None:
                        pipe.close()
        return self._outcome(status)

    def stop(self) -> None:
        """As the first Ctrl-C: it drains and reports."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def fail(self, error: OneLineError) -> None:
        """Ends it at once, and watch() with that error."""
        self._failure = self._failure or error

    def _start(self) -> subprocess.Popen[bytes]:
        reading, writing = os.pipe()
        try:
            os.write(writing, self._input)  # which a pipe takes at once
            # A process group of its own: a terminal's Ctrl-C reaches this program alone, which passes it on once.
            return subprocess.Popen(
                self._command,
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except OSError as error:
            raise OneLineError(
                f"the engine {self._command[0]} cannot be started: {error.strerror}", EXIT_NO_ENGINE
            ) from error
        finally:
            os.close(reading)
            os.close(writing)

    def _follow(self, process: subprocess.Popen[bytes], asked: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        handlers: dict[int, tuple[LineReader, Callable[[str], None]]] = {
            process.stdout.fileno(): (LineReader(process.stdout.fileno()), self._take_report),
            process.stderr.fileno(): (LineReader(process.stderr.fileno()), self._take_remark),
        }
        orphans: Patience | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(asked, selectors.EVENT_READ)
            for descriptor in handlers:
                selector.register(descriptor, selectors.EVENT_READ)
            while handlers:
                for key, _ in selector.select(_POLL_S):
                    if key.fd == asked:
                        self._stop(process, os.read(asked, 64))
                        continue
                    reader, take = handlers[key.fd]
                    lines = reader.read()
                    if lines is None:
                        selector.unregister(key.fd)
                        del handlers[key.fd]
                    for line in lines or ():
                        take(line)
                self._tick()
                if self._failure is not None:
                    raise self._failure
                if orphans is None:
                    if process.poll() is not None:
                        orphans = Patience(self._orphan_grace_s)
                elif orphans.is_over():
                    kill_group_of(process.pid)
                    break

    def _stop(self, process: subprocess.Popen[bytes], signals: bytes) -> None:
        first = self._stop_requests == 0
        # A terminal that closes says so to its session and to its programs: twice is no second request.
        requests = sum(number != signal.SIGHUP for number in signals)
        self._stop_requests += requests or int(first)
        if self._stop_requests > 1:
            kill_group_of(process.pid)
        elif first and process.poll() is None:
            process.send_signal(signal.SIGINT)
            self._show(Notice("info", "stopping: the engine drains and reports; Ctrl-C again aborts"))

    def _take_report(self, line: str) -> None:
        try:
            report = parse_progress(line)
        except ValueError as error:
            self._foreign_lines += 1
            self._first_foreign_line = self._first_foreign_line or _shortened(line)
            if self._reports == 0 and self._foreign_lines > _FOREIGN_LINES_MAX:
                raise OneLineError(self._foreign_words(), EXIT_PROTOCOL) from error
            return
        self._reports += 1
        if isinstance(report, ResultWritten):
            self._result_path = report.path
        if isinstance(report, Phase) and self._machine is not None:
            self._machine.on_phase(report.name)
        if report is not None:
            self._show(report)

    def _take_remark(self, line: str) -> None:
        self._show(Notice("engine", line))

    def _show(self, report: Progress) -> None:
        """A display that fails ends no run."""
        if isinstance(report, Notice) and report.level in ("error", "engine"):
            self._last_error = report.text
        try:
            self._on_progress(report)
        except Exception as error:
            self._view_error = self._view_error or error

    def _tick(self) -> None:
        try:
            self._on_tick()
        except Exception as error:
            self._view_error = self._view_error or error

    def _foreign_words(self) -> str:
        return (
            f"{self._command[0]} does not speak the engine's progress protocol: "
            f"{self._foreign_lines} foreign lines, the first: {self._first_foreign_line}"
        )

    def _outcome(self, status: int) -> Outcome:
        if self._stop_requests > 1:
            raise OneLineError("aborted; the engine was killed before it could report", EXIT_ABORTED)
        if status < 0:
            name = signal.Signals(-status).name
            if self._result_path is None:
                raise OneLineError(f"the engine was killed by {name} before it could report", 128 - status)
            self._show(Notice("error", f"the engine was killed by {name} after it had reported"))
            status = 128 - status
        if self._result_path is None and status == 0:
            if self._foreign_lines:
                raise OneLineError(self._foreign_words(), EXIT_PROTOCOL)
            raise OneLineError(f"{self._command[0]} ended without a result", EXIT_PROTOCOL)
        if self._foreign_lines:
            self._show(Notice("warning", self._foreign_words()))
        if self._view_error is not None:
            self._show(Notice("warning", f"a part of the display failed: {self._view_error}"))
        window = None if self._machine is None else self._machine.window
        return Outcome(status, self._result_path, window, last_error=self._last_error)


def _shortened(line: str) -> str:
    return repr(line if len(line) <= 80 else line[:77] + "...")


def kill_group_of(pid: int) -> None:
    """Ends the engine with this process id and every node it started, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
