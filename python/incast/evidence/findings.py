"""What a diagnosis is made of."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

NOT_KNOWN = "not known"
NOTHING_BUILT = "nothing was built in the measured time"
CONFIDENCES = ("high", "medium", "low", "none")
# What rules cannot see, since no counter of the engine shows it.
MISSING = {
    "switch buffer or pauses": "no transport reports what switches do (known: simulated networks)",
    "host memory bandwidth": "no counter of memory traffic; time that waits for memory is in the CPU time",
    "sender link": "the rate of a real network card is not in the result (known: simulated and paced links)",
    "CPU": "the time that a node slept is not counted, only how often",
}


@dataclass(frozen=True)
class Finding:
    """That one resource was used up."""

    cause: str
    confidence: str
    evidence: tuple[str, ...]
    suggestion: str


@dataclass(frozen=True)
class Diagnosis:
    """What limited a run; `limited_by` may be `not known`."""

    limited_by: str
    confidence: str
    evidence: tuple[str, ...]
    suggestion: str
    others: tuple[str, ...] = ()  # what else looked used up, less surely
    ports: tuple[str, ...] = ()  # counters of ports that moved
    missing: Mapping[str, str] = field(default_factory=lambda: dict(MISSING))

    def to_json(self) -> dict[str, Any]:
        """As it is kept beside a result."""
        return asdict(self)
