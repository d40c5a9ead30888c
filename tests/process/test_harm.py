"""Random harm to runs: kills, stops, full disks, closed descriptors. What is left is consistent, and no more is left.

INCAST_HARM_SEEDS: how many, or FIRST:LAST. A failure names its seed.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support import process_state, wait_until
from transports import ONE_THREAD, SHARED_MEMORY, SOCKETS

DEADLINE_S = 60.0
PATIENCE_S = 12.0
SETTINGS = {
    "run.warm_up": "0s",
    "run.sample_interval": "50ms",
    "run.drain_deadline": "5s",
    "protocol.mfp_size": "16KiB",
    "source.prefill_size": "256KiB",
}
MARK = "INCAST_HARM_MARK"
DESCRIPTORS = ("", "", "1>/dev/full", "2>/dev/full", "1>&-", "2>&-", "0<&- 1>&- 2>&-", "| head -c 1", "2>&1 | true")


def seeds() -> range:
    first, colon, last = os.environ.get("INCAST_HARM_SEEDS", "5").partition(":")
    return range(int(first), int(last)) if colon else range(int(first))


def marked(mark: str) -> list[int]:
    """Processes that a run has started, whoever their parents are now."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and folder.name != str(os.getpid()):
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0") and process_state(int(folder.name)) != "Z":
                    found.append(int(folder.name))
    return sorted(found)


