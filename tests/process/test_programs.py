"""Programs that hand fragments to readout units (docs/source.md): in C and in Python, killed, stopped, lying, back.

What was built is counted by the MEP files, and what was sent by the programs, independently of the engine.
"""

from __future__ import annotations

import mmap
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from boards_support import LATE, built, total
from incast.source import NoReadoutError, Source, SourceError, TakenError
from support import ROOT, Run, Start, check_accounting, mep_check, wait_until
from transports import ONE_THREAD, SHARED_MEMORY, SIMULATED

CHILD = Path(__file__).parent / "source_child.py"
PACKING = 16


def programs_run(start: Start, folder: Path, name: str, shape: tuple[int, int], events: int, **more: Any) -> Run:
    """shape: readout units, and sources of each."""
    settings = {
        "run.nodes": shape[0],
        "source.kind": "program",
        "source.name": name,
        "source.sources_per_ru": shape[1],
        "source.patience": "100s",
        "sink.kind": "mep",
        "sink.path": folder / "built",
        "run.events": events,
        "protocol.packing": PACKING,
        "protocol.detection_deadline": "60s",
        "protocol.late_after": "60s",
        "run.fail_above_incomplete": 1,
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    return start(settings)


class Child:
    """A program that does one thing after the other (source_child.py)."""

    def __init__(self, name: str, source: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), name, str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        )
        self.source = source

    def tell(self, *words: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, *words: Any) -> str:
        self.tell(*words)
        return self.said()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


StartChild = Callable[[int], Child]


@pytest.fixture
def child(name: str) -> Iterator[StartChild]:
    children: list[Child] = []

    def begin(source: int) -> Child:
        made = Child(name, source)
        children.append(made)
        assert made.said() == "attached"
        return made

    yield begin
    for each in children:
        each.end()


def all_do(children: list[Child], *words: Any) -> list[str]:
    for each in children:
        each.tell(*words)
    return [each.said() for each in children]


def everything(states: dict[int, str], events: int) -> set[str]:
    assert sorted(states) == list(range(events))
    return set(states.values())


C_PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <incast/source.h>

int main(int argc, char** argv) {
    const uint16_t number = (uint16_t)atoi(argv[2]);
    const uint64_t events = strtoull(argv[3], NULL, 10);
    incast_source* source;
    int status = argc < 4 ? -100 : incast_source_attach(argv[1], number, 30000, &source);
    for (uint64_t event = 0; status >= 0 && event < events; ++event) {
        void* space;
        const uint64_t bytes = 10 + event % 500;
        while ((status = incast_source_space(source, bytes, -1, &space)) == 0) {}
        if (status < 0) break;
        for (uint64_t at = 0; at < bytes; ++at) ((uint8_t*)space)[at] = (uint8_t)(at + event + number);
        memcpy(space, &event, 8);
        memcpy((uint8_t*)space + 8, &number, 2);
        status = incast_source_commit(source, event, INCAST_SOURCE_OK_TYPE, INCAST_SOURCE_THERE, bytes);
    }
    if (status >= 0) status = incast_source_flush(source, 30000);
    if (status < 0) fprintf(stderr, "%s\n", incast_source_text(status));
    incast_source_free(source);
    return status == 1 ? 0 : 1;
}
"""


@pytest.fixture(scope="session")
def c_program(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As C, without a warning, against the shared library alone."""
    folder = tmp_path_factory.mktemp("c")
    (folder / "source.c").write_text(C_PROGRAM)
    library = engine.parent.parent / "lib"
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-o", str(folder / "source")]
    linked = [f"-L{library}", "-lincast_source", f"-Wl,-rpath,{library}"]
    subprocess.run([*command, f"-I{ROOT / 'include'}", str(folder / "source.c"), *linked], check=True, timeout=60)
    return folder / "source"


def test_programs_in_c_and_in_python(
    start: Start, child: StartChild, name: str, tmp_path: Path, c_program: Path
) -> None:
    events = 16005  # the last MEP is short
    run = programs_run(start, tmp_path, name, (2, 2), events, transport__name=SHARED_MEMORY)
    others = [child(source) for source in (1, 3)]
    in_c = [subprocess.Popen([c_program, name, str(source), str(events)]) for source in (0, 2)]
    assert all_do(others, "mfp", 32) == ["32", "32"]
    for each in others:
        each.tell("to", events)
    assert run.finish(120) == 0, run.story()
    assert [each.wait(30) for each in in_c] == [0, 0]
    check_accounting(run.result())
    found = built(tmp_path)
    assert sorted(found) == [0, 1, 2, 3]
    assert all(everything(states, events) == {"ok"} for states in found.values())
    assert total(run.result(), "board_events") == 4 * events
    assert sum(f"attach to {name}" in each for each in run.notices) == 2


