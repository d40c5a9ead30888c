"""What a published result is here: a row, the runs it needs, and how what they give is judged.

A row is judged by its class, which is laid down with it and never improved by the outcome:

    arithmetic   follows from stated rates
    input        a parameter of the model
    fitted       a parameter was chosen to match it
    predicted    the model must give it without having been fitted to it: within 5 %, and with less than half of the
                 error of the null model (link rate without headers), which an idle network's formula gives, for
                 every plausible value of what is not known
    shape        an inequality or order that must hold over the whole plausible range of what is not known
    bound        the model says what the network allows at most, or takes at least; what was published must be below
                 the one, or above the other
    requirement  what a system asks for: run as a scenario, nothing is compared
"""

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from incast.engine.fabric_text import changed, read_fabric_text
from incast.engine.quantity import Scalar, number_of, setting_text
from incast.engine.transports import simulated
from incast.reproduce.bounds import AS_IN_THE_FILE, Unknown
from incast.scan.plan import Point

Kind = Literal["arithmetic", "input", "fitted", "predicted", "shape", "bound", "requirement"]
Value = float | str | list[float] | None
OK, OFF, RANGE = "ok", "off", "range"

_ERROR_MAX = 0.05
_NULL_SHARE_MAX = 0.5
GBIT = 1e9


@dataclass(frozen=True)
class Experiment:
    """One run of the engine in virtual time."""

    name: str  # within its row
    fabric: str  # of fabrics/, without its ending
    settings: Mapping[str, Scalar]
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the fabric file

    def point(self, number: int, fabrics: Path) -> Point:
        """As a scan takes it."""
        text = changed(read_fabric_text(fabrics / f"{self.fabric}.toml"), self.changes)
        settings = {"transport.name": simulated(), "run.seed": 1, **self.settings}
        words = tuple(f"{key}={setting_text(value)}" for key, value in settings.items())
        return Point(number, {"row": self.name}, words, True, text)


def raw_traffic(
    name: str,
    fabric: str,
    changes: Mapping[str, Any] | None = None,
    *,
    pattern: str,
    nodes: int,
    message: str,
    outstanding: int,
    ms: float = 0,
    warm_up_ms: float = 0,
    **more: Scalar,
) -> Experiment:
    """`incast net`, so long, or `messages` of every queue from the first to the last. `more`: settings of [net]."""
    return Experiment(
        name,
        fabric,
        {
            "run.task": "net",
            "run.nodes": nodes,
            **({"run.duration": _ms(ms), "run.warm_up": _ms(warm_up_ms)} if ms else {}),
            "net.pattern": pattern,
            "net.message_size": message,
            "net.outstanding": outstanding,
            **{f"net.{key}": value for key, value in more.items()},
        },
        changes or {},
    )


def event_building(
    name: str,
    fabric: str,
    changes: Mapping[str, Any] | None = None,
    *,
    nodes: int,
    message: str,
    ms: float,
    warm_up_ms: float,
    credits: int = 8,  # noqa: A002 - the protocol's own word
    sends: int = 0,
    scheme: str = "pull",
    schedule: str = "linear-shift",
    more: Mapping[str, Scalar] | None = None,
) -> Experiment:
    """`incast run`: an MFP is one message, and one write on the wire."""
    return Experiment(
        name,
        fabric,
        {
            "run.nodes": nodes,
            "run.duration": _ms(ms),
            "run.warm_up": _ms(warm_up_ms),
            "protocol.scheme": scheme,
            "protocol.schedule": schedule,
            "protocol.mfp_size": message,
            "protocol.credits": credits,
            "protocol.parallel_sends": sends,
            "source.fragment_size": "4KiB",
            "sink.kind": "null",
            **(more or {}),
        },
        changes or {},
    )


def _ms(milliseconds: float) -> str:
    return f"{round(milliseconds * 1e6)}ns"


