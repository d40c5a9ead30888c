"""Farm nodes and dispatchers that say what they like (docs/farm.md): the other side drops them, and goes on.

They speak through the C library of channels, so that what they say arrives; frames as in src/farm/book/frames.h.
"""

import ctypes
import errno
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from consumer_support import SETTINGS
from farm_support import StartFarm, farms
from support import Run, Start, wait_until
from transports import SHARED_MEMORY

MAGIC = 0x314D524146434E49
ALIVE, MEP = 1, 2
CREDIT, DONE, REFUSED = 2, 3, 4
NUMBERS = struct.pack("<HH", 0, 1)  # of the sources
HELLO = struct.pack("<QII48s", MAGIC, 1, 0, b"liar")
PATIENCE_MS = 20000


class Liar:
    """One end of a channel, whose library looks after it."""

    def __init__(self, library: ctypes.CDLL, hub: ctypes.c_void_p) -> None:
        self.library = library
        self.hub = hub
        self.channel = ctypes.c_void_p()

    def connect(self, address: str) -> None:
        made = self.library.incast_channel_connect(self.hub, address.encode(), None, ctypes.byref(self.channel))
        assert made == 0
        assert self.library.incast_channel_wait_open(self.channel, PATIENCE_MS) == 1

    def listen(self) -> str:
        listener = ctypes.c_void_p()
        where = b"tcp://127.0.0.1:0"
        assert self.library.incast_channel_listen(self.hub, where, None, ctypes.byref(listener)) == 0
        self.listener = listener
        found: bytes = self.library.incast_channel_listener_address(listener)
        return found.decode()

    def accept(self) -> None:
        found = self.library.incast_channel_accept(self.listener, PATIENCE_MS, ctypes.byref(self.channel))
        assert found == 0

    def say(self, data: bytes) -> None:
        wrote = self.library.incast_channel_write(self.channel, data, ctypes.c_size_t(len(data)), PATIENCE_MS)
        assert wrote == len(data)
        self.library.incast_channel_flush(self.channel)

    def hear(self, many: int) -> bytes:
        """So many bytes, or fewer if it ends."""
        heard = b""
        while len(heard) < many:
            space = ctypes.create_string_buffer(many - len(heard))
            got = self.library.incast_channel_read(self.channel, space, ctypes.c_size_t(many - len(heard)), PATIENCE_MS)
            if got <= 0:
                assert got != -errno.EAGAIN, "it says nothing"
                break
            heard += space.raw[:got]
        return heard

    def is_dropped(self) -> bool:
        """Whatever it still says is read, and then there is an end."""
        until = time.monotonic() + PATIENCE_MS / 1000
        while self.hear(1):
            if time.monotonic() > until:
                return False
        return True


@pytest.fixture
def liar(engine: Path) -> Iterator[Liar]:
    with liars(engine) as made:
        yield made


@contextmanager
def liars(engine: Path) -> Iterator[Liar]:
    library = ctypes.CDLL(str(engine.parent.parent / "lib" / "libincast-channel.so.1"))
    for name in ("write", "read"):
        getattr(library, f"incast_channel_{name}").restype = ctypes.c_int64
    library.incast_channel_listener_address.restype = ctypes.c_char_p
    hub = ctypes.c_void_p()
    assert library.incast_channel_hub_make(b"tcp", None, ctypes.byref(hub)) == 0
    yield Liar(library, hub)
    library.incast_channel_hub_free(hub)


@pytest.fixture
def farm(engine: Path, name: str, tmp_path: Path) -> Iterator[StartFarm]:
    with farms(engine, name, tmp_path) as begin:
        yield begin


@pytest.fixture
def run(start: Start, name: str) -> Run:
    more = {"run.nodes": 2, "transport.name": SHARED_MEMORY, "sink.name": name}
    return start({**SETTINGS, **more})


