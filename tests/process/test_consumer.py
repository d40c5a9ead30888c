"""Processes that take events from builder units in place: killed, stopped, slow, with both policies."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from consumer_support import RUN, SETTINGS, check_counts
from incast.consumer import (
    BuilderEndedError,
    BuilderLostError,
    Consumer,
    ConsumerError,
    Consumers,
    NoBuilderError,
    builders,
)
from support import ROOT, Run, Start, check_accounting, process_state, wait_until
from transports import ONE_THREAD, SHARED_MEMORY, SIMULATED, SOCKETS

CHILD = Path(__file__).parent / "consumer_child.py"
KILLS = int(os.environ.get("INCAST_KILL_TIMES", "4"))


class Child:
    """One consumer process."""

    def __init__(self, name: str, node: int, notes: Path, slow_ms: float = 0) -> None:
        command = [sys.executable, str(CHILD), name, str(node), str(RUN), str(notes)]
        self.notes = notes
        self.process = subprocess.Popen(
            [*command, str(slow_ms)] if slow_ms else command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def wait_for(self, word: str) -> None:
        """`attached`, or `first`: it took an event."""

        def said() -> bool:
            assert self.process.poll() is None or word in self.lines, f"the consumer ended: {self.errors()}"
            return word in self.lines

        wait_until(said, f"consumer says '{word}'", 60)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: process_state(self.process.pid) == "T", "stopped consumer")

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)

    def summary(self) -> dict[str, Any]:
        """What it says at its end."""
        assert self.process.wait(60) == 0, self.errors()
        self._reader.join(20)
        told: dict[str, Any] = json.loads(self.lines[-1])
        return told

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def abandon(self) -> None:
        self.process.kill()
        self.process.wait(20)
        self._reader.join(20)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()


Attach = Callable[..., Child]


@pytest.fixture
def attach(name: str, tmp_path: Path) -> Iterator[Attach]:
    children: list[Child] = []

    def begin(node: int, slow_ms: float = 0) -> Child:
        children.append(Child(name, node, tmp_path / f"notes{len(children)}", slow_ms))
        return children[-1]

    yield begin
    for child in children:
        child.abandon()
    # Addresses go with their processes, and nothing is in a file system.
    listening = Path("/proc/net/unix").read_text(errors="replace")  # other names are any bytes
    assert f"incast-consumer/{name}/" not in listening


def notes_of(children: list[Child]) -> tuple[list[int], list[int]]:
    """MEPs written down for the first time, and repeats."""
    first: list[int] = []
    repeats: list[int] = []
    for child in children:
        data = child.notes.read_bytes()
        pairs = np.frombuffer(data[: len(data) // 16 * 16], dtype="<u8").reshape(-1, 2)
        first += pairs[pairs[:, 1] == 0, 0].tolist()
        repeats += pairs[pairs[:, 1] == 1, 0].tolist()
    return first, repeats


def end(run: Run) -> dict[str, Any]:
    """Ctrl-C: what was admitted is still built, and taken."""
    run.process.send_signal(signal.SIGINT)
    assert run.finish(90) == 0, run.story()
    result = run.result()
    check_accounting(result)
    check_counts(result)
    return result


def open_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def events_so_far(run: Run) -> int:
    return int(run.wait_for(lambda report: report["type"] == "sample", "sample")["events"])


def wait_for_progress(run: Run) -> None:
    first = events_so_far(run)
    run.wait_for(lambda report: report["type"] == "sample" and report["events"] > first, "further events")


@pytest.mark.parametrize("transport", [SHARED_MEMORY, SOCKETS, ONE_THREAD])
def test_a_farm_gets_every_event_once(start: Start, attach: Attach, name: str, transport: str) -> None:
    run = start({**SETTINGS, "transport.name": transport, "sink.name": name})
    children = [attach(node) for node in (0, 0, 1, 1)]
    for child in children:
        child.wait_for("first")
    result = end(run)
    summaries = [child.summary() for child in children]
    meps = result["accounting"]["meps_committed"]
    first, repeats = notes_of(children)
    assert sorted(first) == list(range(meps))
    assert repeats == []
    assert {(one["wrong"], one["overtaken"], one["end"]) for one in summaries} == {(0, 0, "ended")}
    assert sum(one["events"] for one in summaries) == result["consumers"]["done_meps"] == meps
    assert result["consumers"]["attached"] == 4
    assert result["status"] == "interrupted"


def test_everybody_gets_every_event(start: Start, attach: Attach, name: str) -> None:
    settings = {**SETTINGS, "transport.name": SHARED_MEMORY, "sink.name": name, "sink.delivery": "all", "run.nodes": 1}
    run = start(settings)
    children = [attach(0), attach(0)]
    for child in children:
        child.wait_for("first")
    result = end(run)
    summaries = [child.summary() for child in children]
    assert {(one["wrong"], one["overtaken"], one["end"], one["missed"]) for one in summaries} == {(0, 0, "ended", 0)}
    meps = result["accounting"]["meps_committed"]
    assert result["consumers"]["done_meps"] == meps
    # Whoever came second got everything from then on: consecutive up to the last.
    for child in children:
        first, repeats = notes_of([child])
        assert repeats == []
        assert first == list(range(first[0], meps))


@pytest.mark.parametrize("transport", [SHARED_MEMORY, SOCKETS])
def test_killed_consumers_cost_nothing(start: Start, attach: Attach, name: str, transport: str) -> None:
    """Policy block: whatever a dead process had is handed to another, marked."""
    run = start({**SETTINGS, "transport.name": transport, "sink.name": name})
    steady = [attach(0), attach(1)]
    for child in steady:
        child.wait_for("first")
    nodes = run.all_node_pids()
    descriptors = {pid: open_descriptors(pid) for pid in nodes}
    victims = []
    for number in range(KILLS):
        victim = attach(number % 2)
        victims.append(victim)
        victim.wait_for("first")
        time.sleep(random.Random(f"{transport} {number}").uniform(0.0, 0.1))  # house: allow sleep: the stimulus
        victim.kill()
        wait_for_progress(run)
    for pid in nodes:
        wait_until(
            lambda pid=pid: open_descriptors(pid) <= descriptors[pid],
            "descriptors of dead consumers to be closed",
        )
        # The slots, the directory, the sources, the transport's own; per attached process queue and control.
        maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
        assert len([line for line in maps if "memfd:incast" in line]) < 24, maps
    result = end(run)
    summaries = [child.summary() for child in steady]
    assert {(one["wrong"], one["overtaken"], one["end"]) for one in summaries} == {(0, 0, "ended")}
    first, repeats = notes_of([*steady, *victims])
    assert set(first) | set(repeats) == set(range(result["accounting"]["meps_committed"]))
    assert len(first) == len(set(first)), "given twice without a mark"
    consumers = result["consumers"]
    assert consumers["attached"] == 2 + KILLS
    assert consumers["left"] == KILLS
    assert consumers["abandoned_meps"] == consumers["dropped_meps"] == consumers["held_meps"] == 0
    assert sum(one["repeated"] for one in summaries) <= consumers["repeated_meps"]


def test_killed_consumers_are_counted_if_events_may_be_dropped(start: Start, attach: Attach, name: str) -> None:
    run = start({**SETTINGS, "transport.name": SHARED_MEMORY, "sink.name": name, "sink.policy": "drop"})
    for number in range(KILLS):
        victim = attach(number % 2)
        victim.wait_for("first")
        time.sleep(random.Random(f"drop {number}").uniform(0.0, 0.1))  # house: allow sleep: the stimulus
        victim.kill()
        wait_for_progress(run)
    result = end(run)
    consumers = result["consumers"]
    assert consumers["left"] == KILLS
    assert consumers["dropped_meps"] > 0
    assert consumers["repeated_meps"] == consumers["held_meps"] == 0


@pytest.mark.parametrize("transport", [SHARED_MEMORY, SOCKETS])
def test_a_stopped_consumer_does_not_hold_up_a_builder_that_may_drop(
    start: Start, attach: Attach, name: str, transport: str
) -> None:
    settings = {**SETTINGS, "transport.name": transport, "sink.name": name, "sink.policy": "drop", "run.nodes": 1}
    run = start({**settings, "sink.delivery": "all"})
    stopped, other = attach(0), attach(0)
    for child in (stopped, other):
        child.wait_for("first")
    stopped.stop()
    for _ in range(5):
        wait_for_progress(run)
    stopped.resume()
    wait_for_progress(run)
    result = end(run)
    one, two = stopped.summary(), other.summary()
    assert one["missed"] > 0
    assert (one["wrong"], one["overtaken"], one["end"]) == (0, 0, "ended")
    assert (two["wrong"], two["overtaken"], two["end"]) == (0, 0, "ended")
    assert result["consumers"]["missed_meps"] >= one["missed"] + two["missed"]
    assert result["consumers"]["abandoned_meps"] == 0


@pytest.mark.parametrize("transport", [SHARED_MEMORY, SOCKETS])
def test_a_stopped_consumer_holds_up_a_builder_that_may_not_drop(
    start: Start, attach: Attach, name: str, transport: str
) -> None:
    run = start({**SETTINGS, "transport.name": transport, "sink.name": name, "run.nodes": 1})
    child = attach(0)
    child.wait_for("first")
    child.stop()
    seen = [-1, -2, -3]
    while len(set(seen[-3:])) > 1:  # three samples in a row without an event
        seen.append(events_so_far(run))
    child.resume()
    wait_for_progress(run)
    result = end(run)
    summary = child.summary()
    assert (summary["wrong"], summary["overtaken"], summary["end"]) == (0, 0, "ended")
    assert summary["events"] == result["accounting"]["meps_committed"] == result["consumers"]["done_meps"]


def test_a_slow_consumer_gets_what_it_can(start: Start, attach: Attach, name: str) -> None:
    run = start({**SETTINGS, "transport.name": SHARED_MEMORY, "sink.name": name, "sink.policy": "drop", "run.nodes": 1})
    child = attach(0, 20)
    child.wait_for("first")
    for _ in range(5):
        wait_for_progress(run)
    result = end(run)
    summary = child.summary()
    assert (summary["wrong"], summary["overtaken"], summary["end"]) == (0, 0, "ended")
    assert summary["events"] > 0
    assert result["consumers"]["dropped_meps"] > result["consumers"]["taken_meps"]


def test_patience_ends(start: Start, attach: Attach, name: str) -> None:
    """A process that sits on its events is ejected: they go to another, and it sees that they are no longer its own."""
    run = start(
        {**SETTINGS, "transport.name": SHARED_MEMORY, "sink.name": name, "sink.patience": "300ms", "run.nodes": 1}
    )
    stopped, other = attach(0), attach(0)
    for child in (stopped, other):
        child.wait_for("first")
    stopped.stop()
    for _ in range(10):
        wait_for_progress(run)
    stopped.resume()
    told = stopped.summary()
    assert told["end"] == "ejected"
    assert told["wrong"] == 0
    result = end(run)
    assert other.summary()["wrong"] == 0
    assert result["consumers"]["ejected"] == 1
    first, repeats = notes_of([stopped, other])
    assert set(first) | set(repeats) == set(range(result["accounting"]["meps_committed"]))


def test_a_killed_builder_unit_is_noticed(start: Start, attach: Attach, name: str) -> None:
    """Block: what was not given back is built again elsewhere."""
    run = start(
        {
            **SETTINGS,
            "transport.name": SHARED_MEMORY,
            "sink.name": name,
            "run.roles": "split",
            "run.nodes": 3,
            "run.builder_units": 2,
        }
    )
    children = [attach(1), attach(2)]
    for child in children:
        child.wait_for("first")
    os.kill(run.node_pid(2), signal.SIGKILL)
    assert children[1].summary()["end"] == "lost"
    run.wait_for(lambda report: report["type"] == "notice" and "lost" in report["text"], "loss")
    wait_for_progress(run)
    run.process.send_signal(signal.SIGINT)
    assert run.finish(90) == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert children[0].summary()["wrong"] == 0
    first, _ = notes_of(children)
    assert set(first) == set(range(result["accounting"]["meps_committed"]))


def test_one_process_takes_the_events_of_several_builder_units(start: Start, name: str) -> None:
    run = start({**SETTINGS, "transport.name": SHARED_MEMORY, "sink.name": name, "run.nodes": 3})
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    with Consumers(name, range(3), timeout=60) as consumers:
        for event in consumers:
            for source, mfp in event.mfps():
                assert mfp is not None
                assert int(event.sources[source]) == source
                assert len(mfp) > 0
            seen[event.node].append(event.mep)
            if sum(map(len, seen.values())) == 500:
                run.process.send_signal(signal.SIGINT)
        with pytest.raises(BuilderEndedError):
            consumers.next(0)
    assert run.finish(90) == 0, run.story()
    result = run.result()
    check_counts(result)
    assert all(seen.values()), "each builder unit had events"
    assert sorted(mep for meps in seen.values() for mep in meps) == list(range(result["accounting"]["meps_committed"]))


def test_the_death_of_one_builder_unit_is_told_of_several(start: Start, name: str) -> None:
    run = start(
        {
            **SETTINGS,
            "transport.name": SHARED_MEMORY,
            "sink.name": name,
            "run.roles": "split",
            "run.nodes": 3,
            "run.builder_units": 2,
        }
    )
    consumers = Consumers(name, [1, 2], timeout=60)
    for _ in range(20):
        event = consumers.next(60)
        assert event is not None
        event.release()
    os.kill(run.node_pid(2), signal.SIGKILL)
    with pytest.raises(BuilderLostError, match="node 2: "):
        for event in consumers:
            event.release()
    for _ in range(20):
        event = consumers.next(60)
        assert event is not None
        assert event.node == 1
        event.release()
    consumers.close()
    with pytest.raises(BuilderEndedError, match="all builder units"):
        consumers.next()


def test_one_run_per_name(start: Start, attach: Attach, name: str) -> None:
    first = start({**SETTINGS, "transport.name": ONE_THREAD, "sink.name": name})
    attach(0).wait_for("attached")
    second = start({**SETTINGS, "transport.name": ONE_THREAD, "sink.name": name})
    assert second.finish(30) != 0
    told = [*second.notices, *second.errors]
    assert any(f"sink.name = {name}: another run on this host" in line for line in told), told
    attach(1)
    end(first)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"sink.name": "a b"}, 'sink.name = "a b"'),
        ({"sink.window": 0}, "sink.window = 0: out of range; allowed: 1..256"),
        ({"sink.policy": "wait"}, "sink.policy = wait: no such choice; allowed: block | drop"),
        ({"protocol.self_traffic": "pointer"}, "protocol.self_traffic = pointer"),
        ({"transport.name": SIMULATED}, "sink consumer: this transport moves no payload"),
    ],
)
def test_what_cannot_be_is_said(start: Start, settings: dict[str, Any], line: str) -> None:
    run = start({**SETTINGS, "transport.name": ONE_THREAD, **settings})
    assert run.finish(30) != 0
    told = [*run.notices, *run.errors]
    assert any(line in each for each in told), told


def test_who_is_not_there_is_said(name: str) -> None:
    assert builders(name) == []
    with pytest.raises(NoBuilderError, match="no builder unit takes consumers under that name"):
        Consumer(name, timeout=0.05)
    with pytest.raises(ConsumerError, match="bad argument"):
        Consumer("a b", timeout=0.05)
    with pytest.raises(NoBuilderError):
        Consumers(name, timeout=0.05)


def test_header_is_c(tmp_path: Path) -> None:
    """The public header compiles as C."""
    source = tmp_path / "user.c"
    source.write_text(
        "#include <incast/consumer.h>\nint main(void) { return incast_consumer_attach(0, 0, 0, 0) > 0; }\n"
    )
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-c", "-o", str(tmp_path / "user.o")]
    subprocess.run([*command, f"-I{ROOT / 'include'}", str(source)], check=True, timeout=60)
