"""Readers and writers of MFP and MEP, byte for byte as docs/formats.md lays them down.

Reading checks every length before it is used; what is wrong is a FormatError with one line that names it. Packets are
parsed in place: an `Mfp` keeps views of the buffer it was read from (bytes, memory map or array), nothing is copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt

Buffer = npt.NDArray[np.uint8]

MFP_MAGIC: Final = 0x40CE
MFP_WIDE_MAGIC: Final = 0x57CE
MFP_WIDE_VERSION: Final = 1
MEP_MAGIC: Final = 0xCEFA
MAX_FRAGMENTS: Final = 65535
MAX_FRAGMENT_BYTES: Final = 65535
MAX_ALIGN_LOG2: Final = 12
DEFAULT_ALIGN_LOG2: Final = 3
MEP_ALIGNMENT: Final = 8

FLAG_NAMES: Final = (
    "ok",
    "empty",
    "missing-dead",
    "missing-unreachable",
    "late",
    "truncated",
    "bad-checksum",
    "desync",
    "dropped",
)
FLAG_TYPE_BASE: Final = 0xF0
FIRST_MISSING_FLAG: Final = FLAG_NAMES.index("missing-dead")

_MFP_HEADER: Final = struct.Struct("<HHIQHBB")
MFP_HEADER_BYTES: Final = _MFP_HEADER.size  # then the types of the fragments
_MFP_WIDE_HEADER: Final = struct.Struct("<HHBBBBQQHHI")
_MEP_HEADER: Final = struct.Struct("<HHI")


class FormatError(ValueError):
    """Bytes that are not what they should be; one line that names what, where and what was expected."""


def round_up(value: int, alignment: int) -> int:
    """The next multiple of a power of two."""
    return (value + alignment - 1) & -alignment


def as_buffer(data: bytes | bytearray | memoryview | Buffer) -> Buffer:
    """One byte per element, without a copy."""
    return data if isinstance(data, np.ndarray) else np.frombuffer(data, dtype=np.uint8)


def map_file(path: Path) -> Buffer:
    """The bytes of a file, mapped."""
    if path.stat().st_size == 0:
        return np.empty(0, dtype=np.uint8)  # nothing cannot be mapped
    return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))


def crc32c(data: bytes | Buffer, previous: int = 0) -> int:
    """CRC-32C (Castagnoli), as the engine's: start with 0, continue with the previous result."""
    return int(google_crc32c.extend(previous, data if isinstance(data, bytes) else data.tobytes()))


def scatter(out: Buffer, starts: npt.NDArray[np.int64], data: Buffer, sizes: npt.NDArray[np.int64]) -> None:
    """Copies consecutive pieces of `data`, of the given sizes, to out[starts[k]:]."""
    ends = np.cumsum(sizes)
    shift = np.repeat(starts - (ends - sizes), sizes)
    out[shift + np.arange(len(data))] = data


@dataclass(frozen=True)
class Mfp:
    """One multi-fragment packet: fragment k of source `source` belongs to event first_event + k."""

    first_event: int
    source: int
    align_log2: int
    fragment_version: int
    wide: bool
    packet: Buffer  # the whole packet
    types: npt.NDArray[np.uint8]
    sizes: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]  # of each fragment within `packet`

    @property
    def n_fragments(self) -> int:
        """The packing factor."""
        return len(self.sizes)

    @property
    def payload_bytes(self) -> int:
        """Fragment bytes alone."""
        return int(self.sizes.sum())

    def fragment(self, index: int) -> Buffer:
        """The bytes of one fragment."""
        start = int(self.starts[index])
        return self.packet[start : start + int(self.sizes[index])]

    def missing(self) -> npt.NDArray[np.bool_]:
        """Which fragments are missing: reserved type and no bytes."""
        first = FLAG_TYPE_BASE | FIRST_MISSING_FLAG
        last = FLAG_TYPE_BASE | (len(FLAG_NAMES) - 1)
        return np.asarray((self.sizes == 0) & (self.types >= first) & (self.types <= last))

    @property
    def flag(self) -> str:
        """Why the first missing fragment is missing; else `empty` without any payload; else `ok`."""
        missing = np.flatnonzero(self.missing())
        if len(missing):
            return FLAG_NAMES[int(self.types[missing[0]]) & 0x0F]
        return "ok" if self.sizes.any() else "empty"

    def payload(self) -> Buffer:
        """All fragments one behind the other, without padding (a copy)."""
        ends = np.cumsum(self.sizes)
        shift = np.repeat(self.starts - (ends - self.sizes), self.sizes)
        return np.asarray(self.packet[shift + np.arange(len(shift))])


