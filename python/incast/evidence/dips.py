"""Dips of a long run: when goodput fell, for how long, and what else happened then (docs/running.md, "Long runs").

Nodes report at times of their own, and one that was stopped reports late, of a long interval. So what each sample says
is spread evenly over its interval, and all nodes are added up in steps of the ordinary interval.
"""

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from incast.base.files import LineFile, leave_file
from incast.engine.idle import IdleRule, Snapshot, Window, usable_cores
from incast.engine.progress import Progress, Sample

MACHINE_NAME = "machine.jsonl"
DIPS_NAME = "dips.json"
DIP = 0.5  # of the median
_FEWEST_STEPS = 8
_LATE = 2.0  # ordinary intervals without a sample
_DIPS_MAX = 1000
_BINS = 32  # of the times within an interval at which nodes report
_LEAST_S = 0.9  # between looks at the machine
# Counters that say that something went wrong, in words.
_TROUBLES = {
    "evictions": "nodes dropped by the event manager",
    "reassignments": "MEPs given to another builder unit",
    "late_reports": "reports of late sources",
    "stale_contributions": "contributions that came too late",
    "damaged_mfps": "MFPs that arrived damaged",
    "torn_mfps": "MFPs that arrived with bytes missing",
    "incomplete_meps": "MEPs without some source",
    "barrier_expired": "barriers that expired",
    "slot_overruns": "time slots overrun",
    "bad_messages": "bad messages",
    "verify_errors": "verification errors",
    "dropped_mfps": "MFPs dropped for lack of room",
    "consumers_ejected": "consumers ejected",
}


@dataclass(frozen=True)
class Dip:
    """A stretch of the measured time with less than half of the median goodput. Times in seconds since the start."""

    begin_s: float
    end_s: float
    lowest_bytes_per_s: float
    median_bytes_per_s: float
    meanwhile: tuple[str, ...]  # empty: nothing is known

    def words(self) -> str:
        """One line without the cause."""
        share = self.lowest_bytes_per_s / self.median_bytes_per_s
        return (
            f"at {self.begin_s:.1f} s for {self.end_s - self.begin_s:.1f} s, down to {100 * share:.0f} % of the median"
        )


@dataclass(frozen=True)
class _Steps:
    begin: float
    width: float
    rates: list[float]

    def time(self, step: int) -> float:
        return self.begin + step * self.width


def _ordinary_interval(samples: Sequence[Mapping[str, Any]]) -> float:
    intervals = [float(sample["interval_s"]) for sample in samples if sample["interval_s"] > 0]
    return statistics.median(intervals) if intervals else 0.0


def _first_step(samples: Sequence[Mapping[str, Any]], width: float) -> float:
    """At the end of the first measured interval, or as little later as makes steps begin where most nodes report.

    A step that lies across two intervals sees neither of them as it was: silence and what made up for it cancel out.
    """
    earliest = min(float(sample["t"]) for sample in samples)
    ordinary = [float(sample["t"]) % width for sample in samples if 0.9 < sample["interval_s"] / width < 1.1]
    bins = Counter(int(_BINS * phase / width) for phase in ordinary)
    if not bins:
        return earliest
    commonest = bins.most_common(1)[0][0]
    phase = statistics.median(each for each in ordinary if int(_BINS * each / width) == commonest)
    later = (phase - earliest) % width
    return earliest + later - (width if later > 0.9 * width else 0.0)


def _steps(samples: Sequence[Mapping[str, Any]]) -> _Steps | None:
    """What all nodes built, from the end of the first measured interval to the last sample of the measured phase."""
    width = _ordinary_interval(samples)
    if width <= 0:
        return None
    begin = _first_step(samples, width)
    end = max(float(sample["t"]) for sample in samples)
    count = math.floor((end - begin) / width + 1e-6)
    if count < _FEWEST_STEPS:
        return None
    totals = [0.0] * count
    for sample in samples:
        last, interval = float(sample["t"]), float(sample["interval_s"])
        rate = float(sample["built_goodput_bytes_per_s"])
        first_step = max(0, math.floor((last - interval - begin) / width))
        for step in range(first_step, min(count, math.ceil((last - begin) / width))):
            low, high = begin + step * width, begin + (step + 1) * width
            inside = min(high, last) - max(low, last - interval)
            totals[step] += rate * max(0.0, inside)
    return _Steps(begin, width, [total / width for total in totals])


