"""Stands in for incast-node: speaks its progress protocol and misbehaves as FAKE_ENGINE says.

Leaves its command line in the file that FAKE_ENGINE_ARGUMENTS names, so that a test sees what the front end asked for.
"""

import itertools
import json
import math
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

CONFIG_LINE = "run.nodes = 0: out of range; allowed: a whole number in 1..4096"

RESULT: dict[str, Any] = {
    "goodput_bytes_per_s": {
        "total": 4.0e9,
        "total_without_self": 3.0e9,
        "per_ru": {"min": 0.9e9, "mean": 1.0e9, "max": 1.1e9},
        "per_bu": {"min": 0.8e9, "mean": 1.0e9, "max": 1.2e9},
        "over_time": {"min": 3.8e9, "mean": 4.0e9, "max": 4.1e9},
    },
    "schema": 1,
    "status": "complete",
    "events": 1234567,
    "events_per_s": 123456.7,
    "incomplete_events": 0,
    "lost_events": 0,
    "rejected_events": 0,
    "redelivered_events": 3,
    "verified": "full",
    "verified_meps": 20240,
    "verify_errors": 0,
    "latency_ns": {
        "kind": "service",
        "count": 1000,
        "min": 80000,
        "p50": 120000,
        "p95": 300000,
        "p99": 450000,
        "p999": 2500000,
        "max": 9000000,
    },
    "dead_time_fraction": 0.25,
    "bu_wait_fraction": 0.125,
    "cpu_s_per_gb": 0.456,
    "cpu": {"seconds": 20.0, "cores": 2.0, "sink_seconds": 0.1, "polling_seconds": 5.0, "scope": "4 processes"},
    "peak_rss_bytes": 104857600,
    "time_domain": "real",
    "sizes": {"packing": 61, "mfp_bytes": 65536},
    "triggers": {"loop": "closed", "requested_hz": 0, "offered_hz": 0, "accepted_hz": 0},
    "incomplete_files": [],
    "nodes": [],
    "config": {"run": {"nodes": 4}, "transport": {"name": "tcp"}, "protocol": {"scheme": "push"}},
}

VERSION = "0.1.0"
INFO = {
    "versions": {"incast": VERSION, "compiler": "gcc 12"},
    "transports": [
        {"name": "tcp", "available": True, "summary": "sockets"},
        {
            "name": "verbs",
            "available": False,
            "summary": "RDMA",
            "reason": "no RDMA device on this host",
            "untested_on_hardware": "traffic classes",
        },
    ],
}


def say(**report: Any) -> None:
    """One line of progress."""
    print(json.dumps(report), flush=True)


def sample(t: float, goodput: float = 2.0e9) -> None:
    """A sample of two nodes that each have built half of everything, evenly since the start."""
    nodes = [
        {
            "node": node,
            "roles": f"{node} (RU+BU)",
            "state": "active",
            "built_goodput_bytes": int(goodput / 2 * t),
            "sent_goodput_bytes": int(goodput / 2 * t),
        }
        for node in range(2)
    ]
    say(type="sample", t=t, goodput_bytes_per_s=goodput, events_per_s=1000.0, nodes=nodes)


def report_result(output: Path, **changes: Any) -> None:
    """Writes the result and says where."""
    path = output / "result.json"
    path.write_text(json.dumps(RESULT | changes))
    say(type="result", path=str(path))


def bad_config(_output: Path) -> int:
    print(CONFIG_LINE, file=sys.stderr)
    return 2


def killed(_output: Path) -> int:
    sample(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def crash_after_result(output: Path) -> int:
    report_result(output)
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)
    return 0


def garbage(_output: Path) -> int:
    for _ in range(5):
        print("hello, I am another program")
    return 0


def endless_garbage(_output: Path) -> int:
    while True:
        print("y")


def silent(_output: Path) -> int:
    return 0


def unreadable_result(output: Path) -> int:
    (output / "result.json").write_text("{ no")
    say(type="result", path=str(output / "result.json"))
    return 0


