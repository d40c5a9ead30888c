"""One endpoint of a test of SoftRIO's udp fabric: writes to, reads from and rings all others, checks what they wrote.

usage: softrio_child.py LIBRARY DESTID ENDPOINTS ROUNDS LARGEST_WRITE, with RIO_FABRIC set. What it has done is printed
as one line of JSON.
"""

import ctypes
import errno
import json
import sys
import time
from collections.abc import Callable
from random import Random

PAGE = 4096
WINDOW_AT = 0x1000_0000
NWRITE, NWRITE_R, SYNC, HC_ENDPOINT = 0, 2, 0, 0xFF
DEADLINE_S = 60


class Event(ctypes.Structure):
    """A doorbell as riomp_mgmt_event; the union has room for a port-write."""

    _fields_ = (
        ("header", ctypes.c_uint),
        ("destid", ctypes.c_uint32),
        ("payload", ctypes.c_uint16),
        ("rest", ctypes.c_uint8 * 58),
    )


def pattern(writer: int, reader: int, round_: int, largest: int) -> bytes:
    """Of a size that no packet size divides, and different for each pair and round."""
    random = Random((writer << 16 | reader) << 16 | round_)
    return random.randbytes(random.randrange(1, largest + 1))


def main() -> int:
    """The endpoint's life."""
    own, endpoints, rounds, largest = (int(word) for word in sys.argv[2:])
    others = [destid for destid in range(1, endpoints + 1) if destid != own]
    rio = ctypes.CDLL(sys.argv[1])
    mport = ctypes.c_void_p()
    until = time.monotonic() + DEADLINE_S

    def check(error: int, what: str) -> None:
        if error != 0:
            sys.exit(f"endpoint {own}: {what}: {errno.errorcode.get(-error, error)}")

    def persist(what: str, call: Callable[..., int], *words: object) -> None:
        """While the other end is not there yet, its window is not open, or its queue is full."""
        while (error := call(mport, *words)) in (-errno.ENODEV, -errno.EIO, -errno.EAGAIN) and time.monotonic() < until:
            pass
        check(error, what)

    check(rio.riomp_mgmt_mport_create_handle(0, 0, ctypes.byref(mport)), "master port")
    # Before the window: those who have written ring.
    check(rio.riomp_mgmt_dbrange_enable(mport, 0xFFFF, 0, 0xFFFF), "doorbells")
    check(rio.riomp_mgmt_set_event_mask(mport, 1), "event mask")
    base, handle = ctypes.c_uint64(WINDOW_AT), ctypes.c_uint64(0xFFFF_FFFF_FFFF_FFFF)
    slot_bytes = (largest + PAGE - 1) // PAGE * PAGE
    size = slot_bytes * (endpoints + 1) * rounds

    def slot(writer: int, round_: int) -> int:
        return (round_ * (endpoints + 1) + writer) * slot_bytes

    check(rio.riomp_dma_ibwin_map(mport, ctypes.byref(base), size, ctypes.byref(handle)), "window")
    memory = ctypes.c_void_p()
    check(
        rio.riomp_dma_map_memory(mport, ctypes.c_size_t(size), ctypes.c_long(handle.value), ctypes.byref(memory)),
        "memory",
    )
    heard: dict[tuple[int, int], int] = {}
    written = 0
    for round_ in range(rounds):
        for other in others:
            data = pattern(own, other, round_, largest)
            at = ctypes.c_uint64(WINDOW_AT + slot(own, round_))
            persist("write", rio.riomp_dma_write, other, at, data, len(data), NWRITE_R, SYNC, None)
            back = ctypes.create_string_buffer(len(data))
            persist("read", rio.riomp_dma_read, other, at, back, len(data), SYNC, None)
            if back.raw != data:
                sys.exit(f"endpoint {own}: read back from {other} something else than was written")
            written += len(data)
            persist("doorbell", rio.riomp_mgmt_send_event, ctypes.byref(Event(1, other, round_)))
        while any(heard.get((other, round_), 0) == 0 for other in others):
            event = Event()
            check(rio.riomp_mgmt_get_event(mport, ctypes.byref(event)), "event")
            key = (event.destid, event.payload)
            heard[key] = heard.get(key, 0) + 1
            expected = pattern(event.destid, own, event.payload, largest)
            if ctypes.string_at(memory.value + slot(event.destid, event.payload), len(expected)) != expected:
                sys.exit(f"endpoint {own}: what {event.destid} has written is damaged")
    value = ctypes.c_uint32()
    for other in others:
        persist("register", rio.riomp_mgmt_rcfg_read, other, HC_ENDPOINT, 0x60, 4, ctypes.byref(value))
        if value.value & 0xFFFF != other:
            sys.exit(f"endpoint {own}: endpoint {other} says that it is {value.value & 0xFFFF}")
    print(json.dumps({"written": written, "doorbells": sum(heard.values()), "most": max(heard.values())}), flush=True)
    sys.stdin.read()  # until all have done so: they read each other's registers
    check(rio.riomp_mgmt_mport_destroy_handle(ctypes.byref(mport)), "closing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
