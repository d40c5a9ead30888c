"""A grid of simulated points from words of a command line: a scan without a scan file."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from incast.base.errors import OneLineError
from incast.engine.fabric_text import file_key
from incast.engine.quantity import Scalar
from incast.engine.transports import simulated
from incast.scan.plan import EXIT_BAD_SCAN


def sweep_content(
    sweeps: Sequence[str], settings: Sequence[str], fabric: Path | None, numbers: dict[str, Any]
) -> dict[str, Any]:
    """What a scan file would hold."""
    grid: dict[str, list[Scalar]] = {}
    for sweep in sweeps:
        key, values = _split("--sweep", sweep, "KEY=VALUE,VALUE,...")
        grid[key] = [_value(each.strip()) for each in values.split(",")]
    fixed: dict[str, Scalar] = {"transport.name": simulated()}
    if fabric is not None:
        fixed[file_key()] = str(fabric)
    for setting in settings:
        key, value = _split("--set", setting, "KEY=VALUE")
        fixed[key] = _value(value)
    return {**numbers, "set": fixed, "grid": grid}


def _split(option: str, text: str, form: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise OneLineError(
            f"{option} {text}: allowed: {form}, with keys of docs/config.md or fabric.KEY",
            EXIT_BAD_SCAN,
        )
    return key.strip(), value.strip()


def _value(text: str) -> Scalar:
    """As a scan file would have it: a number or a truth value where it is one."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if math.isfinite(number):
            return number
    return text
