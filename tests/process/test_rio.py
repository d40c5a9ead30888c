"""Event building and raw traffic over RapidIO in software: every notice, both layouts, both orders, verified."""

import itertools
import os
import signal
from typing import Any

import pytest
from support import Run, Start, check_accounting

NOTICES = ["doorbell", "memory", "cm"]
ORDERS = ["strict", "weak"]
LAYOUTS = ["contiguous", "segments"]
SCHEMES = ["push", "pull", "pull-read", "push-pull", "pull-pull"]
EVERYTHING = list(itertools.product(SCHEMES, NOTICES, ORDERS, LAYOUTS))
# Each pair of a notice and an order, with every scheme and both layouts somewhere; all of it with INCAST_ALL_COMBINATIONS.
CHOSEN = [
    ("push", "doorbell", "strict", "contiguous"),
    ("pull", "doorbell", "weak", "segments"),
    ("pull", "memory", "strict", "segments"),
    ("push", "memory", "weak", "contiguous"),
    ("push", "cm", "strict", "segments"),
    ("pull", "cm", "weak", "contiguous"),
    ("pull-read", "doorbell", "weak", "contiguous"),
    ("push-pull", "memory", "weak", "segments"),
    ("pull-pull", "cm", "strict", "contiguous"),
]


def settings(scheme: str, notice: str, order: str, layout: str) -> dict[str, Any]:
    """Four processes for a moment; segments smaller than what is shown."""
    two_stages = scheme in ("push-pull", "pull-pull")
    segment = 524_288 if scheme == "pull-read" else 131_072  # there sources have windows, too, and there are 8
    return {
        "run.nodes": 4,
        "run.warm_up": "20ms",
        "run.duration": "150ms",
        "transport.name": "rio",
        "transport.rio.notice": notice,
        "transport.rio.order": order,
        "transport.rio.layout": layout,
        "protocol.scheme": scheme,
        "protocol.mfp_size": "32KiB",
        "protocol.credits": 4,
        "source.prefill_bytes": "1MiB",
        "sink.kind": "verify",
        **({"transport.rio.segment_bytes": segment} if layout == "segments" else {}),
        **({"filter.accept": 0.7} if two_stages else {}),
    }


@pytest.mark.parametrize(
    "combination",
    EVERYTHING if os.environ.get("INCAST_ALL_COMBINATIONS") else CHOSEN,
    ids="-".join,
)
def test_builds_and_verifies(start: Start, combination: tuple[str, str, str, str]) -> None:
    run = start(settings(*combination))
    assert run.finish() == 0, run.story()
    result = run.result()
    assert result["status"] == "complete"
    assert result["events"] > 0
    assert result["verified"] == "full"
    assert result["incomplete_events"] == 0
    assert result["copied_bytes"] > 0
    check_accounting(result)


def test_thirty_two_endpoints(start: Start) -> None:
    """Each is a process of its own with its windows and its doorbell; with INCAST_ALL_COMBINATIONS twice as many."""
    nodes = 64 if os.environ.get("INCAST_ALL_COMBINATIONS") else 32
    few = {"run.nodes": nodes, "protocol.mfp_size": "4KiB", "protocol.credits": 2, "source.prefill_bytes": "64KiB"}
    run = start({**settings("push", "doorbell", "strict", "contiguous"), **few})
    assert run.finish(120) == 0, run.story()
    result = run.result()
    assert result["events"] > 0
    assert result["verified"] == "full"
    check_accounting(result)


def until_lost(run: Run) -> None:
    """A loss, and events built after it."""
    run.wait_for(lambda report: report["type"] == "notice" and "lost" in report["text"], "loss")
    first = run.wait_for(lambda report: report["type"] == "sample", "sample")
    run.wait_for(lambda report: report["type"] == "sample" and report["events"] > first["events"], "further events")


@pytest.mark.parametrize("notice", ["doorbell", "cm"])
def test_a_killed_builder_unit_costs_nothing(start: Start, notice: str) -> None:
    """In the middle of its peers' transfers; more of this kind: test_losses.py with INCAST_KILL_TIMES."""
    roles = {"run.nodes": 4, "run.rus": 2, "run.bus": 2, "run.roles": "split", "run.em": "own"}
    endless = {"run.duration": "1h", "run.sample_interval": "50ms", "run.drain_deadline": "20s"}
    run = start({**settings("push", notice, "weak", "contiguous"), **roles, **endless})
    run.wait_for_phase("measuring")
    os.kill(run.node_pid(3), signal.SIGKILL)
    until_lost(run)
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.story()
    result = run.result()
    assert result["status"] == "interrupted"
    assert result["incomplete_events"] == 0
    check_accounting(result)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("fabric", "shm:", "the name must be 1..40"),
        ("notice", "pigeon", "expected doorbell, memory or cm"),
        ("segment_bytes", "70000", "must be a multiple of 4096"),
        ("ring_bytes", "20000", "must be a power of two"),
    ],
)
def test_a_bad_parameter_is_one_line(start: Start, key: str, value: str, why: str) -> None:
    run = start({"transport.name": "rio", "run.nodes": 2, f"transport.rio.{key}": value})
    assert run.finish() != 0
    assert why in run.story()
