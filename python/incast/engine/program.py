"""Finds the engine `incast-node` and the programs that are built with it, and asks it about itself."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from incast.base.errors import EXIT_BAD_CONFIG, EXIT_NO_ENGINE, EXIT_PROTOCOL, OneLineError
from incast.base.places import CHECKOUT, PACKAGE
from incast.engine.progress import line_text

ENGINE_NAME = "incast-node"
ENGINE_VARIABLE = "INCAST_NODE"
VERSION_LINE = re.compile(rf"{ENGINE_NAME} (\S+) \((.*)\)")  # its answer to --version


def find_engine() -> Path:
    """The engine to run: INCAST_NODE, else the one inside the package, else the checkout's release build."""
    named = os.environ.get(ENGINE_VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise OneLineError(f"{ENGINE_VARIABLE}={named} is not a program that can be run", EXIT_NO_ENGINE)
        return Path(found)
    candidates = (PACKAGE / "_engine" / ENGINE_NAME, CHECKOUT / "build" / "release" / "bin" / ENGINE_NAME)
    for candidate in candidates:
        if os.access(candidate, os.X_OK) and candidate.is_file():
            return candidate
    places = " and ".join(str(candidate) for candidate in candidates)
    raise OneLineError(
        f"the engine {ENGINE_NAME} was not found: {ENGINE_VARIABLE} is not set, nothing at {places}; "
        "in a checkout ./run builds it",
        EXIT_NO_ENGINE,
    )


def find_program(name: str) -> Path:
    """A program that is built with the engine, which lies beside it."""
    found = find_engine().with_name(name)
    if not os.access(found, os.X_OK):
        raise OneLineError(f"the program {name} was not found: it should lie at {found}", EXIT_NO_ENGINE)
    return found


def engine_info() -> dict[str, Any]:
    """What the engine says about itself and the transports of this host."""
    return engine_answer("--info", "json")


def engine_version() -> tuple[str, str]:
    """The engine's version, and the state of its sources. Unlike engine_info() it looks for no transport."""
    words = line_text(_said("--version").strip())
    found = VERSION_LINE.fullmatch(words)
    if found is None:
        raise OneLineError(f"{find_engine()} --version printed {words!r}; is it {ENGINE_NAME}?", EXIT_PROTOCOL)
    return found[1], found[2]


def engine_answer(*question: str) -> dict[str, Any]:
    """The JSON object that the engine prints when asked so. What it refuses is its own one line."""
    said = _said(*question)
    try:
        found = json.loads(said)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OneLineError(f"{find_engine()} {question[0]} printed no JSON object; is it {ENGINE_NAME}?", EXIT_PROTOCOL)
    return found


def _said(*question: str) -> bytes:
    engine = find_engine()
    asked = f"{engine} {question[0]}"
    try:
        answer = subprocess.run([engine, *question], capture_output=True, timeout=60, check=False)
    except OSError as error:
        raise OneLineError(f"the engine {engine} cannot be started: {error.strerror}", EXIT_NO_ENGINE) from error
    except subprocess.TimeoutExpired as error:
        raise OneLineError(f"{asked} did not answer within 60 s", EXIT_PROTOCOL) from error
    if answer.returncode != 0:
        words = line_text(answer.stderr.strip().split(b"\n")[-1]) or "no message"
        refused = f"{ENGINE_NAME}: "
        if answer.returncode == EXIT_BAD_CONFIG and words.startswith(refused):
            raise OneLineError(words.removeprefix(refused), EXIT_BAD_CONFIG)
        raise OneLineError(f"{asked} failed with status {answer.returncode}: {words}", EXIT_PROTOCOL)
    return answer.stdout
