"""Comparisons on a machine that is not ours alone: alternated, repeated, and only while it is idle (docs/measuring.md).

A comparison is a number of *pairs*: in each, the subject and its references run once, one after the other, and which
goes first alternates. What counts is the median over pairs of the ratio within a pair, with its spread; absolute
figures of a shared machine drift too much to be compared across pairs.

While a program runs, two readings of /proc are taken within its steady phase, by the same accounting for all programs
(`incast.engine.idle`, which scans use too). A pair during which others or steal took more than `IdleRule` allows of
all cores is discarded and repeated, at most `max_discards` times.

Nor does a pair count during which the machine became another one: the host of a virtual machine moves its cores, from
one second to the next, closer together or further apart, and the memory's speed may change with them. So a copy past
the cache and the way of a cache line from core to core are timed before, between and after the programs of a pair.
Where these differ over the pairs that count, the ratios are given for each.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Benchmarks run with any Python, where the package need not be installed; of it they use what needs no library.
sys.path.insert(0, str(ROOT / "python"))

from incast.engine.idle import (  # noqa: E402
    IdleRule,
    Machine,
    Process,
    Snapshot,
    Window,
    read_processes,
    tree_cpu,
    usable_cores,
)

__all__ = ["IdleRule", "Machine", "Process", "Snapshot", "Window", "read_processes", "tree_cpu", "usable_cores"]


MEMORY = "memory"  # what copies past the cache reach
CORES = "cores"  # from one to another
_UNITS = {MEMORY: "GB/s", CORES: "ns apart"}

# Of two pairs: as close as copies of one and the same memory come.
_SAME_SPEED = 1.2
# Cores of one last-level cache are three to six times closer than others.
_SAME_DISTANCE = 2.0

# --- readings, and which count


@dataclass(frozen=True)
class Unit:
    """What rates are given in, and CPU time per."""

    name: str
    size: float


GIGABYTES = Unit("GB", 1e9)
MESSAGES = Unit("M messages", 1e6)


@dataclass(frozen=True)
class Reading:
    """One run of one program."""

    rate: float  # bytes or messages per second
    window: Window
    details: dict[str, Any] = field(default_factory=dict)
    # Runs that were tried and not taken: a disturbed one might have been the better one.
    tried: tuple[Window, ...] = ()

    def cpu_per(self, unit: Unit) -> float:
        """CPU seconds per GB, or million messages; the rate is the program's, over its own window."""
        return self.window.cpu / self.window.seconds / (self.rate / unit.size)


@dataclass(frozen=True)
class Entrant:
    """A program of a comparison."""

    name: str
    run: Callable[[], Reading]


@dataclass
class Pair:
    """One round over all entrants, by name."""

    readings: dict[str, Reading]
    busy: str | None  # why it does not count
    watched: dict[str, list[float]] = field(default_factory=dict)  # by name of the watch, as it was meanwhile

    def usual(self, name: str) -> float:
        """What was watched under that name, in the middle; 0 if nobody looked."""
        return statistics.median(self.watched[name]) if name in self.watched else 0.0


@dataclass(frozen=True)
class Watch:
    """Something of the machine that must stay as it is during a pair."""

    name: str
    look: Callable[[], float]
    most: float  # highest over lowest reading

    def broken_by(self, readings: Sequence[float]) -> str | None:
        """Why a pair with these does not count."""
        low, high = min(readings), max(readings)
        return f"{self.name}: {low:.1f} to {high:.1f} {_UNITS[self.name]}" if high > self.most * low else None


