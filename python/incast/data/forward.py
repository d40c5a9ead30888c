"""Event building in two stages: built events of one run are the fragments of another (docs/dataflow.md).

A super-fragment is the MEP that a builder unit built, as MEP files have it (docs/formats.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from incast.consumer import BuilderEndedError, BuilderLostError, ConsumerError, Consumers, EjectedError, Event
from incast.formats import FLAG_NAMES, Buffer, FormatError, encode_phantom, mep_layout, parse_mfp
from incast.source import ReadoutLostError, RunEndedError, Source, SourceError

#: What either stage may say.
ERRORS: Final = (ConsumerError, SourceError)
_FRAGMENT_TYPE: Final = 1


@dataclass
class Forwarded:
    """What was handed on."""

    meps: int = 0
    bytes: int = 0
    incomplete_meps: int = 0  # with a source that is missing or damaged: they are handed on as they are
    missing_meps: int = 0  # without any source: the second stage is told that there is nothing
    repeated_meps: int = 0  # that may have been handed on before: the second stage takes them once
    lost_builders: int = 0

    def line(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


def packets_of(event: Event) -> list[bytes | Buffer]:
    """The MFPs of a built event in ascending order of their sources; what is missing or damaged is a phantom."""
    found: list[tuple[int, bytes | Buffer]] = []
    flags = dict(event.numbers_and_flags())
    for number, packet in event.mfps():
        flag = FLAG_NAMES[flags[number]]
        if packet is not None and flag != "bad-checksum":
            try:
                mfp = parse_mfp(packet)
            except FormatError:
                flag = "bad-checksum"
            else:
                if (mfp.source, mfp.first_event, mfp.n_fragments) == (number, event.first_event, event.n_events):
                    found.append((number, mfp.packet))
                    continue
                flag = "desync"
        found.append((number, encode_phantom(number, event.first_event, event.n_events, flag)))
    return [packet for _, packet in sorted(found, key=lambda each: each[0])]


class Forwarder:
    """A consumer of the first stage that is a source of the second."""

    def __init__(self, name: str, to: str, source: int, *, timeout: float = 60.0) -> None:
        """name: of the first stage's consumers (`sink.name`); to, source: the source that it is in the second stage."""
        self._timeout = timeout
        self._to = to
        self.consumers = Consumers(name, timeout=timeout)
        self.source = Source(to, source, timeout=timeout)
        self.done = Forwarded()

    def run(self, says: Callable[[str], None]) -> Forwarded:
        """Until the first stage has ended, or the second has."""
        try:
            while True:
                try:
                    event = self.consumers.next(1)
                except (BuilderLostError, EjectedError) as error:
                    says(str(error))
                    self.done.lost_builders += 1
                    continue
                if event is None:
                    continue
                self._hand_on(event, says)
                event.release()
        except BuilderEndedError:
            self.source.flush(self._timeout)
        except RunEndedError:
            pass
        finally:
            self.consumers.close()
            self.source.close()
        return self.done

    def _hand_on(self, event: Event, says: Callable[[str], None]) -> None:
        while True:
            try:
                self._commit(event)
                break
            except ReadoutLostError as error:
                says(str(error))
                self.source.close()
                self.source = Source(self._to, self.source.source, timeout=self._timeout)
        self.done.meps += 1
        self.done.repeated_meps += event.repeated or event.redelivered

    def _commit(self, event: Event) -> None:
        if event.n_events == 0:
            self.source.commit_missing(event.mep, "late")
            self.done.missing_meps += 1
            return
        packets = packets_of(event)
        head, starts, size = mep_layout([number for number, _ in sorted(event.numbers_and_flags())], packets)
        space = self.source.space(size)
        space[: len(head)] = np.frombuffer(head, np.uint8)
        end = len(head)
        for start, packet in zip(starts, packets, strict=True):
            space[end:start] = 0
            end = start + len(packet)
            space[start:end] = np.frombuffer(packet, np.uint8)
        space[end:size] = 0
        self.source.commit(event.mep, size, _FRAGMENT_TYPE)
        self.done.bytes += size
        self.done.incomplete_meps += bool(event.flags)
