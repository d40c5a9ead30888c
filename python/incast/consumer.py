"""Taking built events from a builder unit of this host, in place: numpy views, no copy (docs/consumer.md).

    from incast.consumer import Consumer

    with Consumer("farm") as consumer:
        for event in consumer:
            for source, mfp in event.mfps():
                ...  # mfp: read-only array of bytes; incast.formats.parse_mfp(mfp) gives its fragments, again in place

A builder unit waits for what is given back (policy block) or goes on without (policy drop); a consumer has at most
`consumer.window` events at a time. In a `for` loop an event is given back when the loop asks for the next one, and its
arrays show something else from then on: copy what you keep. `consumer.next()` leaves giving back to its caller:
`event.release()`, a `with` block, or dropping the event and every array that came from it. `Consumers` is the same for
several builder units at once.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from incast.formats import FLAG_NAMES, Buffer, Mfp, parse_mfp

LIBRARY_VARIABLE: Final = "INCAST_CONSUMER_LIBRARY"
_LIBRARY_NAME: Final = "libincast_consumer.so.1"
_ANY_NODE: Final = -1
_REDELIVERED, _REPEATED = 1, 2
_ENDED, _LOST, _EJECTED, _OVERTAKEN, _NOBODY, _SYSTEM = -1, -2, -3, -4, -5, -8

_SOURCE: Final = struct.Struct("=QIHBB")  # incast_consumer_source: offset, bytes, source, flag, zero
_Source = tuple[int, int, int, int, int]


class ConsumerError(RuntimeError):
    """What the library says; `status` is its code (include/incast/consumer.h)."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class BuilderEndedError(ConsumerError):
    """The builder unit ended in order, and all of its events were taken. A `for` loop ends with it."""


class BuilderLostError(ConsumerError):
    """The builder unit's process died."""


class EjectedError(ConsumerError):
    """The builder unit dropped this consumer, and has taken back all of its events."""


class NoBuilderError(ConsumerError):
    """Nobody takes consumers under that name, on that node, on this host."""


_KINDS: Final = {_ENDED: BuilderEndedError, _LOST: BuilderLostError, _EJECTED: EjectedError, _NOBODY: NoBuilderError}


class _Info(ctypes.Structure):
    _fields_ = [
        ("run", ctypes.c_uint64),
        ("payload_bytes", ctypes.c_uint64),
        ("node", ctypes.c_uint32),
        ("incarnation", ctypes.c_uint32),
        ("n_sources", ctypes.c_uint32),
        ("window", ctypes.c_uint32),
    ]


class _Event(ctypes.Structure):
    _fields_ = [
        ("serial", ctypes.c_uint64),
        ("mep", ctypes.c_uint64),
        ("first_event", ctypes.c_uint64),
        ("goodput_bytes", ctypes.c_uint64),
        ("missed", ctypes.c_uint64),
        ("n_events", ctypes.c_uint32),
        ("n_sources", ctypes.c_uint32),
        ("missing_sources", ctypes.c_uint32),
        ("attempt", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("internal", ctypes.c_uint32 * 3),
    ]


def find_library() -> str:
    """INCAST_CONSUMER_LIBRARY, else the one in the package, else the checkout's release build, else the system's."""
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return named
    package = Path(__file__).resolve().parent
    for folder in (package / "_engine", package.parents[1] / "build" / "release" / "lib"):
        if (folder / _LIBRARY_NAME).is_file():
            return str(folder / _LIBRARY_NAME)
    return _LIBRARY_NAME


@cache
def _library() -> ctypes.CDLL:
    name = find_library()
    try:
        return _declare(ctypes.CDLL(name, use_errno=True))
    except OSError as error:
        raise ConsumerError(_SYSTEM, f"{name} cannot be loaded ({error}); {LIBRARY_VARIABLE} names another") from error


@cache
def _quick_library() -> ctypes.CDLL:
    """The same for calls that do not wait: they keep the interpreter's lock, which takes longer to pass on."""
    return _declare(ctypes.PyDLL(find_library()))


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    handle, event = ctypes.c_void_p, ctypes.POINTER(_Event)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "builders": (ctypes.c_int, [ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint32), ctypes.c_int]),
        "attach": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.POINTER(handle)]),
        "get_info": (ctypes.c_int, [handle, ctypes.POINTER(_Info)]),
        "next": (ctypes.c_int, [handle, ctypes.c_int, event]),
        "sources": (ctypes.c_void_p, [handle, event]),
        "payload": (ctypes.c_void_p, [handle]),
        "intact": (ctypes.c_int, [handle, event]),
        "release": (ctypes.c_int, [handle, event]),
        "fd": (ctypes.c_int, [handle]),
        "arm": (ctypes.c_int, [handle]),
        "leave": (None, [handle]),
        "free": (None, [handle]),
        "group_make": (ctypes.c_int, [ctypes.POINTER(handle)]),
        "group_add": (ctypes.c_int, [handle, handle]),
        "group_remove": (ctypes.c_int, [handle, handle]),
        "group_next": (ctypes.c_int, [handle, ctypes.c_int, event, ctypes.POINTER(handle)]),
        "group_free": (None, [handle]),
        "text": (ctypes.c_char_p, [ctypes.c_int]),
    }
    for function, (result, arguments) in signatures.items():
        getattr(library, f"incast_consumer_{function}").restype = result
        getattr(library, f"incast_consumer_{function}").argtypes = arguments
    return library