@dataclass(frozen=True)
class Spread:
    """Median, lowest and highest."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        """At least one value is needed."""
        return Spread(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}..{self.high:.2f})"


def _alike(pairs: Sequence[Pair], name: str, most: float) -> list[list[Pair]]:
    """In groups, lowest first; within one, each is at most `most` times what the one before it is."""
    groups: list[list[Pair]] = []
    for pair in sorted(pairs, key=lambda pair: pair.usual(name)):
        if groups and pair.usual(name) <= most * groups[-1][-1].usual(name):
            groups[-1].append(pair)
        else:
            groups.append([pair])
    return groups


@dataclass
class Outcome:
    """All pairs of a comparison, the discarded ones too."""

    title: str
    unit: Unit
    subject: str
    references: list[str]
    wanted: int
    allow_busy: bool
    pairs: list[Pair] = field(default_factory=list)

    @property
    def counted(self) -> list[Pair]:
        """Those that count: all if a busy machine was allowed."""
        return [pair for pair in self.pairs if self.allow_busy or pair.busy is None]

    @property
    def complete(self) -> bool:
        """As many pairs count as were wanted."""
        return len(self.counted) >= self.wanted

    @property
    def idle(self) -> bool:
        """Every pair that counts was taken while the machine was idle."""
        return all(pair.busy is None for pair in self.counted)

    def ratios(
        self, reference: str, quantity: Callable[[Reading], float], pairs: Sequence[Pair] | None = None
    ) -> Spread:
        """Of the subject to that reference, within pairs: all that count, or those."""
        return Spread.of(
            [
                quantity(pair.readings[self.subject]) / quantity(pair.readings[reference])
                for pair in (self.counted if pairs is None else pairs)
            ]
        )

    @property
    def by_machine(self) -> list[list[Pair]]:
        """The pairs that count, those together in which cores were about as far apart and memory about as fast."""
        near_and_far = _alike(self.counted, CORES, _SAME_DISTANCE)
        return [group for placed in near_and_far for group in _alike(placed, MEMORY, _SAME_SPEED)]

    def rates(self, name: str) -> Spread:
        """Absolute, for orientation: these drift."""
        return Spread.of([pair.readings[name].rate / self.unit.size for pair in self.counted])

    def rate_ratios(self, reference: str, pairs: Sequence[Pair] | None = None) -> Spread:
        """Above 1: the subject is faster."""
        return self.ratios(reference, lambda reading: reading.rate, pairs)

    def cpu_ratios(self, reference: str) -> Spread:
        """Below 1: the subject takes less CPU time for the same amount."""
        return self.ratios(reference, lambda reading: reading.cpu_per(self.unit))

    def to_json(self) -> dict[str, Any]:
        """For the record."""
        summary = {}
        if self.counted:
            summary = {
                reference: {
                    "rate": asdict(self.rate_ratios(reference)),
                    "cpu": asdict(self.cpu_ratios(reference)),
                }
                for reference in self.references
            }
        return {
            "title": self.title,
            "unit": asdict(self.unit),
            "subject": self.subject,
            "complete": self.complete,
            "idle": self.idle,
            "ratios": summary,
            "pairs": [
                {
                    "busy": pair.busy,
                    "watched": pair.watched,
                    "readings": {k: asdict(v) for k, v in pair.readings.items()},
                }
                for pair in self.pairs
            ],
        }


def compare(
    title: str,
    entrants: Sequence[Entrant],
    *,
    unit: Unit,
    pairs: int,
    rule: IdleRule,
    allow_busy: bool,
    max_discards: int,
    cores: int,
    watches: Sequence[Watch] = (),
    rest: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Runs the subject (the first entrant) against the others until enough pairs count, with a rest before each run."""
    outcome = Outcome(title, unit, entrants[0].name, [each.name for each in entrants[1:]], pairs, allow_busy)
    discarded = 0
    while not outcome.complete and discarded <= max_discards:
        # By the number of those that count: a repeated pair keeps the order of the one it stands for.
        forward = len(outcome.counted) % 2 == 0
        readings: dict[str, Reading] = {}
        watched = {watch.name: [watch.look()] for watch in watches}
        for entrant in entrants if forward else reversed(entrants):
            rest()
            readings[entrant.name] = entrant.run()
            for watch in watches:
                watched[watch.name].append(watch.look())
        reasons = [
            f"{name}: {reason}"
            for name, reading in readings.items()
            for window in (reading.window, *reading.tried)
            if (reason := rule.broken_by(window, cores)) is not None
        ]
        reasons += [reason for watch in watches if (reason := watch.broken_by(watched[watch.name])) is not None]
        pair = Pair(readings, reasons[0] if reasons else None, watched)
        outcome.pairs.append(pair)
        if pair.busy is not None and not allow_busy:
            discarded += 1
        say(_pair_line(outcome, pair))
    return outcome


