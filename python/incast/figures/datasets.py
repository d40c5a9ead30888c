"""What reports and comparisons are made of: result directories of runs, of raw traffic, and of scans."""

import json
import tomllib
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from incast.base import units
from incast.base.errors import OneLineError
from incast.engine.quantity import setting_text
from incast.engine.settings import is_former, present, present_config
from incast.engine.transports import simulated
from incast.evidence.diagnosis import DIAGNOSIS_NAME, diagnose
from incast.evidence.facts import read_samples
from incast.evidence.findings import Diagnosis
from incast.evidence.result import at, number, setting
from incast.scan.journal import TUNE_NAME, TUNE_RESULTS, is_scan, load_plan, load_rows
from incast.scan.plan import Plan
from incast.scan.table import Row

EXIT_NO_RESULT = 1
MEASURED = "measured"
SIMULATED = "simulated"
_DOMAINS = {"real": MEASURED, "virtual": SIMULATED}


@dataclass(frozen=True)
class Run:
    """The result directory of one run, of one measurement of raw traffic, or of flows on a simulated network."""

    name: str
    directory: Path
    result: Mapping[str, Any]

    @property
    def domain(self) -> str:
        """`measured`, or `simulated` in virtual time."""
        return _DOMAINS.get(str(self.result.get("time_domain")), SIMULATED)

    @property
    def is_net(self) -> bool:
        """Whether it is raw traffic."""
        return self.result.get("kind") == "net"

    @property
    def is_flows(self) -> bool:
        """Whether it is flows without nodes, on a simulated network."""
        return self.result.get("kind") == "flows"

    @property
    def fabric_file(self) -> Path | None:
        """Of a simulated network."""
        path = self.result.get("fabric_file") or setting(self.result, "transport", simulated(), "fabric")
        return Path(path) if isinstance(path, str) and path else None

    def samples(self) -> list[dict[str, Any]]:
        """By node and interval, in order."""
        return read_samples(self.directory)

    def diagnosis(self) -> Diagnosis:
        """As it was found when the run ended, with what was seen of the machine; else from the result alone."""
        try:
            kept = json.loads((self.directory / DIAGNOSIS_NAME).read_text(encoding="utf-8"))
            return Diagnosis(
                kept["limited_by"],
                kept["confidence"],
                tuple(kept["evidence"]),
                kept["suggestion"],
                tuple(kept["others"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return diagnose(self.result, self.samples())

    @property
    def headline(self) -> tuple[str, float | None]:
        """The figure by which it is judged, and its name with the unit."""
        if not self.is_net:
            return "goodput without self, bytes/s", number(self.result, "goodput_bytes_per_s", "total_without_self")
        if self.result.get("measure") in ("latency", "loaded"):
            return "median round trip, ns", number(self.result, "round_trip_ns", "p50")
        return "throughput, bytes/s", number(self.result, "bytes_per_s", "total")


@dataclass(frozen=True)
class Scan:
    """The folder of a scan, complete or not."""

    name: str
    directory: Path
    plan: Plan
    rows: tuple[Row, ...]

    def of_domain(self, domain: str) -> list[Row]:
        """The rows that were measured, or those that were simulated."""
        return [row for row in self.rows if _DOMAINS.get(str(row.get("time_domain"))) == domain]


@dataclass(frozen=True)
class Comparison:
    """The folder of `incast net --compare`."""

    name: str
    directory: Path
    result: Mapping[str, Any]


@dataclass(frozen=True)
class Bridge:
    """The folder of `incast bridge`."""

    name: str
    directory: Path
    result: Mapping[str, Any]


@dataclass(frozen=True)
class Tuned:
    """The folder of a tuning that has an outcome: `outcome` is tuning.json (docs/tuning.md), `scan` its readings."""

    name: str
    directory: Path
    outcome: Mapping[str, Any]
    scan: Scan

    @property
    def domain(self) -> str:
        """`measured`, or `simulated` in virtual time."""
        return _DOMAINS.get(str(self.outcome.get("time_domain")), MEASURED)


Dataset = Run | Scan | Tuned | Comparison | Bridge
_BRIDGE_KEYS = {"machine", "settings", "ways", "cases", "readings", "readings_not_idle"}
_COMPARISON_KEYS = {
    *("transports", "left_out", "rounds", "ping_bytes", "buffers", "pattern", "nodes", "runs", "runs_not_idle"),
}


def load(directories: Sequence[Path]) -> list[Dataset]:
    """Each directory once, with names that differ. OneLineError, one line, for what is no result."""
    return [
        _load(directory, name)
        for directory, name in zip(directories, distinct_names([path.name for path in directories]), strict=True)
    ]


def distinct_names(names: Sequence[str]) -> list[str]:
    """The same, numbered where one stands there twice."""
    seen: dict[str, int] = {}
    distinct = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        distinct.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return distinct


def _load(directory: Path, name: str) -> Dataset:
    if is_scan(directory):
        rows = tuple(_present_values(row) for row in load_rows(directory))
        scan = Scan(name, directory, _present_plan(load_plan(directory)), rows)
        return Tuned(name, directory, _outcome(directory), scan) if (directory / TUNE_NAME).is_file() else scan
    path = directory / "result.json" if directory.is_dir() else directory
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(result, dict) and result.get("kind") == "net-compare" and result.keys() >= _COMPARISON_KEYS:
            return Comparison(name or str(directory), path.parent, result)
        if isinstance(result, dict) and result.get("kind") in ("zmq", "root") and result.keys() >= _BRIDGE_KEYS:
            return Bridge(name or str(directory), path.parent, result)
        if not isinstance(result, dict) or "time_domain" not in result:
            raise ValueError("no result of one run or measurement")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        allowed = "a directory of `incast run`, `net`, `scan`, `tune`, `bridge` or `sim --flows`"
        raise OneLineError(f"{directory}: {path.name}: {why}; allowed: {allowed}", EXIT_NO_RESULT) from error
    if isinstance(result.get("config"), dict):
        result["config"] = present_config(result["config"])
    return Run(name or str(directory), path.parent, result)


def _outcome(directory: Path) -> Mapping[str, Any]:
    path = directory / TUNE_RESULTS[1]
    try:
        outcome: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key in ("goal", "unit", "defaults", "points", "around"):
            outcome[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = "not there" if isinstance(error, FileNotFoundError) else f"no outcome: {error}"
        allowed = f"incast tune --resume {directory} writes it"
        raise OneLineError(
            f"{directory} is of a tuning: {path.name}: {why}; allowed: {allowed}", EXIT_NO_RESULT
        ) from error
    return outcome


def _present_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """By this version's names of settings: a scan may be older."""
    former = {key for key in values if is_former(key)}
    renamed = dict(present(key, setting_text(values[key])) for key in former if values[key] is not None)
    return {**{key: value for key, value in values.items() if key not in former}, **renamed}


def _present_plan(plan: Plan) -> Plan:
    def text(setting: str) -> str:
        return "=".join(present(*setting.split("=", 1)))

    points = tuple(
        replace(point, axes=_present_values(point.axes), settings=tuple(map(text, point.settings)))
        for point in plan.points
    )
    return replace(plan, axes=tuple(present(key, "")[0] for key in plan.axes), points=points)


# --- the conditions that stand under every figure


def _machine(result: Mapping[str, Any]) -> str:
    cores = number(result, "machine", "cores")
    model, kernel = at(result, ("machine", "cpu_model")), at(result, ("machine", "kernel"))
    return f"{model}, {units.count(cores)} cores, {kernel}"


def _version(result: Mapping[str, Any]) -> str:
    return " ".join(
        ["incast", *(str(at(result, ("versions", key))) for key in ("incast", "git", "compiler", "build_type"))]
    )


def run_conditions(run: Run) -> list[str]:
    """What has to be known of a figure of this run, one line each."""
    result = run.result
    seconds, warm_up = (number(result, "window", key) for key in ("seconds", "warm_up_seconds"))
    time = "virtual" if run.domain == SIMULATED else "measured"
    if run.is_flows:
        return [*_flows_words(result), f"{_machine(result)}; {_version(result)}"]
    lines = [
        f"{setting(result, 'transport', 'name')}, {units.count(number(result, 'config', 'run', 'nodes'))} nodes, "
        + (_net_words(result) if run.is_net else _build_words(result)),
        f"{seconds or 0:.4g} s {time} after {warm_up or 0:.3g} s of warm-up; status {result.get('status')}; "
        f"verification: {result.get('verified')}, {units.count(number(result, 'verify_errors'))} errors; "
        f"seed {result.get('seed')}",
        f"{_machine(result)}; {_version(result)}",
    ]
    if (others := _others(run)) is not None:
        lines.append(others)
    return lines


def comparison_conditions(comparison: Comparison) -> list[str]:
    """The same for transports that were measured in turn."""
    result = comparison.result
    lines = [
        f"{result['pattern']}, {result['nodes']} nodes, buffers: {result['buffers']}; {result['rounds']} rounds, in "
        "which the transports took turns",
        f"machine not idle during {result['runs_not_idle']} of {result['runs']} measurements",
    ]
    for path in sorted(comparison.directory.glob("*/result.json"))[:1]:
        with suppress(OSError, ValueError):
            first = json.loads(path.read_text(encoding="utf-8"))
            lines.append(f"{_machine(first)}; {_version(first)}")
    return lines


def _build_words(result: Mapping[str, Any]) -> str:
    packing, mfp, slots = (number(result, "sizes", key) for key in ("packing", "mfp_bytes", "credits"))
    return (
        f"{setting(result, 'protocol', 'scheme')}, schedule {setting(result, 'protocol', 'schedule')}, MFPs of "
        f"{units.count(packing)} events ({units.size(mfp)}), {units.count(slots)} credits, self traffic: "
        f"{result.get('self_traffic')}, sink {setting(result, 'sink', 'kind')}"
    )


def _flows_words(result: Mapping[str, Any]) -> list[str]:
    flows, network = result["flows"], result["network"]
    return [
        f"{units.count(flows['offered'])} flows of {units.size(flows['bytes'])} in all ({result.get('flows_file')}) on "
        f"{network['fabric']}, {units.count(network['hosts'])} hosts",
        f"{units.duration_ns(1e9 * result['seconds'])} virtual; status {result['status']}; seed {result['seed']}",
    ]


def _net_words(result: Mapping[str, Any]) -> str:
    return (
        f"{result.get('pattern')}{', duplex' if result.get('duplex') else ''}, messages of "
        f"{units.size(number(result, 'message_bytes'))}, {result.get('queues')} x {result.get('outstanding')} in "
        f"flight, buffers: {result.get('buffers', 'cycled')}"
    )


def _others(run: Run) -> str | None:
    try:
        machine = json.loads((run.directory / DIAGNOSIS_NAME).read_text(encoding="utf-8"))["machine"]
        others, stolen = machine["others_cpu_fraction"], machine["stolen_cpu_fraction"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if run.domain == SIMULATED or others is None or stolen is None:
        return None
    return f"others used {100 * others:.0f} % of all cores meanwhile, {100 * stolen:.0f} % were stolen by the host"


def scan_conditions(scan: Scan, rows: Sequence[Row], given: Mapping[str, Any] | None = None) -> list[str]:
    """The same for points of a scan; `given` are the values of the axes that a figure does not show."""
    plan = scan.plan
    fixed = [text for text in _fixed_settings(plan) if not text.startswith(("run.task", "run.duration", "run.warm_up"))]
    first = rows[0]
    virtual = " virtual" if first.get("time_domain") == "virtual" else ""
    complete = sum(row["status"] == "complete" for row in rows)
    lines = [
        f"{plan.seconds:g} s{virtual} per point after {plan.warm_up_seconds:g} s of warm-up; "
        f"{plan.repeats} repeats in alternating order; {complete} of {len(rows)} readings complete",
        "settings: " + ", ".join([*fixed, *(f"{key}={value}" for key, value in (given or {}).items())]),
        f"{first.get('cpu_model')}, {first.get('cores')} cores; incast {first.get('incast_version')} "
        f"{first.get('incast_git')} {first.get('build_type')}",
    ]
    if virtual:
        lines.append(_chance({row["seed"] for row in rows if row.get("seed") is not None}))
    busy = sum(row.get("idle") is False for row in rows)
    unsaid = sum(row.get("idle") is None for row in rows)
    if not virtual:
        lines.append(
            f"machine not idle during {busy} of {len(rows)} readings"
            + (f", too short to say for {unsaid}" if unsaid else "")
        )
    return lines


def _chance(seeds: Set[int]) -> str:
    """What the readings of a simulation say of chance: repeats differ by their seed alone."""
    if len(seeds) == 1:
        return f"one seed, {min(seeds)}: how far other draws of chance lie from it is not shown"
    return f"{len(seeds)} seeds, from {min(seeds)} to {max(seeds)}" if seeds else "no seed is known"


def _fixed_settings(plan: Plan) -> list[str]:
    """Those that all points have, and those of the configuration below them."""
    fixed = [setting for setting in plan.points[0].settings if all(setting in point.settings for point in plan.points)]
    named = {setting.partition("=")[0] for setting in fixed} | set(plan.axes)
    base = _flat(tomllib.loads(plan.base)) if plan.base else {}
    return [*fixed, *(f"{key}={value}" for key, value in base.items() if key not in named)]


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
