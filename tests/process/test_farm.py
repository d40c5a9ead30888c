"""The farm over the network (docs/farm.md): every event reaches a farm node, whatever happens to the others.

INCAST_FARM_TIMES says how often farm nodes are killed, stopped and joined (50 for the acceptance; 3 here).
"""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from consumer_support import RUN, SETTINGS, check_counts
from farm_support import Farm, StartFarm, Talking, farms
from incast.consumer import Consumer
from support import Run, Start, check_accounting, mep_check, wait_until
from transports import SHARED_MEMORY

TIMES = int(os.environ.get("INCAST_FARM_TIMES", "3"))
BUILDERS = 4
WHOLE = {"wrong": 0, "overtaken": 0}


@pytest.fixture
def farm(engine: Path, name: str, tmp_path: Path) -> Iterator[StartFarm]:
    with farms(engine, name, tmp_path) as begin:
        yield begin


@pytest.fixture
def run(start: Start, name: str) -> Run:
    """Builder units that wait for consumers."""
    more = {"run.nodes": BUILDERS, "transport.name": SHARED_MEMORY, "sink.name": name, "sink.window": 16}
    return start({**SETTINGS, **more})


def end(run: Run) -> dict[str, Any]:
    """Ctrl-C: what was admitted is still built, and taken."""
    run.process.send_signal(signal.SIGINT)
    assert run.finish(90) == 0, run.story()
    result = run.result()
    check_accounting(result)
    check_counts(result)
    assert result["consumers"]["done_meps"] == result["accounting"]["meps_committed"]
    return result