def test_a_program_that_is_killed_comes_back_and_nothing_is_lost(
    start: Start, child: StartChild, name: str, tmp_path: Path
) -> None:
    events = 640
    run = programs_run(start, tmp_path, name, (1, 2), events, transport__name=ONE_THREAD)
    first, second = child(0), child(1)
    second.tell("to", events)
    for part in range(4):
        assert first.do("to", 100 + part * 100) == str(100 + part * 100)
        first.end()
        first = child(0)
        assert first.do("from", 100 + part * 100) == str(100 + part * 100)
    first.tell("to", events)
    assert run.finish(60) == 0, run.story()
    assert {source: everything(states, events) for source, states in built(tmp_path).items()} == {0: {"ok"}, 1: {"ok"}}
    told = " ".join(run.notices)
    assert told.count("the program of source 0 (process") == 4
    assert "died; later events are flagged late for it" in told
    assert told.count("source 0 has a program again") == 4


def test_what_a_program_does_not_send_is_flagged_and_building_goes_on(
    start: Start, child: StartChild, name: str, tmp_path: Path
) -> None:
    events = 480
    run = programs_run(start, tmp_path, name, (1, 3), events, transport__name=ONE_THREAD, source__patience="3s")
    programs = [child(source) for source in range(3)]
    steady, stopped, leaves = programs
    assert all_do(programs, "to", 160) == ["160"] * 3
    stopped.process.send_signal(signal.SIGSTOP)
    assert all_do([steady, leaves], "to", 320) == ["320"] * 2

    def is_made() -> bool:
        return int(steady.do("next")) == 320

    wait_until(is_made, "the MEPs without the one that is stopped")
    stopped.process.send_signal(signal.SIGCONT)
    assert stopped.do("next") == "320"
    assert leaves.do("close") == "320"
    # Nothing waits for it before it has sent something that is in time.
    assert stopped.do("to", events) == str(events)
    steady.tell("to", events)
    assert run.finish(60) == 0, run.story()
    check_accounting(run.result())
    found = built(tmp_path)
    assert everything(found[0], events) == {"ok"}
    assert {event for event, flag in found[1].items() if flag == LATE} == set(range(160, 320))
    assert {event for event, flag in found[2].items() if flag == LATE} == set(range(320, 480))
    assert total(run.result(), "board_lost_events") == 320


def test_ids_back_in_time_and_twice_change_nothing(start: Start, child: StartChild, name: str, tmp_path: Path) -> None:
    events = 320
    run = programs_run(start, tmp_path, name, (1, 2), events, transport__name=ONE_THREAD)
    first, second = child(0), child(1)
    assert first.do("to", 160) == "160"
    assert first.do("from", 150) == "150"
    assert first.do("to", 200) == "200"
    assert second.do("to", 200) == "200"
    assert first.do("from", 100) == "100"
    assert first.do("to", 108) == "108"
    assert first.do("from", 200) == "200"
    for each in (first, second):
        each.tell("to", events)
    assert run.finish(60) == 0, run.story()
    assert {source: everything(states, events) for source, states in built(tmp_path).items()} == {0: {"ok"}, 1: {"ok"}}
    counts = {board["source"]: board for board in run.result()["nodes"][0]["boards"]}
    assert counts[0]["duplicate_events"] + counts[0]["late_events"] + counts[0]["stray_events"] == 18
    assert counts[0]["taken_events"] == events


class Liar:
    """Attaches as src/source/layout.h says, and writes what it likes."""

    def __init__(self, name: str, source: int) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        self.socket.connect(f"\0incast-source/{name}/{source}")
        welcome, files, _, _ = socket.recv_fds(self.socket, 56, 1)
        self.answer = struct.unpack_from("<I", welcome, 12)[0]
        self.ring_bytes = struct.unpack_from("<Q", welcome, 32)[0]
        if files:
            self.memory = mmap.mmap(files[0], 192 + self.ring_bytes)
            os.close(files[0])

    def set(self, offset: int, value: int) -> None:
        struct.pack_into("<Q", self.memory, offset, value)

    def commit(self, value: int) -> None:
        self.set(64, value)

    def close(self) -> None:
        self.socket.close()

    def is_ejected(self) -> bool:
        return struct.unpack_from("<I", self.memory, 128 + 20)[0] == 2


def begin_lying(name: str, source: int) -> Liar:
    """Once the one before it has gone."""
    liar = Liar(name, source)
    while liar.answer != 0:
        liar.close()
        liar = Liar(name, source)
    return liar


def lies(liar: Liar, number: int) -> None:
    if number == 0:
        liar.commit(2**63)
    elif number == 1:
        liar.commit(100)  # no whole line
    elif number == 2:
        struct.pack_into("<QI", liar.memory, 192, 2**64 - 1, 64)
        liar.commit(64)
    elif number == 3:
        struct.pack_into("<QI", liar.memory, 192, 1000, 0)
        liar.commit(1024)
    elif number == 4:
        struct.pack_into("<QI", liar.memory, 192, 0, 0)
        liar.commit(64)  # says that the rest of the ring is not used
    else:
        struct.pack_into("<QI", liar.memory, 192, liar.ring_bytes, 64)
        liar.commit(liar.ring_bytes)