def _mfp_prefix(n: int, wide: bool) -> int:
    if wide:
        return _MFP_WIDE_HEADER.size + round_up(n, 4) + 4 * n
    return _MFP_HEADER.size + round_up(n, 4) + round_up(2 * n, 4)


@dataclass(frozen=True)
class _MfpHeader:
    n: int
    packet_bytes: int
    first_event: int
    source: int
    align_log2: int
    fragment_version: int
    wide: bool


def _mfp_header(buffer: Buffer) -> _MfpHeader:
    if len(buffer) < _MFP_HEADER.size:
        raise FormatError(f"MFP: {len(buffer)} bytes, expected at least a header of {_MFP_HEADER.size}")
    magic = int.from_bytes(buffer[:2].tobytes(), "little")
    if magic == MFP_MAGIC:
        _, n, packet_bytes, first_event, source, align, version = _MFP_HEADER.unpack(buffer[:20].tobytes())
        header = _MfpHeader(n, packet_bytes, first_event, source, align, version, False)
    elif magic == MFP_WIDE_MAGIC:
        if len(buffer) < _MFP_WIDE_HEADER.size:
            raise FormatError(f"MFP: {len(buffer)} bytes, expected at least a wide header of {_MFP_WIDE_HEADER.size}")
        fields = _MFP_WIDE_HEADER.unpack(buffer[:32].tobytes())
        _, n, wide_version, align, version, zero8, first_event, packet_bytes, source, zero16, zero32 = fields
        if wide_version != MFP_WIDE_VERSION:
            raise FormatError(f"MFP: wide version {wide_version}, expected {MFP_WIDE_VERSION}")
        if zero8 or zero16 or zero32:
            raise FormatError("MFP: a reserved field of the wide header is not zero")
        header = _MfpHeader(n, packet_bytes, first_event, source, align, version, True)
    else:
        raise FormatError(f"MFP: magic {magic:#06x}, expected {MFP_MAGIC:#06x} or {MFP_WIDE_MAGIC:#06x} (wide)")
    if header.n == 0:
        raise FormatError("MFP: n_fragments 0, expected 1 .. 65535")
    if header.align_log2 > MAX_ALIGN_LOG2:
        raise FormatError(f"MFP: align 2^{header.align_log2}, expected at most 2^{MAX_ALIGN_LOG2}")
    if header.first_event + header.n >= 1 << 64:
        raise FormatError(f"MFP: first event id {header.first_event} wraps within the packet")
    return header


def parse_mfp(data: bytes | Buffer, offset: int = 0) -> Mfp:
    """The MFP at `offset`; the buffer may continue behind it."""
    buffer = as_buffer(data)[offset:]
    header = _mfp_header(buffer)
    prefix = _mfp_prefix(header.n, header.wide)
    if header.packet_bytes < prefix:
        raise FormatError(
            f"MFP: packet bytes {header.packet_bytes}, expected at least {prefix} for {header.n} fragments"
        )
    if header.packet_bytes > len(buffer):
        raise FormatError(f"MFP: packet bytes {header.packet_bytes}, but only {len(buffer)} are there")
    packet = buffer[: header.packet_bytes]
    types_at = _MFP_WIDE_HEADER.size if header.wide else _MFP_HEADER.size
    sizes_at = types_at + round_up(header.n, 4)
    table = packet[sizes_at : sizes_at + (4 if header.wide else 2) * header.n]
    sizes = np.frombuffer(table.tobytes(), dtype="<u4" if header.wide else "<u2").astype(np.int64)
    alignment = 1 << header.align_log2
    padded = (sizes + alignment - 1) & -alignment
    starts = prefix + np.cumsum(padded) - padded
    end = int(starts[-1] + padded[-1])
    if not int(starts[-1] + sizes[-1]) <= header.packet_bytes <= end:
        raise FormatError(f"MFP: packet bytes {header.packet_bytes}, but the fragment sizes add up to {end}")
    types = np.asarray(packet[types_at : types_at + header.n])
    return Mfp(
        header.first_event,
        header.source,
        header.align_log2,
        header.fragment_version,
        header.wide,
        packet,
        types,
        sizes,
        starts,
    )


