"""Whatever is chosen together is built, verified byte for byte, and counted right.

The cases hold every pair of values of two settings that go together; with INCAST_MATRIX_SEEDS=N all combinations are
tried, with N seeds each (1: some 4,000 runs).
"""

import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from support import Start, check_accounting
from transports import ONE_THREAD, RAPIDIO, SHARED_MEMORY, SOCKETS

SETTINGS = {
    "transport": [ONE_THREAD, SHARED_MEMORY, SOCKETS, RAPIDIO],
    "scheme": ["push", "pull", "pull-read", "push-pull", "pull-pull"],
    "roles": ["folded", "split"],
    "schedule": ["none", "sequential", "random", "linear-shift", "barrel-barrier", "barrel-time-slot", "lockstep"],
    "layout": ["contiguous", "per-mep", "segmented", "per-source"],
    "assignment": ["em", "static", "source-credits"],
    "notices": ["per-contribution", "per-write", "split"],
}
NOTICES: dict[str, dict[str, Any]] = {
    "per-contribution": {},
    "per-write": {"protocol.ack_per_write": "true"},
    "split": {
        "protocol.ack_per_write": "true",
        "protocol.message_size": "4KiB",
        "protocol.outstanding_writes": 2,
    },
}
PHASED = {"barrel-barrier", "barrel-time-slot", "lockstep"}
Case = Mapping[str, str]


def is_refused(case: Case) -> bool:
    """What is chosen so far does not go together: the engine says so (test_bad_configs.py, and below)."""
    pulls = case.get("scheme", "push") != "push"
    waits = case.get("schedule") in ("sequential", "lockstep")
    return (
        (pulls and case.get("schedule") in PHASED)
        or (waits and case.get("assignment") == "source-credits")
        or (case.get("scheme") == "pull-read" and case.get("notices", "per-contribution") != "per-contribution")
    )


def pairs_of(case: Case) -> set[frozenset[tuple[str, str]]]:
    return {frozenset(pair) for pair in itertools.combinations(case.items(), 2)}


def filled(case: Case, wanted: set[frozenset[tuple[str, str]]]) -> Case | None:
    """A whole case, each of whose values is the one that makes the most wanted pairs with those before it."""
    missing = next((name for name in SETTINGS if name not in case), None)
    if missing is None:
        return case
    more = [{**case, missing: value} for value in SETTINGS[missing]]
    for each in sorted((each for each in more if not is_refused(each)), key=lambda each: -len(pairs_of(each) & wanted)):
        if (whole := filled(each, wanted)) is not None:
            return whole
    return None


def pairwise() -> Iterator[Case]:
    wanted: dict[frozenset[tuple[str, str]], None] = {}  # in order, so that the cases are always the same
    for (one, ones), (other, others) in itertools.combinations(SETTINGS.items(), 2):
        for value, another in itertools.product(ones, others):
            pair = {one: value, other: another}
            if not is_refused(pair):
                wanted[frozenset(pair.items())] = None
    while wanted:
        case = filled(dict(next(iter(wanted))), set(wanted))
        assert case is not None
        for pair_of_it in pairs_of(case):
            wanted.pop(pair_of_it, None)
        yield case


def every(seeds: int) -> Iterator[Case]:
    for values in itertools.product(*SETTINGS.values(), range(1, seeds + 1)):
        case = dict(zip([*SETTINGS, "seed"], map(str, values), strict=True))
        if not is_refused(case):
            yield case


def cases() -> list[Case]:
    seeds = int(os.environ.get("INCAST_MATRIX_SEEDS", "0"))
    return list(every(seeds) if seeds > 0 else pairwise())


@pytest.mark.parametrize("schedule", ["sequential", "lockstep"])
def test_sources_with_credits_wait_for_none(start: Start, schedule: str) -> None:
    run = start({"run.nodes": 3, "protocol.schedule": schedule, "protocol.assignment": "source-credits"})
    assert run.finish(30) == 2
    assert f"protocol.schedule = {schedule}: with protocol.assignment = source-credits" in run.story()


@pytest.mark.parametrize(
    "case", cases(), ids=lambda case: "-".join(case[name] for name in (*SETTINGS, "seed") if name in case)
)
def test_is_verified(start: Start, case: Case) -> None:
    two_stages = case["scheme"] in ("push-pull", "pull-pull")
    run = start(
        {
            "transport.name": case["transport"],
            "run.nodes": 4,
            "run.roles": case["roles"],
            "run.events": 1000,
            "run.seed": case.get("seed", 1),
            "protocol.scheme": case["scheme"],
            "protocol.packing": 10,
            "protocol.mfp_size": "16KiB",
            "protocol.credits": 4,
            "protocol.schedule": case["schedule"],
            "protocol.layout": case["layout"],
            "protocol.assignment": case["assignment"],
            **NOTICES[case["notices"]],
            **({"filter.accept": 0.7} if two_stages else {}),
        }
    )
    assert run.finish(120) == 0, run.story()
    result = run.result()
    check_accounting(result)
    rejected = result["accounting"]["meps_rejected"]
    assert (rejected > 0) == (result["rejected_events"] > 0) == two_stages
    assert result["events"] == 1000
    assert (result["status"], result["verified"], result["incomplete_events"]) == ("complete", "full", 0)
    assert result["verified_meps"] == result["accounting"]["meps_committed"] - rejected
    built = sum(node["totals"]["built_goodput_bytes"] for node in result["nodes"])
    crossed = built - sum(node["totals"]["built_self_bytes"] for node in result["nodes"])
    # The kernel's, into sockets and out of them; else one copy of each byte.
    assert result["copied_bytes"] >= (2 * crossed if case["transport"] == SOCKETS else built) > 0
    counted = result["accounting"]["schedule"]
    if case["schedule"] in ("barrel-barrier", "lockstep"):
        # An RU sends once in a phase at most, and to each of the builder units in turn.
        most_meps = 1 if case["schedule"] == "barrel-barrier" else len(result["nodes"])
        assert counted["phases"] * most_meps >= result["accounting"]["meps_committed"]
    else:
        assert counted["phases"] == counted["barrier_expired"] == 0
    if case["schedule"] != "barrel-time-slot":
        assert counted["slot_overruns"] == counted["unguarded_slots"] == 0
