"""Finds the engine `incast-node`, starts it, and turns what it prints into values.

The engine does all the work and all the checking of a configuration; this module only carries options to it and its
reports back. Progress comes as one JSON object per line on its standard output (docs/running.md, "Progress").
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from incast.idle import MeasuredPhase, Window
from incast.patience import Patience

ENGINE_NAME = "incast-node"
ENGINE_VARIABLE = "INCAST_NODE"

EXIT_ABORTED = 130
EXIT_BAD_CONFIG = 2
EXIT_INCOMPLETE = 5  # more events than run.fail_above_incomplete allows are incomplete; there is a result
EXIT_NO_ENGINE = 127
EXIT_PROTOCOL = 70  # EX_SOFTWARE of sysexits.h: the engine broke its promise, the person did nothing wrong

# A line is a status report of at most some hundred nodes; more without a line end is not the engine talking.
_LINE_BYTES_MAX = 4 << 20
# A library may print a line of its own on the engine's standard output; this many and nothing else is another program.
_FOREIGN_LINES_MAX = 100
_POLL_S = 0.25
# Nodes that outlive their launcher notice it by their detection deadline and end; then their pipes close.
_ORPHAN_GRACE_S = 10.0


class EngineError(Exception):
    """One line for the person, and the status to exit with."""

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status


@dataclass(frozen=True)
class Phase:
    """The run has entered another part: warm-up, measurement, drain."""

    name: str


@dataclass(frozen=True)
class NodeSample:
    """One node; bytes are fragment bytes since its start, built as a builder unit and sent as a readout unit."""

    name: str
    state: str
    built_bytes: int
    sent_bytes: int


@dataclass(frozen=True)
class Sample:
    """Rates since the sample before. `t_s` counts from the start of the run, in virtual seconds in a simulation.

    The latency is the mean of the MEPs built since then; what went wrong is counted since the start of the run.
    """

    t_s: float
    goodput_bytes_per_s: float
    events_per_s: float
    nodes: tuple[NodeSample, ...]
    latency_mean_ns: float | None = None  # None: nothing was built
    incomplete_events: int = 0
    dropped_events: int = 0
    reassignments: int = 0
    evictions: int = 0
    verify_errors: int = 0


@dataclass(frozen=True)
class Notice:
    """Something a person should know now: a lost peer, a slow node."""

    level: str
    text: str


@dataclass(frozen=True)
class ResultWritten:
    """The result file is complete at this path."""

    path: Path


_TROUBLES = ("incomplete_events", "dropped_events", "reassignments", "evictions", "verify_errors")

Progress = Phase | Sample | Notice | ResultWritten


@dataclass(frozen=True)
class Outcome:
    """How a run ended: the engine's exit status (0: as asked) and its result file, where there is one."""

    exit_status: int
    result_path: Path | None
    window: Window | None = None  # what the machine did in the measured phase, where the engine came to its end
    incomplete: tuple[dict[str, Any], ...] = ()  # files beside the engine's that are not whole, as in the result