def encode_mfp(
    source: int,
    first_event: int,
    sizes: npt.ArrayLike,
    payload: bytes | Buffer,
    *,
    types: int | npt.ArrayLike = 0,
    align_log2: int = DEFAULT_ALIGN_LOG2,
    fragment_version: int = 0,
) -> bytes:
    """Packs fragments, given by their sizes and their bytes one behind the other.

    The layout is LHCb's where everything fits, else the wide one.
    """
    lengths = np.asarray(sizes, dtype=np.int64)
    n = len(lengths)
    body = as_buffer(payload)
    if not 1 <= n <= MAX_FRAGMENTS:
        raise FormatError(f"MFP: n_fragments {n}, expected 1 .. {MAX_FRAGMENTS}")
    if lengths.min() < 0 or int(lengths.sum()) != len(body):
        raise FormatError(f"MFP: sizes add up to {int(lengths.sum())}, but the payload has {len(body)} bytes")
    if not 0 <= align_log2 <= MAX_ALIGN_LOG2:
        raise FormatError(f"MFP: align 2^{align_log2}, expected at most 2^{MAX_ALIGN_LOG2}")
    alignment = 1 << align_log2
    padded = (lengths + alignment - 1) & -alignment
    wide = int(lengths.max()) > MAX_FRAGMENT_BYTES or _mfp_prefix(n, False) + int(padded.sum()) >= 1 << 32
    prefix = _mfp_prefix(n, wide)
    total = prefix + int(padded.sum())
    out = np.zeros(total, dtype=np.uint8)
    if wide:
        fields = (n, MFP_WIDE_VERSION, align_log2, fragment_version, 0, first_event, total, source, 0, 0)
        head = _MFP_WIDE_HEADER.pack(MFP_WIDE_MAGIC, *fields)
    else:
        head = _MFP_HEADER.pack(MFP_MAGIC, n, total, first_event, source, align_log2, fragment_version)
    out[: len(head)] = np.frombuffer(head, dtype=np.uint8)
    out[len(head) : len(head) + n] = types
    table = np.frombuffer(lengths.astype("<u4" if wide else "<u2").tobytes(), dtype=np.uint8)
    sizes_at = len(head) + round_up(n, 4)
    out[sizes_at : sizes_at + len(table)] = table
    scatter(out, prefix + np.cumsum(padded) - padded, body, lengths)
    return out.tobytes()


def encode_phantom(source: int, first_event: int, n_events: int, flag: str) -> bytes:
    """What stands in a MEP for a source that is missing for the reason `flag`."""
    if flag not in FLAG_NAMES[FIRST_MISSING_FLAG:]:
        raise FormatError(f"MFP: a phantom cannot carry the flag {flag!r}")
    kind = FLAG_TYPE_BASE | FLAG_NAMES.index(flag)
    return encode_mfp(source, first_event, np.zeros(n_events, dtype=np.int64), b"", types=kind)


@dataclass(frozen=True)
class Mep:
    """One multi-event packet: the MFPs of all sources, for the same events.

    Ours ascend by source id; others may have them in any order, or one more than once.
    """

    packet: Buffer
    mfps: tuple[Mfp, ...]

    @property
    def first_event(self) -> int:
        """The id of the first event, the same in every MFP."""
        return self.mfps[0].first_event

    @property
    def n_events(self) -> int:
        """The packing factor, the same in every MFP."""
        return self.mfps[0].n_fragments

    @property
    def payload_bytes(self) -> int:
        """Fragment bytes alone."""
        return sum(mfp.payload_bytes for mfp in self.mfps)

    @property
    def flags(self) -> dict[int, str]:
        """The sources of which something is missing, and why."""
        return {mfp.source: mfp.flag for mfp in self.mfps if mfp.flag not in {"ok", "empty"}}

    def offsets(self) -> tuple[int, ...]:
        """Where each MFP begins in the packet."""
        n = len(self.mfps)
        at = _MEP_HEADER.size + 2 * round_up(n, 2)
        return tuple(4 * words for words in struct.unpack(f"<{n}I", self.packet[at : at + 4 * n].tobytes()))

    def disorder(self) -> str | None:
        """Where its source ids do not ascend, in words."""
        for first, second in pairwise(mfp.source for mfp in self.mfps):
            if second <= first:
                return f"source {second}: follows source {first}, expected ascending ids"
        return None


