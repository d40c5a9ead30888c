"""Commands on hosts, as one who has them started sees them: what they say, how they end."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from incast.base import extras
from incast.base.patience import Patience
from incast.engine.progress import LineReader
from incast.hosts.places import LIBRARY, PURPOSE

CONNECT_TIMEOUT_S = 10.0
_END_S = 4.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Job:
    """One command; `host` is reached by ssh, None is this one."""

    label: str
    host: str | None
    command: str
    input: bytes = b""
    holds: bool = False  # its standard input stays open as long as whoever started it is there
    environment: dict[str, str] = field(default_factory=dict)  # on this host; what it is given, ssh does not hand on


@dataclass(frozen=True)
class Said:
    """A line."""

    label: str
    text: str


@dataclass(frozen=True)
class Ended:
    """How a command ended; None: it was ended, at its time limit or because nobody waited any longer."""

    label: str
    status: int | None


class Commands:
    """Some that run at a time."""

    def __init__(self, jobs: Sequence[Job], ssh: str, timeout_s: float = 0.0) -> None:
        """`ssh`: its command line. `timeout_s`: of all of them; 0: none."""
        extras.need(LIBRARY, PURPOSE)
        # In a session of its own: Ctrl-C is for this program alone, and all that they leave behind can be ended.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "incast.hosts.fanout"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        self._reader = LineReader(self._output)
        self.running = {job.label for job in jobs}
        self.closed = False  # nothing more will be heard
        order = {
            "ssh": ssh,
            "connect_timeout_s": CONNECT_TIMEOUT_S,
            "timeout_s": timeout_s,
            "jobs": [{**vars(job), "input": job.input.hex()} for job in jobs],
        }
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it ended at once: that is seen where it is read
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def news(self, wait_s: float = 0.0) -> list[Said | Ended]:
        """What has happened; waits so long at most for something to happen."""
        found: list[Said | Ended] = []
        while not self.closed and select.select([self._output], [], [], 0.0 if found else wait_s)[0]:
            lines = self._reader.read()
            self.closed = lines is None
            found += [self._read(line) for line in lines or ()]
        return found

    def _read(self, line: str) -> Said | Ended:
        try:
            report = json.loads(line)
            label = report["label"]
            if "line" in report:
                return Said(label, report["line"])
            self.running.discard(label)
            return Ended(label, report["status"])
        except (ValueError, TypeError, KeyError):
            return Said("", line)

    def hang_up(self) -> None:
        """Ends the standard input of those that hold on."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self) -> list[Said | Ended]:
        """Waits for all to end, which those that do not in good time are made to."""
        self.hang_up()
        found: list[Said | Ended] = []
        patience = Patience(_END_S)
        while not self.closed and not patience.is_over():
            found += self.news(_POLL_S)
        self.kill()
        return found

    def kill(self) -> None:
        """Ends all at once, on this host; what ssh has started ends with its connection."""
        self.hang_up()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.closed = True
