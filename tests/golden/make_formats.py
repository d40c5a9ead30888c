#!/usr/bin/env python3
"""Writes tests/golden/formats: a small file of each kind that Incast reads or writes (docs/formats.md).

It packs the published layouts with `struct` alone, and knows nothing of the engine or the package.
Usage: PYTHONPATH=tests/fuzz tests/golden/make_formats.py
"""

import struct
from pathlib import Path

from make_corpus import mep, mfp, pad, phantom

FOLDER = Path(__file__).resolve().parent / "formats"
ODIN, VELO, ECAL = 0x0001, 0x1002, 0x5801
FIRST = 3564 * 9 + 3560  # the events of two orbits
N = 8
RUN = 1


def odin_bank(event: int) -> bytes:
    """Version 7: physics at a crossing of two beams."""
    crossing = event % 3564 | 3 << 12
    return struct.pack("<10I", RUN, 2, 0, 0, 0, 0, crossing, event // 3564, event & 0xFFFFFFFF, event >> 32)


def odin(first: int, n: int) -> bytes:
    return versioned(mfp(ODIN, first, [odin_bank(first + k) for k in range(n)], types=bytes([16]) * n), 7)


def versioned(packet: bytes, version: int) -> bytes:
    return packet[:19] + bytes([version]) + packet[20:]


def fragments(seed: int, n: int) -> list[bytes]:
    """Of 0 to 22 bytes, among them 0x80 and more."""
    return [bytes((37 * seed + 11 * k + b) & 0xFF for b in range((5 * k + seed) % 23)) for k in range(n)]


def velo(first: int, n: int) -> bytes:
    return versioned(mfp(VELO, first, fragments(2, n), types=bytes([8]) * n), 4)


def ecal(first: int, n: int) -> bytes:
    return mfp(ECAL, first, fragments(5, n), types=bytes([77]) * n, align=3)


def hash32(data: bytes) -> int:
    """One-at-a-time, as LHCb adds the bytes: with a sign."""
    value = 0
    for byte in struct.unpack(f"{len(data)}b", data):
        value = (value + byte) & 0xFFFFFFFF
        value = (value + (value << 10)) & 0xFFFFFFFF
        value ^= value >> 6
    value = (value + (value << 3)) & 0xFFFFFFFF
    value ^= value >> 11
    return (value + (value << 15)) & 0xFFFFFFFF


def mdf_record(event: int, banks: list[tuple[int, int, int, bytes]], *, has_odin: bool = True) -> bytes:
    """Of banks as (type, version, source, body)."""
    body = b"".join(
        pad(struct.pack("<HHBBH", 0xCBCB, 8 + len(data), kind, version, source) + data, 4)
        for kind, version, source, data in banks
    )
    odin_says = (RUN, event // 3564, event % 3564) if has_odin else (0, 0, 0)
    checked = struct.pack("<4B4I3I", 0, 3 << 4 | 7, 1, 0, *[0xFFFFFFFF] * 4, *odin_says) + body
    return struct.pack("<4I", *[16 + len(checked)] * 3, hash32(checked)) + checked


def complete_mep(first: int) -> bytes:
    return mep({ODIN: odin(first, N), VELO: velo(first, N), ECAL: ecal(first, N)})


def complete_mdf(first: int) -> bytes:
    return b"".join(
        mdf_record(
            first + k,
            [
                (16, 7, ODIN, odin_bank(first + k)),
                (8, 4, VELO, fragments(2, N)[k]),
                (77, 0, ECAL, fragments(5, N)[k]),
            ],
        )
        for k in range(N)
    )


def missing_mep() -> bytes:
    """A phantom of each flag, and an MFP of which the last two fragments are truncated."""
    cut = mfp(20, FIRST, [b"whole", b"", b""], types=bytes([9, 0xF5, 0xF5]), align=3)
    return mep({10 + flag: phantom(10 + flag, FIRST, 3, flag) for flag in range(2, 9)} | {20: cut})


LHCB = {2: 92, 3: 92, 4: 92, 5: 93, 6: 95, 7: 96, 8: 89}  # our flags as LHCb's error banks


def missing_lhcb() -> bytes:
    """The same for readers that know LHCb's types alone."""
    absent = {
        10 + flag: mfp(10 + flag, FIRST, [b""] * 3, types=bytes([kind]) * 3, align=3) for flag, kind in LHCB.items()
    }
    return mep(absent | {20: mfp(20, FIRST, [b"whole", b"", b""], types=bytes([9, 93, 93]), align=3)})


def error_banks() -> bytes:
    """As front ends send them: all ten types, with and without a body, and one that follows none of them."""
    kinds = [*range(89, 97), 100, 101, 8]
    bodies = [bytes([kind]) * (kind % 3) for kind in kinds]
    return mep({VELO: versioned(mfp(VELO, FIRST, bodies, types=bytes(kinds), align=2), 4)})


def unordered() -> bytes:
    """Source ids that do not ascend, and one that comes twice."""
    packets = [mfp(30, FIRST, [b"thirty"]), mfp(10, FIRST, [b"ten"]), mfp(30, FIRST, [b"again"], types=b"\x09")]
    ids = struct.pack("<3HH", 30, 10, 30, 0)
    offsets, body = [], b""
    for packet in packets:
        offsets.append((32 + len(body)) // 4)
        body += pad(packet, 8)
    return struct.pack("<HHI", 0xCEFA, 3, (32 + len(body)) // 4) + pad(ids + struct.pack("<3I", *offsets), 8) + body


def wide_mep() -> bytes:
    return mep({VELO: mfp(VELO, FIRST, fragments(2, 3), wide=True), ECAL: mfp(ECAL, FIRST, fragments(5, 3))})


def end_of_run() -> bytes:
    """Two MFPs and LHCb's packet that ends a run: event id 2^64 - 1, two fragments, no events."""
    last = struct.pack("<HHIQHBB", 0x40CE, 2, 28, 2**64 - 1, VELO, 3, 4) + bytes(8)
    return velo(FIRST, N) + velo(FIRST + N, N) + last


def missing_mdf() -> bytes:
    absent = [(kind, 0, 10 + flag, b"") for flag, kind in LHCB.items()]
    cut = [(9, 0, 20, b"whole"), (93, 0, 20, b""), (93, 0, 20, b"")]
    return b"".join(mdf_record(FIRST + k, [*absent, cut[k]], has_odin=False) for k in range(3))


def files() -> dict[str, bytes]:
    return {
        "complete.mep": complete_mep(FIRST) + complete_mep(FIRST + N),
        "complete.mdf": complete_mdf(FIRST) + complete_mdf(FIRST + N),
        "missing.mep": missing_mep(),
        "missing-lhcb.mep": missing_lhcb(),
        "error-banks.mep": error_banks(),
        "unordered.mep": unordered(),
        "wide.mep": wide_mep(),
        "end-of-run.mfp": end_of_run(),
        "missing.mdf": missing_mdf(),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, data in files().items():
        (FOLDER / name).write_bytes(data)


if __name__ == "__main__":
    main()
