"""libzmq's own tests over soft RDMA devices: `verbs://HOST:PORT`."""

import os
from pathlib import Path

import pytest
from guest.steps import Step
from in_guest import HAS_VERBS, ROOT, VERBS, GuestRun

BRIDGE = Path(os.environ.get("INCAST_ZMQ", ROOT / "build" / "zmq")).resolve()
# A tenth of those that can be turned: patterns, messages of parts, NULL and PLAIN, what waits for another's room. Not
# test_spec_dealer and test_spec_pushpull: they give several connections 0.3 s, which can be too short here.
PROGRAMS = (
    "test_pair_tcp",
    "test_spec_req",
    "test_spec_rep",
    "test_spec_router",
    "test_probe_router",
    "test_router_mandatory",
    "test_bind_after_connect_tcp",
    "test_security_null",
    "test_security_plain",
)

pytestmark = [
    pytest.mark.skipif(not HAS_VERBS, reason=f"{VERBS} is not built: its libraries are not there"),
    pytest.mark.skipif(
        not all((BRIDGE / "build" / "bin" / name).exists() for name in PROGRAMS),
        reason="bridges/zmq/build.sh build/zmq --tests was not run",
    ),
]


@pytest.mark.usefixtures("everything")
def test_a_tenth_of_the_tests_of_libzmq_passes_over_soft_roce(guest: GuestRun) -> None:
    own = f"python3 bridges/zmq/own_tests.py '{BRIDGE}' --turn verbs --host 10.0.0.1 --jobs 1 --only"
    results = guest(
        [Step("nodes", "rdma-nodes.sh rxe 1"), Step("own", f"cd '{ROOT}' && {own} {' '.join(PROGRAMS)}", 240)]
    )
    assert results["nodes"].status == 0, results["nodes"]
    print(results["own"].output)
    assert results["own"].status == 0, results["own"]
    said = results["own"].output.strip().splitlines()[-1]
    assert said == f"{len(PROGRAMS)} programs over verbs: {len(PROGRAMS)} pass, 0 fail, 0 time, 0 skip; 0 unexpected"
