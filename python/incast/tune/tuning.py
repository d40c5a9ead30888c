"""A tuning from what was asked for to its last reading; it can be stopped and continued at any time.

Its folder is laid out as that of a scan (incast.scan.journal), and its readings are taken as those of a scan are. What
was asked for lies in `tune.json`; each line of the journal says why that reading was taken.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from incast.base.errors import OneLineError
from incast.base.files import replace_file, writing_output
from incast.engine.process import stop_signals
from incast.engine.quantity import Scalar
from incast.scan.hosts import ScanHosts, check_hosts
from incast.scan.journal import TUNE_NAME, Journal, load_plan
from incast.scan.plan import EXIT_BAD_SCAN, Plan, Point, Reading, make_plan
from incast.scan.points import refusals, write_base
from incast.scan.runner import Taken, Watch, take_readings
from incast.scan.scan import make_row, orders, writing_tables
from incast.scan.table import Columns
from incast.tune.goal import Goal
from incast.tune.readings import LENGTHS, TUNING, WHOLE, Seen, Wanted, in_order, seen_of
from incast.tune.search import Clock, Search
from incast.tune.space import Axis, defaults, differing, identity

ORIGIN = Path("incast tune")  # stands where the name of a scan file would
RATE_KEY = "source.trigger_rate"
_SCHEMA = 1


@dataclass(frozen=True)
class Tuning:
    """What was asked for. `fixed`: settings of all points; `with_rate`: of those that are offered triggers at a rate;
    `seconds`: measured time of a whole reading.
    """

    goal: Goal
    axes: tuple[Axis, ...]
    fixed: Mapping[str, Scalar]
    with_rate: Mapping[str, Scalar]
    seconds: float
    warm_up_seconds: float
    seed: int

    def content(self, points: Sequence[Mapping[str, Scalar]], seconds: float, config: str | None) -> dict[str, object]:
        """What a scan file would hold."""
        content: dict[str, object] = {
            "kind": "run",
            "title": f"tuned for {self.goal.words}",
            "seconds": seconds,
            "warm_up_seconds": self.warm_up_seconds,
            "set": {key: value for key, value in self.fixed.items() if key not in points[0]},
            "points": [dict(point) for point in points],
        }
        return content | ({} if config is None else {"config": config})

    def plan(self, config: Path | None, length: float = WHOLE) -> Plan:
        """Its points are the defaults, and each value once beside them: what can be checked before it is measured.
        OneLineError: some of it cannot be.
        """
        start = defaults(self.axes)
        listed = [start]
        for axis in self.axes:
            listed += [{**start, axis.key: value} for value in axis.values]
        each_once = {identity(point): point for point in listed}
        return make_plan(
            ORIGIN,
            self.content(list(each_once.values()), length * self.seconds, None if config is None else str(config)),
        )


def without_refused(tuning: Tuning, plan: Plan, folder: Path, usual: set[str], hosts: ScanHosts | None) -> Tuning:
    """The same without those values of `usual` settings that the engine refuses here.

    OneLineError: it refuses the defaults, or a value that somebody asked for.
    """
    refused = refusals(plan, folder, hosts)
    if (line := refused.get(plan.points[0].number)) is not None:
        why = f"--seconds: {LENGTHS[0]:g} of it is measured first: " if line.startswith("run.duration = ") else ""
        raise OneLineError(why + line, EXIT_BAD_SCAN)
    start = defaults(tuning.axes)
    bad: dict[str, list[Scalar]] = {}
    for point in plan.points:
        if (line := refused.get(point.number)) is not None:
            (key,) = differing(start, point.axes)
            if key not in usual:
                raise OneLineError(f"--vary {key}: {line}", EXIT_BAD_SCAN)
            bad.setdefault(key, []).append(point.axes[key])
    kept = [
        replace(axis, values=tuple(value for value in axis.values if value not in bad.get(axis.key, ())))
        for axis in tuning.axes
    ]
    return replace(tuning, axes=tuple(axis for axis in kept if len(axis.values) > 1))


def store(folder: Path, tuning: Tuning, budget_s: float) -> None:
    """Remembers what was asked for."""
    content = {"schema": _SCHEMA, "budget_s": budget_s, "tuning": asdict(tuning)}
    with writing_output(folder):
        replace_file(folder / TUNE_NAME, json.dumps(content, indent=1) + "\n")


def load(folder: Path) -> tuple[Tuning, float]:
    """What was asked for there, and the budget; OneLineError: nothing was."""
    path = folder / TUNE_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != _SCHEMA:
            raise ValueError(f"schema {content['schema']}, and this version reads {_SCHEMA}")
        kept = content["tuning"]
        axes = tuple(Axis(each["key"], tuple(each["values"]), each["default"]) for each in kept["axes"])
        return Tuning(**{**kept, "goal": Goal(**kept["goal"]), "axes": axes}), float(content["budget_s"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = "not there" if isinstance(error, FileNotFoundError) else str(error)
        raise OneLineError(f"{folder} is no folder of a tuning: {TUNE_NAME}: {why}", EXIT_BAD_SCAN) from error


class Taker:
    """Takes what the search wants, and writes it into the journal."""

    def __init__(
        self,
        journal: Journal,
        tuning: Tuning,
        budget_s: float,
        *,
        jobs: int,
        asked: int,
        on_seen: Callable[[Seen], None],
        hosts: ScanHosts | None = None,
    ) -> None:
        self._journal, self._tuning, self._budget_s = journal, tuning, budget_s
        self._jobs, self._asked, self._on_seen = jobs, asked, on_seen
        self._columns = Columns(journal.plan)
        self._order = orders(journal, hosts)
        self._config = None if write_base(journal.folder, journal.plan.base) is None else "base.toml"
        self.seen = in_order(journal.rows)
        self._begun_at = time.monotonic() - (self.seen[-1].spent_s if self.seen else 0.0)

    def __call__(self, wanted: Sequence[Wanted]) -> list[Seen] | None:
        """The readings; None if somebody asked to stop. What was done by then is in the journal."""
        known = {identity(seen.wanted.axes): seen.number for seen in self.seen}
        taken: list[Seen] = []
        by_key: dict[tuple[int, int], Wanted] = {}
        readings = []
        for each in wanted:
            number = known.setdefault(identity(each.axes), len(known) + 1)
            before = sum(seen.number == number for seen in self.seen) + sum(key[0] == number for key in by_key)
            reading = Reading(self._point(each, number), before + 1)
            by_key[reading.key] = each
            readings.append(reading)

        def on_taken(done: Taken) -> None:
            what = by_key[done.reading.key]
            row = make_row(self._journal.plan, self._columns, self._journal.folder, done)
            row[TUNING] = {
                **asdict(what),
                "order": len(self.seen),
                "spent_s": round(time.monotonic() - self._begun_at, 3),
                "budget_s": self._budget_s,
            }
            self._journal.add(row)
            self.seen.append(seen := seen_of(row))
            taken.append(seen)
            self._on_seen(seen)

        finished = take_readings(
            readings,
            self._order,
            timeout_s=self._journal.plan.timeout_seconds,
            jobs=self._jobs,
            asked=self._asked,
            watch=Watch(lambda _: None, on_taken, lambda: None),
        )
        return taken if finished else None

    def _point(self, wanted: Wanted, number: int) -> Point:
        seconds = wanted.length * self._tuning.seconds
        tuning = self._tuning
        if wanted.rate_hz is not None:
            tuning = replace(tuning, fixed={**tuning.fixed, **tuning.with_rate, RATE_KEY: f"{wanted.rate_hz:.6g}Hz"})
        content = tuning.content([wanted.axes], seconds, self._config)
        (point,) = make_plan(self._journal.folder / ORIGIN.name, content).points
        return replace(point, number=number)


def search_on(search: Search, seen: list[Seen], take: Callable[[Sequence[Wanted]], list[Seen] | None]) -> bool:
    """Takes what the search wants until its time is over; False if that was stopped. `take` adds to `seen`."""
    while wanted := search.next(seen, seen[-1].spent_s if seen else 0.0):
        if take(wanted) is None:
            return False
    return True


def carry_out(
    tuning: Tuning,
    plan: Plan,
    folder: Path,
    *,
    budget_s: float,
    jobs: int,
    on_seen: Callable[[Seen], None],
    hosts: ScanHosts | None = None,
) -> tuple[list[Seen], bool]:
    """Takes what is left of the budget; all readings, and whether it came to its end. The table is written anyway."""
    with Journal(folder, plan, "incast tune") as journal:
        check_hosts(folder, hosts, begun=bool(journal.rows))
        journal.end_leftovers()
        store(folder, tuning, budget_s)
        simulated = all(point.simulated for point in plan.points)
        parallel = jobs if simulated else 1
        clock = Clock(tuning.seconds, tuning.warm_up_seconds, budget_s, parallel)
        search = Search(tuning.axes, tuning.goal, clock, tuning.seed)
        with stop_signals() as asked:
            taker = Taker(journal, tuning, budget_s, jobs=parallel, asked=asked, on_seen=on_seen, hosts=hosts)
            with writing_tables(journal, Columns(plan)):
                finished = search_on(search, taker.seen, taker)
        return taker.seen, finished


def load_all(folder: Path) -> tuple[Tuning, Plan, float]:
    """Of a folder that is to be continued."""
    tuning, budget_s = load(folder)
    return tuning, load_plan(folder), budget_s
