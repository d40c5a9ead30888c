"""What tests in a guest share."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guest import steps
from guest.steps import Step

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("INCAST_BIN_DIR", ROOT / "build" / "release" / "bin"))
GuestRun = Callable[..., dict[str, steps.Result]]

VERBS = "verbs"
HAS_VERBS = (BIN.parent / "lib" / "incast" / f"incast-transport-{VERBS}.so").is_file()
# Of four nodes of one guest (rdma-nodes.sh): node I of the run has device I + 1.
ADDRESSES = ",".join(f"10.0.0.{number}" for number in range(1, 5))


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
