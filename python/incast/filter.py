"""A Python function as the filter between the stages of push-pull and pull-pull (docs/running.md).

    incast run --protocol push-pull --filter python:my_trigger:wanted

    # my_trigger.py
    def wanted(packet: incast.filter.FirstStage) -> bool:
        return sum(mfp.payload_bytes for mfp in packet.mfps().values()) > 10_000

The engine starts `python -m incast.filter my_trigger:wanted` for each builder unit and asks it about every packet of
events (docs/formats.md, "What a filter command reads"). An exception ends the process; from then on the engine accepts
everything and says so on standard error.
"""

from __future__ import annotations

import importlib
import os
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from incast.formats import FLAG_NAMES, Buffer, Mfp, as_buffer, parse_mfp

_QUESTION: Final = struct.Struct("<QQIIII")
_SOURCE: Final = struct.Struct("<HBBI")
_ANSWER: Final = struct.Struct("<QII")


@dataclass(frozen=True)
class Source:
    """One source of it; `data` is empty where it was not read out yet (flag `late`), is missing, or is simulated."""

    id: int
    flag: str
    data: Buffer


@dataclass(frozen=True)
class FirstStage:
    """What is there of a packet of events when the first stage has been read out."""

    mep: int
    attempt: int  # from 1; more where a builder unit was lost: the answer should be the same
    first_event: int
    n_events: int
    sources: tuple[Source, ...]

    def mfps(self) -> dict[int, Mfp]:
        """Those that are there, by source."""
        return {source.id: parse_mfp(source.data) for source in self.sources if len(source.data) > 0}


def _read(stream: BinaryIO, size: int) -> bytes:
    """So many bytes; fewer at the end."""
    data = stream.read(size)
    return data if data is not None else b""


def answer(wanted: Callable[[FirstStage], bool], questions: BinaryIO, answers: BinaryIO) -> None:
    """Until there are no more questions, or nobody takes the answers."""
    while len(head := _read(questions, _QUESTION.size)) == _QUESTION.size:
        mep, first_event, n_events, attempt, n_sources, _ = _QUESTION.unpack(head)
        table = list(_SOURCE.iter_unpack(_read(questions, n_sources * _SOURCE.size)))
        size = sum(source[3] for source in table)
        data = as_buffer(_read(questions, size))
        if len(table) < n_sources or len(data) < size:
            return  # the engine is gone
        sources = []
        for source_id, flag, _, length in table:
            sources.append(Source(source_id, FLAG_NAMES[flag] if flag < len(FLAG_NAMES) else str(flag), data[:length]))
            data = data[length:]
        accepted = bool(wanted(FirstStage(mep, attempt, first_event, n_events, tuple(sources))))
        try:
            answers.write(_ANSWER.pack(mep, attempt, accepted))
            answers.flush()
        except BrokenPipeError:
            return


def find(name: str) -> Callable[[FirstStage], bool]:
    """`module:function`, from the current folder or what is installed."""
    module, colon, function = name.partition(":")
    if not colon:
        raise SystemExit(f"incast.filter: {name}: expected MODULE:FUNCTION")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Callable[[FirstStage], bool] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise SystemExit(f"incast.filter: {name}: {error}") from None
    return found


def main() -> None:
    """What the engine starts."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m incast.filter MODULE:FUNCTION")
    wanted = find(sys.argv[1])
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the function prints is no answer
    answer(wanted, sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
