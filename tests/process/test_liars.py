"""A node that knows the token and lies: nobody honest is dropped, and no byte of another is committed (EB-T8)."""

import itertools
import random
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from liar import COMMIT_REQUEST, GRANT, LATE, PEER_LOST, WRITE, Liar, as_frame
from support import Run, Start, check_accounting, wait_until
from transports import SOCKETS

TOKEN = "0123456789abcdef0123456789abcdef"
NODES = 4
LIAR = NODES - 1
HONEST = range(LIAR)
EM = 0
SETTINGS = {
    "transport.name": SOCKETS,
    "run.nodes": NODES,
    "run.warm_up": "0s",
    "run.duration": "2s",
    "run.sample_interval": "100ms",
    "run.drain_deadline": "30s",
    "source.trigger_rate": "2kHz",
    "protocol.mfp_size": "16KiB",
    "protocol.detection_deadline": "20s",
    "protocol.late_after": "10s",
    "protocol.heartbeat": "50ms",
    "sink.kind": "verify",
}


@pytest.fixture
def lying(start: Start, engine: Path, tmp_path: Path) -> Iterator[Any]:
    """A run, and the liar in it."""
    liars: list[Liar] = []

    def begin(**settings: Any) -> tuple[Run, Liar]:
        run = start({**SETTINGS, **settings}, "--spawn", str(NODES - 1), token=TOKEN)
        address = run.wait_for(lambda report: report["type"] == "listening", "address")["address"]
        liars.append(Liar(engine, address, TOKEN, LIAR, tmp_path / "liar"))
        return run, liars[-1]

    yield begin
    for liar in liars:
        liar.close()


def dropped(run: Run) -> list[int]:
    """Nodes that left the view before the last commit, by the event manager's ledger (docs/running.md)."""
    ledger = (run.output / "ledger.bin").read_bytes()
    (count,) = struct.unpack_from("<Q", ledger, 8)
    records = list(struct.iter_unpack("<QIIIHBBQ", ledger[4096 : 4096 + 32 * count]))
    while records and records[-1][5] == 2:
        records.pop()  # at the end of the run each goes when it is done
    return [node for _, node, _, change, _, kind, _, _ in records if kind == 2 and change != 1]


def check_nobody_honest_is_harmed(run: Run) -> dict[str, Any]:
    result: dict[str, Any] = run.result()
    assert not [node for node in dropped(run) if node != LIAR], run.story()
    assert result["events"] > 0
    check_accounting(result)
    return result


def test_nothing_comes_of_one_that_says_no_more_than_the_truth(lying: Any) -> None:
    """So what comes of the others comes of their lies."""
    run, _ = lying()
    run.wait_for_phase("measuring")
    assert run.finish() == 0, run.story()
    result = check_nobody_honest_is_harmed(run)
    assert (result["status"], result["incomplete_events"], dropped(run)) == ("complete", 0, [])
    assert not [node for node in result["nodes"] if node["totals"]["bad_messages"]]


def test_what_a_builder_calls_late_too_early_costs_itself_its_place(lying: Any) -> None:
    run, liar = lying()
    told = itertools.count()

    def late(attempt: bytes) -> None:
        next(told)
        liar.lines[EM].say(LATE, attempt, tuple(struct.pack("<I", node) for node in HONEST))

    liar.told = late
    run.wait_for_phase("measuring")
    run.finish()
    result = check_nobody_honest_is_harmed(run)
    assert next(told) > 10
    assert result["nodes"][EM]["totals"]["bad_messages"] >= 5
    assert LIAR in dropped(run)
    named = f"node {LIAR} (RU+BU) dropped by the event manager: it made claims that are not true"
    assert any(named in line for line in run.notices), run.story()


def test_a_complaint_about_others_costs_them_nothing(lying: Any) -> None:
    run, liar = lying()
    run.wait_for_phase("measuring")
    for node in HONEST:
        for _ in range(100):
            liar.lines[EM].say(PEER_LOST, b"", (struct.pack("<II", node, 1),))
    run.finish()
    result = check_nobody_honest_is_harmed(run)
    assert result["status"] == "complete"
    assert not dropped(run)


