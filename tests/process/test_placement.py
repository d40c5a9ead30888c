"""Nodes stay on one core each while nobody else wants the cores (run.pin)."""

import os
import subprocess
import sys
from collections import Counter
from typing import Any

from support import Run, Start, wait_until
from transports import SHARED_MEMORY, SOCKETS

# At most two cores, however many there are: the number of nodes follows.
CORES = set(sorted(os.sched_getaffinity(0))[:2])
ON_THEM = ("taskset", "--cpu-list", ",".join(map(str, sorted(CORES))))
SETTINGS: dict[str, Any] = {"transport.name": SHARED_MEMORY, "protocol.mfp_size": "4KiB"}


def wait_for_notice(run: Run, text: str) -> None:
    run.wait_for(lambda report: report["type"] == "notice" and text in report["text"], text)


def cores_of(run: Run) -> list[set[int]]:
    return [os.sched_getaffinity(pid) for pid in run.all_node_pids()]


def test_nodes_are_let_go_when_others_want_the_cores(start: Start) -> None:
    run = start({**SETTINGS, "run.nodes": 2 * len(CORES), "run.duration": "10min"}, prefix=ON_THEM)
    wait_for_notice(run, "the nodes stay on one core each")
    hogs = [subprocess.Popen([*ON_THEM, sys.executable, "-c", "while True: pass"]) for _ in CORES]
    try:
        wait_for_notice(run, "other programs want the cores")
        # The coordinator says so after it has done so.
        assert cores_of(run) == [CORES] * (2 * len(CORES))
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def test_as_many_nodes_on_each_core(start: Start) -> None:
    # From the notice on for half a second at least; a machine that is busy may take longer to look, so several starts.
    def pinned() -> bool:
        run = start({**SETTINGS, "run.nodes": 2 * len(CORES), "run.duration": "10min"}, prefix=ON_THEM)
        wait_for_notice(run, "the nodes stay on one core each")
        found = cores_of(run)
        run.abandon()
        return Counter(map(frozenset, found)) == {frozenset({core}): 2 for core in CORES}

    wait_until(pinned, "a run whose nodes are spread evenly", 60)


def test_the_kernel_places_nodes_if_asked(start: Start) -> None:
    run = start({**SETTINGS, "run.nodes": 2 * len(CORES), "run.pin": "never", "run.duration": "1s"}, prefix=ON_THEM)
    run.wait_for_phase("measuring")
    assert all(cores == CORES for cores in cores_of(run))
    assert run.finish() == 0, run.story()
    assert not [line for line in run.notices if "core" in line]


def test_the_result_says_where_each_node_is_and_why(start: Start) -> None:
    """What is chosen is tested on planted hosts (machine_test): of this one it is known only that something is said."""
    for pin, why in {"auto": "", "network": "", "never": "run.pin = never"}.items():
        run = start({"transport.name": SOCKETS, "run.nodes": 2, "run.pin": pin, "run.events": 100})
        assert run.finish() == 0, run.story()
        places = [node["place"] for node in run.result()["nodes"]]
        assert all(place["seat"] and place["seat"] == (why or place["seat"]) for place in places)
        assert all(("cores" in place) == place["seat"].startswith("beside ") for place in places)
