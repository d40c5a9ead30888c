"""Takes readings: starts engines, watches them and the machine, and says what came of each.

Readings in virtual time run beside each other; one in real time runs alone, and two looks at /proc within its measured
phase say what else the machine did then. One thread watches everything; nothing outlives it but by `kill -9`.
"""

import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from incast.base.errors import OneLineError
from incast.base.patience import Patience
from incast.engine.idle import IdleRule, MeasuredPhase, Window, usable_cores
from incast.engine.process import kill_group_of
from incast.engine.progress import LineReader, Notice, Phase, ResultWritten, parse_progress
from incast.hosts.launch import Launch, run_token
from incast.hosts.spread import Spread
from incast.scan.plan import Reading

_POLL_S = 0.2
# A node that outlives its launcher keeps the pipes open, and ends by its own detection deadline.
_ORPHAN_GRACE_S = 10.0
_REMARKS_MAX = 50
# CPU time is counted in ticks of 10 ms: 5 % of two cores for a shorter time would be a few of them.
_SHORTEST_WINDOW_S = 0.5
COMPLETE = "complete"


@dataclass(frozen=True)
class Taken:
    """One reading that ended by itself or at its time limit; `result` is None where the engine wrote none."""

    reading: Reading
    directory: Path
    status: str  # complete, or what it is instead: the result's own status, refused, no result, too long
    reason: str | None
    exit_status: int
    result: dict[str, Any] | None
    window: Window | None  # of the measured phase; None in virtual time
    started_utc: str
    wall_s: float

    @property
    def idle(self) -> bool | None:
        """Whether the machine was, while it was measured; None in virtual time, and where it was too short to say."""
        if self.window is None or self.window.seconds < _SHORTEST_WINDOW_S:
            return None
        return self.not_idle_reason is None

    @property
    def not_idle_reason(self) -> str | None:
        """What others took of the machine, if that was too much."""
        if self.window is None or self.window.seconds < _SHORTEST_WINDOW_S:
            return None
        return IdleRule().broken_by(self.window, usable_cores())


