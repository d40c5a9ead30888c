"""What tests in a guest share."""

import json
import os
import re
import socket
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from guest import steps
from guest.steps import Result, Step
from support import check_accounting

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("INCAST_BIN_DIR", ROOT / "build" / "release" / "bin"))
TREE = BIN.parents[2]  # that was built
CONFORMANCE = BIN.parent / "test-bin" / "conformance"
GuestRun = Callable[..., dict[str, steps.Result]]

EVENTS = 2000  # of a run
NODES = 4
VERBS = "verbs"
HAS_VERBS = (BIN.parent / "lib" / "incast" / f"incast-transport-{VERBS}.so").is_file()
# Of four nodes of one guest (rdma-nodes.sh): node I of the run has device I + 1.
ADDRESSES = ",".join(f"10.0.0.{number}" for number in range(1, 5))

# What the kernel says when something in it is wrong.
TROUBLE = re.compile(r"BUG:|WARNING:|Oops|general protection|refcount_t|use-after-free|scheduling while atomic")


def free_ports(kind: socket.SocketKind, count: int) -> list[int]:
    """Of the loopback address; all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, kind)) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def engine_words(settings: dict[str, Any], *arguments: str) -> str:
    """A command line of the engine, for a step; the result lies in /out/`name` if it is given."""
    words = [str(BIN / "incast-node"), "--progress", "none", *arguments]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    return " ".join(f"'{word}'" for word in words)


def build(name: str, settings: dict[str, Any], *arguments: str, timeout_s: float = 180) -> Step:
    """A step: a run whose result is in the folder `name` of /out."""
    return Step(name, f"exec {engine_words(settings, '--output', f'/out/{name}', *arguments)}", timeout_s)


def result_of(folder: Path) -> dict[str, Any]:
    """result.json"""
    loaded: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return loaded


def check_built(folder: Path, ended: Result) -> None:
    """All events, each in full, and none lost."""
    assert ended.status == 0, ended
    result = result_of(folder)
    check_accounting(result)
    assert (result["status"], result["verified"], result["incomplete_events"]) == ("complete", "full", 0)
    assert result["events"] == EVENTS


def check_all(results: dict[str, Result], folder: Path, runs: Collection[str]) -> None:
    """What a step took is said: how big each share is. `runs`: steps that build events."""
    for result in results.values():
        print(f"{result.name}: {result.seconds:.1f} s, status {result.status}")
    assert results["nodes"].status == 0, results["nodes"]
    for name, result in results.items():
        assert result.status == 0, result
        if name in runs:
            check_built(folder / name, result)


def out_folder(tmp_path: Path) -> Path:
    return next(tmp_path.glob("out*"))
