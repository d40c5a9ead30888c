"""Prints what a scan of simulated networks says of rate, loss and queues, a line a point.

    python scans/read_ethernet.py SCAN

Gb/s a builder unit, without what a node keeps for itself; the median and 99th percentile of a MEP's latency; packets
dropped; and the fullest queue at its peak.
"""

import json
import sys
from pathlib import Path
from typing import Any


def line(settings: dict[str, Any], result: dict[str, Any]) -> str:
    """One point."""
    builders = int(settings.get("run.builder_units", settings["run.nodes"]))
    gbit = result["goodput_bytes_per_s"]["total_without_self"] * 8e-9 / builders
    latency, network = result["latency_ns"], result["network"]
    peak = max((queue["max_bytes"] for queue in network["fullest_queues"]), default=0)
    said = " ".join(str(value).removeprefix("fabrics/").removesuffix(".toml") for value in settings.values())
    return (
        f"{gbit:6.1f} Gb/s  {latency['p50'] / 1e6:6.2f} {latency['p99'] / 1e6:6.2f} ms  "
        f"{network['totals']['dropped']:7} dropped  {peak / 1e6:8.2f} MB  {said}"
    )


def main(folder: Path) -> None:
    """Every complete point of a scan, in its order."""
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))["plan"]
    for number, point in enumerate(plan["points"], 1):
        reading = folder / "readings" / f"{number:04}-1" / "result.json"
        if reading.exists():
            print(line(point["axes"], json.loads(reading.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