class Figures:
    """What the runs of a row gave: by the name of the run, the columns of a scan's table."""

    def __init__(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        self._rows = rows

    def number(self, name: str, column: str) -> float:
        """A figure that the run must have."""
        value = self._rows[name][column]
        assert isinstance(value, int | float), f"{name}: no {column}"
        return float(value)

    def gbit(self, name: str, column: str = "throughput_bytes_per_s") -> float:
        """A rate, in Gb/s."""
        return self.number(name, column) * 8 / GBIT

    def per_node(self, name: str) -> float:
        """Of event building in folded roles: Gb/s that a node sends over its link, without what it keeps."""
        return self.gbit(name, "goodput_without_self_bytes_per_s") / self.number(name, "nodes")


@dataclass(frozen=True)
class Finding:
    """The outcome of a row."""

    ours: Value
    status: str
    relative_error: float | None = None
    null_model_error: float | None = None
    remarks: tuple[str, ...] = ()  # for docs/reproduction.md


@dataclass(frozen=True)
class Fabrics:
    """The fabric files, for formulas that need their values."""

    folder: Path

    def value(self, fabric: str, key: str) -> Any:
        """What stands there, as it is written."""
        found: Any = tomllib.loads(read_fabric_text(self.folder / f"{fabric}.toml"))
        for name in key.split("."):
            found = found[name]
        return found


Judge = Callable[[Figures, Fabrics], Finding]


@dataclass(frozen=True)
class Row:
    """One published result. Its class is fixed here."""

    id: str
    source: str
    conditions: str
    published: Value
    kind: Kind
    judge: Judge
    experiments: Sequence[Experiment] = ()
    unknowns: Sequence[Unknown] = ()  # what the runs vary, within its bounds
    nothing_unknown: str = ""  # of predictions and shapes without these: why nothing has to be varied
    note: str = ""  # what the runs assume
    is_measured: bool = False  # on this host, each time, by its judge; not simulated

    @property
    def number(self) -> str:
        """`16` of `16a`."""
        return self.id.rstrip("abcdefghijklmnopqrstuvwxyz")

    def definition(self, fabrics: Path) -> str:
        """A hash over what is run for it."""
        points = [experiment.point(1, fabrics) for experiment in self.experiments]
        said = [self.id, [(point.axes, point.settings, point.fabric) for point in points]]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def record(self, finding: Finding) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "id": self.id,
            "source": self.source,
            "conditions": self.conditions,
            "published": self.published,
            "ours": finding.ours,
            "relative_error": finding.relative_error,
            "kind": self.kind,
            "null_model_error": finding.null_model_error,
            "status": finding.status,
        }


# --- ways to judge


def error_of(ours: float, published: float) -> float:
    """Relative to what was published."""
    return abs(ours - published) / published


def null_model(fabrics: Fabrics, fabric: str, host: str, rate_gbit: float) -> float:
    """An idle network: link rate without the headers of packets, Gb/s."""
    payload = _bytes(fabrics.value(fabric, f"hosts.{host}.mtu"))
    return rate_gbit * payload / (payload + _bytes(fabrics.value(fabric, f"hosts.{host}.header")))


def _bytes(text: str) -> float:
    number = number_of(text)
    assert number is not None
    return number


def compare(ours: float, published: float, *remarks: str) -> Finding:
    """Arithmetic, input and fitted rows: within 5 %."""
    error = error_of(ours, published)
    return Finding(ours, OK if error <= _ERROR_MAX else OFF, error, None, remarks)


def predict(ours: float, published: float, null: float, plausible: Sequence[float] = (), *remarks: str) -> Finding:
    """Predicted rows. `plausible`: outcomes over what is unknown, `ours` being one more.

    Ok if each of them is a good prediction; a range if they are not, and what was published lies among them, to the
    digits in which it was published.
    """
    null_error = error_of(null, published)

    def good(outcome: float) -> bool:
        return (error := error_of(outcome, published)) <= _ERROR_MAX and error < _NULL_SHARE_MAX * null_error

    outcomes = (ours, *plausible)
    digits = len(str(published).partition(".")[2])
    low, high = (round(pick(outcomes), digits) for pick in (min, max))
    status = OK if all(map(good, outcomes)) else RANGE if low <= published <= high and plausible else OFF
    if plausible:
        remarks = (
            *remarks,
            f"Over what is unknown: {low:.1f} ... {high:.1f}; {sum(map(good, outcomes))} of {len(outcomes)} are good.",
        )
    return Finding(ours, status, error_of(ours, published), null_error, remarks)


def shape(ours: Value, holds: Sequence[bool], *remarks: str) -> Finding:
    """Shape rows: ok where it holds for all of the range, off where for none, else range. One entry a variant."""
    share = sum(holds) / len(holds)
    return Finding(ours, OK if share == 1 else RANGE if share > 0 else OFF, None, None, remarks)


def statements(ours: Value, networks: Mapping[str, Mapping[str, bool]], *remarks: str) -> Finding:
    """Shape rows that say several things, of a network and of others that are as plausible.

    A network has the shape if all holds there; the row is ok if each has it, off if none, else a range.
    """
    first = next(iter(networks.values()))
    said = [f"{'Holds' if holds else 'Does not hold'}: {what}." for what, holds in first.items()]
    shaped = [name for name, parts in networks.items() if all(parts.values())]
    if len(networks) > 1:
        said.append(f"Over what is unknown all holds in {len(shaped)} of {len(networks)} networks.")
    status = OK if len(shaped) == len(networks) else RANGE if shaped else OFF
    return Finding(ours, status, None, None, (*said, *remarks))


def statement(ours: Value, parts: Mapping[str, bool], *remarks: str) -> Finding:
    """The same of one network."""
    return statements(ours, {AS_IN_THE_FILE.name: parts}, *remarks)


def needs(part: str) -> Judge:
    """A row that cannot be run yet."""
    return lambda _figures, _fabrics: Finding(None, f"needs {part}")