def find_engine() -> Path:
    """The engine to run: INCAST_NODE, else the one inside the package, else the checkout's release build."""
    named = os.environ.get(ENGINE_VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise EngineError(f"{ENGINE_VARIABLE}={named} is not a program that can be run", EXIT_NO_ENGINE)
        return Path(found)
    package = Path(__file__).resolve().parent
    candidates = (package / "_engine" / ENGINE_NAME, package.parents[1] / "build" / "release" / "bin" / ENGINE_NAME)
    for candidate in candidates:
        if os.access(candidate, os.X_OK) and candidate.is_file():
            return candidate
    places = " and ".join(str(candidate) for candidate in candidates)
    raise EngineError(
        f"the engine {ENGINE_NAME} was not found: {ENGINE_VARIABLE} is not set, nothing at {places}; "
        "in a checkout ./run builds it",
        EXIT_NO_ENGINE,
    )


def find_program(name: str) -> Path:
    """A program that is built with the engine, which lies beside it."""
    found = find_engine().with_name(name)
    if not os.access(found, os.X_OK):
        raise EngineError(f"the program {name} was not found: it should lie at {found}", EXIT_NO_ENGINE)
    return found


def parse_progress(line: str) -> Progress | None:
    """One line of the engine's progress; None for a kind this version does not know. ValueError: it is none at all."""
    report = json.loads(line)
    if not isinstance(report, dict) or not isinstance(report.get("type"), str):
        raise ValueError("no progress report")
    try:
        match report["type"]:
            case "phase":
                return Phase(str(report["phase"]))
            case "sample":
                return Sample(
                    t_s=float(report["t"]),
                    goodput_bytes_per_s=float(report["goodput_bytes_per_s"]),
                    events_per_s=float(report["events_per_s"]),
                    nodes=tuple(_parse_node(node) for node in report["nodes"]),
                    latency_mean_ns=None if (mean := report.get("latency_mean_ns")) is None else float(mean),
                    **{key: int(report.get(key, 0)) for key in _TROUBLES},
                )
            case "notice":
                return Notice(str(report.get("level", "info")), str(report["text"]))
            case "result":
                return ResultWritten(Path(report["path"]))
            case _:
                return None
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("no progress report") from error


def _parse_node(node: dict[str, Any]) -> NodeSample:
    return NodeSample(
        name=str(node["roles"]),
        state=str(node["state"]),
        built_bytes=int(node["built_goodput_bytes"]),
        sent_bytes=int(node["sent_goodput_bytes"]),
    )


class LineReader:
    """Whole lines out of a pipe that never blocks the reader. A line too long to be one is cut."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._partial = b""

    def read(self) -> list[str] | None:
        """The lines that one read completes; None at the end of the pipe, once its last words were handed out."""
        chunk = os.read(self._descriptor, 1 << 16)
        if not chunk:
            if not self._partial:
                return None
            last, self._partial = self._partial, b""
            return [_text(last)]
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if len(self._partial) > _LINE_BYTES_MAX:
            lines.append(self._partial)
            self._partial = b""
        return [_text(line) for line in lines if line.strip()]


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace").rstrip("\r")


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
    ) -> None:
        """`on_progress` gets every report in order; `on_tick` is called a few times a second whatever happens."""
        self._command = list(command)
        self._on_progress = on_progress
        self._on_tick = on_tick
        self._orphan_grace_s = orphan_grace_s
        self._result_path: Path | None = None
        self._machine: MeasuredPhase | None = None
        self.pid = 0  # of the engine, once it has started
        self._view_error: Exception | None = None
        self._reports = 0
        self._foreign_lines = 0
        self._first_foreign_line = ""
        self._stop_requests = 0

    def watch(self) -> Outcome:
        """Runs the engine to its end. Must be called on the main thread, where Python delivers signals."""
        with stop_signals() as asked:
            process = self._start()
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

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            # A process group of its own: a terminal's Ctrl-C reaches this program alone, which passes it on once.
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except OSError as error:
            raise EngineError(
                f"the engine {self._command[0]} cannot be started: {error.strerror}", EXIT_NO_ENGINE
            ) from error

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
                raise EngineError(self._foreign_words(), EXIT_PROTOCOL) from error
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
            raise EngineError("aborted; the engine was killed before it could report", EXIT_ABORTED)
        if status < 0:
            name = signal.Signals(-status).name
            if self._result_path is None:
                raise EngineError(f"the engine was killed by {name} before it could report", 128 - status)
            self._show(Notice("error", f"the engine was killed by {name} after it had reported"))
            status = 128 - status
        if self._result_path is None and status == 0:
            if self._foreign_lines:
                raise EngineError(self._foreign_words(), EXIT_PROTOCOL)
            raise EngineError(f"{self._command[0]} ended without a result", EXIT_PROTOCOL)
        if self._foreign_lines:
            self._show(Notice("warning", self._foreign_words()))
        if self._view_error is not None:
            self._show(Notice("warning", f"a part of the display failed: {self._view_error}"))
        return Outcome(status, self._result_path, None if self._machine is None else self._machine.window)


def _shortened(line: str) -> str:
    return repr(line if len(line) <= 80 else line[:77] + "...")


def kill_group_of(pid: int) -> None:
    """Ends the engine with this process id and every node it started, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def engine_info() -> dict[str, Any]:
    """What the engine says about itself and the transports of this host."""
    return engine_answer("--info", "json")


def engine_answer(*question: str) -> dict[str, Any]:
    """The JSON object that the engine prints when asked so. What it refuses is its own one line."""
    engine = find_engine()
    asked = f"{engine} {question[0]}"
    try:
        answer = subprocess.run([engine, *question], capture_output=True, timeout=60, check=False)
    except OSError as error:
        raise EngineError(f"the engine {engine} cannot be started: {error.strerror}", EXIT_NO_ENGINE) from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{asked} did not answer within 60 s", EXIT_PROTOCOL) from error
    if answer.returncode != 0:
        words = _text(answer.stderr.strip().split(b"\n")[-1]) or "without a word"
        refused = f"{ENGINE_NAME}: "
        if answer.returncode == EXIT_BAD_CONFIG and words.startswith(refused):
            raise EngineError(words.removeprefix(refused), EXIT_BAD_CONFIG)
        raise EngineError(f"{asked} failed with status {answer.returncode}: {words}", EXIT_PROTOCOL)
    try:
        found = json.loads(answer.stdout)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise EngineError(f"{asked} printed no JSON object; is it {ENGINE_NAME}?", EXIT_PROTOCOL)
    return found
