"""What one call of `incast net` measures one after the other: message sizes, numbers of queues, and no load at last."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from incast.run.request import RunRequest

IDLE = "idle"


@dataclass(frozen=True)
class Case:
    """One of several measurements: its name, and what differs from the others."""

    name: str
    settings: tuple[str, ...]

    def request(self, of: RunRequest, number: int) -> RunRequest:
        """Numbered, because `64KiB` and `65536` are one size, and a list may hold a size twice."""
        name = "".join(letter for letter in self.name if letter.isalnum() or letter in "._-")
        return replace(of, settings=(*of.settings, *self.settings), output=of.output / f"{number:02}-{name}")


@dataclass(frozen=True)
class Cases:
    """A list of one is measured alone, unless it is compared with an idle network."""

    cases: Sequence[Case]
    against_idle: bool = False

    @property
    def alone(self) -> bool:
        """One measurement, without a list around it."""
        return not self.cases and not self.against_idle


def cases_of(sizes: Sequence[str], queues: Sequence[str], *, against_idle: bool = False) -> Cases:
    """Every number of queues with every size; what has one value is a setting of all of them already."""
    many_sizes = sizes if len(sizes) > 1 else [None]
    many_queues = queues if len(queues) > 1 else [None]
    cases = []
    for number in many_queues:
        for size in many_sizes:
            named = [*([] if number is None else [f"q{number}"]), *([] if size is None else [size])]
            given = {"net.queues": number, "net.message_size": size}
            settings = tuple(f"{key}={value}" for key, value in given.items() if value is not None)
            cases.append(Case("-".join(named) or "loaded", settings))
    listed = len(many_sizes) > 1 or len(many_queues) > 1
    return Cases(cases if listed or against_idle else [], against_idle)


def idle_case(ping_bytes: int) -> Case:
    """Pings as long, of one queue and without a load."""
    words = ("net.measure=latency", f"net.message_size={ping_bytes}", "net.queues=1", "net.outstanding=1")
    return Case(IDLE, (*words, "net.sends=auto"))
