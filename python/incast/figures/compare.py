"""Which differences between two runs or two scans are larger than the noise, by a rule that is printed with them.

The noise of a scan is that between its repeats. That of a single run is that within it: its samples, in ten batches at
most, since neighbouring samples are alike. What changes from one run to the next is not in there, and that is said.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from incast.base.errors import OneLineError
from incast.engine.quantity import setting_text
from incast.figures.datasets import SIMULATED, Run, Scan, load
from incast.figures.run_figures import domain_label
from incast.scan.table import Row, figures

_BATCHES_MAX = 10
_CONFIDENCE = 0.99
# Two-sided 99 % quantiles of Student's t for 1, 2, ... degrees of freedom; beyond, by the next smaller number here.
_T99 = (
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947,
    2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
)  # fmt: skip
_T99_BEYOND = ((120, 2.617), (60, 2.660), (40, 2.704), (30, 2.750))
RULE = (
    "A difference counts as larger than the noise if it exceeds the 99 % interval of Welch's t-test on the "
    "readings of both sides (repeats of a scan; of single runs ten batches of samples at most)."
)
# What is compared of readings, where both sides have it.
_COMPARED = (
    "goodput_without_self_bytes_per_s", "throughput_bytes_per_s", "readout_unit_min_bytes_per_s",
    "over_time_min_bytes_per_s", "latency_p50_ns", "latency_p99_ns", "round_trip_p50_ns", "round_trip_p99_ns",
    "dead_time_fraction", "cpu_s_per_gb",
)  # fmt: skip
_SCAN_CONDITIONS = ("host", "cpu_model", "cores", "incast_version", "incast_git", "build_type")


def t_quantile(degrees: float) -> float:
    """Of Student's t, two-sided 99 %; rounded towards the larger."""
    whole = max(1, math.floor(degrees))
    if whole <= len(_T99):
        return _T99[whole - 1]
    return next(value for least, value in _T99_BEYOND if whole >= least)


@dataclass(frozen=True)
class Difference:
    """One figure on both sides. `noise` is what B - A has to exceed; None where there is too little to know it."""

    where: str  # the point of a scan; empty for single runs
    figure: str
    a: float
    b: float
    noise: float | None

    @property
    def ratio(self) -> float | None:
        """B over A."""
        return self.b / self.a if self.a else None

    @property
    def larger(self) -> bool | None:
        """Than the noise; None if that is not known."""
        return None if self.noise is None else abs(self.b - self.a) > self.noise


def difference(where: str, figure: str, a: Sequence[float], b: Sequence[float]) -> Difference:
    """Of the means, with the half width of Welch's interval where both sides have two readings at least."""
    mean_a, mean_b = statistics.fmean(a), statistics.fmean(b)
    if len(a) < 2 or len(b) < 2:
        return Difference(where, figure, mean_a, mean_b, None)
    parts = [statistics.variance(side) / len(side) for side in (a, b)]
    total = sum(parts)
    if total == 0:
        return Difference(where, figure, mean_a, mean_b, 0.0)
    degrees = total**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (a, b), strict=True))
    return Difference(where, figure, mean_a, mean_b, t_quantile(degrees) * math.sqrt(total))


def batches(values: Sequence[float]) -> list[float]:
    """Means of batches of neighbours, ten at most, of equal length; what is left over at the end is left out."""
    count = min(_BATCHES_MAX, len(values))
    length = len(values) // count if count else 0
    return [statistics.fmean(values[k * length : (k + 1) * length]) for k in range(count)]


def of_runs(a: Run, b: Run) -> list[Difference]:
    """Two runs of one kind: by interval where there are samples, and the figures of the whole window."""
    rates = [batches(goodput_by_interval(run.samples())) for run in (a, b)]
    found = []
    if all(rates):
        found.append(difference("", "mean_of_intervals_bytes_per_s", rates[0], rates[1]))
    kind = "net" if a.is_net else "run"
    rows = [figures(run.result, kind) for run in (a, b)]
    return found + _of_rows("", [rows[0]], [rows[1]])


def goodput_by_interval(samples: Iterable[Mapping[str, Any]]) -> list[float]:
    """Of all nodes together, by interval of the measured phase; the last, cut short, is left out."""
    by_node: dict[int, list[Mapping[str, Any]]] = {}
    for sample in samples:
        if sample.get("phase") == "measuring" and sample["interval_s"] > 0:
            by_node.setdefault(sample["node"], []).append(sample)
    # The first interval of a node began in the warm-up.
    whole = [listed[1:-1] for listed in by_node.values()]
    return [sum(sample["built_goodput_bytes_per_s"] for sample in together) for together in zip(*whole, strict=False)]


