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

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from incast.base.places import CHECKOUT, PACKAGE
from incast.formats import FLAG_NAMES, Mfp, parse_mfp

MODULE_VARIABLE: Final = "INCAST_CONSUMER_MODULE"
_ANY_NODE: Final = -1


def find_module() -> Path:
    """INCAST_CONSUMER_MODULE, else the one in the package, else that of the checkout's release build."""
    named = os.environ.get(MODULE_VARIABLE)
    folders = (PACKAGE / "_engine", CHECKOUT / "build" / "release" / "lib")
    candidates = [Path(named)] if named else [folder / "_consumer.abi3.so" for folder in folders]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ImportError(
        f"{candidates[-1]} is not there: build the target consumer_python, which needs the headers of Python, or name "
        f"another in {MODULE_VARIABLE}"
    )


if TYPE_CHECKING:
    from incast import _consumer
else:
    # Where the engine is, not beside this file: several builds may stand beside each other.
    _spec = importlib.util.spec_from_file_location("incast._consumer", find_module())
    _consumer = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_consumer)
    sys.modules["incast._consumer"] = _consumer

ConsumerError = _consumer.ConsumerError
BuilderEndedError = _consumer.BuilderEndedError
BuilderLostError = _consumer.BuilderLostError
EjectedError = _consumer.EjectedError
NoBuilderError = _consumer.NoBuilderError


def builders(name: str = "incast") -> list[int]:
    """The nodes of this host whose builder units take consumers under that name."""
    return _consumer.builders(name)


class Event(_consumer.Event):
    """One MEP: the MFPs of all sources for the events [first_event, first_event + n_events)."""

    __slots__ = ()

    @property
    def sources(self) -> npt.NDArray[np.uint16]:
        """The detector's numbers of all sources, in the order of the run's configuration."""
        return np.array([number for number, _ in self.numbers_and_flags()], dtype=np.uint16)

    @property
    def flags(self) -> dict[int, str]:
        """The sources of which something is missing, and why."""
        return {number: FLAG_NAMES[flag] for number, flag in self.numbers_and_flags() if flag > 1}

    def parse(self, source: int) -> Mfp | None:
        """The MFP of a source, checked; its fragments are in place too."""
        packet = self.mfp(source)
        return None if packet is None else parse_mfp(packet)

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Consumer:
    """A process that is attached to one builder unit. Of one thread."""

    def __init__(self, name: str = "incast", node: int | None = None, *, timeout: float | None = 10.0) -> None:
        """Attaches to the builder unit of that node, or to the lowest there is; waits for it at most `timeout` s."""
        self._handle = _consumer.Handle(name, _ANY_NODE if node is None else node, _in_ms(timeout))
        # Made once: what lies in it are slices, which take a fraction of the time that arrays of their own do.
        self._memory: npt.NDArray[np.uint8] = np.frombuffer(memoryview(self._handle), np.uint8)
        self.node = self._handle.node
        self.incarnation = self._handle.incarnation
        self.run = self._handle.run
        self.n_sources = self._handle.n_sources
        self.window = self._handle.window
        self.payload_bytes = self._handle.payload_bytes

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event, which the caller gives back; None if there is none within `timeout` s (None: for ever).

        BuilderEndedError, BuilderLostError and EjectedError say that there will be none any more.
        """
        return self._handle.next(Event, _in_ms(timeout))

    def __iter__(self) -> Iterator[Event]:
        """Events until the builder unit ends; each is given back when the next one is asked for."""
        return iter(_group_of([self]))

    def fileno(self) -> int:
        """For select or an event loop: readable if, after `arm()` was False, `next(0)` should be called."""
        return self._handle.fileno()

    def arm(self) -> bool:
        """Before sleeping on `fileno()`. True: do not sleep, there is something already."""
        return self._handle.arm()

    def close(self) -> None:
        """Detaches: the builder unit takes back what was not released. Arrays stay readable, whatever they show."""
        self._handle.leave()

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
        self._group = _group_of(self.members)

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event of any of them, which the caller gives back; None if there is none within `timeout` s (None:
        for ever).

        BuilderEndedError: all have ended. BuilderLostError and EjectedError say so of one of them; the next call goes
        on with the others.
        """
        return self._group.next(_in_ms(timeout))

    def __iter__(self) -> Iterator[Event]:
        """Events until all builder units have ended; each is given back when the next one is asked for."""
        return iter(self._group)

    def close(self) -> None:
        """Detaches from all of them; as `Consumer.close`."""
        for consumer in self.members:
            self._group.remove(consumer._handle)
            consumer.close()

    def __enter__(self) -> Consumers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _group_of(members: list[Consumer]) -> _consumer.Group[Event]:
    return _consumer.Group(Event, [(consumer._handle, consumer._memory) for consumer in members])


def _in_ms(timeout: float | None) -> int:
    return -1 if timeout is None else max(0, min(2**31 - 1, round(timeout * 1000)))
