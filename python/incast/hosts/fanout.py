"""Commands on many hosts at a time, by ClusterShell, in a process of their own (`python -m incast.hosts.fanout`).

Standard input begins with a line of JSON: which commands, and what they read. While it stays open, so does the standard
input of commands that are to hold on; its end, also that by a killed launcher, ends theirs, and soon this process.
What they say and how they end are lines of JSON on standard output.
"""

import json
import os
import sys
from contextlib import suppress
from typing import Any

from ClusterShell.Event import EventHandler
from ClusterShell.Task import Task, task_self
from ClusterShell.Worker.Worker import StreamWorker

# Longer than whoever launched nodes leaves them once its standard input has ended (runtime/launch/member_group.cpp).
_GRACE_S = 7.0
_SHOWN_BYTES = 2000
# A host that is gone is noticed, and nobody is asked for anything.
_SSH_OPTIONS = (
    "-T -oLogLevel=ERROR -oServerAliveInterval=2 -oServerAliveCountMax=3 -oControlMaster=no -oControlPath=none"
)


def _report(**report: Any) -> None:
    line = json.dumps(report).encode() + b"\n"
    with suppress(OSError):  # nobody listens: the end of standard input says so
        os.write(1, line)


class _Job(EventHandler):
    """One command."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.ended = False

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        """A line of what it says."""
        _report(label=self.label, line=msg[:_SHOWN_BYTES].decode("utf-8", "replace"))

    def ev_hup(self, worker: Any, node: str, rc: int) -> None:
        """It has ended."""
        self.ended = True
        _report(label=self.label, status=rc)

    def ev_close(self, worker: Any, timedout: bool) -> None:
        """Every command comes here."""
        if not self.ended:
            _report(label=self.label, status=None, timed_out=timedout)


class _Launcher(EventHandler):
    """Whoever started this process."""

    def __init__(self, task: Task, holding: list[Any]) -> None:
        self._task = task
        self._holding = holding

    def ev_close(self, worker: Any, timedout: bool) -> None:
        """It is gone, or has had enough: so have the commands."""
        for each in self._holding:
            each.set_write_eof()
        self._task.timer(_GRACE_S, handler=_Abort(self._task), autoclose=True)


class _Abort(EventHandler):
    def __init__(self, task: Task) -> None:
        self._task = task

    def ev_timer(self, timer: Any) -> None:
        """The grace is over."""
        self._task.abort(kill=False)


def main() -> None:
    """Runs the commands to their end."""
    order = json.loads(sys.stdin.buffer.readline())
    task = task_self()
    task.set_default("stdout_msgtree", False)
    task.set_default("auto_tree", False)
    task.set_default("local_worker", task.default("local_worker"))
    task.set_info("fanout", len(order["jobs"]) + 1)
    task.set_info("connect_timeout", order["connect_timeout_s"])
    task.set_info("ssh_path", order["ssh"])
    task.set_info("ssh_options", f"{task.info('ssh_options') or ''} {_SSH_OPTIONS}")
    holding = []
    for job in order["jobs"]:
        os.environ.update(job["environment"])  # of this process alone, which has nothing else to do
        where = {"key": job["label"]} if job["host"] is None else {"nodes": job["host"]}
        timeout = order["timeout_s"] or -1
        worker = task.shell(job["command"], handler=_Job(job["label"]), timeout=timeout, stdin=True, **where)
        worker.write(bytes.fromhex(job["input"]))
        if job["holds"]:
            holding.append(worker)
        else:
            worker.set_write_eof()
    launcher = StreamWorker(handler=_Launcher(task, holding), autoclose=True)
    launcher.set_reader("launcher", 0)
    task.schedule(launcher)
    task.resume()


if __name__ == "__main__":
    main()
