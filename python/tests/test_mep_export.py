"""`incast mep export --mdf`: LHCb's records of single events."""

import struct
from pathlib import Path

import numpy as np
import pytest
from incast.data.detectors import odin_banks
from incast.data.mep_export import export_mdf
from incast.formats import FLAG_NAMES, FormatError, encode_mep, encode_mfp, encode_phantom

from tests.conftest import Incast

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "formats"
ODIN, HIT = 0x0001, 0x5801


def banks_of(record: bytes) -> list[tuple[int, int, int, bytes]]:
    """Type, version, source and body of each bank of a record."""
    banks, at = [], 48
    while at < len(record):
        magic, size, kind, version, source = struct.unpack_from("<HHBBH", record, at)
        assert magic == 0xCBCB
        banks.append((kind, version, source, record[at + 8 : at + size]))
        end = at + size + -size % 4
        assert record[at + size : end] == bytes(end - at - size)
        at = end
    return banks


def records_of(data: bytes) -> list[bytes]:
    """The records of a file, by the first of their three sizes."""
    records = []
    while data:
        size = int.from_bytes(data[:4], "little")
        records.append(data[:size])
        data = data[size:]
    return records


def one_at_a_time(data: bytes) -> int:
    """The hash as it is published, with bytes that have a sign."""
    value = 0
    for byte in data:
        value = (value + byte - (byte >> 7 << 8)) & 0xFFFFFFFF
        value = (value + (value << 10)) & 0xFFFFFFFF
        value ^= value >> 6
    value = (value + (value << 3)) & 0xFFFFFFFF
    value ^= value >> 11
    return (value + (value << 15)) & 0xFFFFFFFF


def odin(first: int, n: int) -> bytes:
    return encode_mfp(ODIN, first, [40] * n, odin_banks(first, first + n), types=16, fragment_version=7)


def test_every_event_is_a_record_with_its_banks(tmp_path: Path) -> None:
    first = 3564 * 5 + 7
    rng = np.random.default_rng(1)
    sizes = rng.integers(0, 50, 300)
    payload = rng.integers(0, 256, sizes.sum(), dtype=np.uint8)
    mep = encode_mep([odin(first, 300), encode_mfp(HIT, first, sizes, payload, types=21, fragment_version=3)])
    (tmp_path / "in.mep").write_bytes(mep)
    done = export_mdf([tmp_path / "in.mep"], tmp_path / "out.mdf")
    records = records_of((tmp_path / "out.mdf").read_bytes())
    assert (done.events, done.banks, done.bytes, done.without_odin) == (300, 600, sum(map(len, records)), 0)
    ends = np.cumsum(sizes)
    for k, record in enumerate(records):
        *size, checksum, compression, layout, kind, spare = struct.unpack_from("<4I4B", record)
        assert size == [len(record)] * 3
        assert (compression, layout, kind, spare) == (0, 0x37, 1, 0)
        assert checksum == one_at_a_time(record[16:])
        assert struct.unpack_from("<7I", record, 20) == (*[0xFFFFFFFF] * 4, 1, 5, 7 + k)
        assert banks_of(record) == [
            (16, 7, ODIN, odin_banks(first + k, first + k + 1).tobytes()),
            (21, 3, HIT, payload[ends[k] - sizes[k] : ends[k]].tobytes()),
        ]
    export_mdf([tmp_path / "in.mep"], tmp_path / "plain.mdf", checksum=False)
    plain = records_of((tmp_path / "plain.mdf").read_bytes())
    assert [record[:12] + bytes(4) + record[16:] for record in records] == plain


def test_missing_fragments_are_error_banks_that_say_why(tmp_path: Path) -> None:
    expected = dict(zip(FLAG_NAMES[2:], (92, 92, 92, 93, 95, 96, 89), strict=True))
    for flag, kind in expected.items():
        file = tmp_path / f"{flag}.mep"
        file.write_bytes(encode_mep([encode_phantom(7, 10, 2, flag), encode_mfp(8, 10, [0, 4], b"data")]))
        done = export_mdf([file], file.with_suffix(".mdf"))
        assert done.missing == {kind: 2}
        assert done.without_odin == 2
        assert "2 events have no bank of ODIN" in done.lines()[-1]
        found = [banks_of(record) for record in records_of(file.with_suffix(".mdf").read_bytes())]
        assert found == [[(kind, 0, 7, b""), (0, 0, 8, b"")], [(kind, 0, 7, b""), (0, 0, 8, b"data")]]
    # Those that came as such, with whatever body, stay as they are.
    banks = encode_mfp(9, 10, [5, 0], b"words", types=[101, 92], fragment_version=2)
    (tmp_path / "sent.mep").write_bytes(encode_mep([banks]))
    export_mdf([tmp_path / "sent.mep"], tmp_path / "sent.mdf")
    records = records_of((tmp_path / "sent.mdf").read_bytes())
    assert [banks_of(record) for record in records] == [[(101, 2, 9, b"words")], [(92, 2, 9, b"")]]


