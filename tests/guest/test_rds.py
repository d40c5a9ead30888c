"""The transport rds over each of its carriers: the contract, and event building of every scheme, verified in full."""

import os
from pathlib import Path
from typing import Any

import pytest
from guest.steps import Step
from in_guest import (
    ADDRESSES,
    BIN,
    CONFORMANCE,
    EVENTS,
    NODES,
    ROOT,
    TREE,
    GuestRun,
    build,
    check_all,
    engine_words,
    out_folder,
)
from transports import RDS

BUILDING: dict[str, Any] = {
    "transport.name": RDS,
    "run.nodes": NODES,
    "run.events": EVENTS,
    "protocol.packing": 20,
    "protocol.mfp_size": "16KiB",
    "sink.kind": "verify",
    # An emulated processor may stand still for seconds while the host is busy.
    "protocol.detection_deadline": "60s",
    "protocol.late_after": "60s",
    f"transport.{RDS}.connect_timeout": "60s",
    f"transport.{RDS}.deadline": "60s",
}
SCHEMES: dict[str, dict[str, Any]] = {"push": {}, "pull": {}, "push-pull": {"filter.accept": 0.7}}

# The first namespace conducts and has a node; each of the others brings one as soon as it listens.
IN_NAMESPACES = """
export INCAST_TOKEN=0123456789abcdef
ip netns exec node1 {conduct} & conductor=$!
join() {{
    until ip netns exec "node$1" {join} 2>"/run/said$1"; do
        grep -q refused "/run/said$1" || {{ cat "/run/said$1"; exit 1; }}
    done
}}
for number in {others}; do join "$number" & done
wait "$conductor" && wait
"""


def conformance(*cases: str, timeout_s: float, more: str = "", before: str = "") -> Step:
    """The suite, for cases as TEST/rds_MODE; `more`: settings; `before`: words that start it."""
    # What is silent is lost soon, as some tests wait for it.
    settings = f"{RDS}.deadline=4s {RDS}.connect_timeout=4s {more}"
    words = f"--gtest_brief=1 --gtest_filter='{':'.join(cases)}'"
    command = f"exec env INCAST_CONFORMANCE_SETTINGS='{settings}' {before} '{CONFORMANCE}' {words}"
    return Step("conformance", f"cd '{TREE}' && {command}", timeout_s)


def in_namespaces(scheme: str, settings: dict[str, Any]) -> Step:
    """A run with a node in each of the namespaces of `rds-nodes.sh tcp`."""
    address = "10.0.0.1:7400"
    conduct = engine_words(settings, "--output", f"/out/{scheme}", "--spawn", "1", "--listen", address)
    join = engine_words({}, "--join", address)
    others = " ".join(str(number) for number in range(2, NODES + 1))
    return Step(scheme, IN_NAMESPACES.format(conduct=conduct, join=join, others=others), 180)


def over_tcp(*schemes: str) -> list[Step]:
    carrier = {f"transport.{RDS}.carrier": "tcp"}
    return [
        in_namespaces(scheme, {**BUILDING, **carrier, "protocol.scheme": scheme, **SCHEMES[scheme]})
        for scheme in schemes
    ]


def test_rds_keeps_the_contract_and_builds_events(guest: GuestRun, tmp_path: Path) -> None:
    """Within one thread, where the kernel hands messages over itself; and over TCP between network namespaces."""
    nodes = Step("nodes", f"rds-nodes.sh tcp {NODES}")
    suite = conformance(f"*/{RDS}_one_thread", timeout_s=240)
    check_all(guest([nodes, *over_tcp("push-pull"), suite]), out_folder(tmp_path), SCHEMES)


@pytest.mark.usefixtures("everything")
def test_rds_over_tcp_does_so(guest: GuestRun, tmp_path: Path) -> None:
    """The contract between two namespaces, too."""
    nodes = Step("nodes", f"rds-nodes.sh tcp {NODES}")
    suite = conformance(
        f"*/{RDS}_two_processes",
        timeout_s=1200,
        more=f"{RDS}.bind=10.0.0.1 {RDS}.carrier=tcp",
        before="INCAST_CONFORMANCE_THERE='/run/netns/node2 bind=10.0.0.2' ip netns exec node1",
    )
    check_all(guest([nodes, *over_tcp(*SCHEMES), suite]), out_folder(tmp_path), SCHEMES)


@pytest.mark.usefixtures("everything")
def test_rds_over_rdma_does_so(guest: GuestRun, tmp_path: Path) -> None:
    settings = {f"transport.{RDS}.carrier": "rdma", f"transport.{RDS}.bind": ADDRESSES}
    steps = [Step("nodes", f"rds-nodes.sh rdma {NODES}")]
    steps += [
        build(scheme, {**BUILDING, **settings, "protocol.scheme": scheme, **more}) for scheme, more in SCHEMES.items()
    ]
    # The first connection between two addresses may take seconds.
    given = f"{RDS}.bind={ADDRESSES} {RDS}.carrier=rdma {RDS}.connect_timeout=20s"
    steps.append(conformance(f"*/{RDS}_one_thread", f"*/{RDS}_two_processes", timeout_s=1200, more=given))
    check_all(guest(steps), out_folder(tmp_path), SCHEMES)


@pytest.mark.usefixtures("everything")
def test_nodes_of_rds_are_killed_and_stopped(guest: GuestRun) -> None:
    """tests/process/rds_faults.py, in a guest; INCAST_GUEST_TIMES: how often each."""
    times = int(os.environ.get("INCAST_GUEST_TIMES", "1"))
    words = "-q -p no:cacheprovider --tb=short tests/process/rds_faults.py"
    run = f"env INCAST_GUEST_TIMES={times} INCAST_BIN_DIR='{BIN}' '{ROOT}/.venv/bin/python' -m pytest {words}"
    step = Step("faults", f"cd '{ROOT}' && rds-nodes.sh rdma {NODES} && exec {run}", 120 + 200 * times)
    ended = guest([step])[step.name]
    assert ended.status == 0, ended