class _Job:
    """One engine at work."""

    def __init__(self, reading: Reading, order: "Order", timeout_s: float) -> None:
        command, directory = order.command, order.directory
        self.reading = reading
        self.directory = directory
        self.started_at = time.monotonic()
        self.patience = Patience(timeout_s)
        self.orphans: Patience | None = None
        self.timed_out = False
        self._timeout_s = timeout_s
        self._started_utc = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._remarks: list[str] = []
        self._result_path: Path | None = None
        try:
            # A process group of its own: Ctrl-C reaches this program alone, and a kill reaches all of its nodes.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
                cwd=order.folder,
            )
        except OSError as error:
            raise OneLineError(f"the engine {command[0]} cannot be started: {error.strerror}", 127) from error
        token = run_token(order.spread)
        assert self.process.stdin is not None
        with suppress(OSError), self.process.stdin:  # it ended at once: its status says so
            self.process.stdin.write(token.encode() + b"\n" if order.spread is not None else b"")
        self._launch = None
        if order.spread is not None:
            self._launch = Launch(order.spread, directory, token, self._take_notice)
        self._machine = MeasuredPhase(self.process.pid)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.pipes = {
            self.process.stdout.fileno(): (LineReader(self.process.stdout.fileno()), self._take_report),
            self.process.stderr.fileno(): (LineReader(self.process.stderr.fileno()), self._take_remark),
        }

    def _take_report(self, line: str) -> None:
        with suppress(ValueError):  # a library's own line
            progress = parse_progress(line)
            if self._launch is not None and progress is not None:
                self._launch.on_progress(progress)
            match progress:
                # What this machine does beside it says nothing of other hosts.
                case Phase(name) if not self.reading.point.simulated and self._launch is None:
                    self._machine.on_phase(name)
                case ResultWritten(path):
                    self._result_path = path
                case Notice():
                    self._take_notice(progress)
                case _:
                    pass

    def _take_notice(self, notice: Notice) -> None:
        if notice.level == "error":
            self._take_remark(notice.text)

    def _take_remark(self, line: str) -> None:
        if len(self._remarks) < _REMARKS_MAX:
            self._remarks.append(line.strip().removeprefix("incast-node: "))

    def on_tick(self) -> None:
        """A few times a second."""
        if self._launch is not None:
            self._launch.on_tick(self)

    def stop(self) -> None:
        """As Ctrl-C: it drains and reports."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def fail(self, error: OneLineError) -> None:
        """Its nodes cannot be started."""
        self.kill()
        self._remarks.append(str(error))

    def kill(self) -> None:
        """Ends it and its nodes, and waits for it."""
        kill_group_of(self.process.pid)
        self.process.wait()

    def close(self) -> None:
        """Once it has ended."""
        if self._launch is not None:
            self._launch.close()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def taken(self) -> Taken:
        """What came of it, once it has ended."""
        code = self.process.wait()
        result = self._result()
        status, reason = self._status(code, result)
        return Taken(
            reading=self.reading,
            directory=self.directory,
            status=status,
            reason=reason,
            exit_status=128 - code if code < 0 else code,
            result=result,
            window=self._machine.window,
            started_utc=self._started_utc,
            wall_s=time.monotonic() - self.started_at,
        )

    def _result(self) -> dict[str, Any] | None:
        if self._result_path is None:
            return None
        try:
            result = json.loads(self._result_path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            self._remarks.append(f"{self._result_path.name} is no readable result: {error}")
            return None
        return result if isinstance(result, dict) else None

    def _status(self, code: int, result: dict[str, Any] | None) -> tuple[str, str | None]:
        words = self._remarks[-1] if self._remarks else None
        if self.timed_out:
            return "too long", f"no end within {self._timeout_s:g} s; {words or 'nothing was said'}"
        if result is None:
            if code == 2:
                return "refused", words or "the engine refused the configuration with no message"
            ended = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            return "no result", f"the engine {ended}" + (f": {words}" if words else "")
        status = str(result.get("status", "no status"))
        if status != COMPLETE:
            return status, str(result.get("reason") or words or "the engine gave no reason")
        if code != 0:
            errors = result.get("verify_errors")
            why = f"{errors} verification errors" if errors else words or "the engine gave no reason"
            return "failed", f"the engine ended with status {code}: {why}"
        return COMPLETE, None


@dataclass(frozen=True)
class Order:
    """How a reading is taken: the engine's command line, the directory it writes to, where else its nodes are, and
    the folder in which it runs, if not here.
    """

    command: list[str]
    directory: Path
    spread: Spread | None = None
    folder: Path | None = None


Command = Callable[[Reading], Order]


@dataclass(frozen=True)
class Watch:
    """Who is told of what happens: `on_start` of each reading, `on_tick` a few times a second."""

    on_start: Callable[[Reading], None]
    on_taken: Callable[[Taken], None]
    on_tick: Callable[[], None]


def take_readings(
    readings: Iterable[Reading], command: Command, *, timeout_s: float, jobs: int, asked: int, watch: Watch
) -> bool:
    """Takes them all, simulated ones first and `jobs` at a time, the others one at a time.

    `command` gives the order for a reading. False if a byte at the descriptor `asked` asked to stop: engines at work
    are then killed, and their readings are as if never begun.
    """
    listed = list(readings)
    simulated = [reading for reading in listed if reading.point.simulated]
    measured = [reading for reading in listed if not reading.point.simulated]
    return all(
        _take(queue, at_a_time, lambda reading: _Job(reading, command(reading), timeout_s), asked, watch)
        for queue, at_a_time in ((simulated, jobs), (measured, 1))
    )


def _take(queue: list[Reading], at_a_time: int, start: Callable[[Reading], _Job], asked: int, watch: Watch) -> bool:
    waiting, working = queue[::-1], list[_Job]()
    with selectors.DefaultSelector() as selector:
        selector.register(asked, selectors.EVENT_READ, None)
        try:
            while waiting or working:
                while waiting and len(working) < at_a_time:
                    reading = waiting.pop()
                    job = start(reading)
                    working.append(job)
                    for descriptor in job.pipes:
                        selector.register(descriptor, selectors.EVENT_READ, job)
                    watch.on_start(reading)
                for key, _ in selector.select(_POLL_S):
                    if key.data is None:
                        os.read(asked, 64)
                        return False
                    _read(selector, key.data, key.fd)
                for job in working:
                    job.on_tick()
                for job in [job for job in working if _ended(selector, job)]:
                    working.remove(job)
                    taken = job.taken()
                    job.close()
                    watch.on_taken(taken)
                watch.on_tick()
        finally:
            for job in working:
                job.kill()
                job.close()
                shutil.rmtree(job.directory, ignore_errors=True)
    return True


def _read(selector: selectors.BaseSelector, job: _Job, descriptor: int) -> None:
    reader, take = job.pipes[descriptor]
    lines = reader.read()
    if lines is None:
        selector.unregister(descriptor)
        del job.pipes[descriptor]
        return
    for line in lines:
        take(line)


def _ended(selector: selectors.BaseSelector, job: _Job) -> bool:
    """Whether its pipes are closed; enforces the time limits."""
    if job.pipes and job.orphans is None and job.process.poll() is not None:
        job.orphans = Patience(_ORPHAN_GRACE_S)
    if job.patience.is_over() and job.process.poll() is None:
        job.timed_out = True
        job.kill()
        job.orphans = Patience(0)
    if job.pipes and job.orphans is not None and job.orphans.is_over():
        kill_group_of(job.process.pid)
        for descriptor in job.pipes:
            selector.unregister(descriptor)
        job.pipes.clear()
    return not job.pipes