def of_scans(a: Scan, b: Scan) -> tuple[list[Difference], int]:
    """The points that both have, by the values of their axes; and how many points only one of them has."""
    sides = [_by_point(scan) for scan in (a, b)]
    both = [key for key in sides[0] if key in sides[1]]
    found: list[Difference] = []
    for key in both:
        words = " ".join(f"{axis}={value}" for axis, value in key)
        found += _of_rows(words, sides[0][key], sides[1][key])
    return found, len(sides[0]) + len(sides[1]) - 2 * len(both)


def _by_point(scan: Scan) -> dict[tuple[tuple[str, str], ...], list[Row]]:
    axes = {
        point.number: tuple(sorted((key, setting_text(value)) for key, value in point.axes.items()))
        for point in scan.plan.points
    }
    found: dict[tuple[tuple[str, str], ...], list[Row]] = {}
    for row in scan.rows:
        if row["status"] == "complete":
            found.setdefault(axes[row["point"]], []).append(row)
    return found


def _of_rows(where: str, a: Sequence[Row], b: Sequence[Row]) -> list[Difference]:
    found = []
    for column in _COMPARED:
        sides = [[float(row[column]) for row in rows if isinstance(row.get(column), int | float)] for rows in (a, b)]
        if all(sides):
            found.append(difference(where, column, sides[0], sides[1]))
    return found


def other_settings(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Keys whose values differ, with both."""
    found: list[tuple[str, Any, Any]] = []
    for key in sorted({*a, *b}):
        one, other = a.get(key), b.get(key)
        if isinstance(one, Mapping) or isinstance(other, Mapping):
            found += other_settings(
                one if isinstance(one, Mapping) else {}, other if isinstance(other, Mapping) else {}, f"{prefix}{key}."
            )
        elif one != other:
            found.append((f"{prefix}{key}", one, other))
    return found


def _conditions(dataset: Run | Scan) -> dict[str, Any]:
    if isinstance(dataset, Run):
        result = dataset.result
        return {**result.get("config", {}), **{key: result.get(key, {}) for key in ("machine", "versions")}}
    plan = dataset.plan
    fixed = [setting for setting in plan.points[0].settings if all(setting in point.settings for point in plan.points)]
    first = dataset.rows[0] if dataset.rows else {}
    of_rows = {key: first.get(key) for key in _SCAN_CONDITIONS}
    return {**dict(setting.split("=", 1) for setting in fixed), "repeats": plan.repeats, **of_rows}


def _domains(dataset: Run | Scan) -> set[str]:
    if isinstance(dataset, Run):
        return {dataset.domain}
    return {"measured" if row.get("time_domain") == "real" else SIMULATED for row in dataset.rows}


def _alike(one: Run, other: Run) -> bool:
    return one.is_net == other.is_net and not one.is_flows and not other.is_flows


def compare(a: Path, b: Path) -> tuple[list[Difference], dict[str, Any]]:
    """Two directories: what differs, and what has to be known beside it. OneLineError: they are of different sorts."""
    one, other = load([a, b])
    notes = [RULE]
    both: list[Run | Scan]
    if isinstance(one, Scan) and isinstance(other, Scan):
        both = [one, other]
        differences, alone = of_scans(one, other)
        if alone:
            notes.append(f"{alone} points are in one of the two only.")
    elif isinstance(one, Run) and isinstance(other, Run) and _alike(one, other):
        both = [one, other]
        differences = of_runs(one, other)
        notes.append(
            "The noise is that within each run; what changes from run to run is not in it. `incast scan` with repeats "
            "in alternating order has it."
        )
    else:
        raise OneLineError(f"{a} and {b} do not compare; allowed: two runs, two of incast net, or two scans", 2)
    known = sum(each.noise is not None for each in differences)
    notes.append(f"By chance about {known * (1 - _CONFIDENCE):.2g} of {known} would exceed it without being different.")
    domains = [_domains(each) for each in both]
    answer: dict[str, Any] = {
        side: {"directory": str(dataset.directory), "data": sorted(domain_label(each) for each in found)}
        for side, dataset, found in zip("ab", both, domains, strict=True)
    }
    answer |= {
        "mixed": len(domains[0] | domains[1]) > 1,
        "other_conditions": other_settings(_conditions(both[0]), _conditions(both[1])),
        "notes": notes,
    }
    return differences, answer
