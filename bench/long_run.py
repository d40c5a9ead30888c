#!/usr/bin/env python3
"""One long run of the event builder, watched every two seconds (docs/measuring.md).

Says whether memory stays flat, how far the goodput of an interval ever falls and what else the machine did then, and
every error there was. Ends with status 1 if memory grew or anything went wrong; no rate decides it.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import ROOT, Snapshot, Spread, Window, conditions, usable_cores, version_of
from programs import Incast, event_building
from sizes import Size, cache_option, chosen_cache, parse_size

# Memory is flat if the median of the last quarter of its samples is no more than this above that of the quarter that
# begins after the first tenth, in every process. The first tenth is left out: pages are touched when they are first
# used. An hour of a leak of 64 bytes per MEP at 1000 MEPs/s would be 230 MB.
_FLAT_BYTES = 1 << 20
_FLAT_SHARE = 0.005
_FEWEST_SAMPLES = 8
_DIP = 0.5  # of the median


@dataclass(frozen=True)
class Growth:
    """Resident memory of one process, early and late in the run."""

    early: int
    late: int
    highest: int

    @staticmethod
    def of(rss: Sequence[int]) -> "Growth | None":
        """None if there are too few samples to say."""
        steady = rss[-(-len(rss) // 10) :]
        quarter = len(steady) // 4
        if len(rss) < _FEWEST_SAMPLES or quarter == 0:
            return None
        return Growth(int(statistics.median(steady[:quarter])), int(statistics.median(steady[-quarter:])), max(rss))

    @property
    def flat(self) -> bool:
        """By the rule above."""
        return self.late - self.early <= max(_FLAT_BYTES, _FLAT_SHARE * self.early)


@dataclass(frozen=True)
class Interval:
    """One sample interval of the measured time."""

    t: float
    goodput: float
    others: float  # share of all cores
    steal: float


def dips(intervals: Sequence[Interval]) -> list[Interval]:
    """Those with less than half of the median goodput, the lowest first."""
    median = statistics.median(each.goodput for each in intervals)
    return sorted((each for each in intervals if each.goodput < _DIP * median), key=lambda each: each.goodput)


def memory_by_node(samples: Path) -> dict[int, list[int]]:
    """Resident memory by node and in order; only of nodes that stand for their process."""
    found: dict[int, list[int]] = {}
    for line in samples.read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        if sample["rss_bytes"] > 0:
            found.setdefault(sample["node"], []).append(sample["rss_bytes"])
    return found


def errors_of(result: dict[str, Any], notices: Sequence[str], status: int) -> list[str]:
    """All that should not have been."""
    found = [
        f"{name} is {result[name]}" for name in ("incomplete_events", "lost_events", "verify_errors") if result[name]
    ]
    if result["status"] not in ("complete", "interrupted") or status != 0:
        found.append(f"status {result['status']}, exit status {status}: {result.get('reason', '')}")
    found += [f"node {node['node']} was lost {node['losses']} times" for node in result["nodes"] if node["losses"]]
    return found + [f"the engine said: {text}" for text in notices]


def run(subject: Incast, folder: str) -> tuple[dict[str, Any], list[Interval], list[str], int]:
    """Result, intervals, warnings and exit status."""
    intervals: list[Interval] = []
    notices: list[str] = []
    measuring = False
    # The engine's own errors go where a person sees them.
    with subprocess.Popen(subject.command(folder), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        before = Snapshot.take([process.pid])
        for line in process.stdout:
            said = json.loads(line)
            if said["type"] == "phase":
                measuring = said["phase"] == "measuring"
                before = Snapshot.take([process.pid])
            elif said["type"] == "notice" and said["level"] != "info":
                notices.append(said["text"])
            elif said["type"] == "sample" and measuring:
                now = Snapshot.take([process.pid])
                window = Window.between(before, now)
                before = now
                if window.seconds > 0.5 * _SAMPLE_S:  # not what is left between two phases
                    capacity = window.seconds * usable_cores()
                    intervals.append(
                        Interval(
                            said["t"], said["goodput_bytes_per_s"], window.others / capacity, window.steal / capacity
                        )
                    )
                    _say(intervals)
    path = Path(folder) / "result.json"
    if not path.is_file():
        raise SystemExit(f"no result; the engine ended with status {process.returncode}")
    return json.loads(path.read_text(encoding="utf-8")), intervals, notices, process.returncode


_SAMPLE_S = 2.0
_LINES_EVERY = 30


def _say(intervals: Sequence[Interval]) -> None:
    if len(intervals) % _LINES_EVERY == 0:
        last = Spread.of([each.goodput / 1e9 for each in intervals[-_LINES_EVERY:]])
        print(f"  {intervals[-1].t:7.0f} s   {last} GB/s in the last {_LINES_EVERY} samples", flush=True)


def main() -> int:
    """The run of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", default="shm")
    parser.add_argument("--scheme", default="push")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--mfp-size", type=parse_size, default=Size("64KiB", 65536))
    parser.add_argument("--sink", default="verify:full", help="null, touch, verify:HOW (default: verify:full)")
    parser.add_argument("--seconds", type=float, default=3600, help="measured time (default: 3600)")
    parser.add_argument("--warm-up", type=float, default=2)
    parser.add_argument("--engine", type=Path, default=ROOT / "build/release/bin/incast-node")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes every interval there, for the record")
    cache_option(parser)
    arguments = parser.parse_args()
    found = conditions(incast=version_of([str(arguments.engine), "--version"]))
    cache = chosen_cache(arguments, found)
    for name, value in found.items():
        print(f"{name}: {value}")
    subject = Incast(
        engine=arguments.engine,
        seconds=arguments.seconds,
        warm_up=arguments.warm_up,
        settings={
            **event_building(
                transport=arguments.transport,
                scheme=arguments.scheme,
                mfp_bytes=arguments.mfp_size.bytes,
                nodes=arguments.nodes,
                cache=cache,
                self_traffic="copy",
                sink=arguments.sink,
            ),
            "run.sample_interval": f"{_SAMPLE_S}s",
        },
        overrides=tuple(arguments.overrides),
    )
    title = f"{arguments.transport} {arguments.scheme}, {arguments.mfp_size} MFPs, {arguments.seconds:.0f} s"
    print(f"\n--- {title}, sink {arguments.sink}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        result, intervals, notices, status = run(subject, folder)
        memory = memory_by_node(Path(folder) / "samples.jsonl")
    errors = errors_of(result, notices, status)
    growth = {node: Growth.of(rss) for node, rss in memory.items()}
    report(result, intervals, growth, errors)
    if arguments.json is not None:
        record = {
            "title": title,
            "conditions": found,
            "result": result,
            "intervals": [asdict(each) for each in intervals],
            "rss_bytes": memory,
            "errors": errors,
        }
        arguments.json.write_text(json.dumps(record) + "\n", encoding="utf-8")
    return 1 if errors or any(each is not None and not each.flat for each in growth.values()) else 0


def report(
    result: dict[str, Any], intervals: Sequence[Interval], growth: dict[int, Growth | None], errors: Sequence[str]
) -> None:
    """For a person."""
    print(f"{result['events']} events, verified: {result['verified']}, {result['verified_meps']} MEPs in full")
    if intervals:
        goodput = Spread.of([each.goodput / 1e9 for each in intervals])
        found = dips(intervals)
        print(f"goodput of {len(intervals)} intervals: {goodput} GB/s; {len(found)} below half of the median")
        for each in found[:10]:
            print(
                f"  at {each.t:.0f} s: {each.goodput / 1e9:.2f} GB/s while others took {each.others:.0%}"
                f" and steal {each.steal:.0%} of all cores"
            )
    for node, memory in sorted(growth.items()):
        if memory is None:
            print(f"memory of node {node}: too few samples to say")
        else:
            print(
                f"memory of node {node}: {memory.early / 1e6:.2f} MB early, {memory.late / 1e6:.2f} MB late,"
                f" {memory.highest / 1e6:.2f} MB at most: {'flat' if memory.flat else 'IT GROWS'}"
            )
    print("no errors" if not errors else "errors:")
    for error in errors:
        print(f"  {error}")


if __name__ == "__main__":
    raise SystemExit(main())
