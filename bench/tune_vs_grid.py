#!/usr/bin/env python3
"""`incast tune` against a grid of every combination, and against points at random (docs/tuning.md).

For each case a grid of 240 points is measured. Then, with each of three seeds, the settings are tuned within 15 % of
the grid's time, and the same time goes to points at random. What they found is compared with the best of the grid.

    simulated   every reading that is wanted is simulated once and kept in a file. A tuning is charged the CPU time of
                its readings, so that what else the machine does plays no part: figures do not depend on it at all.
                The best points of grid, tuning and chance are compared by the same reading, that of the grid.
    measured    grid and chance are `incast scan`, tuning is `incast tune`, charged the time on the clock. At the end
                the best three of the grid, what was found, and the defaults are measured anew in turn, five rounds.
    --replay    measured cases without measuring: readings are those of the grid that was kept, of shorter ones the
                figure of the whole one and its time less what is not measured. No noise comes in but the grid's own.

    bench/tune_vs_grid.py qfx10000 --jobs 2      6 minutes of one core, the first time
    bench/tune_vs_grid.py tcp shm                about 30 minutes each, on a machine that does nothing else
    bench/tune_vs_grid.py tcp shm --replay       seconds

What is kept lies in --output, and is not measured again.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import ROOT
from incast.base.files import LineFile
from incast.engine.quantity import Scalar, setting_text
from incast.tune.goal import GOODPUT, GOODPUT_COLUMN, Goal
from incast.tune.outcome import outcome_of
from incast.tune.readings import WHOLE, Seen, Wanted
from incast.tune.search import Clock, Search
from incast.tune.space import Axes, Axis, identity, words
from incast.tune.tuning import search_on

SHARE = 0.15  # of the grid's time
SEEDS = (1, 2, 3)
GOOD = 0.98
ROUNDS = 5
TENTH = 10
GOAL = Goal(GOODPUT)


@dataclass(frozen=True)
class Case:
    """What is tuned. `settings`: of all points; `axes`: those of the grid; times in seconds."""

    name: str
    settings: Mapping[str, Scalar]
    axes: tuple[Axis, ...]
    seconds: float
    warm_up_seconds: float
    simulated: bool

    def grid(self) -> list[Axes]:
        """Every combination."""
        keys = [axis.key for axis in self.axes]
        return [dict(zip(keys, values, strict=True)) for values in itertools.product(*(a.values for a in self.axes))]

    @property
    def default(self) -> Axes:
        """Where nothing is tuned."""
        return {axis.key: axis.default for axis in self.axes}


CASES = {
    case.name: case
    for case in (
        Case(
            "qfx10000",
            {
                "transport.name": "sim",
                "transport.sim.fabric": str(ROOT / "fabrics" / "qfx10000-30c.toml"),
                "run.nodes": 16,
                "sink.kind": "null",
            },
            (
                Axis("protocol.mfp_size", ("32KiB", "64KiB", "128KiB", "256KiB", "512KiB"), "64KiB"),
                Axis("protocol.credits", (2, 4, 8, 16), "auto"),
                Axis("protocol.parallel_sends", (1, 2, 4, 8), 0),
                Axis("protocol.schedule", ("linear-shift", "random", "sequential"), "linear-shift"),
            ),
            seconds=0.024,
            warm_up_seconds=0.006,
            simulated=True,
        ),
        Case(
            "tcp",
            {"transport.name": "tcp", "run.nodes": 4, "sink.kind": "null", "protocol.self_traffic": "pointer"},
            (
                Axis("protocol.scheme", ("push", "pull"), "push"),
                Axis("protocol.mfp_size", ("16KiB", "64KiB", "128KiB", "256KiB", "512KiB", "1MiB"), "64KiB"),
                Axis("protocol.credits", (1, 2, 4, 8, 16), "auto"),
                Axis("transport.tcp.streams", (1, 2), 1),
                Axis("transport.tcp.socket_buffer", ("1MiB", 0), 0),
            ),
            seconds=2.0,
            warm_up_seconds=0.3,
            simulated=False,
        ),
        Case(
            "shm",
            {"transport.name": "shm", "run.nodes": 4, "sink.kind": "null", "source.fragment_size": 256},
            (
                Axis("protocol.scheme", ("push", "pull"), "push"),
                Axis("protocol.mfp_size", ("4KiB", "16KiB", "64KiB", "128KiB", "256KiB", "1MiB"), "64KiB"),
                Axis("protocol.credits", (1, 2, 4, 16, 64), "auto"),
                Axis("transport.shm.stores", ("plain", "streaming"), "auto"),
                Axis("run.yields", (0, 100), 100),
            ),
            seconds=2.0,
            warm_up_seconds=0.3,
            simulated=False,
        ),
    )
}


@dataclass
class Found:
    """What one search came to."""

    how: str
    seed: int
    point: Axes
    spent_s: float
    readings: int


@dataclass
class Verdict:
    """Of one case: each value is a share of the best of the grid."""

    case: Case
    mode: str
    grid_points: int
    grid_s: float
    default: float
    tenth: float  # the worst of the best tenth of the grid
    found: list[tuple[Found, float]] = field(default_factory=list)


# --- readings that are simulated once, and kept


class Records:
    """Simulated readings of a case, by point, length and repeat; the figure and the CPU seconds of each."""

    def __init__(self, case: Case, engine: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._case, self._engine = case, engine
        self._path = folder / "records.jsonl"
        self._file, self._lock = LineFile(self._path), threading.Lock()
        self._known: dict[str, dict[str, Any]] = {}
        if self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                self._known[record["key"]] = record

    def get(self, point: Axes, length: float, repeat: int) -> dict[str, Any]:
        """Simulated now, if it was not before."""
        settings = self._settings(point, length, repeat)
        key = json.dumps(settings)
        with self._lock:
            if key in self._known:
                return self._known[key]
        record = {"key": key, **self._simulate(settings)}
        with self._lock:
            self._known[key] = record
            if not self._file.append(json.dumps(record) + "\n"):
                raise SystemExit(f"{self._path}: {self._file.reason}")
        return record

    def _settings(self, point: Axes, length: float, repeat: int) -> dict[str, Scalar]:
        case = self._case
        return {
            **case.settings,
            **point,
            "run.seed": repeat,
            "run.duration": f"{round(case.seconds * length * 1e9)}ns",
            "run.warm_up": f"{round(case.warm_up_seconds * 1e9)}ns",
        }

    def _simulate(self, settings: Mapping[str, Scalar]) -> dict[str, Any]:
        place = self._path.with_name(f"now-{threading.get_ident()}")
        command = [str(self._engine), "--output", str(place), "--force", "--progress", "none"]
        command += [word for key, value in settings.items() for word in ("--set", f"{key}={setting_text(value)}")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            said = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        cpu_s = usage.ru_utime + usage.ru_stime
        if process.returncode != 0:
            return {"status": "failed", "reason": said.strip(), "cpu_s": cpu_s, "figure": None}
        result = json.loads((place / "result.json").read_text(encoding="utf-8"))
        figure = result["goodput_bytes_per_s"]["total_without_self"]
        return {"status": "complete", "reason": None, "cpu_s": cpu_s, "figure": figure}


Read = Callable[[Axes, float, int], tuple[float | None, float]]  # point, length, repeat: figure, and what it costs


class Replayed:
    """What the search wants comes from readings that are kept."""

    def __init__(self, read: Read, budget_s: float, time_domain: str) -> None:
        self.seen: list[Seen] = []
        self._read, self._budget_s, self._domain = read, budget_s, time_domain
        self._numbers: dict[tuple[tuple[str, str], ...], int] = {}

    def __call__(self, wanted: Sequence[Wanted]) -> list[Seen]:
        """The readings."""
        first = len(self.seen)
        for each in wanted:
            number = self._numbers.setdefault(identity(each.axes), len(self._numbers) + 1)
            repeat = 1 + sum(seen.number == number for seen in self.seen)
            figure, cost_s = self._read(each.axes, each.length, repeat)
            figures = {
                "status": "failed" if figure is None else "complete",
                "time_domain": self._domain,
                "wall_s": cost_s,
                GOODPUT_COLUMN: figure,
            }
            spent_s = cost_s + (self.seen[-1].spent_s if self.seen else 0.0)
            self.seen.append(Seen(each, number, figures, spent_s, self._budget_s))
        return self.seen[first:]


def replay_tuning(case: Case, read: Read, budget_s: float, seed: int) -> Found:
    """The search as `incast tune` makes it, on readings that are kept."""
    machine = Replayed(read, budget_s, "virtual" if case.simulated else "real")
    search_on(Search(case.axes, GOAL, Clock(case.seconds, case.warm_up_seconds, budget_s), seed), machine.seen, machine)
    best = outcome_of(GOAL, case.axes, machine.seen, budget_s).best
    point = case.default if best is None else best.axes
    return Found("tune", seed, point, machine.seen[-1].spent_s, len(machine.seen))


def replay_random(case: Case, read: Read, budget_s: float, seed: int) -> Found:
    """Points at random, a whole reading each, while there is time: the best of them."""
    points = case.grid()
    random.Random(seed).shuffle(points)
    spent_s, best, best_figure, count = 0.0, case.default, 0.0, 0
    for point in points:
        figure, cost_s = read(point, WHOLE, 1)
        if spent_s + cost_s > budget_s:
            break
        spent_s, count = spent_s + cost_s, count + 1
        if (figure or 0.0) > best_figure:
            best, best_figure = point, figure or 0.0
    return Found("random", seed, best, spent_s, count)


def judge(case: Case, mode: str, jobs: int, read: Read) -> Verdict:
    """Grid, tunings and chance on readings that are kept."""
    with ThreadPoolExecutor(jobs) as pool:
        grid = list(pool.map(lambda point: read(point, WHOLE, 1), case.grid()))
        grid_s = sum(cost for _, cost in grid)
        figures = sorted((figure or 0.0 for figure, _ in grid), reverse=True)
        budget_s = SHARE * grid_s
        how = [(search, seed) for search in (replay_tuning, replay_random) for seed in SEEDS]
        found = list(pool.map(lambda each: each[0](case, read, budget_s, each[1]), how))
    value = {
        identity(point): (figure or 0.0) / figures[0] for point, (figure, _) in zip(case.grid(), grid, strict=True)
    }

    def of(point: Axes) -> float:
        known = value.get(identity(point))
        return known if known is not None else (read(point, WHOLE, 1)[0] or 0.0) / figures[0]

    verdict = Verdict(case, mode, len(grid), grid_s, of(case.default), figures[len(figures) // TENTH - 1] / figures[0])
    verdict.found = [(each, of(each.point)) for each in found]
    return verdict


# --- measured: the commands themselves


def incast(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line; what it says goes on to ours."""
    command = [sys.executable, "-m", "incast", *arguments]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"status {done.returncode}: {' '.join(command)}")
    return done