def notes_of(farm: Farm) -> tuple[list[int], list[int]]:
    """MEPs written down for the first time, and repeats."""
    first: list[int] = []
    repeats: list[int] = []
    for notes in farm.notes:
        data = notes.read_bytes() if notes.exists() else b""
        pairs = np.frombuffer(data[: len(data) // 16 * 16], dtype="<u8").reshape(-1, 2)
        first += pairs[pairs[:, 1] == 0, 0].tolist()
        repeats += pairs[pairs[:, 1] == 1, 0].tolist()
    return first, repeats


def check_all_came(farm: Farm, result: dict[str, Any], dispatched: dict[str, Any]) -> None:
    """At least once, and only with a mark more than once."""
    meps = result["accounting"]["meps_committed"]
    first, repeats = notes_of(farm)
    assert len(first) == len(set(first)), "given twice without a mark"
    assert set(first) | set(repeats) == set(range(meps))
    assert dispatched["taken_meps"] == dispatched["done_meps"] == meps
    assert dispatched["held_meps"] == 0
    assert dispatched["sent_meps"] == meps + dispatched["repeated_meps"]


def check_whole(*children: Talking) -> int:
    """They ended in order, and saw the bytes that were sent; how many MEPs."""
    summaries = [child.summary() for child in children]
    assert [{key: one[key] for key in WHOLE} for one in summaries] == [WHOLE] * len(children)
    assert {one["end"] for one in summaries} == {"ended"}
    return sum(one["events"] for one in summaries)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("dispatch", "a b", "tcp://127.0.0.1:0"), "incast dispatch: 'a b' is no name of consumers"),
        (("dispatch", "a", "tcp://127.0.0.1:0", "--timeout", "100ms"), "incast dispatch: no builder unit of this host"),
        (("dispatch", "a", "tcp://192.0.2.1:0"), "incast dispatch: tcp://192.0.2.1:0: "),
        (("consume", "nonsense"), "incast consume: 'nonsense': allowed: shm, tcp, udp, verbs, rio"),
        (("consume", "tcp://127.0.0.1:9", "--silence", "1s"), "incast consume: --silence 1s: allowed: 2s or more"),
        (("consume", "tcp://127.0.0.1:9", "--timeout", "x"), "incast consume: --timeout x: allowed: a time"),
        (("consume", "tcp://127.0.0.1:9", "--timeout", "1s"), "incast consume: tcp://127.0.0.1:9: no dispatcher for"),
        (("consume", "tcp://127.0.0.1:9", "--secret", "/dev/null"), "incast consume: --secret /dev/null: allowed: a"),
    ],
)
def test_what_cannot_be_is_one_line(engine: Path, words: tuple[str, ...], line: str) -> None:
    done = subprocess.run(
        [engine.with_name("incast-farm"), *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1


def test_who_has_no_secret_is_not_let_in(run: Run, farm: StartFarm, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("5ec7e7\n")
    made = farm("tcp", "--secret", str(secret))
    stranger = made.begin(made.program, "consume", made.address, "--drop", "--timeout", "2s")
    friend = made.node("--drop", "--secret", str(secret))
    stranger.summary(1)
    result = end(run)
    assert friend.summary()["done_meps"] == result["accounting"]["meps_committed"]
    assert made.dispatcher.summary()["joined_nodes"] == 1


@pytest.mark.parametrize(("way", "nodes"), [("tcp", 6), ("shm", 3), ("udp", 3), ("rio", 3)])
def test_every_event_reaches_one_farm_node(run: Run, farm: StartFarm, way: str, nodes: int) -> None:
    made = farm(way)
    pairs = [made.node_with_child() for _ in range(nodes)]
    result = end(run)
    dispatched = made.dispatcher.summary()
    told = [node.summary() for node, _ in pairs]
    meps = result["accounting"]["meps_committed"]
    first, repeats = notes_of(made)
    assert sorted(first) == list(range(meps))
    assert repeats == []
    assert check_whole(*(child for _, child in pairs)) == meps
    assert sum(one["done_meps"] for one in told) == dispatched["done_meps"] == dispatched["sent_meps"] == meps
    assert [dispatched[key] for key in ("repeated_meps", "refused_meps", "lost_nodes")] == [0, 0, 0]
    assert result["consumers"]["attached"] == BUILDERS, "the dispatcher, of each"
    assert min(one["meps"] for one in told) > 0


def test_verdicts_come_back_and_are_counted(run: Run, farm: StartFarm) -> None:
    made = farm()
    node = made.node()
    accepted = rejected = plain = 0
    with Consumer(made.farm, made.number_of(node), timeout=60) as consumer:
        for number in range(200):
            event = consumer.next(60)
            assert event is not None
            if number % 4 == 3:
                plain += 1
                assert event.release()
                continue
            keep = number % (event.n_events + 1)
            accepted += keep
            rejected += event.n_events - keep
            assert event.judge(keep)
    run.process.send_signal(signal.SIGINT)
    child = made.child(node)  # takes the rest
    assert run.finish(90) == 0, run.story()
    dispatched, result = made.dispatcher.summary(), run.result()
    check_whole(child)
    assert (dispatched["accepted_events"], dispatched["rejected_events"]) == (accepted, rejected)
    assert dispatched["judged_meps"] == 200 - plain
    consumers = result["consumers"]
    assert (consumers["accepted_events"], consumers["rejected_events"]) == (accepted, rejected)
    assert consumers["judged_meps"] == 200 - plain


@pytest.mark.parametrize("way", ["tcp", "shm", "rio"])
def test_killed_farm_nodes_cost_nothing(run: Run, farm: StartFarm, way: str) -> None:
    made = farm(way)
    steady = [made.node_with_child() for _ in range(2)]
    for number in range(TIMES):
        node, _ = made.node_with_child(20)
        time.sleep(random.Random(number).uniform(0.0, 0.1))  # house: allow sleep: the stimulus
        node.kill()
    result = end(run)
    dispatched = made.dispatcher.summary()
    check_all_came(made, result, dispatched)
    check_whole(*(child for _, child in steady))
    assert dispatched["lost_nodes"] == TIMES
    assert dispatched["joined_nodes"] == TIMES + 2
    assert dispatched["repeated_meps"] > 0


def test_farm_nodes_that_leave_in_order_repeat_nothing(run: Run, farm: StartFarm) -> None:
    made = farm()
    steady = [made.node_with_child() for _ in range(2)]
    gone = []
    for _ in range(TIMES):
        node, child = made.node_with_child(5)
        node.process.send_signal(signal.SIGINT)
        gone.append(child)
        assert node.summary()["refused_meps"] == 0
    result = end(run)
    dispatched = made.dispatcher.summary()
    check_all_came(made, result, dispatched)
    check_whole(*(child for _, child in steady), *gone)
    assert (dispatched["left_nodes"], dispatched["lost_nodes"], dispatched["repeated_meps"]) == (TIMES, 0, 0)
    assert notes_of(made)[1] == []


def test_a_stopped_farm_node_holds_up_nobody_for_long(run: Run, farm: StartFarm) -> None:
    made = farm("tcp", "--silence", "2s")
    steady = [made.node_with_child() for _ in range(2)]
    victim, child = made.node_with_child(1)
    for number in range(TIMES):
        victim.stop()
        made.wait_for_lost(number + 1)
        victim.resume()
        made.wait_for_joined(number + 4)
    result = end(run)
    dispatched = made.dispatcher.summary()
    check_all_came(made, result, dispatched)
    check_whole(child, *(each for _, each in steady))
    assert dispatched["lost_nodes"] == TIMES
    assert dispatched["repeated_meps"] > 0


def manifest(folder: Path, node: int) -> list[dict[str, Any]]:
    """The MEPs that a farm node has written for good."""
    files = folder.glob(f"manifest-{node}-*.jsonl")
    text = "".join(file.read_text() for file in files)
    lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return [line for line in lines if "mep" in line]


def test_farm_nodes_write_files(run: Run, farm: StartFarm, tmp_path: Path) -> None:
    """What is acknowledged is in a file for good, whoever is killed."""
    made = farm()
    folder = tmp_path / "built"
    nodes = [made.node("--files", str(folder)) for _ in range(3)]
    for node in nodes:
        number = made.number_of(node)
        wait_until(lambda number=number: manifest(folder, number) != [], f"events of farm node {number}", 60)
    nodes[0].kill()
    result = end(run)
    dispatched = made.dispatcher.summary()
    for node in nodes[1:]:
        assert node.summary()["done_meps"] > 0
    written = [line for number in range(1, 4) for line in manifest(folder, number)]
    first = [line["mep"] for line in written if not line["redelivered"]]
    assert len(first) == len(set(first)), "written twice without a mark"
    assert {line["mep"] for line in written} == set(range(result["accounting"]["meps_committed"]))
    assert dispatched["lost_nodes"] == 1
    checked = mep_check(folder)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_shared_folder_has_each_event_once_whoever_is_killed(run: Run, farm: StartFarm, tmp_path: Path) -> None:
    """A MEP has one file, which is whole, though some came to two farm nodes; what is there already stays as it is."""
    made = farm()
    folder = tmp_path / "once"
    folder.mkdir()
    there = folder / f"{RUN}-{3:012}.mep"
    there.write_bytes(b"of another one")
    words = ("--files", str(folder), "--once")

    def files() -> list[Path]:
        return sorted(folder.glob("[!.]*.mep"))

    steady = made.node(*words)
    for number in range(TIMES):
        node = made.node(*words)
        made.wait_for_joined(number + 2)
        seen = len(files())
        wait_until(lambda seen=seen: len(files()) > seen + 20, "further events", 60)
        node.kill()
    result = end(run)
    dispatched = made.dispatcher.summary()
    summary = steady.summary()
    assert dispatched["lost_nodes"] == TIMES
    assert there.read_bytes() == b"of another one"
    assert summary["already_meps"] >= 1
    names = [file.name for file in files()]
    assert names == [f"{RUN}-{mep:012}.mep" for mep in range(result["accounting"]["meps_committed"])]
    there.unlink()
    checked = mep_check(*files()[:: max(1, len(names) // 200)])
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_farm_node_feeds_a_command(run: Run, farm: StartFarm, tmp_path: Path) -> None:
    made = farm()
    node = made.node("--command", f"cat >{tmp_path}/out")
    wait_until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").stat().st_size > 0, "events", 60)
    result = end(run)
    assert made.dispatcher.summary()["done_meps"] == result["accounting"]["meps_committed"]
    assert node.summary()["done_meps"] == result["accounting"]["meps_committed"]
    assert (tmp_path / "out").stat().st_size > result["accounting"]["meps_committed"] * BUILDERS * 1024


def test_what_a_killed_process_had_goes_to_another_farm_node(run: Run, farm: StartFarm) -> None:
    made = farm()
    _, steady = made.node_with_child()
    node = made.node()
    for _ in range(TIMES):
        child = made.child(node, 50)
        child.said("first")
        child.kill()
    result = end(run)
    dispatched = made.dispatcher.summary()
    meps = result["accounting"]["meps_committed"]
    first, repeats = notes_of(made)
    assert len(first) == len(set(first)), "given twice without a mark"
    assert set(first) | set(repeats) == set(range(meps))
    assert dispatched["refused_meps"] > 0
    assert dispatched["lost_nodes"] == 0
    check_whole(steady)
