"""Every schedule with every layout, assignment and way of acknowledging, over shm and tcp.

With INCAST_MATRIX_SEEDS=N all of it, with N seeds each (3 take 7 minutes); otherwise a subset that covers each value
with each transport and each schedule.
"""

import itertools
import os
from typing import Any

import pytest
from support import Start, check_accounting
from transports import SHARED_MEMORY, SOCKETS

TRANSPORTS = [SHARED_MEMORY, SOCKETS]
SCHEDULES = ["none", "sequential", "random", "linear-shift", "barrel-barrier", "barrel-time-slot", "lockstep"]
LAYOUTS = ["contiguous", "per-mep", "segmented"]
ASSIGNMENTS = ["em", "static", "source-credits"]
# A readout unit that keeps the credits passes over who has none: no order that waits for one.
REFUSED = {("sequential", "source-credits"), ("lockstep", "source-credits")}
NOTICES: dict[str, dict[str, Any]] = {
    "per-contribution": {},
    "per-write": {"protocol.ack_per_write": "true"},
    "split": {
        "protocol.ack_per_write": "true",
        "protocol.message_size": "4KiB",
        "protocol.outstanding_writes": 2,
    },
}
Case = tuple[str, str, str, str, str, int]


def cases() -> list[Case]:
    """What is tried; the last is the seed."""
    seeds = int(os.environ.get("INCAST_MATRIX_SEEDS", "0"))
    if seeds > 0:
        every = itertools.product(TRANSPORTS, SCHEDULES, LAYOUTS, ASSIGNMENTS, list(NOTICES), range(1, seeds + 1))
        return [case for case in every if (case[1], case[3]) not in REFUSED]
    notices = list(NOTICES)
    held_by_em = [
        (TRANSPORTS[turn % 2], schedule, LAYOUTS[turn % 3], ASSIGNMENTS[turn // 2 % 2], notices[(turn + 1) % 3], 1)
        for turn, schedule in enumerate([*SCHEDULES, *SCHEDULES[::-1]])
    ]
    credited = [schedule for schedule in SCHEDULES if (schedule, "source-credits") not in REFUSED]
    held_by_sources = [
        (TRANSPORTS[turn % 2], schedule, LAYOUTS[turn % 3], "source-credits", notices[turn % 3], 1)
        for turn, schedule in enumerate([*credited, *credited])
    ]
    return held_by_em + held_by_sources


@pytest.mark.parametrize("schedule", ["sequential", "lockstep"])
def test_sources_with_credits_wait_for_none(start: Start, schedule: str) -> None:
    run = start({"run.nodes": 3, "protocol.schedule": schedule, "protocol.assignment": "source-credits"})
    assert run.finish(30) == 2
    assert f"protocol.schedule = {schedule}: with protocol.assignment = source-credits" in run.story()


@pytest.mark.parametrize("case", cases(), ids=lambda case: "-".join(map(str, case)))
def test_is_verified(start: Start, case: Case) -> None:
    transport, schedule, layout, assignment, notice, seed = case
    run = start(
        {
            "transport.name": transport,
            "run.nodes": 3,
            "run.events": 1000,
            "run.seed": seed,
            "protocol.packing": 10,
            "protocol.mfp_size": "16KiB",
            "protocol.credits": 4,
            "protocol.schedule": schedule,
            "protocol.layout": layout,
            "protocol.assignment": assignment,
            **NOTICES[notice],
        }
    )
    assert run.finish(120) == 0, run.story()
    result = run.result()
    assert result["events"] == 1000
    assert result["verified"] == "full"
    assert result["incomplete_events"] == 0
    check_accounting(result)