def scan(case: Case, folder: Path, points: Sequence[Axes], repeats: int) -> list[dict[str, Any]]:
    """Measures these points, or takes what is there; the rows."""
    if not (folder / "plan.json").exists():
        lines = [
            f"title = {json.dumps(folder.name)}",
            f"seconds = {case.seconds}",
            f"warm_up_seconds = {case.warm_up_seconds}",
            f"repeats = {repeats}",
            "[set]",
            *(f"{key} = {json.dumps(value)}" for key, value in case.settings.items()),
        ]
        for point in points:
            lines += ["[[points]]", *(f"{key} = {json.dumps(value)}" for key, value in point.items())]
        file = folder.with_suffix(".toml")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        incast("scan", str(file), "--output", str(folder))
    else:
        incast("scan", "--resume", str(folder))
    rows = [json.loads(line) for line in (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    return sorted(rows, key=lambda row: (row["point"], row["repeat"]))


def figure_of(row: Mapping[str, Any]) -> float:
    """Nothing, of a point that failed."""
    return float(row[GOODPUT_COLUMN] or 0.0) if row["status"] == "complete" else 0.0


def tune(case: Case, folder: Path, budget_s: float, seed: int) -> Found:
    """`incast tune`; the time is that of the whole command."""
    kept = folder / "clock.json"
    if not kept.exists():
        words_ = ["--seconds", f"{case.seconds}s", "--warm-up", f"{case.warm_up_seconds}s", "--seed", str(seed)]
        words_ += [word for key, value in case.settings.items() for word in ("--set", f"{key}={setting_text(value)}")]
        for axis in case.axes:
            words_ += ["--vary", f"{axis.key}={','.join(map(setting_text, axis.values))}"]
        begun_at = time.monotonic()
        incast("tune", "--budget", f"{budget_s:.1f}", *words_, "--output", str(folder), "--force", "--json")
        kept.write_text(json.dumps(time.monotonic() - begun_at), encoding="utf-8")
    answer = json.loads((folder / "tuning.json").read_text(encoding="utf-8"))
    point = case.default if answer["best"] is None else answer["best"]["settings"]
    readings = sum(each["readings"] for each in answer["points"])
    return Found("tune", seed, point, json.loads(kept.read_text(encoding="utf-8")), readings)


def chance(case: Case, folder: Path, budget_s: float, seed: int, reading_s: float) -> Found:
    """As many points at random as there is time for."""
    points = case.grid()
    random.Random(seed).shuffle(points)
    points = points[: max(1, int(budget_s / reading_s))]
    rows = scan(case, folder, points, 1)
    best = max(rows, key=figure_of)
    return Found("random", seed, points[best["point"] - 1], sum(row["wall_s"] for row in rows), len(rows))


def measure(case: Case, folder: Path) -> Verdict:
    """Grid, tunings and chance, and at the end what they found, beside each other."""
    grid = case.grid()
    rows = scan(case, folder / "grid", grid, 1)
    grid_s = sum(row["wall_s"] for row in rows)
    budget_s = SHARE * grid_s
    order = sorted(rows, key=figure_of, reverse=True)
    found = [tune(case, folder / f"tune-{seed}", budget_s, seed) for seed in SEEDS]
    reading_s = grid_s / len(rows)
    found += [chance(case, folder / f"random-{seed}", budget_s, seed, reading_s) for seed in SEEDS]
    best = [grid[row["point"] - 1] for row in order[:3]]
    last = {identity(point): point for point in (*best, *(each.point for each in found), case.default)}
    rounds = scan(case, folder / "rounds", list(last.values()), ROUNDS)
    medians: dict[tuple[tuple[str, str], ...], float] = {}
    for number, key in enumerate(last, 1):
        medians[key] = statistics.median(figure_of(row) for row in rounds if row["point"] == number)
    top = max(medians[identity(point)] for point in best)
    tenth = figure_of(order[len(order) // TENTH - 1]) / figure_of(order[0])
    verdict = Verdict(case, "measured", len(grid), grid_s, medians[identity(case.default)] / top, tenth)
    verdict.found = [(each, medians[identity(each.point)] / top) for each in found]
    return verdict


def kept_grid(case: Case, folder: Path) -> Read:
    """The readings of the grid that was measured; the defaults are those of the rounds, or of the tunings."""
    by_point: dict[tuple[tuple[str, str], ...], tuple[float | None, float]] = {}
    grid = case.grid()
    try:
        lines = (folder / "grid" / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        rounds = (folder / "rounds" / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SystemExit(f"--replay: {error.filename}: {error.strerror}; measure {case.name} first") from error
    for row in map(json.loads, lines):
        by_point[identity(grid[row["point"] - 1])] = figure_of(row) or None, row["wall_s"]
    last = [row for row in map(json.loads, rounds) if all(_same(row, axis) for axis in case.axes)]
    defaults = [figure_of(row) for row in last]
    by_point[identity(case.default)] = statistics.median(defaults), statistics.median(row["wall_s"] for row in last)

    def read(point: Axes, length: float, _repeat: int) -> tuple[float | None, float]:
        figure, wall_s = by_point[identity(point)]
        return figure, wall_s - (1 - length) * case.seconds

    return read


def _same(row: Mapping[str, Any], axis: Axis) -> bool:
    return setting_text(row[axis.key]) == setting_text(axis.default)


# --- what came of it


def show(verdict: Verdict) -> bool:
    """Prints it; whether it is as it should be."""
    case = verdict.case
    print(f"\n=== {case.name}, {verdict.mode}: {verdict.grid_points} points, {verdict.grid_s:.0f} s")
    out = verdict.default < verdict.tenth
    print(
        f"defaults {verdict.default:.3f} of the best of the grid; its best tenth begins at {verdict.tenth:.3f}: "
        + ("the defaults are not in it" if out else "THE DEFAULTS ARE IN IT, so this case says nothing")
    )
    print("| how | seed | share of the grid's time | readings | of the best of the grid | point |")
    print("|---|---|---|---|---|---|")
    for each, value in verdict.found:
        share = each.spent_s / verdict.grid_s
        print(f"| {each.how} | {each.seed} | {share:.3f} | {each.readings} | {value:.3f} | {words(each.point)} |")
    tuned = [value for each, value in verdict.found if each.how == "tune"]
    by_chance = [value for each, value in verdict.found if each.how == "random"]
    share = max(each.spent_s for each, _ in verdict.found if each.how == "tune") / verdict.grid_s
    good = {
        f"at least {GOOD} of the best, each seed": min(tuned) >= GOOD,
        f"at most {SHARE + 0.005:.3f} of the time": share <= SHARE + 0.005,
        "better than random (mean)": statistics.mean(tuned) > statistics.mean(by_chance),
        "defaults outside the best tenth": out,
    }
    print("; ".join(f"{what}: {'yes' if yes else 'NO'}" for what, yes in good.items()))
    return all(good.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "cases", nargs="*", choices=[[], *CASES], default=list(CASES), metavar="CASE", help=str(list(CASES))
    )
    parser.add_argument("--engine", type=Path, default=ROOT / "build" / "release" / "bin" / "incast-node")
    parser.add_argument("--output", type=Path, default=Path("incast-results/tune-vs-grid"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="simulations at a time")
    parser.add_argument("--replay", action="store_true", help="measured cases from what was kept")
    arguments = parser.parse_args()
    os.environ["INCAST_NODE"] = str(arguments.engine.resolve())
    good = True
    for name in arguments.cases:
        case, folder = CASES[name], (arguments.output / name).resolve()
        if case.simulated:
            records = Records(case, arguments.engine.resolve(), folder)

            def simulate(
                point: Axes, length: float, repeat: int, records: Records = records
            ) -> tuple[float | None, float]:
                record = records.get(point, length, repeat)
                return record["figure"], record["cpu_s"]

            verdict = judge(case, "simulated, charged by CPU time", arguments.jobs, simulate)
        elif arguments.replay:
            verdict = judge(case, "replayed from the grid that was measured", 1, kept_grid(case, folder))
        else:
            verdict = measure(case, folder)
        good = show(verdict) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