def test_events_are_in_order_and_once(tmp_path: Path) -> None:
    for name, first in (("b", 4), ("a", 8), ("c", 0)):
        (tmp_path / f"{name}.mep").write_bytes(encode_mep([odin(first, 4)]))
    files = [tmp_path / f"{name}.mep" for name in "abc"]
    export_mdf(files, tmp_path / "all.mdf")
    records = records_of((tmp_path / "all.mdf").read_bytes())
    assert [struct.unpack_from("<I", record, 44)[0] for record in records] == list(range(12))
    with pytest.raises(FormatError, match="event 4 is in two MEPs"):
        export_mdf([*files, files[0].with_name("b.mep")], tmp_path / "twice.mdf")
    assert not (tmp_path / "twice.mdf").exists()


def test_what_has_no_place_in_a_bank_is_one_line_and_no_file(incast: Incast) -> None:
    (incast.folder / "in.mep").write_bytes(
        encode_mep([encode_mfp(3, 0, [65527], bytes(65527)), encode_mfp(4, 0, [65528], bytes(65528))])
    )
    done = incast("mep", "export", "in.mep", "--mdf", "out.mdf")
    assert (done.returncode, done.stderr) == (
        1,
        "incast: in.mep: event 0: source 4: fragment of 65528 bytes, expected at most 65527 for a raw bank\n",
    )
    assert not (incast.folder / "out.mdf").exists()
    (incast.folder / "in.mep").write_bytes(encode_mep([encode_mfp(3, 0, [65527], bytes(65527))]))
    done = incast("mep", "export", "in.mep", "--mdf", "out.mdf")
    assert (done.returncode, done.stderr) == (0, "")
    before = (incast.folder / "out.mdf").read_bytes()
    done = incast("mep", "export", "in.mep", "--mdf", "out.mdf")
    assert (done.returncode, done.stderr) == (1, "incast: out.mdf: File exists\n")
    assert (incast.folder / "out.mdf").read_bytes() == before
    done = incast("mep", "export", "in.mep", "--mdf", "nowhere/out.mdf")
    assert (done.returncode, done.stderr) == (1, "incast: nowhere/out.mdf: No such file or directory\n")
    (incast.folder / "empty.mep").touch()
    done = incast("mep", "export", "empty.mep", "--mdf", "none.mdf")
    assert (done.returncode, done.stderr) == (1, "incast: empty.mep: there is no MEP in it\n")
    assert not (incast.folder / "none.mdf").exists()


@pytest.mark.parametrize("kind", ["complete", "missing"])
def test_golden_files_are_written_again(kind: str, tmp_path: Path) -> None:
    """tests/golden/make_formats.py packed both from the published layouts."""
    export_mdf([GOLDEN / f"{kind}.mep"], tmp_path / "out.mdf")
    assert (tmp_path / "out.mdf").read_bytes() == (GOLDEN / f"{kind}.mdf").read_bytes()


def test_meps_hold_nothing_that_is_ours_alone(incast: Incast) -> None:
    for kind, expected in (("complete", "complete"), ("missing", "missing-lhcb")):
        done = incast("mep", "export", str(GOLDEN / f"{kind}.mep"), "--mep", f"{kind}.mep")
        assert (done.returncode, done.stderr) == (0, "")
        assert (incast.folder / f"{kind}.mep").read_bytes() == (GOLDEN / f"{expected}.mep").read_bytes()
    (incast.folder / "wide.mep").write_bytes(encode_mep([encode_mfp(3, 8, [65536], bytes(65536))]))
    done = incast("mep", "export", "wide.mep", "--mep", "out.mep")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "incast: wide.mep: events from 8 on: source 3: an MFP of the wide variant, which only"
    )
    assert not (incast.folder / "out.mep").exists()
    done = incast("mep", "export", "wide.mep")
    assert (done.returncode, done.stderr) == (2, "incast: expected one of --mdf FILE and --mep FILE\n")