def words_of(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return []


class Victim:
    """One run, by `incast`, detached or not, or by the engine alone."""

    def __init__(self, dice: random.Random, folder: Path, engine: Path) -> None:
        self.dice = dice
        self.output = folder / "out"
        self.mark = str(folder)
        self.disk_stays_full = False
        self.by = dice.choice(["incast", "incast", "detached", "engine"])
        self.transport = dice.choice([SOCKETS, SHARED_MEMORY, ONE_THREAD])
        settings = SETTINGS | {
            "transport.name": self.transport,
            "run.nodes": dice.choice([2, 3]),
            "run.duration": dice.choice(["300ms", "1h", "1h", "1h"]),
        }
        self.endless = settings["run.duration"] == "1h"
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        words += ["--output", str(self.output)]
        command = [str(engine), "--progress", dice.choice(["text", "json", "none"])]
        if self.by != "engine":
            command = [sys.executable, "-m", "incast", "run", *(["--detach"] if self.by == "detached" else [])]
        self.descriptors = dice.choice(DESCRIPTORS)
        self.errors = folder / "stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                ["bash", "-o", "pipefail", "-c", f'"$@" {self.descriptors}', "bash", *command, *words],
                cwd=folder,
                env={**os.environ, MARK: self.mark, "INCAST_NODE": str(engine)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def pids(self, role: str) -> list[int]:
        """Of the command line (a detached one's, too), the engine, or its nodes."""
        found = {"command": [], "engine": [], "node": []}
        for pid in marked(self.mark):
            words = words_of(pid)
            if "--join" in words:
                found["node"].append(pid)
            elif "incast" in words or "incast.run.background" in words:
                found["command"].append(pid)
            elif words and words[0].endswith("incast-node"):
                found["engine"].append(pid)
        return found[role]

    def has_begun(self) -> bool:
        """It has sampled, or is over."""
        samples = self.output / "samples.jsonl"
        return (samples.exists() and samples.stat().st_size > 0) or self.is_over()

    def is_over(self) -> bool:
        return self.process.poll() is not None and not marked(self.mark)

    def fill_disk(self) -> None:
        """No file may grow from now on, or by little; perhaps later they may again."""
        room = self.dice.choice([0, 100, 5000])
        samples = self.output / "samples.jsonl"
        size = room + (samples.stat().st_size if samples.exists() else 0)
        self._limit(size)
        self.disk_stays_full = self.dice.random() >= 0.5
        if not self.disk_stays_full:
            self.pause()
            self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        for role in ("engine", "node", "command"):
            for pid in self.pids(role):
                with suppress(ProcessLookupError, ValueError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def pause(self) -> None:
        time.sleep(self.dice.uniform(0.0, 0.4))  # house: allow sleep: the stimulus

    def hit(self) -> str:
        """One process gets one signal; what that was."""
        role = self.dice.choice(["command", "command", "engine", "node"])
        pids = self.pids(role)
        number = self.dice.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGKILL])
        if role == "node":
            number = signal.SIGKILL
        if pids:
            with suppress(ProcessLookupError):
                os.kill(self.dice.choice(pids), number)
        return f"{role} {signal.Signals(number).name}" if pids else ""

    def end(self, *, was_hit: bool) -> bool:
        """What is at work yet is asked to end, as a person would; whether it was. What was hit may end by itself."""
        begin = time.monotonic()
        ask_at = begin + (PATIENCE_S if was_hit else 0.0)
        asked: set[int] = set()
        while not self.is_over():
            assert time.monotonic() < begin + DEADLINE_S, [words_of(pid) for pid in marked(self.mark)]
            ask = self.endless and time.monotonic() >= ask_at
            for pid in set(self.pids("engine")) - asked if ask else ():
                asked.add(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
            time.sleep(0.05)  # house: allow sleep: polls with a deadline
        return bool(asked)

    def abandon(self) -> None:
        for pid in marked(self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def whole_lines(file: Path) -> list[bytes]:
    content = file.read_bytes() if file.exists() else b""
    assert not content or content.endswith(b"\n"), f"{file.name} ends within a line"
    return content.splitlines()


def check_what_is_left(victim: Victim, *, engine_killed: bool, has_begun: bool) -> None:
    errors = victim.errors.read_text(errors="replace")
    log = victim.output.with_name("out.log")
    errors += log.read_text(errors="replace") if log.exists() else ""
    for word in ("Traceback", "terminate called", "Segmentation", "No such file"):
        assert word not in errors, errors
    complaints = [line for line in errors.splitlines() if line.startswith(("warning:", "error:", "incast:"))]
    assert len(complaints) == len(set(complaints)), complaints
    for name in ("samples.jsonl", "machine.jsonl"):
        for line in whole_lines(victim.output / name):
            json.loads(line)
    whole_lines(victim.output / "log.txt")
    if victim.output.exists():
        assert all(path.is_file() for path in victim.output.iterdir())
    result_file = victim.output / "result.json"
    if engine_killed:
        return
    assert not (victim.output / "result.json.part").exists()
    if not result_file.exists():
        # Unlike a full disk, a limit below its size forbids even the room that the result has from the start.
        assert victim.disk_stays_full or not has_begun
        return
    result: dict[str, Any] = json.loads(result_file.read_text())
    missing = {file["file"]: file["missing"] for file in result["incomplete_files"]}
    ends = ("complete", "incomplete", "interrupted", "node lost", "event manager lost", "not joined")
    assert result["status"] in ends, result
    if result["status"] in ("complete", "interrupted"):
        assert result["lost_events"] == (None if "ledger.bin" in missing else 0), result["accounting"]
    if "samples.jsonl" not in missing:
        assert whole_lines(victim.output / "samples.jsonl")


@pytest.mark.parametrize("seed", seeds())
def test_what_is_left_is_consistent_whatever_happens(seed: int, engine: Path, tmp_path: Path) -> None:
    dice = random.Random(f"harm {seed}")
    victim = Victim(dice, tmp_path, engine)
    story = [f"seed {seed}: {victim.by}, {victim.transport}, {victim.descriptors or 'all descriptors'}"]
    try:
        if dice.random() < 0.9:
            wait_until(victim.has_begun, "the first sample", DEADLINE_S)
        has_begun = victim.has_begun() and not victim.is_over()
        victim.pause()
        if dice.random() < 0.4:
            victim.fill_disk()
            story.append("full disk")
        for _ in range(dice.choice([0, 1, 1, 2])):
            story.append(victim.hit())
            victim.pause()
        # A second signal of the command is that it shall be killed.
        signals = [each for each in story[1:] if each.startswith(("command", "engine"))]
        engine_killed = any("engine SIGKILL" in each for each in story) or len(signals) > 1
        if victim.by == "detached":
            wait_until(lambda: victim.process.poll() is not None, "the end of the command", DEADLINE_S)
        # Nor can the result be relied on if it was asked once more.
        asked_again = victim.end(was_hit=bool(signals)) and bool(signals)
        check_what_is_left(victim, engine_killed=engine_killed or asked_again or not has_begun, has_begun=has_begun)
        assert not list(Path("/dev/shm").glob("*incast*"))
    except BaseException:
        print("; ".join(story), victim.errors.read_text(errors="replace")[-2000:])
        raise
    finally:
        victim.abandon()
