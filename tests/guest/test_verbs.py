"""The transport verbs over soft RDMA devices: the contract, and event building of every scheme, verified in full."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from guest.steps import Step
from in_guest import (
    ADDRESSES,
    BIN,
    CONFORMANCE,
    EVENTS,
    HAS_VERBS,
    NODES,
    ROOT,
    TREE,
    VERBS,
    GuestRun,
    build,
    check_all,
    check_built,
    engine_words,
    out_folder,
    result_of,
)

pytestmark = pytest.mark.skipif(not HAS_VERBS, reason=f"{VERBS} is not built: its libraries are not there")

BUILDING: dict[str, Any] = {
    "transport.name": VERBS,
    "run.nodes": NODES,
    "run.events": EVENTS,
    "protocol.packing": 20,
    "protocol.mfp_size": "16KiB",
    "sink.kind": "verify",
    # An emulated processor may stand still for seconds while the host is busy.
    "protocol.detection_deadline": "60s",
    "protocol.late_after": "60s",
    f"transport.{VERBS}.ack_timeout": 20,
    f"transport.{VERBS}.ack_deadline": "60s",
    f"transport.{VERBS}.connect_timeout": "60s",
}
SCHEMES: dict[str, dict[str, Any]] = {
    "push": {},
    "pull": {},
    "pull-read": {},
    "push-pull": {"filter.accept": 0.7},
}
IN_ONE_GUEST = {f"transport.{VERBS}.bind": ADDRESSES}
BY_EXCHANGE = {f"transport.{VERBS}.connect": "exchange"}


# The first guest conducts and has two nodes; the other one brings two more as soon as it listens.
TWO_AND_TWO = """
export INCAST_TOKEN=0123456789abcdef
[ "$INCAST_GUEST_SIDE" = 2 ] || exec {conduct}
join() {{ until {join} 2>"$1"; do grep -q refused "$1" || {{ cat "$1"; exit 1; }}; done; }}
join /run/one & join /run/other & wait -n && wait -n
"""


def conformance(*cases: str, timeout_s: float, more: str = "") -> Step:
    """The suite, for cases as TEST/verbs_MODE; `more`: settings."""
    # One side may come long after the other where the host is busy.
    settings = f"{VERBS}.bind={ADDRESSES} {VERBS}.connect_timeout=45s {VERBS}.ack_timeout=18 {more}"
    words = f"--gtest_brief=1 --gtest_filter='{':'.join(cases)}'"
    command = f"exec env INCAST_CONFORMANCE_SETTINGS='{settings}' '{CONFORMANCE}' {words}"
    return Step("conformance", f"cd '{TREE}' && {command}", timeout_s)


def needs_processes() -> list[str]:
    """The tests that do nothing within one thread, by the list of expected outcomes."""
    rows = (
        line.split("|") for line in (TREE / "src" / "transport" / VERBS / "conformance.txt").read_text().splitlines()
    )
    return [row[0].strip() for row in rows if len(row) == 4 and "skip" in row[1] and "run" in row[3]]


def schemes(more: dict[str, Any]) -> list[Step]:
    return [
        build(scheme, {**BUILDING, **more, "protocol.scheme": scheme, **settings})
        for scheme, settings in SCHEMES.items()
    ]


def test_soft_roce_keeps_the_contract_and_builds_events(guest: GuestRun, tmp_path: Path) -> None:
    """Each clause once, and each scheme, once without rdma_cm: two processes that take turns need five times as long as
    one thread.
    """
    nodes = Step("nodes", f"rdma-nodes.sh rxe {NODES}")
    cases = [f"*/{VERBS}_one_thread", *(f"*.{test}/{VERBS}_two_processes" for test in needs_processes())]
    exchange = build("exchange", {**BUILDING, **IN_ONE_GUEST, **BY_EXCHANGE, "protocol.scheme": "pull-read"})
    results = guest([nodes, *schemes(IN_ONE_GUEST), exchange, conformance(*cases, timeout_s=240)])
    check_all(results, out_folder(tmp_path), SCHEMES)
    check_built(out_folder(tmp_path) / "exchange", results["exchange"])


@pytest.mark.usefixtures("everything")
def test_soft_roce_does_so_without_rdma_cm(guest: GuestRun, tmp_path: Path) -> None:
    """Addresses of queue pairs go through TCP connections."""
    suite = conformance(
        f"*/{VERBS}_one_thread", f"*/{VERBS}_two_processes", timeout_s=1800, more=f"{VERBS}.connect=exchange"
    )
    nodes = Step("nodes", f"rdma-nodes.sh rxe {NODES}")
    results = guest([nodes, *schemes({**IN_ONE_GUEST, **BY_EXCHANGE}), suite])
    check_all(results, out_folder(tmp_path), SCHEMES)


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("mode", ["one_thread", "two_threads", "two_processes"])
def test_soft_roce_keeps_the_contract_in_every_way(guest: GuestRun, tmp_path: Path, mode: str) -> None:
    suite = conformance(f"*/{VERBS}*_{mode}", timeout_s=1800)
    results = guest([Step("nodes", f"rdma-nodes.sh rxe {NODES}"), suite])
    check_all(results, out_folder(tmp_path), SCHEMES)


@pytest.mark.usefixtures("everything")
def test_two_rails_build_events(guest: GuestRun, tmp_path: Path) -> None:
    """Four nodes with two of eight devices each, by rdma_cm and without it."""
    addresses = [f"10.0.0.{number}" for number in range(1, 2 * NODES + 1)]
    bind = ",".join("+".join(addresses[at : at + 2]) for at in range(0, len(addresses), 2))
    rails = {f"transport.{VERBS}.bind": bind}
    exchange = build("exchange", {**BUILDING, **rails, **BY_EXCHANGE, "protocol.scheme": "push"})
    results = guest([Step("nodes", f"rdma-nodes.sh rxe {2 * NODES}"), *schemes(rails), exchange])
    check_all(results, out_folder(tmp_path), SCHEMES)
    check_built(out_folder(tmp_path) / "exchange", results["exchange"])
    for scheme in (*SCHEMES, "exchange"):
        carried = {port["device"]: port["grown"] for port in result_of(out_folder(tmp_path) / scheme)["ports"]}
        assert set(carried) == {f"rxe{number}" for number in range(1, 2 * NODES + 1)}
        assert all(grown["tx_bytes"] > 0 and grown["rx_bytes"] > 0 for grown in carried.values()), carried


@pytest.mark.usefixtures("everything", "with_siw")
def test_soft_iwarp_does_so_as_well(guest: GuestRun, tmp_path: Path) -> None:
    """A device that cannot notify by a write."""
    nodes = Step("nodes", f"rdma-nodes.sh siw {NODES}")
    suite = conformance(f"*/{VERBS}_one_thread", f"*/{VERBS}_two_processes", timeout_s=1800)
    results = guest([nodes, *schemes(IN_ONE_GUEST), suite])
    check_all(results, out_folder(tmp_path), SCHEMES)


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("kind", ["rxe", "siw"])
def test_two_guests_build_events(request: pytest.FixtureRequest, guest: GuestRun, tmp_path: Path, kind: str) -> None:
    """Two nodes in each. The first guest conducts the run."""
    if kind == "siw":
        request.getfixturevalue("with_siw")
    wanted = [Step("nodes", f"rdma-pair.sh {kind}", 240)]
    for number, (scheme, more) in enumerate(SCHEMES.items()):
        address = f"10.0.1.1:{7400 + number}"
        settings = {**BUILDING, "protocol.scheme": scheme, **more}
        conduct = engine_words(settings, "--output", f"/out/{scheme}", "--spawn", "2", "--listen", address)
        wanted.append(Step(scheme, TWO_AND_TWO.format(conduct=conduct, join=engine_words({}, "--join", address)), 240))
    peer = f"{os.getpid()}-{kind}"
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: guest(wanted, peer=peer), range(2)))
    first, second = sorted(both, key=lambda results: results["nodes"].output)
    for name, result in second.items():
        assert result.status == 0, (name, result, first[name])
    folder = next(path.parent for path in tmp_path.glob("out*/push/result.json"))
    check_all(first, folder.parent, SCHEMES)


def pytest_inside(guest: GuestRun, file: str, environment: str, timeout_s: float, devices: int = NODES) -> None:
    """Tests of tests/process, in a guest with so many devices."""
    python = ROOT / ".venv" / "bin" / "python"
    words = f"-q -rP -p no:cacheprovider --tb=short --durations=16 tests/process/{file}"
    more = f"{environment} INCAST_BIN_DIR='{BIN}'"
    script = f"cd '{ROOT}' && rdma-nodes.sh rxe {devices} && exec env {more} '{python}' -m pytest {words}"
    results = guest([Step(file, script, timeout_s)])
    print(results[file])
    assert results[file].status == 0, results[file]


@pytest.mark.usefixtures("everything")
def test_faults_are_survived(guest: GuestRun) -> None:
    """tests/process/verbs_faults.py, in a guest; INCAST_GUEST_TIMES: how often each."""
    times = int(os.environ.get("INCAST_GUEST_TIMES", "1"))
    pytest_inside(guest, "verbs_faults.py", f"INCAST_GUEST_TIMES={times}", 120 + 600 * times, 2 * NODES)


@pytest.mark.usefixtures("everything")
def test_one_device_is_tested_by_its_name(guest: GuestRun) -> None:
    """What `./test --device` runs on hardware."""
    pytest_inside(guest, "verbs_device.py", "INCAST_RDMA_DEVICE=rxe1", 1800)