def _error(status: int, what: str) -> ConsumerError:
    text = _library().incast_consumer_text(status).decode()
    if status == _SYSTEM:
        text += f" ({os.strerror(ctypes.get_errno())})"
    return _KINDS.get(status, ConsumerError)(status, f"{what}: {text}")


def _check(status: int, what: str) -> int:
    if status < 0:
        raise _error(status, what)
    return status


def builders(name: str = "incast") -> list[int]:
    """The nodes of this host whose builder units take consumers under that name."""
    most = 4096
    nodes = (ctypes.c_uint32 * most)()
    count = _check(_library().incast_consumer_builders(name.encode(), nodes, most), name)
    return list(nodes[: min(count, most)])


class _Handle:
    """What the library gave, and takes back once nothing refers to it any more; of a consumer, arrays do, too."""

    def __init__(self, pointer: ctypes.c_void_p, free: Callable[[ctypes.c_void_p], None]) -> None:
        self.pointer = pointer
        self._free = free

    def __del__(self) -> None:
        self._free(self.pointer)


class Event:
    """One MEP: the MFPs of all sources for the events [first_event, first_event + n_events)."""

    __slots__ = ("_consumer", "_raw", "_released", "_table")

    def __init__(self, consumer: Consumer, raw: _Event) -> None:
        self._consumer = consumer
        self._raw = raw
        self._released = False
        self._table: list[_Source] | None = None

    @property
    def node(self) -> int:
        """The node of the builder unit that built it."""
        return self._consumer.node

    @property
    def serial(self) -> int:
        """The number of the event at its builder unit."""
        return int(self._raw.serial)

    @property
    def mep(self) -> int:
        """The number of the MEP in the run."""
        return int(self._raw.mep)

    @property
    def first_event(self) -> int:
        """The id of the first event."""
        return int(self._raw.first_event)

    @property
    def n_events(self) -> int:
        """The packing factor; 0 if every source is missing."""
        return int(self._raw.n_events)

    @property
    def goodput_bytes(self) -> int:
        """Fragment bytes alone."""
        return int(self._raw.goodput_bytes)

    @property
    def missing_sources(self) -> int:
        """How many sources have no MFP; `flags` says why."""
        return int(self._raw.missing_sources)

    @property
    def attempt(self) -> int:
        """Which attempt at building it this was."""
        return int(self._raw.attempt)

    @property
    def missed(self) -> int:
        """MEPs that this consumer did not get since it attached, for want of room."""
        return int(self._raw.missed)

    @property
    def redelivered(self) -> bool:
        """Another builder unit may have handed it out before it died."""
        return bool(self._raw.flags & _REDELIVERED)

    @property
    def repeated(self) -> bool:
        """Another consumer had it, and died or was ejected before it gave it back."""
        return bool(self._raw.flags & _REPEATED)

    def _sources(self) -> list[_Source]:
        if self._table is None:
            # A copy of the table, which is small; what it points to is not copied.
            self._table = list(_SOURCE.iter_unpack(self._consumer._table_of(self._raw)))
        return self._table

    @property
    def sources(self) -> npt.NDArray[np.uint16]:
        """The detector's numbers of all sources, in the order of the run's configuration."""
        return np.array([row[2] for row in self._sources()], dtype=np.uint16)

    @property
    def flags(self) -> dict[int, str]:
        """The sources of which something is missing, and why."""
        return {source: FLAG_NAMES[flag] for _, _, source, flag, _ in self._sources() if flag > 1}

    def _views(self, rows: list[_Source]) -> Iterator[tuple[int, Buffer | None]]:
        # One array of all the memory per event, and slices of it: a slice takes a fraction of the time that an array of
        # its own does. Slices keep the array, it keeps the memory, and that the event, which must not keep any of them.
        memory: Any = self._consumer._memory.from_address(self._consumer._payload)
        memory.event = self
        payload = np.frombuffer(memoryview(memory).toreadonly(), np.uint8)
        limit = self._consumer.payload_bytes
        for offset, size, source, _, _ in rows:
            end = offset + size
            if end > limit:
                raise ConsumerError(_OVERTAKEN, f"MEP {self.mep}: the builder unit took the event back")
            yield source, payload[offset:end] if size > 0 else None

    def mfp(self, source: int) -> Buffer | None:
        """The MFP of a source, in place and read-only; None if it is missing."""
        for row in self._sources():
            if row[2] == source:
                return next(self._views([row]))[1]
        raise KeyError(source)

    def mfps(self) -> Iterator[tuple[int, Buffer | None]]:
        """Source and MFP of all sources, as `mfp` gives them."""
        return self._views(self._sources())

    def parse(self, source: int) -> Mfp | None:
        """The MFP of a source, checked; its fragments are in place too."""
        packet = self.mfp(source)
        return None if packet is None else parse_mfp(packet)

    @property
    def intact(self) -> bool:
        """Whether all that was read of it up to now was this event: it was not taken back meanwhile."""
        consumer = self._consumer
        return bool(consumer._quick.incast_consumer_intact(consumer._pointer, self._raw) == 0)

    def release(self) -> bool:
        """Gives it back; again does nothing. False: too late, the builder unit had taken it back."""
        if self._released:
            return True
        self._released = True
        consumer = self._consumer
        status: int = consumer._quick.incast_consumer_release(consumer._pointer, self._raw)
        if status == _OVERTAKEN:
            return False
        if status < 0:
            raise _error(status, f"MEP {self.mep}")
        return True

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        if not self._released:
            self._consumer._quick.incast_consumer_release(self._consumer._pointer, self._raw)


