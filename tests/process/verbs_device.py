"""The contract, event building and lost units of the transport verbs on a real RDMA device, with all nodes on one host:
`./test --device NAME` (docs/transports/verbs.md). By name only: elsewhere there is no device.

INCAST_RDMA_DEVICE: its name.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Start, check_accounting
from verbs_faults import (  # noqa: F401
    pytest_generate_tests,
    test_a_killed_unit_is_lost_and_others_go_on,
    test_a_stopped_unit_comes_back,
)

VERBS = "verbs"
DEVICE = os.environ["INCAST_RDMA_DEVICE"]
EVENTS = 2000
SCHEMES: dict[str, dict[str, Any]] = {"push": {}, "pull": {}, "pull-read": {}, "push-pull": {"filter.accept": 0.7}}


@pytest.mark.parametrize("mode", ["one_thread", "two_threads", "two_processes"])
def test_the_contract(engine: Path, mode: str) -> None:
    program = engine.parent.parent / "test-bin" / "conformance"
    command = [program, "--gtest_brief=1", f"--gtest_filter=*/{VERBS}_{mode}"]
    environment = {**os.environ, "INCAST_CONFORMANCE_SETTINGS": f"{VERBS}.device={DEVICE} {VERBS}.connect_timeout=45s"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("scheme", SCHEMES)
def test_four_nodes_build_events(start: Start, scheme: str) -> None:
    settings = {
        "transport.name": VERBS,
        f"transport.{VERBS}.device": DEVICE,
        "run.nodes": 4,
        "run.events": EVENTS,
        "protocol.scheme": scheme,
        "protocol.packing": 20,
        "protocol.mfp_size": "16KiB",
        "sink.kind": "verify",
        # In a guest a processor may stand still for seconds while its host is busy.
        "protocol.detection_deadline": "60s",
        "protocol.late_after": "60s",
    }
    run = start({**settings, **SCHEMES[scheme]})
    assert run.finish(240) == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert (result["status"], result["verified"], result["incomplete_events"]) == ("complete", "full", 0)
    assert result["events"] == EVENTS
