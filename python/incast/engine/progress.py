"""What the engine reports while it works: a JSON object per line (docs/running.md, "Progress")."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A line is a status report of at most some hundred nodes; more without a line end is not the engine talking.
_LINE_BYTES_MAX = 4 << 20


@dataclass(frozen=True)
class Phase:
    """The run has entered another part: warm-up, measurement, drain. `seconds`: how long it is to last."""

    name: str
    seconds: float | None = None  # not known


@dataclass(frozen=True)
class Planned:
    """What the run is about to do, for a person: a label and a text in each row."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class NodeSample:
    """One node; bytes are fragment bytes since its start, built as a builder unit and sent as a readout unit."""

    name: str
    state: str
    built_bytes: int
    sent_bytes: int


@dataclass(frozen=True)
class Sample:
    """Rates since the sample before. `t_s` counts from the start of the run, in virtual seconds in a simulation.

    The latency is the mean of the MEPs built since then; what went wrong is counted since the start of the run.
    """

    t_s: float
    goodput_bytes_per_s: float
    events_per_s: float
    nodes: tuple[NodeSample, ...]
    latency_mean_ns: float | None = None  # None: nothing was built
    incomplete_events: int = 0
    dropped_events: int = 0
    reassignments: int = 0
    evictions: int = 0
    verify_errors: int = 0
    left_s: float | None = None  # of what is measured, by the run's clock; None: not known


@dataclass(frozen=True)
class Notice:
    """Something a person should know now: a lost peer, a slow node."""

    level: str
    text: str


@dataclass(frozen=True)
class ResultWritten:
    """The result file is complete at this path."""

    path: Path


@dataclass(frozen=True)
class Listening:
    """The coordinator waits there for nodes."""

    address: str


_TROUBLES = ("incomplete_events", "dropped_events", "reassignments", "evictions", "verify_errors")
Progress = Planned | Phase | Sample | Notice | ResultWritten | Listening


def parse_progress(line: str) -> Progress | None:
    """One line of the engine's progress; None for a kind this version does not know. ValueError: it is none at all."""
    report = json.loads(line)
    if not isinstance(report, dict) or not isinstance(report.get("type"), str):
        raise ValueError("no progress report")
    parsed: Progress | None = None
    try:
        match report["type"]:
            case "phase":
                parsed = Phase(str(report["phase"]), _number_or_none(report.get("seconds")))
            case "plan":
                parsed = Planned(tuple((str(label), str(text)) for label, text in report["rows"]))
            case "sample":
                parsed = Sample(
                    t_s=float(report["t"]),
                    goodput_bytes_per_s=float(report["goodput_bytes_per_s"]),
                    events_per_s=float(report["events_per_s"]),
                    nodes=tuple(_parse_node(node) for node in report["nodes"]),
                    latency_mean_ns=_number_or_none(report.get("latency_mean_ns")),
                    left_s=_number_or_none(report.get("left_s")),
                    **{key: int(report.get(key, 0)) for key in _TROUBLES},
                )
            case "notice":
                parsed = Notice(str(report.get("level", "info")), str(report["text"]))
            case "listening":
                parsed = Listening(str(report["address"]))
            case "result":
                parsed = ResultWritten(Path(report["path"]))
            case _:
                pass  # a later version's
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("no progress report") from error
    return parsed


def _number_or_none(value: Any) -> float | None:
    return None if value is None else float(value)


def _parse_node(node: dict[str, Any]) -> NodeSample:
    return NodeSample(
        name=str(node["roles"]),
        state=str(node["state"]),
        built_bytes=int(node["built_goodput_bytes"]),
        sent_bytes=int(node["sent_goodput_bytes"]),
    )


class LineReader:
    """Whole lines out of a pipe that never blocks the reader. A line too long to be one is cut."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._partial = b""

    def read(self) -> list[str] | None:
        """The lines that one read completes; None at the end of the pipe, once its last words were handed out."""
        chunk = os.read(self._descriptor, 1 << 16)
        if not chunk:
            if not self._partial:
                return None
            last, self._partial = self._partial, b""
            return [line_text(last)]
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if len(self._partial) > _LINE_BYTES_MAX:
            lines.append(self._partial)
            self._partial = b""
        return [line_text(line) for line in lines if line.strip()]


def line_text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace").rstrip("\r")
