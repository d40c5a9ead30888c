"""`incast run --consumers N`: farm nodes on this host that take the events of a run over the network (docs/farm.md)."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.engine.program import find_program

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "farm.json"
_END_WITHIN_S: Final = 20.0  # they end with the builder units


def consumer_settings(count: int, *, is_simulated: bool, name: str) -> dict[str, str]:
    """For a run with so many; `name` tells this run's builder units from those of others on this host."""
    if not 1 <= count <= 255:
        raise OneLineError(f"--consumers {count}: allowed: 1 to 255 farm nodes", EXIT_BAD_CONFIG)
    if is_simulated:
        return {"sink.kind": "farm", "farm.nodes": str(count)}
    # A MEP for each farm node, and one on its way there.
    return {"sink.kind": "consumer", "sink.name": name, "sink.window": str(min(256, max(8, 2 * count)))}


class FarmNodes:
    """A dispatcher and farm nodes that drop what they get; they end with the run's builder units."""

    def __init__(self, name: str, count: int, folder: Path) -> None:
        """Begins nothing yet."""
        self._name = name
        self._count = count
        self._folder = folder
        self._processes: list[subprocess.Popen[str]] = []
        self._log: IO[str] | None = None

    def begin(self) -> None:
        """Once the engine has accepted the run. OneLineError if they cannot be started."""
        if self._processes:
            return
        program = str(find_program("incast-farm"))
        self._log = (self._folder / "farm.log").open("w")
        dispatcher = self._start([program, "dispatch", self._name, "tcp://127.0.0.1:0"])
        assert dispatcher.stdout is not None
        said = dispatcher.stdout.readline()
        if not said.startswith("listening at "):
            self.close()
            raise OneLineError(f"--consumers: the dispatcher did not start: {self._last_line()}", EXIT_BAD_CONFIG)
        address = said.split()[-1]
        for number in range(self._count):
            self._start([program, "consume", address, "--drop", "--name", f"{self._name}-farm", "--node", str(number)])

    def end(self) -> str:
        """Waits until they have ended, writes what they counted to farm.json, and says it in a line."""
        deadline = time.monotonic() + _END_WITHIN_S
        counts: list[dict[str, Any]] = []
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                said, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
                with contextlib.suppress(ValueError, IndexError):
                    counts.append(json.loads(said.strip().splitlines()[-1]))
        whole = len(counts) == len(self._processes) > 0
        self.close()
        if not whole:
            return f"not all farm nodes ended in order: {self._last_line()}"
        dispatcher, *nodes = counts
        (self._folder / FILE).write_text(json.dumps({"dispatcher": dispatcher, "nodes": nodes}, indent=1) + "\n")
        shares = [int(node["meps"]) for node in nodes]
        return (
            f"{len(nodes)} farm nodes took {dispatcher['done_meps']} of {dispatcher['taken_meps']} MEPs, "
            f"{min(shares)} to {max(shares)} each; {dispatcher['repeated_meps']} repeated"
        )

    def close(self) -> None:
        """Ends those that still run."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._processes.clear()
        if self._log is not None:
            self._log.close()

    def _start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log, text=True, process_group=0
        )
        self._processes.append(process)
        return process

    def _last_line(self) -> str:
        try:
            lines = (self._folder / "farm.log").read_text().strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "no reason given"
