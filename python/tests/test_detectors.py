"""Imports that are to look like LHCb's sources: ids, types, versions, and ODIN."""

from pathlib import Path

import numpy as np
import pytest
import uproot
from incast.data.detectors import ODIN_BYTES, Detector, odin_banks, parse_detectors
from incast.data.import_root import Sources, compare, decode_group, import_root, read_sources
from incast.data.mep import check, show
from incast.formats import FormatError, encode_mep, encode_mfp, read_mfps


@pytest.fixture
def root_file(tmp_path: Path) -> Path:
    """Two groups of branches."""
    path = tmp_path / "small.root"
    with uproot.recreate(path) as file:
        values = {"run": np.arange(5, dtype=np.int32), "Hit_x": np.ones(5, np.float32), "Hit_y": np.ones(5, np.float32)}
        file.mkrntuple("Events", {name: column.dtype for name, column in values.items()}).extend(values)
    return path


def test_every_source_has_what_it_was_told(root_file: Path, tmp_path: Path) -> None:
    told = parse_detectors(["Hit=0x5801:21:3", "event=0x1002:9", "odin=0x0001"])
    import_root(root_file, tmp_path / "out", packing=2, detectors=told)
    found = {
        (mfp.source, int(kind), mfp.fragment_version)
        for path in (tmp_path / "out").glob("source-*.mfp")
        for mfp in read_mfps(path)
        for kind in mfp.types
    }
    assert found == {(0x5801, 21, 3), (0x1002, 9, 0), (1, 16, 7)}
    sources = Sources.load(tmp_path / "out")
    assert [(group.source, group.name, group.type, group.version) for group in sources.groups] == [
        (1, "odin", 16, 7),
        (0x1002, "event", 9, 0),
        (0x5801, "Hit", 21, 3),
    ]
    built = tmp_path / "built.mep"
    packets = zip(
        *(list(read_mfps(tmp_path / "out" / f"source-{one.source}.mfp")) for one in sources.groups), strict=True
    )
    built.write_bytes(b"".join(encode_mep([mfp.packet.tobytes() for mfp in mfps]) for mfps in packets))
    assert compare(root_file, tmp_path / "out", built).problems == []
    damaged = bytearray(built.read_bytes())
    damaged[damaged.index(odin_banks(3, 4).tobytes())] ^= 2
    built.write_bytes(damaged)
    assert compare(root_file, tmp_path / "out", built).problems == ["group odin: differs from what was imported"]
    events = decode_group(sources, "event", read_sources(tmp_path / "out")[1][0x1002])
    assert events["run"].to_list() == list(range(5))


def test_error_banks_are_named_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "some.mep"
    mfps = [encode_mfp(1, 0, [1, 0, 4, 4], bytes(9), types=[92, 92, 21, 96]), encode_mfp(2, 0, [4] * 4, bytes(16))]
    path.write_bytes(encode_mep(mfps))
    report = check(path)
    assert report.ok
    words = "2 x 92 (fragment missing), 1 x 96 (event id jumped)"
    assert report.notes[-1] == f"fragments that are LHCb's error banks: {words}"
    assert [line.strip() for line in show(path).lines() if "error banks" in line] == [f"error banks: {words}"]


# By hand from the published layout of version 7: run 1, physics; event 3565 is bunch 1 of orbit 1.
def test_odins_banks_are_as_published() -> None:
    banks = odin_banks(3565, 3567).reshape(2, ODIN_BYTES)
    first = "01000000 02000000 00000000 00000000 00000000 00000000 01300000 01000000 ed0d0000 00000000"
    assert banks[0].tobytes().hex(" ", 4) == first
    assert banks[1].tobytes()[32:40] == (3566).to_bytes(8, "little")
    assert odin_banks(1 << 40, (1 << 40) + 1).tobytes()[32:40] == (1 << 40).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["Hit"], "expected GROUP=ID"),
        (["Hit=x"], "expected GROUP=ID"),
        (["Hit=1:2:3:4"], "expected GROUP=ID"),
        (["Hit=65536"], "id 65536, expected 0 .. 65535"),
        (["Hit=1:0xF0"], "type 240, expected 0 .. 239"),
        (["Hit=1:1:256"], "version 256, expected 0 .. 255"),
        (["Hit=1", "Hit=2"], "Hit has one already"),
        (["Hit=1", "event=1"], "id 0x0001 is that of Hit, too"),
    ],
)
def test_bad_words_are_one_line(texts: list[str], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_detectors(texts)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"Hit": Detector(1)}, "group event has none"),
        (
            {"Hit": Detector(1), "event": Detector(2), "Jet": Detector(3)},
            "no such group; there are event, Hit",
        ),
    ],
)
def test_all_groups_need_one(root_file: Path, tmp_path: Path, told: dict[str, Detector], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        import_root(root_file, tmp_path / "out", detectors=told)