def find_dips(
    samples: Iterable[Mapping[str, Any]],
    log: Sequence[tuple[float, str]] = (),
    machine: Sequence[Mapping[str, float]] = (),
    *,
    open_loop: bool = False,
) -> list[Dip]:
    """In order of time. `log` is lines with seconds since the start, `machine` what others took, by look."""
    measured = [sample for sample in samples if sample.get("phase") == "measuring"]
    steps = _steps(measured) if measured else None
    if steps is None:
        return []
    median = statistics.median(steps.rates)
    low = [rate < DIP * median for rate in steps.rates]
    dips: list[Dip] = []
    step = 0
    while step < len(low) and len(dips) < _DIPS_MAX:
        if not low[step]:
            step += 1
            continue
        last = step
        # One good step between two bad ones does not make two dips.
        while last + 1 < len(low) and (low[last + 1] or (last + 2 < len(low) and low[last + 2])):
            last += 1
        begin, end = steps.time(step), steps.time(last + 1)
        meanwhile = [
            *(_fewer_triggers(measured, begin, end, steps.width) if open_loop else ()),
            *_silent_nodes(measured, begin, end, steps.width),
            *_troubles(measured, begin, end, steps.width),
            *(line for at, line in log if begin - steps.width <= at <= end + steps.width),
            *_machine_words(machine, begin, end),
        ]
        dips.append(Dip(begin, end, min(steps.rates[step : last + 1]), median, tuple(dict.fromkeys(meanwhile))))
        step = last + 1
    return dips


def _silent_nodes(samples: Sequence[Mapping[str, Any]], begin: float, end: float, width: float) -> list[str]:
    """A node that was stopped, or had no core, reports of one long interval when it goes on, or never again."""
    found = []
    by_node: dict[int, list[Mapping[str, Any]]] = {}
    for sample in samples:
        by_node.setdefault(sample["node"], []).append(sample)
    last_of_all = max(float(sample["t"]) for sample in samples)
    for node, listed in sorted(by_node.items()):
        for sample in listed:
            interval = float(sample["interval_s"])
            if interval > _LATE * width and sample["t"] > begin and sample["t"] - interval < end:
                ran = sample["delta"].get("cpu_ns", 0) * 1e-9
                since = sample["t"] - interval
                found.append(
                    f"node {node} gave no sign of life from {since:.1f} s to {sample['t']:.1f} s ({ran:.2g} s of CPU)"
                )
        gone = max(float(sample["t"]) for sample in listed)
        if gone + _LATE * width < last_of_all and begin - width <= gone + width <= end + width:
            found.append(f"node {node} was not heard of again after {gone:.1f} s")
    return found


def _fewer_triggers(samples: Sequence[Mapping[str, Any]], begin: float, end: float, width: float) -> list[str]:
    """Open loop: less was asked for, by the samples that lie within the dip, give or take a tenth."""
    slack = 0.1 * width
    inside = [
        sample
        for sample in samples
        if sample["t"] - sample["interval_s"] >= begin - slack and sample["t"] <= end + slack
    ]
    rates = [_offered(listed) for listed in (inside, samples)]
    if not inside or rates[1] <= 0 or rates[0] > DIP * rates[1]:
        return []
    return [f"triggers came at {100 * rates[0] / rates[1]:.0f} % of their mean rate"]


def _offered(samples: Sequence[Mapping[str, Any]]) -> float:
    """Events per second and node."""
    seconds = sum(float(sample["interval_s"]) for sample in samples)
    return sum(int(sample["delta"].get("offered_events", 0)) for sample in samples) / seconds if seconds > 0 else 0.0


