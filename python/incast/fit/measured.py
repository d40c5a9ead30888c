"""Measured `incast net` results: what was asked of the network, and what it answered."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.engine.settings import present_config

_RESULT_NAME = "result.json"
# What of a measurement is the question; transports, waiting and memory are of the machine that was measured.
_ASKED = (
    "pattern", "producers", "consumers", "duplex", "measure", "operation", "message_size", "queues", "outstanding",
    "sends", "ping_size",
)  # fmt: skip


@dataclass(frozen=True)
class Observed:
    """One figure of a result; its logarithm is what is compared."""

    name: str
    value: float


@dataclass(frozen=True)
class Point:
    """One measurement."""

    name: str
    settings: tuple[str, ...]  # for --set
    observed: tuple[Observed, ...]
    virtual: bool


def observed_in(result: Mapping[str, Any]) -> tuple[Observed, ...]:
    """Rates, and round trips: the mean by how many there were in the window, as quantiles are those of buckets."""
    found = []
    rate, trips = result["bytes_per_s"]["total"], result.get("round_trip_ns")
    if result["measure"] != "latency" and rate:
        found.append(Observed("bytes/s", float(rate)))
    if trips and trips["count"]:
        streams = len(result["pairs"]) * (result["queues"] if result["measure"] == "latency" else 1)
        found.append(Observed("mean round trip", streams * result["window"]["seconds"] / trips["count"]))
        found.append(Observed("least round trip", trips["min"] * 1e-9))
    return tuple(each for each in found if each.value > 0)


def _point(result: Mapping[str, Any], name: str) -> Point:
    config = present_config(result["config"])
    if result["status"] != "complete":
        raise OneLineError(f"{name}: its status is {result['status']}; allowed: complete ones", EXIT_BAD_CONFIG)
    given = {f"net.{key}": config["net"][key] for key in _ASKED if config["net"].get(key) is not None}
    given |= {"run.task": "net", "run.nodes": config["run"]["nodes"]}
    settings = tuple(f"{key}={_word(value)}" for key, value in given.items() if value != "auto")
    observed = observed_in(result)
    if not observed:
        raise OneLineError(f"{name}: nothing arrived in its window; allowed: results with a rate or round trips", 2)
    outstanding = f"net.outstanding={result['outstanding']}"  # as it was chosen, where it was left to the engine
    kept = (each for each in settings if not each.startswith("net.outstanding="))
    return Point(name, (*kept, outstanding), observed, result["time_domain"] == "virtual")


def _word(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def read_points(paths: Sequence[Path]) -> list[Point]:
    """Of results, or the folders that they are in; one with several sizes is a point for each."""
    points = []
    for path in paths:
        file = path / _RESULT_NAME if path.is_dir() else path
        try:
            content = json.loads(file.read_text())
            kind = content["kind"]
            if kind not in ("net", "net-sizes", "net-loaded"):
                raise ValueError(f"its kind is {kind}")
            results = [content] if kind == "net" else [*content["results"], *filter(None, [content.get("idle")])]
            many = len(results) > 1
            points += [_point(each, f"{path}{f' {n}' if many else ''}") for n, each in enumerate(results, 1)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise OneLineError(f"{path}: no result of `incast net` ({error}); allowed: its folder", 2) from error
    if not points:
        raise OneLineError("no results; allowed: results of `incast net`, or their folders", EXIT_BAD_CONFIG)
    return points


def residuals(point: Point, observed: Sequence[Observed]) -> list[float]:
    """ln(simulated / measured) of each figure."""
    simulated = {each.name: each.value for each in observed}
    return [
        math.log(simulated[each.name] / each.value) if each.name in simulated else math.nan for each in point.observed
    ]