class Consumer:
    """A process that is attached to one builder unit. Of one thread."""

    def __init__(self, name: str = "incast", node: int | None = None, *, timeout: float | None = 10.0) -> None:
        """Attaches to the builder unit of that node, or to the lowest there is; waits for it at most `timeout` s."""
        self._library, self._quick = _library(), _quick_library()
        pointer = ctypes.c_void_p()
        which = _ANY_NODE if node is None else node
        where = name if node is None else f"{name}, node {node}"
        until = None if timeout is None else time.monotonic() + timeout
        while True:  # a signal ends the library's waiting early
            status = self._library.incast_consumer_attach(name.encode(), which, _left_ms(until), ctypes.byref(pointer))
            if status != _NOBODY or (until is not None and time.monotonic() >= until):
                break
        _check(status, where)
        self._handle = _Handle(pointer, self._library.incast_consumer_free)
        self._pointer = pointer
        info = _Info()
        _check(self._library.incast_consumer_get_info(pointer, info), where)
        self.node = int(info.node)
        self.incarnation = int(info.incarnation)
        self.run = int(info.run)
        self.n_sources = int(info.n_sources)
        self.window = int(info.window)
        self.payload_bytes = int(info.payload_bytes)
        self._payload = int(self._library.incast_consumer_payload(pointer))
        self._memory = ctypes.c_ubyte * self.payload_bytes
        self._table = ctypes.c_ubyte * (self.n_sources * _SOURCE.size)
        self._tables: dict[int, ctypes.Array[ctypes.c_ubyte]] = {}  # of each slot, where it always lies

    def _table_of(self, event: _Event) -> ctypes.Array[ctypes.c_ubyte]:
        slot = event.internal[0]
        table = self._tables.get(slot)
        if table is None:
            address = self._quick.incast_consumer_sources(self._pointer, event)
            table = self._tables[slot] = self._table.from_address(address)
        return table

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event, which the caller gives back; None if there is none within `timeout` s (None: for ever).

        BuilderEndedError, BuilderLostError and EjectedError say that there will be none any more.
        """
        raw = _Event()
        status: int = self._quick.incast_consumer_next(self._pointer, 0, raw)
        if status == 0 and timeout != 0:
            until = None if timeout is None else time.monotonic() + timeout
            while status == 0 and (until is None or time.monotonic() < until):  # a signal ends the library's waiting
                status = self._library.incast_consumer_next(self._pointer, _left_ms(until), raw)
        if status < 0:
            raise _error(status, f"node {self.node}")
        return Event(self, raw) if status > 0 else None

    def __iter__(self) -> Iterator[Event]:
        """Events until the builder unit ends; each is given back when the next one is asked for."""
        return _until_end(self)

    def fileno(self) -> int:
        """For select or an event loop: readable if, after `arm()` was False, `next(0)` should be called."""
        return int(self._library.incast_consumer_fd(self._pointer))

    def arm(self) -> bool:
        """Before sleeping on `fileno()`. True: do not sleep, there is something already."""
        return bool(self._quick.incast_consumer_arm(self._pointer))

    def close(self) -> None:
        """Detaches: the builder unit takes back what was not released. Arrays stay readable, whatever they show."""
        self._library.incast_consumer_leave(self._pointer)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Consumers:
    """Attached to several builder units of this host, whose events come as they are built. Of one thread."""

    def __init__(
        self, name: str = "incast", nodes: Iterable[int] | None = None, *, timeout: float | None = 10.0
    ) -> None:
        """Attaches to the builder units of those nodes, waiting for each of them at most `timeout` s.

        None: to all that there are once there is one.
        """
        if nodes is None:
            first = Consumer(name, timeout=timeout)
            rest = [node for node in builders(name) if node != first.node]
            self.members = [first, *(Consumer(name, node, timeout=timeout) for node in rest)]
        else:
            self.members = [Consumer(name, node, timeout=timeout) for node in nodes]
        self._library = _library()
        self._group = ctypes.c_void_p()
        _check(self._library.incast_consumer_group_make(ctypes.byref(self._group)), name)
        self._handle = _Handle(self._group, self._library.incast_consumer_group_free)
        self._by_pointer = {consumer._pointer.value: consumer for consumer in self.members}
        for consumer in self.members:
            _check(self._library.incast_consumer_group_add(self._group, consumer._pointer), name)
        self._whose = ctypes.c_void_p()

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event of any of them, which the caller gives back; None if there is none within `timeout` s (None:
        for ever).

        BuilderEndedError: all have ended. BuilderLostError and EjectedError say so of one of them; the next call goes
        on with the others.
        """
        raw = _Event()
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            status: int = self._library.incast_consumer_group_next(self._group, _left_ms(until), raw, self._whose)
            if status > 0:
                return Event(self._by_pointer[self._whose.value], raw)
            if status < 0 and (status != _ENDED or self._whose.value is None):
                whose = self._by_pointer.get(self._whose.value)
                raise _error(status, "all builder units" if whose is None else f"node {whose.node}")
            if status == 0 and until is not None and time.monotonic() >= until:  # a signal ends the library's waiting
                return None

    def __iter__(self) -> Iterator[Event]:
        """Events until all builder units have ended; each is given back when the next one is asked for."""
        return _until_end(self)

    def close(self) -> None:
        """Detaches from all of them; as `Consumer.close`."""
        for consumer in self.members:
            self._library.incast_consumer_group_remove(self._group, consumer._pointer)
            consumer.close()

    def __enter__(self) -> Consumers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _until_end(consumer: Consumer | Consumers) -> Iterator[Event]:
    while True:
        try:
            event = consumer.next()
        except BuilderEndedError:
            return
        assert event is not None
        try:
            yield event
        finally:
            event.release()


def _left_ms(until: float | None) -> int:
    return -1 if until is None else max(0, min(2**31 - 1, round((until - time.monotonic()) * 1000)))