def parse_mep(data: bytes | Buffer, offset: int = 0) -> Mep:
    """The MEP at `offset`, all its MFPs checked; the buffer may continue behind it."""
    buffer = as_buffer(data)[offset:]
    if len(buffer) < _MEP_HEADER.size:
        raise FormatError(f"MEP: {len(buffer)} bytes, expected at least a header of {_MEP_HEADER.size}")
    magic, n, words = _MEP_HEADER.unpack(buffer[: _MEP_HEADER.size].tobytes())
    if magic != MEP_MAGIC:
        raise FormatError(f"MEP: magic {magic:#06x}, expected {MEP_MAGIC:#06x}")
    if n == 0:
        raise FormatError("MEP: n_mfps 0, expected 1 .. 65535")
    packet_bytes = 4 * words
    offsets_at = _MEP_HEADER.size + 2 * round_up(n, 2)
    end = offsets_at + 4 * n
    if packet_bytes < end:
        raise FormatError(f"MEP: packet of {packet_bytes} bytes, expected at least {end} for {n} MFPs")
    if packet_bytes > len(buffer):
        raise FormatError(f"MEP: packet of {packet_bytes} bytes, but only {len(buffer)} are there")
    packet = buffer[:packet_bytes]
    sources = struct.unpack(f"<{n}H", packet[_MEP_HEADER.size : _MEP_HEADER.size + 2 * n].tobytes())
    word_offsets = struct.unpack(f"<{n}I", packet[offsets_at : offsets_at + 4 * n].tobytes())
    mfps: list[Mfp] = []
    for source, word_offset in zip(sources, word_offsets, strict=True):
        start = 4 * word_offset
        if not end <= start <= packet_bytes:
            raise FormatError(f"MEP: source {source}: offset {start}, expected {end} .. {packet_bytes}")
        try:
            mfp = parse_mfp(packet, start)
        except FormatError as error:
            raise FormatError(f"MEP: source {source}: {error}") from error
        if mfp.source != source:
            raise FormatError(f"MEP: source {source}: holds the MFP of source {mfp.source}")
        if mfps and (mfp.first_event, mfp.n_fragments) != (mfps[0].first_event, mfps[0].n_fragments):
            raise FormatError(
                f"MEP: source {source}: events {mfp.first_event} + {mfp.n_fragments},"
                f" expected {mfps[0].first_event} + {mfps[0].n_fragments}"
            )
        mfps.append(mfp)
        end = start + len(mfp.packet)
    return Mep(packet, tuple(mfps))


def mep_layout(sources: Sequence[int], packets: Sequence[bytes | Buffer]) -> tuple[bytes, list[int], int]:
    """The head of a compact MEP with these MFPs, where each of them begins, and the bytes of all; gaps are zero."""
    n = len(packets)
    if not 1 <= n <= 65535:
        raise FormatError(f"MEP: n_mfps {n}, expected 1 .. 65535")
    offsets_at = _MEP_HEADER.size + 2 * round_up(n, 2)
    position = round_up(offsets_at + 4 * n, MEP_ALIGNMENT)
    head = bytearray(position)
    struct.pack_into(f"<{n}H", head, _MEP_HEADER.size, *sources)
    starts: list[int] = []
    for packet in packets:
        starts.append(position)
        position += round_up(len(packet), MEP_ALIGNMENT)
    if position // 4 >= 1 << 32:
        raise FormatError(f"MEP: {position} bytes, expected less than 16 GiB")
    struct.pack_into(f"<{n}I", head, offsets_at, *(start // 4 for start in starts))
    _MEP_HEADER.pack_into(head, 0, MEP_MAGIC, n, position // 4)
    return bytes(head), starts, position


def encode_mep(packets: Sequence[bytes]) -> bytes:
    """A compact MEP of encoded MFPs, which must be in ascending order of source id and hold the same events."""
    head, _, _ = mep_layout([parse_mfp(packet).source for packet in packets], packets)
    body = [packet.ljust(round_up(len(packet), MEP_ALIGNMENT), b"\0") for packet in packets]
    encoded = b"".join([head, *body])
    if disorder := parse_mep(encoded).disorder():  # disagreement is said there
        raise FormatError(f"MEP: {disorder}")
    return encoded


def mfp_name(source: int) -> str:
    """The file of a source's MFPs."""
    return f"source-{source}.mfp"


def _end_of_run_bytes(buffer: Buffer) -> int:
    """Of the packet with the event id 2^64 - 1; 0: it is something else."""
    if len(buffer) < _MFP_HEADER.size:
        return 0
    magic, _, size, event, *_ = _MFP_HEADER.unpack(buffer[: _MFP_HEADER.size].tobytes())
    ends = magic == MFP_MAGIC and event == (1 << 64) - 1 and _MFP_HEADER.size <= size <= len(buffer)
    return int(size) if ends else 0


def read_mfps(path: Path) -> Iterator[Mfp]:
    """The MFPs of a `source-<id>.mfp` file, in order. LHCb's packet that ends a run holds no events, and is none."""
    buffer = map_file(path)
    offset = 0
    while offset < len(buffer):
        if end := _end_of_run_bytes(buffer[offset:]):
            offset += end
            continue
        try:
            mfp = parse_mfp(buffer, offset)
        except FormatError as error:
            raise FormatError(f"{path} at byte {offset}: {error}") from error
        yield mfp
        offset += len(mfp.packet)


def read_meps(path: Path) -> Iterator[tuple[int, Mep]]:
    """The MEPs of a file that holds nothing else, in order, each with its offset."""
    buffer = map_file(path)
    offset = 0
    while offset < len(buffer):
        try:
            mep = parse_mep(buffer, offset)
        except FormatError as error:
            raise FormatError(f"{path} at byte {offset}: {error}") from error
        yield offset, mep
        offset += len(mep.packet)
