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
    handle, event = ctypes.c_void_p, ctypes.POINTER(Event)
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


class Event(ctypes.Structure):
    """One MEP: the MFPs of all sources for the events [first_event, first_event + n_events)."""

    # It is incast_consumer_event, with what Python adds. After a wake-up the core's caches hold payload in place of the
    # interpreter, so what an event costs is how many different things are done for it: hence one object.
    __slots__ = ("_consumer", "_released", "_table")
    _fields_ = (
        ("_serial", ctypes.c_uint64),
        ("_mep", ctypes.c_uint64),
        ("_first_event", ctypes.c_uint64),
        ("_goodput_bytes", ctypes.c_uint64),
        ("_missed", ctypes.c_uint64),
        ("_n_events", ctypes.c_uint32),
        ("_n_sources", ctypes.c_uint32),
        ("_missing_sources", ctypes.c_uint32),
        ("_attempt", ctypes.c_uint32),
        ("_flags", ctypes.c_uint32),
        ("_slot", ctypes.c_uint32),
        ("_internal", ctypes.c_uint32 * 2),
    )
    _serial: int
    _mep: int
    _first_event: int
    _goodput_bytes: int
    _missed: int
    _n_events: int
    _missing_sources: int
    _attempt: int
    _flags: int
    _slot: int

    # Set once the library has filled it.
    _consumer: Consumer
    _released: bool
    _table: list[_Source] | None

    @property
    def node(self) -> int:
        """The node of the builder unit that built it."""
        return self._consumer.node

    @property
    def serial(self) -> int:
        """The number of the event at its builder unit."""
        return self._serial

    @property
    def mep(self) -> int:
        """The number of the MEP in the run."""
        return self._mep

    @property
    def first_event(self) -> int:
        """The id of the first event."""
        return self._first_event

    @property
    def n_events(self) -> int:
        """The packing factor; 0 if every source is missing."""
        return self._n_events

    @property
    def goodput_bytes(self) -> int:
        """Fragment bytes alone."""
        return self._goodput_bytes

    @property
    def missing_sources(self) -> int:
        """How many sources have no MFP; `flags` says why."""
        return self._missing_sources

    @property
    def attempt(self) -> int:
        """Which attempt at building it this was."""
        return self._attempt

    @property
    def missed(self) -> int:
        """MEPs that this consumer did not get since it attached, for want of room."""
        return self._missed

    @property
    def redelivered(self) -> bool:
        """Another builder unit may have handed it out before it died."""
        return bool(self._flags & _REDELIVERED)

    @property
    def repeated(self) -> bool:
        """Another consumer had it, and died or was ejected before it gave it back."""
        return bool(self._flags & _REPEATED)

    def _sources(self) -> list[_Source]:
        if self._table is None:
            # A copy of the table, which is small; what it points to is not copied.
            self._table = list(_SOURCE.iter_unpack(self._consumer._table_of(self)))
        return self._table

    @property
    def sources(self) -> npt.NDArray[np.uint16]:
        """The detector's numbers of all sources, in the order of the run's configuration."""
        return np.array([row[2] for row in self._sources()], dtype=np.uint16)

    @property
    def flags(self) -> dict[int, str]:
        """The sources of which something is missing, and why."""
        return {source: FLAG_NAMES[flag] for _, _, source, flag, _ in self._sources() if flag > 1}

    def _memory(self) -> npt.NDArray[np.uint8]:
        """What MFPs are slices of: a slice takes a fraction of the time that an array of its own does."""
        return self._consumer._payload

    def _views(self, rows: list[_Source]) -> Iterator[tuple[int, Buffer | None]]:
        payload = self._memory()
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
        return bool(consumer._quick.incast_consumer_intact(consumer._pointer, self) == 0)

    def release(self) -> bool:
        """Gives it back; again does nothing. False: too late, the builder unit had taken it back."""
        if self._released:
            return True
        self._released = True
        consumer = self._consumer
        status: int = consumer._quick.incast_consumer_release(consumer._pointer, self)
        if status == _OVERTAKEN:
            return False
        if status < 0:
            raise _error(status, f"MEP {self.mep}")
        return True

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _OwnedEvent(Event):
    """Its caller's, who may leave giving it back to the interpreter: it lives as long as an array of it does."""

    __slots__ = ()

    def _memory(self) -> npt.NDArray[np.uint8]:
        # Slices keep the array, it keeps the event, and that, which must not keep any of them, the memory.
        return self._consumer._array_of_all(self)

    def __del__(self) -> None:
        if self._serial != 0 and not self._released:
            self._consumer._quick.incast_consumer_release(self._consumer._pointer, self)


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
        self._address = int(self._library.incast_consumer_payload(pointer))
        self._all = ctypes.c_ubyte * self.payload_bytes
        self._payload = self._array_of_all(self._handle)
        self._table = ctypes.c_ubyte * (self.n_sources * _SOURCE.size)
        self._tables: dict[int, ctypes.Array[ctypes.c_ubyte]] = {}  # of each slot, where it always lies

    def _array_of_all(self, keeps: object) -> npt.NDArray[np.uint8]:
        memory: Any = self._all.from_address(self._address)
        memory.keeps = keeps
        return np.frombuffer(memoryview(memory).toreadonly(), np.uint8)

    def _table_of(self, event: Event) -> ctypes.Array[ctypes.c_ubyte]:
        slot = event._slot
        table = self._tables.get(slot)
        if table is None:
            address = self._quick.incast_consumer_sources(self._pointer, event)
            table = self._tables[slot] = self._table.from_address(address)
        return table

    def _fill_in(self, event: Event) -> Event:
        event._consumer = self
        event._released = False
        event._table = None
        return event

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event, which the caller gives back; None if there is none within `timeout` s (None: for ever).

        BuilderEndedError, BuilderLostError and EjectedError say that there will be none any more.
        """
        event = _OwnedEvent()
        status: int = self._quick.incast_consumer_next(self._pointer, 0, event)
        if status == 0 and timeout != 0:
            until = None if timeout is None else time.monotonic() + timeout
            while status == 0 and (until is None or time.monotonic() < until):  # a signal ends the library's waiting
                status = self._library.incast_consumer_next(self._pointer, _left_ms(until), event)
        if status < 0:
            raise _error(status, f"node {self.node}")
        return self._fill_in(event) if status > 0 else None

    def __iter__(self) -> Iterator[Event]:
        """Events until the builder unit ends; each is given back when the next one is asked for."""
        return iter(_Group([self]))

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


class _Group:
    """What the library makes of several consumers, which it does not keep."""

    def __init__(self, members: list[Consumer]) -> None:
        self._library, self._quick = _library(), _quick_library()
        self._pointer = ctypes.c_void_p()
        _check(self._library.incast_consumer_group_make(ctypes.byref(self._pointer)), "consumers")
        self._handle = _Handle(self._pointer, self._library.incast_consumer_group_free)
        self._by_pointer = {consumer._pointer.value: consumer for consumer in members}
        for consumer in members:
            _check(self._library.incast_consumer_group_add(self._pointer, consumer._pointer), "consumers")
        self._whose = ctypes.c_void_p()

    def remove(self, consumer: Consumer) -> None:
        self._library.incast_consumer_group_remove(self._pointer, consumer._pointer)

    def next(self, timeout: float | None) -> Event | None:
        event = _OwnedEvent()
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            status: int = self._library.incast_consumer_group_next(self._pointer, _left_ms(until), event, self._whose)
            if status > 0:
                return self._by_pointer[self._whose.value]._fill_in(event)
            if status < 0 and not self._is_end_of_one(status):
                raise self._error(status)
            if status == 0 and until is not None and time.monotonic() >= until:  # a signal ends the library's waiting
                return None

    def _is_end_of_one(self, status: int) -> bool:
        return status == _ENDED and self._whose.value is not None

    def _error(self, status: int) -> ConsumerError:
        whose = self._by_pointer.get(self._whose.value)
        return _error(status, "all builder units" if whose is None else f"node {whose.node}")

    def __iter__(self) -> Iterator[Event]:
        # The same as calls of next() and release(), spelled out, which takes 3 us less of some 25 per event where it
        # sleeps in between. These functions of the library, being others than those that are declared, take what they
        # are given as it is.
        take = self._library["incast_consumer_group_next"]
        give_back = self._quick["incast_consumer_release"]
        group, for_ever, whose = self._pointer, ctypes.c_int(-1), self._whose
        to_whose = ctypes.byref(whose)
        by_pointer = self._by_pointer
        while True:
            event = Event()
            to_event = ctypes.byref(event)
            status = take(group, for_ever, to_event, to_whose)
            if status <= 0:
                if status == 0 or self._is_end_of_one(status):
                    continue
                if status == _ENDED:
                    return
                raise self._error(status)
            consumer = by_pointer[whose.value]
            consumer._fill_in(event)
            try:
                yield event
            finally:
                if not event._released:
                    event._released = True
                    give_back(consumer._pointer, to_event)


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
        self._group = _Group(self.members)

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event of any of them, which the caller gives back; None if there is none within `timeout` s (None:
        for ever).

        BuilderEndedError: all have ended. BuilderLostError and EjectedError say so of one of them; the next call goes
        on with the others.
        """
        return self._group.next(timeout)

    def __iter__(self) -> Iterator[Event]:
        """Events until all builder units have ended; each is given back when the next one is asked for."""
        return iter(self._group)

    def close(self) -> None:
        """Detaches from all of them; as `Consumer.close`."""
        for consumer in self.members:
            self._group.remove(consumer)
            consumer.close()

    def __enter__(self) -> Consumers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _left_ms(until: float | None) -> int:
    return -1 if until is None else max(0, min(2**31 - 1, round((until - time.monotonic()) * 1000)))