def test_grants_far_ahead_stall_nothing(lying: Any) -> None:
    run, liar = lying(**{"protocol.assignment": "source-credits"})
    run.wait_for_phase("measuring")
    grants = tuple(struct.pack("<IHH", 2_000_000_000, slot, 0) for slot in range(100))
    for node in HONEST:
        liar.lines[node].say(GRANT, b"", grants)
    assert run.finish() == 0, run.story()
    result = check_nobody_honest_is_harmed(run)
    assert result["status"] == "complete"
    assert result["accounting"]["reassignments"] == 0
    assert sum(node["totals"]["bad_messages"] for node in result["nodes"]) >= len(HONEST), "they are counted"


def test_what_is_damaged_on_the_way_is_flagged(lying: Any) -> None:
    run, liar = lying(**{"protocol.checksum": "full", "sink.kind": "null", "run.fail_above_incomplete": 1})
    run.wait_for_phase("measuring")
    wait_until(lambda: all(node in liar.lines and liar.lines[node].write for node in HONEST), "the liar's first writes")
    for node in HONEST:
        liar.lines[node].damages = True
    wait_until(lambda: all(liar.lines[node].damaged > 3 for node in HONEST), "damaged writes")
    assert run.finish() == 0, run.story()
    result = check_nobody_honest_is_harmed(run)
    assert result["status"] == "complete"
    assert all(result["nodes"][node]["totals"]["damaged_mfps"] > 3 for node in HONEST)
    assert result["nodes"][LIAR]["totals"]["damaged_mfps"] == 0
    assert result["incomplete_events"] > 0


def test_what_a_builder_keeps_for_itself_is_built_by_others(lying: Any) -> None:
    """It finishes nothing, and says so at the deadline: it could be true that the honest ones do not deliver."""
    run, liar = lying(**{"protocol.late_after": "1s", "protocol.credits": 4})
    late: list[threading.Timer] = []

    def keep(attempt: bytes) -> None:
        liar.lines[EM].withheld = (COMMIT_REQUEST, LATE)
        said = [LATE, attempt, tuple(struct.pack("<I", node) for node in HONEST)]
        late.append(threading.Timer(1.0, liar.lines[EM].say, said))
        late[-1].daemon = True
        late[-1].start()

    liar.told = keep
    run.wait_for_phase("measuring")
    run.finish()
    for timer in late:
        timer.cancel()
    result = check_nobody_honest_is_harmed(run)
    assert late
    assert result["accounting"]["reassignments"] > 0


def test_writes_where_parts_of_others_lie_end_the_connection(lying: Any) -> None:
    run, liar = lying()
    rng = random.Random(1)
    run.wait_for_phase("measuring")
    wait_until(lambda: all(liar.lines[node].write for node in HONEST), "a true write to each of them")
    for node in HONEST:
        place = liar.lines[node].write
        assert place is not None
        generation, region, offset = place
        for _ in range(40):
            liar.lines[node].false(WRITE, b"LIAR" * 16, generation, region, 64 + rng.randrange(max(1, offset)))
    run.finish()
    result = check_nobody_honest_is_harmed(run)
    assert result["bounds"] == "strided"
    assert LIAR in dropped(run)


def test_addresses_that_are_none_change_nothing(lying: Any) -> None:
    """Of a node that has joined already, and of incarnations that are not there."""
    run, liar = lying()
    rng = random.Random(1)
    run.wait_for_phase("measuring")
    for incarnation in (1, 2, 3):
        address = {"type": "address", "incarnation": incarnation, "address": rng.randbytes(40).hex()}
        liar.tell(as_frame({**address, "metrics": "169.254.169.254:80"}))
    run.finish()
    result = check_nobody_honest_is_harmed(run)
    assert result["nodes"][LIAR]["losses"] <= 1
