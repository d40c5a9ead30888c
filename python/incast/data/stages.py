"""Event building in two stages: what the second one built, taken apart (docs/dataflow.md).

A super-fragment is the MEP that a builder unit of the first stage built, as MEP files have it (docs/formats.md). In the
second stage it is one fragment, of the event whose id is the MEP's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from incast.base.files import new_file
from incast.base.words import counted
from incast.data import mep as mep_files
from incast.formats import FLAG_NAMES, FormatError, Mep, Mfp, encode_mep, encode_phantom, parse_mep


@dataclass(frozen=True)
class Unpacked:
    """What was made of super-fragments."""

    output: Path
    meps: int
    bytes: int
    incomplete_meps: int
    lost_super_fragments: int

    def lines(self) -> list[str]:
        """The summary for a person."""
        lines = [f"{self.output}: {counted(self.meps, 'MEP')}, {self.bytes} bytes"]
        if self.incomplete_meps:
            lines.append(f"incomplete: {self.incomplete_meps}, {self.lost_super_fragments} super-fragments missing")
        return lines


def unpack(paths: Sequence[Path], file: Path) -> Unpacked:
    """Writes a new file with the MEPs of all sources that one stage would have built, in the order of their events.

    Of a super-fragment that is missing, its sources are phantoms with its flag; which they are is known from the other
    super-fragments of that builder.
    """
    outer = [mep for _, mep in mep_files.in_order(paths)]
    members = _members(outer)
    meps = size = incomplete = lost = 0
    with new_file(file) as out:
        for mep in outer:
            for index in range(mep.n_events):
                inner, missing = _super_fragments(mep, index)
                lost += len(missing)
                if not inner:
                    continue  # nothing says which events these are
                first, n = inner[0].first_event, inner[0].n_events
                packets = {mfp.source: mfp.packet.tobytes() for each in inner for mfp in each.mfps}
                if len(packets) != sum(len(each.mfps) for each in inner):
                    raise FormatError(f"{file}: events from {first} on: a source is in two super-fragments")
                for source, flag in missing.items():
                    for number in members.get(source, ()):
                        packets[number] = encode_phantom(number, first, n, flag)
                incomplete += bool(missing) or any(each.flags for each in inner)
                size += out.write(encode_mep([packets[number] for number in sorted(packets)]))
                meps += 1
    return Unpacked(file, meps, size, incomplete, lost)


def _super_fragment(mfp: Mfp, index: int) -> Mep:
    try:
        return parse_mep(mfp.fragment(index))
    except FormatError as error:
        event = mfp.first_event + index
        raise FormatError(f"source {mfp.source}, event {event}: no super-fragment: {error}") from error


def _super_fragments(mep: Mep, index: int) -> tuple[list[Mep], dict[int, str]]:
    """The MEPs of the first stage in one event of the second, and the sources of the second that have none, and why."""
    inner: list[Mep] = []
    missing: dict[int, str] = {}
    for mfp in mep.mfps:
        if int(mfp.sizes[index]) > 0:
            inner.append(_super_fragment(mfp, index))
        else:
            flagged = mfp.missing()[index]
            missing[mfp.source] = FLAG_NAMES[int(mfp.types[index]) & 0x0F] if flagged else "late"
    return inner, missing


def _members(outer: Sequence[Mep]) -> dict[int, list[int]]:
    """The sources of the first stage behind each of the second."""
    found: dict[int, list[int]] = {}
    for mep in outer:
        for mfp in mep.mfps:
            for index in range(mfp.n_fragments):
                if mfp.source not in found and int(mfp.sizes[index]) > 0:
                    found[mfp.source] = [each.source for each in _super_fragment(mfp, index).mfps]
    return found
