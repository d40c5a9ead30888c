"""`incast mep split`, `merge` and `sources`: nothing of a packet changes."""

import struct
from pathlib import Path

import pytest
from incast.data.mep import check
from incast.data.mep_rearrange import merge, sources, split
from incast.formats import FormatError, encode_mep, encode_mfp, read_mfps

MEPS = [
    encode_mep([encode_mfp(source, 4 * mep, [3, 0, 5, mep], bytes([source + mep]) * (8 + mep)) for source in (1, 7)])
    for mep in range(5)
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Five MEPs of two sources."""
    path = tmp_path / "all.mep"
    path.write_bytes(b"".join(MEPS))
    return path


def test_a_file_is_split_and_merged_to_the_same_bytes(file: Path, tmp_path: Path) -> None:
    done = split(file, tmp_path / "parts")
    parts = sorted((tmp_path / "parts").iterdir())
    assert (done.files, done.meps, done.bytes) == (5, 5, len(file.read_bytes()))
    assert [part.read_bytes() for part in parts] == MEPS
    for name, paths in (("again.mep", list(reversed(parts))), ("folder.mep", [tmp_path / "parts"])):
        merge(paths, tmp_path / name)
        assert (tmp_path / name).read_bytes() == file.read_bytes()
    split(file, tmp_path / "pairs", 2)
    assert [len(part.read_bytes()) for part in sorted((tmp_path / "pairs").iterdir())] == [
        len(MEPS[0] + MEPS[1]),
        len(MEPS[2] + MEPS[3]),
        len(MEPS[4]),
    ]


def test_sources_hold_the_packets_of_the_meps(file: Path, tmp_path: Path) -> None:
    sources([file], tmp_path / "sources")
    files = sorted((tmp_path / "sources").iterdir())
    assert [path.name for path in files] == ["source-1.mfp", "source-7.mfp"]
    packets = zip(*(list(read_mfps(path)) for path in files), strict=True)
    assert [encode_mep([mfp.packet.tobytes() for mfp in mfps]) for mfps in packets] == MEPS


def test_sources_need_no_order_of_ids_but_each_once(tmp_path: Path) -> None:
    """Packets of others: Incast writes ids in ascending order."""
    one, seven = (encode_mfp(source, 0, [4, 4, 4], b"abcd" * 3) for source in (1, 7))
    path = tmp_path / "others.mep"
    path.write_bytes(others_mep([seven, one]))
    sources([path], tmp_path / "sources")
    assert [(tmp_path / "sources" / f"source-{id_}.mfp").read_bytes() for id_ in (1, 7)] == [one, seven]
    path.write_bytes(others_mep([one, one]))
    with pytest.raises(FormatError, match=r"others\.mep: events from 0 on: source 1 is there more than once"):
        sources([path], tmp_path / "new")


def others_mep(packets: list[bytes]) -> bytes:
    """Two MFPs of one size, in this order, as docs/formats.md lays them out."""
    size = len(packets[0])
    assert size % 8 == 0
    ids = [int.from_bytes(packet[16:18], "little") for packet in packets]
    words = (24 + 2 * size) // 4
    return struct.pack("<HHI2H2I", 0xCEFA, 2, words, *ids, 6, 6 + size // 4) + bytes(4) + b"".join(packets)


def test_what_cannot_be_done_leaves_nothing(file: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="event 0 is in two MEPs"):
        merge([file, file], tmp_path / "twice.mep")
    assert not (tmp_path / "twice.mep").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    with pytest.raises(FormatError, match="is not empty"):
        split(file, tmp_path / "full")
    assert (tmp_path / "full" / "something").exists()
    torn = tmp_path / "torn.mep"
    torn.write_bytes(file.read_bytes()[:-8])
    for command in (split, lambda path, folder: sources([path], folder)):
        with pytest.raises(FormatError, match="bytes, but only"):
            command(torn, tmp_path / "new")
        assert not (tmp_path / "new").exists()
    with pytest.raises(FileExistsError):
        merge([file], file)
    assert check(file).ok
