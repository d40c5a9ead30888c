"""A peer of a network device that says what it likes (docs/netdev.md): the device stays, and counts it."""

from __future__ import annotations

import ctypes
import errno
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from netdev_support import WAYS, network
from support import wait_until

_MESSAGES = 1
_PATIENCE_MS = 10_000
ETHERNET = bytes.fromhex("c20000000001c200000000020800")


class Options(ctypes.Structure):
    """incast_channel_options."""

    _fields_ = [
        (name, ctypes.c_uint32)
        for name in (
            "size",
            "kind",
            "buffers",
            "buffer_bytes",
            "batch",
            "announce",
            "acknowledge",
            "connect_timeout_ms",
        )
    ] + [("longest_message", ctypes.c_uint32), ("backlog", ctypes.c_uint32)]


class Liar:
    """A channel to a device, by the C interface."""

    def __init__(self, library: ctypes.CDLL, hub: ctypes.c_void_p, address: str) -> None:
        self._library = library
        self._channel = ctypes.c_void_p()
        options = Options(size=ctypes.sizeof(Options), kind=_MESSAGES)
        made = library.incast_channel_connect(hub, address.encode(), ctypes.byref(options), ctypes.byref(self._channel))
        assert made == 0
        assert library.incast_channel_wait_open(self._channel, _PATIENCE_MS) == 1

    def say(self, message: bytes) -> int:
        return int(self._library.incast_channel_send(self._channel, message, len(message), _PATIENCE_MS))

    def hear(self) -> int:
        """Length of the next message, or the error that ended the channel."""
        into = ctypes.create_string_buffer(1 << 17)
        return int(self._library.incast_channel_receive(self._channel, into, len(into), _PATIENCE_MS))

    def is_thrown_out(self) -> bool:
        while (heard := self.hear()) >= 0:
            pass
        return heard != -errno.EAGAIN

    def close(self) -> None:
        self._library.incast_channel_flush(self._channel)
        self._library.incast_channel_close(self._channel)


@contextmanager
def hub_of(engine: Path) -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p]]:
    library = ctypes.CDLL(str(engine.parent.parent / "lib" / "libincast-channel.so"))
    library.incast_channel_receive.restype = ctypes.c_int64
    hub = ctypes.c_void_p()
    assert library.incast_channel_hub_make(b"shm", None, ctypes.byref(hub)) == 0
    try:
        yield library, hub
    finally:
        library.incast_channel_hub_drain(hub, 1000)
        library.incast_channel_hub_free(hub)


def greeting(identity: int = 2, queue: int = 0, queues: int = 1, mtu: int = 1500, version: int = 1) -> bytes:
    return struct.pack("<IHHHHI", 0x54454E49, version, identity, queue, queues, mtu)


@pytest.mark.parametrize("seed", [1])
def test_the_device_outlives_garbage(engine: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with network(engine, tmp_path, WAYS["shm"]) as net, hub_of(engine) as (library, hub):
        net.kill(1)  # whose id the liar takes
        wait_until(lambda: net.status(0)["peers"][0]["queues_up"] == 0, "its end is seen")
        address = f"shm://{tmp_path}/1"
        strange = [b"", b"x", chance.randbytes(16), greeting(version=2), greeting(3), greeting(1), greeting(0)]
        strange += [greeting(queues=2), greeting(mtu=1), greeting()[:15], greeting() + b"x", bytes(60_000)]
        for message in strange:
            stranger = Liar(library, hub, address)
            stranger.say(message)
            assert stranger.is_thrown_out(), message[:20]
            stranger.close()
        assert net.status(0)["peers"][0]["queues_up"] == 0

        liar = Liar(library, hub, address)
        assert liar.say(greeting()) == 0
        wait_until(lambda: net.status(0)["peers"][0]["queues_up"] == 1, "it is let in")
        faulty = 0
        for _ in range(500):
            message = chance.randbytes(chance.choice((0, 1, 12, 25, 26, 60, 1514, 9000)))
            assert liar.say(message) == 0
            faulty += 1
        for flags, segments in ((4, 0), (0, 2), (0, 0x80), (0x80, 1)):
            assert liar.say(struct.pack("<BBHHHHH", flags, segments, 14, 100, 0, 0, 0) + ETHERNET + bytes(60)) == 0
            faulty += 1
        # Frames of the right form with headers that make no sense: the kernel may take them or not, and drops them.
        odd = 0
        for _ in range(500):
            header = struct.pack("<BBHHHHH", 1, chance.choice((0, 1, 4, 5)), 14 + chance.randrange(40), 100, 14, 6, 0)
            assert liar.say(header + ETHERNET + chance.randbytes(chance.choice((46, 200, 1500)))) == 0
            odd += 1
        liar.say(bytes(12) + ETHERNET + bytes(46))
        wait_until(
            lambda: net.total(0, "received_faulty", "received_frames", "received_refused") >= faulty + odd + 1,
            "all was looked at",
        )
        assert net.total(0, "received_faulty") >= faulty
        assert liar.say(bytes(70_000)) in (0, -errno.ECONNRESET, -errno.EPIPE)
        assert liar.is_thrown_out(), "longer than a frame can be"
        liar.close()
        net.up(1)
        net.wait_for_peers()
        net.ping(0, "10.9.0.2")
