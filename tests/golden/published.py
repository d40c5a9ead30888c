"""A reader of MFP, MEP, raw bank and MDF, from the published layouts alone (sources: docs/formats.md).

It shares nothing with the engine or the package: the standard library, plain loops, and every byte accounted for.
"""

import struct
from typing import NamedTuple


class Fragment(NamedTuple):
    event: int
    kind: int
    data: bytes


class Mfp(NamedTuple):
    source: int
    first_event: int
    align: int
    version: int
    wide: bool
    fragments: list[Fragment]


class Bank(NamedTuple):
    kind: int
    version: int
    source: int
    data: bytes


class Record(NamedTuple):
    mask: tuple[int, ...]
    run: int
    orbit: int
    bunch: int
    banks: list[Bank]


class Reader:
    """Takes little-endian numbers off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def numbers(self, layout: str) -> tuple[int, ...]:
        taken = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return taken

    def take(self, size: int) -> bytes:
        assert self.at + size <= len(self.data), f"{size} bytes at {self.at}, of {len(self.data)}"
        self.at += size
        return self.data[self.at - size : self.at]

    def pad(self, alignment: int, since: int = 0) -> None:
        """Zeroes up to a multiple of the alignment, counted from `since`."""
        assert not any(self.take(-(self.at - since) % alignment)), f"padding before byte {self.at}"


def read_mfp(data: bytes) -> tuple[Mfp | None, int]:
    """And its bytes. None: the end of a run."""
    reader = Reader(data)
    magic, n = reader.numbers("HH")
    wide = magic == 0x57CE
    if wide:
        layout, align, version, zero, first, size, source, zero16, zero32 = reader.numbers("BBBBQQHHI")
        assert (layout, zero, zero16, zero32) == (1, 0, 0, 0)
    else:
        assert magic == 0x40CE, f"magic {magic:#x}"
        size, first, source, align, version = reader.numbers("IQHBB")
    if first == 2**64 - 1:
        return None, size
    assert size <= len(data)
    kinds = reader.numbers(f"{n}B")
    reader.pad(4)
    sizes = reader.numbers(f"{n}{'I' if wide else 'H'}")
    reader.pad(4)
    start = reader.at
    fragments = []
    for k in range(n):
        fragments.append(Fragment(first + k, kinds[k], reader.take(sizes[k])))
        if reader.at < size:  # the last one may be without
            reader.pad(1 << align, start)
    assert reader.at == size, f"MFP of {size} bytes, {reader.at} read"
    return Mfp(source, first, align, version, wide, fragments), size


def read_mfps(data: bytes) -> list[Mfp]:
    """Those of a file."""
    mfps = []
    while data:
        mfp, size = read_mfp(data)
        mfps += [mfp] if mfp is not None else []
        data = data[size:]
    return mfps


def read_meps(data: bytes) -> list[list[Mfp]]:
    """Those of a file, each as its MFPs."""
    meps = []
    while data:
        reader = Reader(data)
        magic, n, words = reader.numbers("HHI")
        assert magic == 0xCEFA, f"magic {magic:#x}"
        sources = reader.numbers(f"{n}H")
        reader.pad(4)
        offsets = reader.numbers(f"{n}I")
        mfps = []
        for source, offset in zip(sources, offsets, strict=True):
            reader.pad(8)
            assert reader.at == 4 * offset
            mfp, size = read_mfp(data[reader.at : 4 * words])
            assert mfp is not None
            assert mfp.source == source
            mfps.append(mfp)
            reader.take(size)
        reader.pad(8)
        assert reader.at == 4 * words
        assert len({(mfp.first_event, len(mfp.fragments)) for mfp in mfps}) == 1
        meps.append(mfps)
        data = data[reader.at :]
    return meps


def checksum(data: bytes) -> int:
    """Bob Jenkins' one-at-a-time hash, fed with signed bytes."""
    value, most = 0, 2**32
    for byte in data:
        value = (value + (byte if byte < 128 else byte - 256)) % most
        value = (value + value * 1024) % most
        value ^= value // 64
    value = (value + value * 8) % most
    value ^= value // 2048
    return (value + value * 32768) % most


def read_mdf(data: bytes) -> list[Record]:
    """The records of a file."""
    records = []
    while data:
        reader = Reader(data)
        size, again, and_again, said, compression, layout, kind, spare = reader.numbers("4I4B")
        assert size == again == and_again <= len(data)
        assert (compression, layout >> 4, 4 * (layout & 15), kind, spare) == (0, 3, 28, 1, 0)
        assert said in {0, checksum(data[16:size])}
        *mask, run, orbit, bunch = reader.numbers("7I")
        banks = []
        while reader.at < size:
            magic, length, bank, version, source = reader.numbers("HHBBH")
            assert magic == 0xCBCB
            banks.append(Bank(bank, version, source, reader.take(length - 8)))
            reader.pad(4)
        assert reader.at == size
        records.append(Record(tuple(mask), run, orbit, bunch, banks))
        data = data[size:]
    return records