def test_liars_are_dropped_and_their_place_is_free(start: Start, child: StartChild, name: str, tmp_path: Path) -> None:
    events = 160
    run = programs_run(start, tmp_path, name, (1, 2), events, transport__name=ONE_THREAD)
    honest = child(1)
    assert honest.do("to", 64) == "64"
    for number in range(6):
        liar = begin_lying(name, 0)
        lies(liar, number)
        wait_until(liar.is_ejected, f"end of liar {number}")
        liar.close()
    # One that changes what it has handed over, over and over, is read as far as it is right at a time.
    changing = begin_lying(name, 0)
    with pytest.raises(TakenError):
        Source(name, 0, timeout=0.1)
    done = threading.Event()

    def change() -> None:
        at = 0
        packet = struct.pack("<HHIQHBBB3xHH", 0x40CE, 1, 36, 2**40, 0, 3, 0, 1, 8, 0) + bytes(8)
        while not done.is_set() and not changing.is_ejected():
            at += 1
            struct.pack_into("<QI", changing.memory, 192, 36 + at % 5, 64)
            changing.memory[256 : 256 + len(packet)] = packet
            changing.memory[256 + at % 36] = at % 256
            changing.commit(128)

    thread = threading.Thread(target=change)
    thread.start()
    assert honest.do("next") == "0"
    done.set()
    thread.join()
    changing.close()
    first = child(0)
    for each in (first, honest):
        each.tell("from", 0 if each is first else 64)
        each.tell("to", events)
    assert run.finish(60) == 0, run.story()
    assert {source: everything(states, events) for source, states in built(tmp_path).items()} == {0: {"ok"}, 1: {"ok"}}
    assert " ".join(run.notices).count("makes no sense: it is dropped") >= 6


def test_the_end_of_a_run_and_of_its_process(start: Start, child: StartChild, name: str, tmp_path: Path) -> None:
    run = programs_run(start, tmp_path, name, (1, 1), 32, transport__name=ONE_THREAD)
    first = child(0)
    first.tell("to", 10**6)
    assert run.finish(60) == 0, run.story()
    assert first.said().startswith("RunEndedError: source 0: the run has ended")
    again = programs_run(start, tmp_path / "again", name, (1, 1), 320, transport__name=ONE_THREAD)
    second = child(0)
    assert second.do("to", 16) == "16"
    again.process.kill()
    second.tell("to", 10**6)
    assert second.said().startswith("ReadoutLostError")
    with pytest.raises(NoReadoutError):
        Source(name, 0, timeout=0.05)
    with pytest.raises(SourceError, match="an argument that cannot be"):
        Source("a b", 0, timeout=0.05)


def test_wrong_settings_are_one_line(start: Start, name: str) -> None:
    common = {
        "source.kind": "program",
        "source.name": name,
        "sink.kind": "null",
        "protocol.packing": 4,
        "transport.name": ONE_THREAD,
    }
    for wrong, said in (
        ({"sink.kind": "verify"}, "sink.kind = verify"),
        ({"protocol.packing": "auto"}, "protocol.packing = auto"),
        ({"source.name": "a b"}, "source.name = a b"),
        ({"source.largest_mfp": 64, "protocol.packing": 100}, "source.largest_mfp"),
        ({"source.trigger_rate": "1kHz"}, "source.trigger_rate"),
        ({"source.first_id": 65534, "run.nodes": 2}, "source.first_id = 65534"),
        ({"transport.name": SIMULATED}, "programs are real"),
    ):
        run = start({**common, **wrong})
        assert run.finish() != 0
        assert any(said in line for line in [*run.errors, *run.notices]), (said, run.errors)


def test_two_runs_of_one_name_are_told_apart(start: Start, name: str, tmp_path: Path) -> None:
    first = programs_run(start, tmp_path, name, (1, 1), 32, transport__name=ONE_THREAD)
    first.wait_for(lambda report: "attaches to" in report.get("text", ""), "the first is there")
    second = programs_run(start, tmp_path / "second", name, (1, 1), 32, transport__name=ONE_THREAD)
    assert second.finish() != 0
    assert any(f"source.name = {name}: another run on this host" in line for line in [*second.errors, *second.notices])


def test_the_program_of_the_document(start: Start, engine: Path, name: str, tmp_path: Path) -> None:
    """docs/source.md: the command starts a run that the program in Python feeds."""
    text = (ROOT / "docs" / "source.md").read_text()
    command = re.search(r"```sh\n(incast run .*?)```", text, re.DOTALL)
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert command is not None
    assert program is not None
    words = shlex.split(command[1].replace("\\\n", "").removesuffix("\n").removesuffix("&"))
    environment = {**os.environ, "INCAST_NODE": str(engine), "PYTHONPATH": str(ROOT / "python")}
    running = subprocess.Popen(
        [sys.executable, "-m", "incast", *(word.replace("program:daq", f"program:{name}") for word in words[1:])],
        cwd=tmp_path,
        env=environment,
    )
    try:
        code = textwrap.dedent(program[1]).replace('"daq"', repr(name))
        own = [code.replace(", 0)", f", {number})") for number in (0, 1)]
        programs = [subprocess.Popen([sys.executable, "-c", each], env=environment) for each in own]
        assert [each.wait(60) for each in programs] == [0, 0]
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.wait()
    checked = mep_check(tmp_path / "built")
    assert checked.returncode == 0, checked.stdout
