"""`incast compare A B`: which differences are larger than the noise, by a rule that is printed with them.

The noise of a scan is that between its repeats. That of a single run is that within it: its samples, in ten batches at
most, since neighbouring samples are alike. What changes from one run to the next is not in there, and that is said.
"""

import json
import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from incast import units
from incast.console import open_console
from incast.engine import EngineError
from incast.lab.datasets import SIMULATED, Dataset, Run, Scan, load
from incast.lab.figures import domain_label, unit_of
from incast.lab.table import Row, figures
from incast.quantity import setting_text

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


# --- what is compared


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


def _conditions(dataset: Dataset) -> dict[str, Any]:
    if isinstance(dataset, Run):
        result = dataset.result
        return {**result.get("config", {}), **{key: result.get(key, {}) for key in ("machine", "versions")}}
    plan = dataset.plan
    fixed = [setting for setting in plan.points[0].settings if all(setting in point.settings for point in plan.points)]
    first = dataset.rows[0] if dataset.rows else {}
    of_rows = {key: first.get(key) for key in _SCAN_CONDITIONS}
    return {**dict(setting.split("=", 1) for setting in fixed), "repeats": plan.repeats, **of_rows}


def _domains(dataset: Dataset) -> set[str]:
    if isinstance(dataset, Run):
        return {dataset.domain}
    return {"measured" if row.get("time_domain") == "real" else SIMULATED for row in dataset.rows}


# --- the command


def _figure_text(figure: str, value: float) -> str:
    unit = unit_of(figure)
    if unit == "bytes_per_s":
        return units.rate(value)
    if unit == "ns":
        return units.duration_ns(value)
    return units.fraction(value) if unit == "fraction" else f"{value:.4g}"


def _words(figure: str) -> str:
    unit = unit_of(figure)
    words = figure.removesuffix(f"_{unit}").replace("_", " ") if unit else figure
    return f"{words}, s/GB" if unit == "s_per_gb" else words


def _print(console: Console, answer: dict[str, Any], differences: Sequence[Difference]) -> None:
    if answer["mixed"]:
        console.print("MEASURED AGAINST SIMULATED: differences are those of the model, too", style="bold magenta")
    for side in ("a", "b"):
        line = f"{side.upper()}: {answer[side]['directory']} ({', '.join(answer[side]['data'])})"
        console.print(line, markup=False, soft_wrap=True)
    for key, one, other in answer["other_conditions"]:
        console.print(Text(f"   {key}: {one} against {other}", style="dim"), soft_wrap=True)
    known = [each for each in differences if each.noise is not None]
    larger = [each for each in known if each.larger]
    if larger:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("point" if any(each.where for each in larger) else "")
        for heading in ("figure", "A", "B", "B / A", "noise"):
            table.add_column(heading, justify="left" if heading == "figure" else "right")
        for each in larger:
            texts = [_figure_text(each.figure, value) for value in (each.a, each.b)]
            ratio = units.ABSENT if each.ratio is None else f"{each.ratio:.3g}"
            noise = f"± {_figure_text(each.figure, each.noise or 0.0)}"
            table.add_row(*(Text(cell) for cell in (each.where, _words(each.figure), *texts, ratio, noise)))
        console.print(table)
    console.print(f"{len(larger)} of {len(known)} differences are larger than the noise.", markup=False)
    unknown = [each for each in differences if each.noise is None]
    if unknown:
        console.print(f"Of {len(unknown)} figures the noise is not known (one reading a side); B / A:", markup=False)
        for each in unknown[:20]:
            ratio = units.ABSENT if each.ratio is None else f"{each.ratio:.3g}"
            texts = [_figure_text(each.figure, value) for value in (each.a, each.b)]
            name = " ".join(part for part in (each.where, _words(each.figure)) if part)
            console.print(Text(f"   {name}: {ratio}   ({texts[0]}, {texts[1]})", style="dim"), soft_wrap=True)
    for note in answer["notes"]:
        console.print(Text(note, style="dim"), soft_wrap=True)


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Directory of a run, of raw traffic, or of a scan.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one of the same sort.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Every figure, in JSON.")] = False,
) -> None:
    """Print what differs between two runs or two scans by more than the noise, and the rule for that."""
    one, other = load([a, b])
    notes = [RULE]
    if isinstance(one, Scan) and isinstance(other, Scan):
        differences, alone = of_scans(one, other)
        if alone:
            notes.append(f"{alone} points are in one of the two only.")
    elif isinstance(one, Run) and isinstance(other, Run) and one.is_net == other.is_net:
        differences = of_runs(one, other)
        notes.append(
            "The noise is that within each run; what changes from run to run is not in it. `incast scan` with repeats "
            "in alternating order has it."
        )
    else:
        raise EngineError(f"{a} and {b} are of different sorts; allowed: two runs, two of incast net, or two scans", 2)
    known = sum(each.noise is not None for each in differences)
    notes.append(f"By chance about {known * (1 - _CONFIDENCE):.2g} of {known} would exceed it without being different.")
    domains = [_domains(one), _domains(other)]
    answer: dict[str, Any] = {
        side: {"directory": str(dataset.directory), "data": sorted(domain_label(each) for each in found)}
        for side, dataset, found in zip("ab", (one, other), domains, strict=True)
    }
    answer |= {
        "mixed": len(domains[0] | domains[1]) > 1,
        "other_conditions": other_settings(_conditions(one), _conditions(other)),
        "notes": notes,
    }
    if as_json:
        listed = [{**asdict(each), "ratio": each.ratio, "larger_than_noise": each.larger} for each in differences]
        sys.stdout.write(json.dumps({**answer, "differences": listed}, indent=2) + "\n")
        return
    _print(open_console(), answer, differences)
