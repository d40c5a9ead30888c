"""The transport tcp over rsockets, which librspreload.so puts in place of its sockets, over a soft RDMA device."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from guest.steps import Step
from in_guest import EVENTS, GuestRun, check_all, engine_words, out_folder
from transports import SOCKETS

LIBRARY = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"
PACKETS = "cat /sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts"
SCHEMES: dict[str, dict[str, Any]] = {"push": {}, "pull-read": {}, "push-pull": {"filter.accept": 0.7}}
BUILDING: dict[str, Any] = {
    "transport.name": SOCKETS,
    f"transport.{SOCKETS}.wait": "poll",
    f"transport.{SOCKETS}.bind": "10.0.0.1",
    "run.nodes": 2,
    "run.events": EVENTS,
    "protocol.packing": 20,
    "protocol.mfp_size": "16KiB",
    "sink.kind": "verify",
    # An emulated processor may stand still for seconds while the host is busy.
    "protocol.detection_deadline": "60s",
    "protocol.late_after": "60s",
}


@pytest.mark.usefixtures("everything")
def test_tcp_builds_events_over_rsockets(guest: GuestRun, tmp_path: Path) -> None:
    steps = [Step("nodes", f"rdma-nodes.sh rxe 1 && {PACKETS}")]
    for scheme, more in SCHEMES.items():
        words = engine_words({**BUILDING, "protocol.scheme": scheme, **more}, "--output", f"/out/{scheme}")
        steps.append(Step(scheme, f"env LD_PRELOAD={LIBRARY} {words} && {PACKETS}", 120))
    results = guest(steps)
    check_all(results, out_folder(tmp_path), SCHEMES)
    packets = [int(results[step.name].output.split()[-1]) for step in steps]
    # Each source's 16 KiB for each MEP, in packets of 4 KiB at most.
    assert all(after - before > EVENTS // 20 for before, after in pairwise(packets)), packets
