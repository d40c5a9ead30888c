"""A grid of points from words of a command line: a scan without a scan file."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from incast.base.errors import OneLineError
from incast.engine.fabric_text import file_key
from incast.engine.quantity import Scalar
from incast.engine.transports import simulated
from incast.scan.plan import EXIT_BAD_SCAN


def sweep_content(
    sweeps: Sequence[str], settings: Sequence[str], fixed: Mapping[str, Scalar], numbers: dict[str, Any]
) -> dict[str, Any]:
    """What a scan file would hold. `fixed`: settings of all points, unless `settings` say otherwise."""
    grid: dict[str, list[Scalar]] = {}
    for sweep in sweeps:
        key, values = list_of("--sweep", sweep)
        grid[key] = values
    return {**numbers, "set": {**fixed, **settings_of(settings)}, "grid": grid}


def simulated_on(fabric: Path | None) -> Mapping[str, Scalar]:
    """The settings of points that are simulated; None: on the ideal network."""
    return {"transport.name": simulated()} | ({} if fabric is None else {file_key(): str(fabric)})


def settings_of(settings: Sequence[str]) -> dict[str, Scalar]:
    """Of `--set KEY=VALUE`; OneLineError: it is none."""
    return {key: _value(value) for key, value in (_split("--set", each, "KEY=VALUE") for each in settings)}


def list_of(option: str, text: str) -> tuple[str, list[Scalar]]:
    """Of `KEY=VALUE,VALUE,...` behind that option: the key and its values."""
    key, values = _split(option, text, "KEY=VALUE,VALUE,...")
    return key, [_value(each.strip()) for each in values.split(",")]


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