def _pair_line(outcome: Outcome, pair: Pair) -> str:
    unit, subject = outcome.unit, pair.readings[outcome.subject]
    number = f"pair {len(outcome.counted)}" if pair.busy is None or outcome.allow_busy else "discarded"
    parts = [f"{outcome.subject} {_figures(subject, unit)}"]
    for name in outcome.references:
        reading = pair.readings[name]
        rate, cpu = subject.rate / reading.rate, subject.cpu_per(unit) / reading.cpu_per(unit)
        parts.append(f"{name} {_figures(reading, unit)}: ratios {rate:.2f}, CPU {cpu:.2f}")
    parts += [f"{name} {pair.usual(name):.1f} {_UNITS[name]}" for name in pair.watched]
    busy = "" if pair.busy is None else f"   [not idle: {pair.busy}]"
    return f"{number}: " + " | ".join(parts) + busy


def _figures(reading: Reading, unit: Unit) -> str:
    return f"{reading.rate / unit.size:.2f} {unit.name}/s {reading.cpu_per(unit):.3f} CPU-s/{unit.name}"


def summary_lines(outcome: Outcome) -> list[str]:
    """What a person wants to know of a comparison."""
    counted, unit = len(outcome.counted), outcome.unit.name
    if counted == 0:
        return [f"{outcome.title}: no pair counts, the machine was never idle"]
    label = "" if outcome.idle else "; NOT IDLE: no measurement, only a trial"
    if not outcome.complete:
        label += f"; only {counted} of {outcome.wanted} pairs: the machine was not idle"
    lines = [f"{outcome.title}: medians of {counted} pairs (lowest..highest){label}"]
    lines += [f"  {name:<28} {outcome.rates(name)} {unit}/s" for name in [outcome.subject, *outcome.references]]
    lines += [
        f"  {outcome.subject} / {name}: rate {outcome.rate_ratios(name)} x, CPU seconds per {unit}"
        f" {outcome.cpu_ratios(name)} x"
        for name in outcome.references
    ]
    groups = outcome.by_machine
    for group in groups if len(groups) > 1 else []:
        state = ", ".join(
            f"{name} {Spread.of([pair.usual(name) for pair in group])} {_UNITS[name]}" for name in group[0].watched
        )
        ratios = ", ".join(f"{name} {outcome.rate_ratios(name, group)} x" for name in outcome.references)
        lines.append(f"  with {state}, {len(group)} pairs: rate / {ratios}")
    return lines


# --- conditions


def find_bench_program(name: str, engine: Path) -> Path | None:
    """A program of bench/: beside the given engine's build tree, or in build/bench."""
    folders = (engine.parent.parent / "bench-bin", ROOT / "build/bench/bench-bin")
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def memory_probe(engine: Path) -> Callable[[], float] | None:
    """Copies past the cache for a moment with all cores, in GB/s; None where bench/streaming_copy is not built."""
    # More than any cache, and no more than takes a tenth of a second to touch for the first time.
    sizes = ["--piece", "65536", "--source", str(128 << 20), "--destination", str(128 << 20)]
    arguments = ["--threads", str(usable_cores()), *sizes, "--warm-up", "0.02", "--seconds", "0.2"]
    return _probe(engine, "streaming_copy", arguments, lambda said: float(said["bytes_per_s"]) / 1e9)


def cores_probe(engine: Path) -> Callable[[], float] | None:
    """How far apart cores are, in ns; None where there is one, or bench/core_distance is not built."""
    if usable_cores() < 2:
        return None
    return _probe(engine, "core_distance", [], lambda said: float(said["ns"]))


def _probe(
    engine: Path, name: str, arguments: list[str], value: Callable[[dict[str, Any]], float]
) -> Callable[[], float] | None:
    program = find_bench_program(name, engine)
    if program is None:
        return None
    command = [str(program), *arguments]

    def probe() -> float:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return value(json.loads(done.stdout.strip().split("\n")[-1]))

    return probe


def watches_for(engine: Path, drift: float) -> list[Watch]:
    """What can be watched here: memory, which may change by `drift`, and cores."""
    found = [(MEMORY, memory_probe(engine), 1 + drift), (CORES, cores_probe(engine), _SAME_DISTANCE)]
    return [Watch(name, look, most) for name, look, most in found if look is not None]


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").split("\n")[0].strip()
    except OSError:
        return ""


def caches() -> dict[str, int]:
    """Bytes of each cache as the machine claims them, "L2" by name."""
    found: dict[str, int] = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        size = _first_line(folder / "size")
        if _first_line(folder / "type") != "Instruction" and size[-1:] in ("K", "M"):
            found["L" + _first_line(folder / "level")] = int(size[:-1]) << (10 if size[-1] == "K" else 20)
    return found


