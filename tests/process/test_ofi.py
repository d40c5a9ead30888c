"""Event building over libfabric: its providers tcp and shm, every scheme; nodes that die, and nodes that stop.

INCAST_KILL_TIMES: how often each kind of node is killed and stopped, at different times.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from library_runs import MANY, SCHEMES, build_events, entry_of, kill_a_unit, refusal, stop_a_unit
from support import Start
from test_losses import BU, RU, pytest_generate_tests  # noqa: F401
from transports import OFI

PROVIDERS: dict[str, dict[str, Any]] = {
    "tcp": {"transport.name": OFI},
    "shm": {"transport.name": OFI, f"transport.{OFI}.provider": "shm"},
    "shm, gate": {"transport.name": OFI, f"transport.{OFI}.provider": "shm", f"transport.{OFI}.order": "gate"},
}


@pytest.fixture(scope="module", autouse=True)
def _needs_libfabric(engine: Path) -> None:
    found = entry_of(engine, OFI)
    if not found["available"]:
        pytest.skip(found["reason"])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_four_nodes_build_events(start: Start, provider: str, scheme: str) -> None:
    build_events(start, PROVIDERS[provider], scheme)


def test_files_of_killed_processes_with_the_same_numbers_do_no_harm(start: Start) -> None:
    """A process that is killed leaves its file in /dev/shm, and numbers of processes come again."""
    last = int(Path("/proc/sys/kernel/ns_last_pid").read_text())
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    left = [Path(f"/dev/shm/{(last + more) % most}:{os.getuid()}:0") for more in range(3000)]
    left = [each for each in left if not each.exists()]
    try:
        for each in left:
            each.write_bytes(bytes(4096))
        build_events(start, PROVIDERS["shm"], "push")
    finally:
        for each in left:
            each.unlink(missing_ok=True)


# Each provider once; all of them with every kind of node when it is done often.
KILLED = [("tcp", BU), ("shm", RU)] if not MANY else [(name, node) for name in PROVIDERS for node in (BU, RU)]


@pytest.mark.parametrize(("provider", "node"), KILLED)
def test_a_killed_unit_is_lost_and_others_go_on(start: Start, provider: str, node: int, attempt: int) -> None:
    kill_a_unit(
        start, PROVIDERS[provider], node, f"{provider} {node} {attempt}", shares_locks=provider.startswith("shm")
    )


@pytest.mark.skipif(not MANY, reason="ten seconds each: with INCAST_KILL_TIMES")
@pytest.mark.parametrize("node", [BU, RU])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stopped_unit_comes_back(start: Start, provider: str, node: int, attempt: int) -> None:
    stop_a_unit(
        start, PROVIDERS[provider], node, f"{provider} {node} {attempt}", shares_locks=provider.startswith("shm")
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"provider": "nonsense"}, ["transport.ofi.provider = 'nonsense'", "libfabric1", "tcp"]),
        ({"provider": "psm2"}, ["provider psm2", "fi_info -p psm2"]),
        ({"bind": "127.0.0.1,elsewhere"}, ["'elsewhere' is no address"]),
        ({"provider": "shm", "endpoint": "msg"}, ["provider shm"]),
    ],
)
def test_what_cannot_be_is_one_line(engine: Path, tmp_path: Path, settings: dict[str, str], words: list[str]) -> None:
    line = refusal(engine, tmp_path, OFI, settings)
    for word in words:
        assert word in line
