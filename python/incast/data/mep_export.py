"""`incast mep export`: built events for LHCb's readers (docs/formats.md).

`--mdf` writes a raw event file, one record per event; `--mep` MEPs that hold nothing that is Incast's own.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from incast.base.files import new_file
from incast.base.words import counted
from incast.data import mep as mep_files
from incast.data.detectors import MISSING_AS, ODIN_BYTES, ODIN_TYPE, ODIN_VERSION, in_words
from incast.formats import MFP_HEADER_BYTES, FormatError, Mep, Mfp, round_up

BANK_MAGIC: Final = 0xCBCB
_BANK: Final = struct.Struct("<HHBBH")
_HEADER: Final = struct.Struct("<4I4B4I3I")
_LAYOUT: Final = 3 << 4 | 7  # version 3 of the header, and the 32-bit words of what follows its first 20 bytes
_BANKS: Final = 1  # the record holds raw banks
_CHECKED_FROM: Final = 16  # the checksum is of all bytes behind it
MAX_BODY: Final = 0xFFFF - _BANK.size
_AT_ONCE: Final = 256  # records of which checksums are made side by side


@dataclass
class Exported:
    """What was written."""

    output: Path
    events: int = 0
    banks: int = 0
    meps: int = 0
    bytes: int = 0
    without_odin: int = 0
    missing: Counter[int] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        """The summary for a person."""
        parts = counted(self.meps, "MEP") if self.meps else counted(self.banks, "bank")
        lines = [f"{self.output}: {counted(self.events, 'event')}, {parts}, {self.bytes} bytes"]
        if self.missing:
            lines.append(f"note: missing fragments, written as error banks: {in_words(self.missing)}")
        if self.without_odin:
            lines.append(
                f"note: {self.without_odin} events have no bank of ODIN (type {ODIN_TYPE}, version {ODIN_VERSION}):"
                " their run, orbit and bunch are 0"
            )
        return lines


def export_mdf(paths: Sequence[Path], file: Path, *, checksum: bool = True) -> Exported:
    """Writes the events of all MEPs, in the order of their ids, into one new file: all of them, or no file."""
    done = Exported(file)

    def write(mep: Mep) -> Iterator[bytes | bytearray]:
        records = [_record(mep, index, done) for index in range(mep.n_events)]
        if checksum:
            _add_checksums(records)
        yield from records

    return _export(paths, write, done)


def export_meps(paths: Sequence[Path], file: Path) -> Exported:
    """The same MEPs in the order of their events, but for missing fragments: error banks say why they are."""
    done = Exported(file)

    def write(mep: Mep) -> Iterator[bytes | bytearray]:
        packet = mep.packet.copy()
        for mfp, offset in zip(mep.mfps, mep.offsets(), strict=True):
            if mfp.wide:
                raise FormatError(
                    f"events from {mep.first_event} on: source {mfp.source}: an MFP of the wide variant,"
                    " which only Incast reads; expected fragments of at most 65535 bytes"
                )
            types = packet[offset + MFP_HEADER_BYTES :][: mfp.n_fragments]
            for index in np.flatnonzero(mfp.missing()):
                types[index] = MISSING_AS[int(types[index])]
                done.missing[int(types[index])] += 1
        done.meps += 1
        done.events += mep.n_events
        yield packet.tobytes()

    return _export(paths, write, done)


def _export(paths: Sequence[Path], write: Callable[[Mep], Iterator[bytes | bytearray]], done: Exported) -> Exported:
    """What `write` makes of every MEP, in one new file: all of it, or no file."""
    with new_file(done.output) as out:
        for path, mep in mep_files.in_order(paths):
            try:
                for piece in write(mep):
                    done.bytes += out.write(piece)
            except FormatError as error:
                raise FormatError(f"{path}: {error}") from error
    return done


def _record(mep: Mep, index: int, done: Exported) -> bytearray:
    """One event: its header and its banks, in the order of the MEP; the checksum is 0."""
    record = bytearray(_HEADER.size)
    odin = (0, 0, 0)
    found = False
    for mfp in mep.mfps:
        kind, body = _bank(mfp, index, done.missing)
        if len(body) > MAX_BODY:
            raise FormatError(
                f"event {mep.first_event + index}: source {mfp.source}: fragment of {len(body)} bytes,"
                f" expected at most {MAX_BODY} for a raw bank"
            )
        if not found and (kind, mfp.fragment_version, len(body)) == (ODIN_TYPE, ODIN_VERSION, ODIN_BYTES):
            found = True
            words = struct.unpack("<10I", body)
            odin = (words[0], words[7], words[6] & 0xFFF)
        record += _BANK.pack(BANK_MAGIC, _BANK.size + len(body), kind, mfp.fragment_version, mfp.source)
        record += body
        record += bytes(round_up(len(body), 4) - len(body))
    done.events += 1
    done.banks += len(mep.mfps)
    done.without_odin += not found
    size = len(record)
    # Nothing was selected, so all bits of the trigger mask are set.
    mask = (0xFFFFFFFF,) * 4
    _HEADER.pack_into(record, 0, size, size, size, 0, 0, _LAYOUT, _BANKS, 0, *mask, *odin)
    return record


def _bank(mfp: Mfp, index: int, missing: Counter[int]) -> tuple[int, bytes]:
    """Type and body: a missing fragment is the error bank that says why."""
    kind, body = int(mfp.types[index]), mfp.fragment(index).tobytes()
    if not body and kind in MISSING_AS:
        kind = MISSING_AS[kind]
        missing[kind] += 1
    return kind, body


def _add_checksums(records: list[bytearray]) -> None:
    """LHCb's 32-bit hash (Jenkins' one-at-a-time), of many records side by side: byte k of all of them, then k + 1."""
    by_size = sorted(records, key=len, reverse=True)
    for start in range(0, len(by_size), _AT_ONCE):
        some = by_size[start : start + _AT_ONCE]
        sizes = np.array([len(record) - _CHECKED_FROM for record in some])
        columns = np.zeros((int(sizes[0]), len(some)), dtype=np.int8)  # LHCb adds `char`, which has a sign
        for index, record in enumerate(some):
            columns[: sizes[index], index] = np.frombuffer(record, dtype=np.int8)[_CHECKED_FROM:]
        hashes = np.zeros(len(some), dtype=np.uint32)
        active = len(some)
        for k, column in enumerate(columns):
            while sizes[active - 1] <= k:
                active -= 1
            now = hashes[:active]
            now += column[:active].astype(np.uint32)
            now += now << np.uint32(10)
            now ^= now >> np.uint32(6)
        hashes += hashes << np.uint32(3)
        hashes ^= hashes >> np.uint32(11)
        hashes += hashes << np.uint32(15)
        for record, value in zip(some, hashes, strict=True):
            struct.pack_into("<I", record, _CHECKED_FROM - 4, int(value))
