"""Real processes: runs of `incast-node`, watched through its progress reports.

Conditions have deadlines; nothing waits by sleeping.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[2]


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = 20.0) -> None:
    """Polls a condition that no event announces."""
    until = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < until, f"not within {deadline_s} s: {what}"
        time.sleep(0.01)  # house: allow sleep: polls with a deadline


def said_by(*words: str) -> str:
    """Nothing if the command succeeds; else why not."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return f"there is no {words[0]}"
    return "" if done.returncode == 0 else f"{' '.join(words)}: {done.stderr.strip() or done.returncode}"


def private_network() -> str:
    """Addresses of this host that no other test process uses.

    The kernel cannot choose the port: it is the same at all addresses of a fabric, and every endpoint has to know it
    before the first one binds. With addresses of their own, fabrics of one port do not meet.
    """
    return f"udp:127.{(os.getpid() >> 8) % 127}.{os.getpid() & 255}.0/24:7500"


def must(*words: str) -> None:
    """A command that has to succeed."""
    assert said_by(*words) == ""


def process_state(pid: int) -> str:
    """R, S, T (stopped), Z ... or an empty text if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Run:
    """One `incast-node` that conducts a run."""

    def __init__(
        self,
        engine: Path,
        output: Path,
        settings: dict[str, Any],
        *arguments: str,
        token: str = "",
        prefix: Sequence[str] = (),
    ) -> None:
        """prefix: a command that becomes the engine, as `ip netns exec NAME`."""
        self.output = output
        command = [*prefix, str(engine), "--progress", "json", "--output", str(output), *arguments]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        environment = {**os.environ}
        environment.pop("INCAST_TOKEN", None)
        if token:
            environment["INCAST_TOKEN"] = token
        errors = output.parent / f"{output.name}.stderr"
        while errors.exists():  # of another run into the same folder
            errors = errors.with_name(errors.name + "+")
        self._errors = errors.open("w+")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=environment
        )
        self.reports: list[dict[str, Any]] = []
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.seen_pids: dict[int, int] = {}

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                self._queue.put(json.loads(line))
        finally:  # a line that is no report must fail the test, not hang it
            self._queue.put(None)

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool], what: str, deadline_s: float = 30.0) -> dict[str, Any]:
        """The next report that is wanted. Fails at the deadline, and if the run ends without it."""
        until = time.monotonic() + deadline_s
        while True:
            try:
                report = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no report of '{what}' within {deadline_s} s; {self.story()}") from None
            assert report is not None, f"the run ended without '{what}': {self.story()}"
            self.reports.append(report)
            if wanted(report):
                return report

    def wait_for_phase(self, phase: str) -> None:
        """Until the run enters that phase."""
        self.wait_for(lambda report: report["type"] == "phase" and report["phase"] == phase, f"phase {phase}")

    def node_pid(self, node: int) -> int:
        """The process of a node that was spawned here."""
        for pid in child_pids(self.process.pid):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"--node" in words and int(words[words.index(b"--node") + 1]) == node:
                self.seen_pids[node] = pid
                return pid
        raise AssertionError(f"node {node} has no process; {self.story()}")

    def all_node_pids(self) -> list[int]:
        """Of all nodes that are there now."""
        return child_pids(self.process.pid)

    def finish(self, deadline_s: float = 60.0) -> int:
        """Waits for the end and returns the exit status; no process may be left."""
        try:
            status = self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run hangs; {self.story()}") from None
        self._reader.join(10)
        while (report := self._queue.get()) is not None:
            self.reports.append(report)
        return status

    @property
    def notices(self) -> list[str]:
        """The lines for a person, so far."""
        return [report["text"] for report in self.reports if report["type"] == "notice"]

    @property
    def errors(self) -> list[str]:
        """Standard error, by line."""
        self._errors.flush()
        return Path(self._errors.name).read_text().splitlines()

    def reports_as_text(self) -> list[str]:
        """Standard output, by line."""
        return [json.dumps(report) for report in self.reports]

    def result(self) -> dict[str, Any]:
        """result.json"""
        loaded: dict[str, Any] = json.loads((self.output / "result.json").read_text())
        return loaded

    def story(self) -> str:
        """For the message of a failure."""
        log = self.output / "log.txt"
        return f"stderr: {self.errors}; log: {log.read_text() if log.exists() else 'none'}"

    def abandon(self) -> None:
        """After a failed test: nothing may be left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._errors.close()


def child_pids(pid: int) -> list[int]:
    """Direct children that are no zombies."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [child for child in map(int, listed.split()) if process_state(child) not in ("", "Z")]


Start = Callable[..., Run]


def audited(run: Run, kind: str) -> list[dict[str, Any]]:
    """What audit.jsonl has of that kind; every line of it keeps to its schema."""
    entries = [json.loads(line) for line in (run.output / "audit.jsonl").read_text().splitlines()]
    schema = json.loads((ROOT / "schema" / "audit.schema.json").read_text())
    for entry in entries:
        jsonschema.validate(entry, schema)
    return [entry for entry in entries if entry["kind"] == kind]


def check_accounting(result: dict[str, Any]) -> None:
    """EB-F4: nothing is ever unaccounted, and nothing is committed twice."""
    accounting = result["accounting"]
    assert result["lost_events"] == 0
    assert accounting["meps_admitted"] == accounting["meps_committed"]
    assert accounting["ledger"]["commits"] == accounting["ledger"]["distinct_meps"] == accounting["meps_committed"]
    assert accounting["ledger"]["committed_below"] == accounting["meps_committed"]
    assert result["verify_errors"] == 0


def mep_check(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Of folders and files, with further options."""
    words = (sys.executable, "-m", "incast", "mep", "check", *map(str, words))
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT / "python")


@contextmanager
def two_hosts() -> Iterator[list[str]]:
    """Two network namespaces with a cable between them, by name; host i has the address 10.0.0.(i+1) on `cable<i>`.
    Skips where there can be none.
    """
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    names = [f"incast-{os.getpid()}-{index}" for index in range(2)]
    try:
        if why := said_by("ip", "netns", "add", names[0]):
            pytest.skip(f"this host gives no network namespace: {why}")
        # In a chroot whose root is no mount point, one can be made but not entered.
        if why := said_by("ip", "-n", names[0], "link"):
            pytest.skip(f"nobody can enter a network namespace here: {why}")
        must("ip", "netns", "add", names[1])
        peer = ("type", "veth", "peer", "name", "cable1", "netns", names[1])
        must("ip", "link", "add", "cable0", "netns", names[0], *peer)
        for index, name in enumerate(names):
            must("ip", "-n", name, "address", "add", f"10.0.0.{index + 1}/24", "dev", f"cable{index}")
            must("ip", "-n", name, "link", "set", f"cable{index}", "up")
            must("ip", "-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