def _troubles(samples: Sequence[Mapping[str, Any]], begin: float, end: float, width: float) -> list[str]:
    counts: dict[str, int] = {}
    for sample in samples:
        if sample["t"] > begin and sample["t"] - sample["interval_s"] < end + width:
            for key in _TROUBLES:
                counts[key] = counts.get(key, 0) + int(sample["delta"].get(key, 0))
    return [f"{count} {_TROUBLES[key]}" for key, count in counts.items() if count]


def _machine_words(machine: Sequence[Mapping[str, float]], begin: float, end: float) -> list[str]:
    """By the rule for an idle machine, of the looks that overlap the dip."""
    rule, found = IdleRule(), []
    inside = [look for look in machine if look["t"] > begin and look["t"] - look["seconds"] < end]
    for key, allowed, words in (
        ("others_cpu_fraction", rule.others, "other processes used"),
        ("stolen_cpu_fraction", rule.steal, "the hypervisor took"),
    ):
        most = max((look[key] for look in inside), default=0.0)
        if most > allowed:
            found.append(f"{words} up to {100 * most:.0f} % of all cores")
    return found


# --- what a result directory holds


class MachineLog:
    """Looks at the machine while a run goes on, a second apart at least, and keeps what it saw beside the result."""

    def __init__(self, directory: Path, say: Callable[[str], None] = lambda _: None) -> None:
        """`say` gets a line when something cannot be kept."""
        self._file = LineFile(directory / MACHINE_NAME)
        self._say = say
        self._before: Snapshot | None = None

    def on_progress(self, progress: Progress, pid: int) -> None:
        """At each sample; the engine has made the directory by then."""
        if not isinstance(progress, Sample):
            return
        if self._before is None:
            self._before = Snapshot.take([pid])
            return
        if Snapshot.clock() - self._before.at < _LEAST_S:
            return
        now = Snapshot.take([pid])
        window = Window.between(self._before, now)
        self._before = now
        look = {"t": progress.t_s, "seconds": window.seconds, **window.shares(usable_cores())}
        if not self._file.append(json.dumps(look) + "\n") and self._file.missing == 1:
            reason = f"{self._file.path} cannot be written: {self._file.reason}"
            self._say(f"{reason}; what the machine did meanwhile is missing there")

    def incomplete(self) -> list[dict[str, Any]]:
        """For `incomplete_files`; empty if nothing is missing."""
        return self._file.incomplete()

    def close(self) -> None:
        """At the end of the run."""
        self._file.close()


_LOG_LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+) (\w+) (.*)")


def read_log(directory: Path) -> list[tuple[float, str]]:
    """Warnings and errors, with seconds since the first line, which is when the samples' clock begins."""
    found: list[tuple[float, str]] = []
    begin: datetime | None = None
    with suppress(OSError):
        for line in (directory / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines():
            if (matched := _LOG_LINE.match(line)) is None:
                continue
            time = datetime.fromisoformat(matched[1])
            begin = begin or time
            if matched[2] != "info":
                found.append(((time - begin).total_seconds(), f"{matched[2]}: {matched[3]}"))
    return found


def read_machine(directory: Path) -> list[dict[str, float]]:
    """The looks at the machine; none where nobody looked."""
    looks: list[dict[str, float]] = []
    with suppress(OSError):
        for line in (directory / MACHINE_NAME).read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, TypeError, KeyError):
                look = json.loads(line)
                looks.append(
                    {key: float(look[key]) for key in ("t", "seconds", "others_cpu_fraction", "stolen_cpu_fraction")}
                )
    return looks


def dips_of_directory(
    directory: Path,
    samples: Sequence[Mapping[str, Any]],
    *,
    open_loop: bool = False,
    incomplete: list[dict[str, Any]] | None = None,
) -> list[Dip]:
    """Those of a result directory; also leaves them there as `dips.json`, if there are any.

    `incomplete` takes that file if it cannot be written.
    """
    dips = find_dips(samples, read_log(directory), read_machine(directory), open_loop=open_loop)
    if dips:
        text = json.dumps(
            {"schema": 1, "rule": f"below {DIP:g} of the median", "dips": [asdict(dip) for dip in dips]}, indent=2
        )
        not_written = leave_file(directory / DIPS_NAME, text + "\n")
        if incomplete is not None:
            incomplete += not_written
    return dips
