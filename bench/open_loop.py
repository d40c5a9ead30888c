#!/usr/bin/env python3
"""Triggers at a rate of their own against what can be built: 80 %, 100 % and 120 % of it, and a step from 80 % to 120 %
and back, with each policy of a full readout unit (docs/measuring.md).

What can be built is made known and steady by the consumers: each builder unit pipes its events to a command that
reads so many bytes per second and no more (--consumer-rate; 0: a null sink, so that the machine itself is the limit).
A closed loop run measures it, then every run is open loop with Poisson arrivals. Prints a table, and the step as a
series.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
POLICIES = ("block", "throttle", "drop")

# Reads at most RATE bytes per second; what it could not read while it had no processor, up to 50 ms, it makes up for.
CONSUMER = """
import os, sys, time
rate, due = float(sys.argv[1]), time.monotonic()
while data := os.read(0, 65536):
    due = max(due, time.monotonic() - 0.05) + len(data) / rate
    time.sleep(max(0.0, due - time.monotonic()))
"""


def run(arguments: argparse.Namespace, **more: object) -> dict[str, Any]:
    settings: dict[str, object] = {
        "transport.name": arguments.transport,
        "run.roles": "split",
        "run.nodes": 4,
        "run.warm_up": "4s",
        "run.duration": f"{arguments.seconds}s",
        "run.sample_interval": "500ms",
        "protocol.packing": 16,
        "protocol.credits": 4,
        # What a readout unit must keep follows from these: little, so that overload shows within seconds.
        "protocol.heartbeat": "100ms",
        "protocol.detection_deadline": "500ms",
        "protocol.suspect_grace": 0,
        "source.fragment_size": "1KiB",
        "source.arrivals": "poisson",
        "sink.kind": "null",
        "run.fail_above_incomplete": 1,
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    if arguments.consumer_rate:
        words = [sys.executable, "-c", CONSUMER, str(arguments.consumer_rate)]
        settings |= {"sink.kind": "command", "sink.command": f"exec {shlex.join(words)}"}
        settings |= {"sink.buffer_size": "256KiB"}
    with tempfile.TemporaryDirectory() as folder:
        command = [str(arguments.engine), "--output", folder, "--progress", "none"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        for setting in arguments.overrides:
            command += ["--set", setting]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"status {done.returncode}: {done.stderr.strip()}")
        result: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))
    incomplete = result["incomplete_events"] - result["triggers"].get("events_with_drops", 0)
    if result["lost_events"] or incomplete:
        raise SystemExit(f"not a measurement: {result['lost_events']} lost, {incomplete} incomplete and not dropped")
    return result


def latency(nanoseconds: float | None) -> str:
    return "-" if nanoseconds is None else f"{nanoseconds / 1e6:.1f} ms"


def row(name: str, result: dict[str, Any]) -> str:
    triggers, delay = result["triggers"], result["latency_ns"]
    return (
        f"| {name} | {triggers['policy']} | {triggers['offered_hz']:.0f} | {triggers['accepted_hz']:.0f} "
        f"| {triggers['inhibited_hz']:.0f} | {triggers['dropped_hz']:.0f} | {triggers['waiting_events']} "
        f"| {100 * result['dead_time_fraction']:.1f} % "
        f"| {100 * triggers['occupancy']['mean']:.0f} % / {100 * triggers['occupancy']['max']:.0f} % "
        f"| {latency(delay['p50'])} | {latency(delay['p99'])} |"
    )


def step(arguments: argparse.Namespace, capacity: float, policy: str) -> None:
    low, high = 0.8 * capacity, 1.2 * capacity
    up, down = 6, 6 + arguments.step_seconds
    result = run(
        arguments,
        source__trigger_rate=low,
        source__trigger_steps=f"{high}@{up}s,{low}@{down}s",
        source__policy=policy,
        run__duration=f"{down + 2 * arguments.step_seconds - 4}s",
    )
    print(f"\nstep, {policy}: 120 % from second {up} to {down} after the first trigger; means of a second")
    print("| s | offered Hz | accepted Hz | inhibited Hz | dropped Hz | dead | memory | waiting | latency, mean |")
    print("|---|---|---|---|---|---|---|---|---|")
    series = result["triggers"]["over_time"]
    begin = series[0]["t"] - 4.5  # the warm-up, and one interval
    for first, second in zip(series[::2], series[1::2], strict=False):

        def mean(key: str, pair: tuple[dict[str, Any], ...] = (first, second)) -> float:
            values = [one[key] for one in pair if one[key] is not None]
            return sum(values) / len(values) if values else 0.0

        print(
            f"| {second['t'] - begin:.1f} | {mean('offered_hz'):.0f} | {mean('accepted_hz'):.0f} "
            f"| {mean('inhibited_hz'):.0f} | {mean('dropped_hz'):.0f} | {100 * mean('dead_time_fraction'):.0f} % "
            f"| {100 * mean('occupancy'):.0f} % | {second['waiting_events']} | {latency(mean('latency_mean_ns'))} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", default="tcp")
    parser.add_argument("--rates", default="0.8,1.0,1.2", help="of the table, over what can be built; empty: no table")
    parser.add_argument("--no-steps", action="store_true")
    parser.add_argument("--warm-up", type=int, default=4, help="of the table, in seconds: a memory has to fill first")
    parser.add_argument("--seconds", type=int, default=8, help="measured, of each run")
    parser.add_argument("--step-seconds", type=int, default=6, help="of 120 %%, and half of what follows it")
    parser.add_argument("--consumer-rate", type=float, default=20e6, help="bytes per second and builder unit")
    parser.add_argument("--engine", type=Path, default=ROOT / "build/release/bin/incast-node")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    arguments = parser.parse_args()

    capacity = run(arguments, source__arrivals="fixed")["events_per_s"]
    print(f"closed loop over {arguments.transport}: {capacity:.0f} events/s; window {arguments.seconds} s")
    print(
        "| rate | policy | offered Hz | accepted Hz | inhibited Hz | dropped Hz | waiting | dead | memory mean / max "
        "| latency p50 | p99 |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for part in map(float, filter(None, arguments.rates.split(","))):
        for policy in POLICIES:
            result = run(
                arguments,
                source__trigger_rate=part * capacity,
                source__policy=policy,
                run__warm_up=f"{arguments.warm_up}s",
            )
            print(row(f"{100 * part:.0f} %", result), flush=True)
    for policy in () if arguments.no_steps else POLICIES:
        step(arguments, capacity, policy)


if __name__ == "__main__":
    main()
