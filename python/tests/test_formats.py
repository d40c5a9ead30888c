"""MFP and MEP: the published bytes, round trips, and damage."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from incast import formats
from incast.formats import FormatError, encode_mep, encode_mfp, encode_phantom, parse_mep, parse_mfp

CORPUS = Path(__file__).resolve().parents[2] / "tests" / "fuzz" / "corpus"

# By hand from the published layout, the same bytes as in src/wire/mfp_test.cpp.
GOLDEN_MFP = bytes.fromhex(
    "ce40 0300 30000000 0807060504030201 2211 03 09 4d4e4f00 0500 0000 0400 0000 a0a1a2a3a4000000 b0b1b2b300000000"
)
GOLDEN_WIDE = bytes.fromhex(
    "ce57 0300 01 03 09 00 0807060504030201 4000000000000000 2211 0000 00000000"
    " 4d4e4f00 05000000 00000000 04000000"
    " a0a1a2a3a4000000 b0b1b2b300000000"
)
GOLDEN_MEP = bytes.fromhex(
    "face 0300 20000000 0300 0500 0201 0000 08000000 10000000 18000000 00000000"
    " ce40 0100 20000000 0900000000000000 0300 02 00 01000000 0400 0000 03030303"
    " ce40 0100 1c000000 0900000000000000 0500 02 00 01000000 0000 0000 00000000"
    " ce40 0100 20000000 0900000000000000 0201 02 00 01000000 0400 0000 02020202"
)


def mfp(source: int, fragments: list[bytes], first_event: int = 9, align_log2: int = 2) -> bytes:
    """An MFP of fragments of type 1."""
    sizes = [len(fragment) for fragment in fragments]
    return encode_mfp(source, first_event, sizes, b"".join(fragments), types=1, align_log2=align_log2)


def test_mfp_has_the_published_layout() -> None:
    payload = bytes.fromhex("a0a1a2a3a4b0b1b2b3")
    encoded = encode_mfp(
        0x1122, 0x0102030405060708, [5, 0, 4], payload, types=[0x4D, 0x4E, 0x4F], align_log2=3, fragment_version=9
    )
    assert encoded == GOLDEN_MFP


@pytest.mark.parametrize("golden", [GOLDEN_MFP, GOLDEN_WIDE], ids=["lhcb", "wide"])
def test_mfp_is_read_from_the_published_layout(golden: bytes) -> None:
    packet = parse_mfp(b"xx" + golden + b"yy", 2)
    assert packet.wide == (golden is GOLDEN_WIDE)
    assert (packet.first_event, packet.source, packet.align_log2, packet.fragment_version) == (
        0x0102030405060708,
        0x1122,
        3,
        9,
    )
    assert len(packet.packet) == len(golden)
    assert packet.types.tolist() == [0x4D, 0x4E, 0x4F]
    assert [packet.fragment(k).tobytes().hex() for k in range(3)] == ["a0a1a2a3a4", "", "b0b1b2b3"]
    assert packet.payload().tobytes().hex() == "a0a1a2a3a4b0b1b2b3"
    assert packet.flag == "ok"


def test_mep_has_the_published_layout() -> None:
    encoded = encode_mep([mfp(3, [b"\x03" * 4]), mfp(5, [b""]), mfp(0x0102, [b"\x02" * 4])])
    assert encoded == GOLDEN_MEP
    packet = parse_mep(GOLDEN_MEP)
    assert [part.source for part in packet.mfps] == [3, 5, 0x0102]
    assert (packet.first_event, packet.n_events, packet.payload_bytes, packet.flags) == (9, 1, 8, {})


def test_large_fragments_take_the_wide_variant() -> None:
    packet = parse_mfp(mfp(1, [b"a" * 65535]))
    assert not packet.wide
    packet = parse_mfp(mfp(1, [b"a" * 65536, b"b"]))
    assert packet.wide
    assert packet.fragment(1).tobytes() == b"b"


@pytest.mark.parametrize("flag", formats.FLAG_NAMES[2:])
def test_phantom_tells_why_a_source_is_missing(flag: str) -> None:
    packet = parse_mfp(encode_phantom(7, 100, 5, flag))
    assert packet.flag == flag
    assert packet.missing().all()
    assert (packet.n_fragments, packet.first_event, packet.payload_bytes) == (5, 100, 0)
    assert parse_mep(encode_mep([mfp(3, [b"x"] * 5, 100), encode_phantom(7, 100, 5, flag)])).flags == {7: flag}


def test_empty_is_neither_ok_nor_missing() -> None:
    packet = parse_mfp(mfp(7, [b"", b""]))
    assert packet.flag == "empty"
    assert not packet.missing().any()
    with pytest.raises(FormatError, match="cannot carry"):
        encode_phantom(7, 100, 5, "empty")


def poke(data: bytes, offset: int, *values: int) -> bytes:
    """The bytes with some replaced."""
    return data[:offset] + bytes(values) + data[offset + len(values) :]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (GOLDEN_MFP[:19], "19 bytes"),
        (poke(GOLDEN_MFP, 0, 0xCF), "magic 0x40cf"),
        (poke(GOLDEN_MFP, 2, 0), "n_fragments 0"),
        (poke(GOLDEN_MFP, 4, 0x31), "packet bytes 49, but only 48"),
        (poke(GOLDEN_MFP, 4, 0x10), "packet bytes 16, expected at least 32"),
        (poke(GOLDEN_MFP, 4, 0x2B), "packet bytes 43"),
        (poke(GOLDEN_MFP, 8, *[0xFF] * 8), "wraps"),
        (poke(GOLDEN_MFP, 18, 13), r"align 2\^13"),
        (poke(GOLDEN_MFP, 24, 13), "add up to 56"),
        (GOLDEN_WIDE[:31], "wide header"),
        (poke(GOLDEN_WIDE, 4, 2), "wide version 2"),
        (poke(GOLDEN_WIDE, 7, 1), "reserved"),
        (poke(GOLDEN_WIDE, 31, 1), "reserved"),
    ],
)
def test_mfp_errors_name_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_mfp(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (GOLDEN_MEP[:7], "7 bytes"),
        (poke(GOLDEN_MEP, 0, 0), "magic"),
        (poke(GOLDEN_MEP, 2, 0), "n_mfps 0"),
        (poke(GOLDEN_MEP, 4, 0x21), "only 128 are there"),
        (poke(GOLDEN_MEP, 4, 6), "expected at least 28"),
        (poke(GOLDEN_MEP, 10, 3), "source 3: holds the MFP of source 5"),
        (poke(GOLDEN_MEP, 10, 2), "source 2: holds the MFP of source 5"),
        (poke(GOLDEN_MEP, 8, 4), "source 4: holds the MFP of source 3"),
        (poke(GOLDEN_MEP, 16, 6), "source 3: offset 24"),
        (poke(GOLDEN_MEP, 20, 9), "source 5: offset 36"),
        (poke(GOLDEN_MEP, 24, 0xFF), "source 258: offset 1020"),
        (poke(GOLDEN_MEP, 32, 0), "source 3: MFP: magic"),
        (poke(GOLDEN_MEP, 72, 8), r"source 5: events 8 \+ 1, expected 9 \+ 1"),
    ],
)
def test_mep_errors_name_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_mep(data)


def test_encoding_refuses_what_cannot_be_said() -> None:
    with pytest.raises(FormatError, match="n_fragments 0"):
        encode_mfp(1, 0, [], b"")
    with pytest.raises(FormatError, match="n_fragments 65536"):
        encode_mfp(1, 0, np.zeros(65536, dtype=np.int64), b"")
    with pytest.raises(FormatError, match="sizes add up to 3"):
        encode_mfp(1, 0, [3], b"1234")
    with pytest.raises(FormatError, match="n_mfps 0"):
        encode_mep([])
    with pytest.raises(FormatError, match="ascending"):
        encode_mep([mfp(5, [b"a"]), mfp(4, [b"a"])])


@settings(max_examples=100, deadline=None)
@given(
    fragments=st.lists(st.binary(max_size=40), min_size=1, max_size=20),
    source=st.integers(0, 65535),
    first_event=st.integers(0, 2**63),
    align_log2=st.integers(0, 6),
)
def test_mfp_round_trip(fragments: list[bytes], source: int, first_event: int, align_log2: int) -> None:
    packet = parse_mfp(mfp(source, fragments, first_event, align_log2))
    assert [packet.fragment(k).tobytes() for k in range(packet.n_fragments)] == fragments
    assert (packet.source, packet.first_event, packet.payload().tobytes()) == (source, first_event, b"".join(fragments))


@pytest.mark.parametrize("golden", [GOLDEN_MFP, GOLDEN_WIDE, GOLDEN_MEP], ids=["lhcb", "wide", "mep"])
def test_damage_gives_an_error_and_nothing_else(golden: bytes) -> None:
    parse = parse_mep if golden is GOLDEN_MEP else parse_mfp
    for length in range(len(golden)):
        with pytest.raises(FormatError):
            parse(golden[:length])
    dice = random.Random(1)
    refused = 0
    for _ in range(2000):
        damaged = poke(golden, dice.randrange(len(golden)), dice.randrange(256))
        try:
            parse(damaged)
        except FormatError:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize("kind", ["fuzz_mfp", "fuzz_mep"])
def test_reads_the_corpus_of_the_fuzzers(kind: str) -> None:
    inputs = sorted((CORPUS / kind).glob("seed-*"))
    assert inputs
    for path in inputs:
        if kind == "fuzz_mfp":
            assert sum(packet.payload_bytes for packet in formats.read_mfps(path)) >= 0
        else:
            assert all(packet.mfps for _, packet in formats.read_meps(path))


def test_files_are_walked_to_their_end(tmp_path: Path) -> None:
    path = tmp_path / "source-3.mfp"
    path.write_bytes(mfp(3, [b"abc"], 0, 0) + mfp(3, [b"de"], 1, 0))
    assert [packet.payload().tobytes() for packet in formats.read_mfps(path)] == [b"abc", b"de"]
    path.write_bytes(b"")
    assert list(formats.read_mfps(path)) == []
    path.write_bytes(mfp(3, [b"abc"], 0, 0) + b"z")
    with pytest.raises(FormatError, match="at byte 31: MFP: 1 bytes"):
        list(formats.read_mfps(path))
    path = tmp_path / "x.mep"
    path.write_bytes(GOLDEN_MEP + GOLDEN_MEP)
    assert [offset for offset, _ in formats.read_meps(path)] == [0, 128]
    path.write_bytes(GOLDEN_MEP + b"\0" * 8)
    with pytest.raises(FormatError, match="at byte 128: MEP: magic"):
        list(formats.read_meps(path))


def test_crc32c_is_the_published_one() -> None:
    # RFC 3720 appendix B.4.
    assert formats.crc32c(b"123456789") == 0xE3069283
    assert formats.crc32c(bytes(32)) == 0x8A9136AA
    assert formats.crc32c(np.arange(32, dtype=np.uint8)) == 0x46DD794E
    assert formats.crc32c(b"6789", formats.crc32c(b"12345")) == 0xE3069283