def reply(says: int, ticket: int = 0, value: int = 0) -> bytes:
    return struct.pack("<IIQQ", says, 0, ticket, value)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([b"x" * 64], None),
        ([struct.pack("<QII48s", MAGIC, 2, 0, b"newer")], None),
        ([HELLO, reply(DONE, 1)], "broke the rules"),
        ([HELLO, reply(REFUSED, 7)], "broke the rules"),
        ([HELLO, reply(CREDIT, 0, 1025)], "broke the rules"),
        ([HELLO, reply(CREDIT, 0, 2), reply(CREDIT, 0, 1)], "broke the rules"),
        ([HELLO, reply(99)], "broke the rules"),
    ],
)
def test_a_farm_node_that_lies_is_dropped(
    run: Run, farm: StartFarm, liar: Liar, words: list[bytes], reason: str | None
) -> None:
    made = farm()
    _, child = made.node_with_child()
    liar.connect(made.address)
    for word in words:
        liar.say(word)
    assert liar.is_dropped()
    if reason:
        wait_until(lambda: any(reason in line and "liar" in line for line in made.dispatcher.errors), reason)
    run.process.send_signal(2)
    assert run.finish(90) == 0, run.story()
    meps = run.result()["accounting"]["meps_committed"]
    assert made.dispatcher.summary()["done_meps"] == meps
    assert child.summary()["wrong"] == 0


def test_a_verdict_on_more_events_than_there_are_is_a_lie(run: Run, farm: StartFarm, liar: Liar) -> None:
    """The MEP goes to another farm node, marked."""
    made = farm()
    liar.connect(made.address)
    liar.say(HELLO + reply(CREDIT, 0, 1))
    magic, version, n_sources, _, _ = struct.unpack("<QIIQQ", liar.hear(32))
    assert struct.unpack("<HH", liar.hear(4)) == (0, 1)
    assert (magic, version, n_sources) == (MAGIC, 1, 2)
    what, flags, ticket, _, _, _, n_events, _, _, _ = struct.unpack("<IIQQQQIIII", liar.hear(56))
    assert (what, flags) == (MEP, 0)
    liar.say(reply(DONE, ticket, n_events + 2))
    assert liar.is_dropped()
    _, child = made.node_with_child()
    run.process.send_signal(2)
    assert run.finish(90) == 0, run.story()
    dispatched = made.dispatcher.summary()
    assert dispatched["repeated_meps"] == dispatched["lost_nodes"] == 1
    assert dispatched["done_meps"] == run.result()["accounting"]["meps_committed"]
    assert child.summary()["repeated"] == 1


def welcome(**changes: Any) -> bytes:
    said = {"magic": MAGIC, "version": 1, "n_sources": 2, "run": 7, "mep_bytes": 4096, **changes}
    return struct.pack("<QIIQQ", *said.values())


def mep(ticket: int = 1) -> bytes:
    return struct.pack("<IIQQQQIIII", MEP, 0, ticket, 0, 0, 0, 1, 0, 1, 0)


@pytest.mark.parametrize(
    "words",
    [
        [welcome(magic=1)],
        [welcome(version=2)],
        [welcome(n_sources=0)],
        [welcome(mep_bytes=1 << 41)],
        [welcome() + NUMBERS, struct.pack("<II48x", 77, 0)],
        [welcome() + NUMBERS, (mep() + bytes(16)) * 2],  # of which it has a credit for one
        [welcome() + NUMBERS, mep() + struct.pack("<IHBB", 4096, 0, 0, 0) + struct.pack("<IHBB", 1, 1, 0, 0)],
        [welcome() + NUMBERS, mep() + struct.pack("<IHBB", 0xFFFFFFFF, 0, 0, 0) * 2],
    ],
)
def test_a_dispatcher_that_lies_is_given_up(
    engine: Path, farm: StartFarm, liar: Liar, name: str, words: list[bytes]
) -> None:
    """The farm node calls again: another dispatcher may be there by then."""
    address = liar.listen()
    made = farm()
    words_of_node = ("consume", address, "--name", made.farm, "--drop", "--window", "1")
    node = made.begin(engine.with_name("incast-farm"), *words_of_node)
    liar.accept()
    assert liar.hear(64)[:8] == struct.pack("<Q", MAGIC)
    for word in words:
        liar.say(word)
    assert liar.is_dropped()
    liar.accept()
    assert liar.hear(64)[:8] == struct.pack("<Q", MAGIC)
    assert node.process.poll() is None
    assert name in made.farm
