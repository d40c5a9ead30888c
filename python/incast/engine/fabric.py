"""A network that a file describes (docs/fabrics.md), as the engine says it."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from incast.base.words import counted
from incast.engine.program import engine_answer

GBIT = 1e9


@dataclass(frozen=True)
class Cable:
    """Between two nodes, by name; the same rate each way."""

    ends: tuple[str, str]
    bits_per_s: int
    delay_ps: int


@dataclass(frozen=True)
class Fabric:
    """What the engine says of a file."""

    name: str
    description: str
    hosts: tuple[str, ...]
    switches: dict[str, str]  # name: kind
    cables: tuple[Cable, ...]

    @staticmethod
    def read(path: Path) -> "Fabric":
        """OneLineError, one line with the file's place, if something is wrong with it."""
        said = engine_answer("--describe-fabric", str(path))
        return Fabric(
            said["name"],
            said["description"],
            tuple(said["hosts"]),
            {one["name"]: one["kind"] for one in said["switches"]},
            tuple(
                Cable((one["ends"][0], one["ends"][1]), one["bits_per_s"], one["delay_ps"]) for one in said["cables"]
            ),
        )

    def tiers(self) -> list[list[str]]:
        """Switches by their distance from the nearest host, the nearest first."""
        left = dict(self.switches)
        reached = set(self.hosts)
        found: list[list[str]] = []
        while left:
            next_to = {
                other
                for cable in self.cables
                for one, other in (cable.ends, cable.ends[::-1])
                if one in reached and other in left
            }
            tier = [name for name in left if name in next_to]
            if not tier:
                break
            for name in tier:
                del left[name]
            reached |= set(tier)
            found.append(tier)
        return found

    def size(self) -> str:
        """How many hosts and switches."""
        return (
            f"{counted(len(self.hosts), 'host')}, {len(self.switches)} switch{'' if len(self.switches) == 1 else 'es'}"
        )

    def lines(self) -> list[str]:
        """For a person."""
        kinds = Counter(self.switches.values())
        switches = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        lines = [
            f"{self.name}: {self.description}",
            f"{self.size()} ({switches}), {counted(len(self.cables), 'cable')}",
        ]
        hosts = set(self.hosts)
        at_hosts = [cable for cable in self.cables if hosts & set(cable.ends)]
        between = [cable for cable in self.cables if not hosts & set(cable.ends)]
        for title, cables in (("to hosts", at_hosts), ("between switches", between)):
            for (rate, delay), count in sorted(Counter((each.bits_per_s, each.delay_ps) for each in cables).items()):
                lines.append(f"  {count} cables {title}: {rate / GBIT:g} Gb/s, {delay / 1000:g} ns")
        injected = sum(cable.bits_per_s for cable in at_hosts)
        lines.append(f"all hosts together: {injected / GBIT:g} Gb/s each way")
        for number, tier in enumerate(self.tiers(), 1):
            lines.append(f"tier {number}: {_run_of(tier)}")
        return lines


def _run_of(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{names[0]} .. {names[-1]} ({len(names)})"