def judged_cache_bytes(claimed: int, cores: int) -> int:
    """What the cores can really have of the last-level cache, as the engine judges it (src/runtime/plan/resolve.cpp).

    A virtual machine of a few cores is told of all of its host's cache, and gets its share of it at best: 8 MiB a core.
    """
    return min(claimed, (8 << 20) * max(1, cores)) if claimed > 0 else 16 << 20


def version_of(command: Sequence[str]) -> str:
    """The first line a program prints about itself."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "not here"
    return (done.stdout or done.stderr).strip().split("\n")[0]


def conditions(**more: str | int) -> dict[str, Any]:
    """What has to stand beside every figure."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n"):
        if line.startswith("model name"):
            model = line.partition(": ")[2]
            break
    sizes = caches()
    claimed = sizes[max(sizes)] if sizes else 0
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "cpu": model,
        "cores": usable_cores(),
        "caches_bytes": sizes,
        "last_level_cache_claimed_bytes": claimed,
        "last_level_cache_judged_bytes": judged_cache_bytes(claimed, usable_cores()),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "huge_pages": _first_line(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "kernel": platform.release(),
        "git": version_of(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
        **more,
    }


# --- the command line that all comparisons share


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of every comparison."""
    parser.add_argument("--pairs", type=int, default=7, help="pairs that have to count (default: 7)")
    parser.add_argument("--seconds", type=float, default=5, help="measured time of each run (default: 5)")
    parser.add_argument("--warm-up", type=float, default=1, help="before it (default: 1)")
    parser.add_argument(
        "--max-discards", type=int, default=14, help="pairs that may be repeated because the machine was not idle"
    )
    parser.add_argument(
        "--rest",
        type=float,
        default=0,
        help="seconds of rest before each run: a host may lend a virtual machine time that it takes back (default: 0)",
    )
    parser.add_argument("--allow-busy", action="store_true", help="count every pair; the output says NOT IDLE")
    parser.add_argument("--others", type=float, default=IdleRule.others, help="share of the cores others may take")
    parser.add_argument("--steal", type=float, default=IdleRule.steal, help="share of the cores that may be stolen")
    parser.add_argument(
        "--drift",
        type=float,
        default=0.25,
        help="share by which the memory's speed may change during a pair (default: 0.25; 0: nobody looks)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes all readings there, for the record")
    parser.add_argument("--engine", type=Path, default=ROOT / "build/release/bin/incast-node")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY=VALUE",
        help="another setting of the engine",
    )


class Session:
    """The comparisons of one script: prints the conditions, runs, prints and writes what came of it."""

    def __init__(self, arguments: argparse.Namespace, found: dict[str, Any]) -> None:
        self._arguments = arguments
        self._conditions = found
        self._outcomes: list[Outcome] = []
        for name, value in found.items():
            print(f"{name}: {value}")
        self._watches = watches_for(arguments.engine, arguments.drift) if arguments.drift > 0 else []
        print(f"rest_before_each_run_s: {arguments.rest:g}")
        watched = [watch.name for watch in self._watches]
        for unwatched in (name for name in _UNITS if name not in watched):
            print(f"{unwatched} not watched: --drift 0, one core, or bench/ is not built (tools/bench.sh --build)")
        if arguments.allow_busy:
            print("busy machine allowed: what follows is a trial, no measurement")

    def compare(self, title: str, entrants: Sequence[Entrant], unit: Unit = GIGABYTES) -> Outcome:
        """One comparison, with the options of the command line."""
        print(f"\n--- {title}", flush=True)
        outcome = compare(
            title,
            entrants,
            unit=unit,
            pairs=self._arguments.pairs,
            rule=IdleRule(self._arguments.others, self._arguments.steal),
            allow_busy=self._arguments.allow_busy,
            max_discards=self._arguments.max_discards,
            cores=usable_cores(),
            watches=self._watches,
            rest=lambda: time.sleep(self._arguments.rest),
            say=lambda line: print(line, flush=True),
        )
        for line in summary_lines(outcome):
            print(line, flush=True)
        self._outcomes.append(outcome)
        self._write()
        return outcome

    def _write(self) -> None:
        if self._arguments.json is not None:
            record = {"conditions": self._conditions, "comparisons": [each.to_json() for each in self._outcomes]}
            self._arguments.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

    def exit_status(self) -> int:
        """3 if a comparison lacks pairs; no figure decides it."""
        return 0 if all(outcome.complete for outcome in self._outcomes) else 3
