"""Dispatchers, farm nodes and their processes (docs/farm.md), as real processes."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from consumer_support import RUN
from support import process_state, wait_until

CHILD = Path(__file__).parent / "consumer_child.py"


class Way(NamedTuple):
    """How dispatcher and farm nodes talk."""

    name: str
    address: str
    options: tuple[str, ...] = ()


def ways(name: str) -> dict[str, Way]:
    """All that one host has; `name` is no other test's."""
    return {
        "tcp": Way("tcp", "tcp://127.0.0.1:0"),
        "shm": Way("shm", f"shm://{name[-40:]}"),
        "udp": Way("udp", "udp://127.0.0.1:0"),
        "rio": Way("rio", "rio://*:0", ("--fabric", f"shm:{name[-40:]}")),
    }


class Talking:
    """A process whose lines are read as they come."""

    def __init__(self, *command: str | Path) -> None:
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Any, lines: list[str]) -> None:
        lines.extend(line.strip() for line in stream)

    def story(self) -> str:
        return f"{self.process.args}: {self.process.poll()} {self.lines} {self.errors}"

    def said(self, beginning: str) -> str:
        """The rest of the line that begins so."""

        def found() -> list[str]:
            return [line for line in self.lines if line.startswith(beginning)]

        def has_said() -> bool:
            assert found() or self.process.poll() is None, self.story()
            return bool(found())

        wait_until(has_said, f"'{beginning}' of {self.process.args}", 60)
        return found()[0].removeprefix(beginning).strip()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: process_state(self.process.pid) == "T", "a stopped process")

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)

    def summary(self, status: int = 0) -> dict[str, Any]:
        """What it says at its end."""
        assert self.process.wait(90) == status, self.story()
        for reader in self._readers:
            reader.join(20)
        told: dict[str, Any] = json.loads(self.lines[-1])
        return told

    def abandon(self) -> None:
        self.process.kill()
        self.process.wait(20)
        for reader in self._readers:
            reader.join(20)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()


class Farm:
    """A dispatcher for the builder units of that name, and farm nodes with a process each."""

    def __init__(self, engine: Path, name: str, way: Way, folder: Path, *options: str) -> None:
        self.program = engine.with_name("incast-farm")
        self.name = name
        self.farm = f"{name[-50:]}.farm"
        self.way = way
        self.folder = folder
        self.all: list[Talking] = []
        self.children: list[Talking] = []
        self.notes: list[Path] = []
        self.options = options
        self.address = ""

    def open(self) -> None:
        words = (self.name, self.way.address, *self.way.options, *self.options)
        self.dispatcher = self.begin(self.program, "dispatch", *words)
        self.address = self.dispatcher.said("listening at").replace("*", "127.0.0.1")

    def begin(self, *command: str | Path) -> Talking:
        self.all.append(Talking(*command))
        return self.all[-1]

    def node(self, *options: str) -> Talking:
        """A farm node; nobody takes its events yet."""
        number = str(len(self.all))
        words = ("consume", self.address, "--name", self.farm, "--node", number, *self.way.options, *options)
        node = self.begin(self.program, *words)
        if not {"--drop", "--files", "--command"} & set(options):
            assert node.said("processes attach to") == f"{self.farm} {number}"
        return node

    def wait_for_lost(self, many: int) -> None:
        self._wait_for("is lost", many)

    def wait_for_joined(self, many: int) -> None:
        self._wait_for("has joined", many)

    def _wait_for(self, words: str, many: int) -> None:
        """As many farm nodes, says the dispatcher."""
        errors = self.dispatcher.errors
        wait_until(lambda: len([line for line in errors if words in line]) >= many, f"{many} x '{words}'", 30)

    def number_of(self, node: Talking) -> int:
        return self.all.index(node)

    def child(self, node: Talking, slow_ms: float = 0) -> Talking:
        """A process of that farm node: the very program that tests consumers of a builder unit."""
        self.notes.append(self.folder / f"notes{len(self.notes)}")
        words = [str(self.number_of(node)), str(RUN), str(self.notes[-1]), *([str(slow_ms)] if slow_ms else [])]
        self.children.append(self.begin(sys.executable, CHILD, self.farm, *words))
        return self.children[-1]

    def node_with_child(self, slow_ms: float = 0, *options: str) -> tuple[Talking, Talking]:
        """Once an event came."""
        node = self.node(*options)
        child = self.child(node, slow_ms)
        child.said("first")
        return node, child


StartFarm = Callable[..., Farm]


@contextmanager
def farms(engine: Path, name: str, folder: Path) -> Iterator[StartFarm]:
    """Starts farms; whatever a test leaves behind is ended."""
    made: list[Farm] = []

    def begin(way: str = "tcp", *options: str) -> Farm:
        made.append(Farm(engine, name, ways(f"{name}-{len(made)}")[way], folder, *options))
        made[-1].open()
        return made[-1]

    try:
        yield begin
    finally:
        for farm in made:
            for each in reversed(farm.all):
                each.abandon()
    assert not [file for file in Path("/dev/shm").iterdir() if name in file.name]