def orphans(output: Path) -> int:
    """A node that outlives the launcher and keeps its pipes open."""
    orphan = os.fork()
    if orphan == 0:
        time.sleep(600)  # house: allow sleep: an engine that hangs
        os._exit(0)
    say(type="notice", level="info", text=str(orphan))
    return killed(output)


def drain(output: Path) -> int:
    """Runs until asked to stop, then reports how often it was asked."""
    asked = 0

    def note(_signal: int, _frame: object) -> None:
        nonlocal asked
        asked += 1

    signal.signal(signal.SIGINT, note)
    sample(0.5)
    while not asked:
        time.sleep(0.01)  # house: allow sleep: polls for its signal
    # A second request that is already on its way is counted.
    time.sleep(0.2)  # house: allow sleep: an engine that drains
    report_result(output, events=asked)
    return 0


def deaf(_output: Path) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sample(0.5)
    while True:
        time.sleep(0.1)  # house: allow sleep: an engine at work


def lost(output: Path) -> int:
    sample(0.5)
    say(type="notice", level="error", text="node 0 is lost and with it the event manager")
    report_result(output, status="event manager lost", reason="node 0 is gone", lost_events=None, verify_errors=2)
    return 3


def virtual(output: Path) -> int:
    sample(0.5)
    report_result(output, time_domain="virtual", verified="header")
    return 0


def null_sink(output: Path) -> int:
    report_result(output, verified="none")
    return 0


def well(output: Path) -> int:
    say(type="phase", phase="warm-up")
    sample(0.5, 1.0e9)
    say(type="phase", phase="measuring")
    for tenth in range(1, 11):
        sample(0.5 + tenth / 10)
    print("a library prints a line of its own", flush=True)
    say(type="notice", level="warning", text="node 1 is slow")
    say(type="what-a-later-version-says", value=1)
    report_result(output)
    return 0


def planted(output: Path) -> int:
    """Goodput and latency that depend on two settings, with a little noise of the seed; 16 credits are too many."""
    words = sys.argv[1:]
    settings = dict(value.split("=", 1) for word, value in itertools.pairwise(words) if word == "--set")
    slots = {"auto": "1"}.get(settings["protocol.credits"], settings["protocol.credits"])
    if slots == "16":
        print("incast-node: out of credit", file=sys.stderr)
        return 3
    packets = int(settings["protocol.mfp_size"].removesuffix("KiB"))
    away = abs(math.log2(int(slots) / 4)) + abs(math.log2(packets / 128))
    noise = 1 + random.Random(int(settings["run.seed"])).uniform(-0.01, 0.01)
    goodput = {**RESULT["goodput_bytes_per_s"], "total_without_self": 4e9 * 0.8**away * noise}
    latency = {**RESULT["latency_ns"], "p99": round(1000 * packets * int(slots) * noise)}
    report_result(output, goodput_bytes_per_s=goodput, latency_ns=latency)
    return 0


MOODS = {
    mood.__name__.replace("_", "-"): mood
    for mood in (
        bad_config,
        killed,
        crash_after_result,
        garbage,
        endless_garbage,
        silent,
        unreadable_result,
        orphans,
        drain,
        deaf,
        lost,
        virtual,
        null_sink,
        planted,
        well,
    )
}


def main() -> int:
    """The command line of incast-node, as far as the front end uses it."""
    mood = os.environ.get("FAKE_ENGINE", "well")
    arguments = sys.argv[1:]
    if arguments == ["--info", "json"]:
        print("none" if mood == "garbage" else json.dumps(INFO))
        return 1 if mood == "silent" else 0
    if arguments == ["--version"]:
        print(f"incast-node {VERSION} (fake)")
        return 0
    if record := os.environ.get("FAKE_ENGINE_ARGUMENTS"):
        Path(record).write_text(json.dumps(arguments))
    if "--check" in arguments:
        return 0
    output = Path(arguments[arguments.index("--output") + 1])
    if mood != "bad-config":
        output.mkdir(parents=True, exist_ok=True)
    return MOODS[mood](output)


if __name__ == "__main__":
    sys.exit(main())
