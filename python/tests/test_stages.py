"""`incast mep unpack`: what two stages built becomes what one stage builds."""

from pathlib import Path

import pytest
from incast.data.stages import unpack
from incast.formats import FormatError, Mep, encode_mep, encode_mfp, encode_phantom, parse_mep

GROUPS = ((1, 5), (2, 3))


def fragment(source: int, mep: int) -> bytes:
    return encode_mfp(source, 2 * mep, [3, mep], bytes([source + mep]) * (3 + mep))


def inner(group: int, mep: int) -> bytes:
    return encode_mep([fragment(source, mep) for source in GROUPS[group]])


def outer(mep: int, bodies: list[bytes | None], first: int | None = None) -> bytes:
    """None: the super-fragment is missing."""
    event = mep if first is None else first
    packets = [
        encode_phantom(group, event, 1, "late") if body is None else encode_mfp(group, event, [len(body)], body)
        for group, body in enumerate(bodies)
    ]
    return encode_mep(packets)


def unpacked(tmp_path: Path, meps: list[bytes]) -> list[Mep]:
    (tmp_path / "twice.mep").write_bytes(b"".join(meps))
    unpack([tmp_path / "twice.mep"], tmp_path / "once.mep")
    data = (tmp_path / "once.mep").read_bytes()
    found = []
    while data:
        found.append(parse_mep(data))
        data = data[len(found[-1].packet) :]
    return found


def test_sources_of_all_groups_are_in_one_order(tmp_path: Path) -> None:
    found = unpacked(tmp_path, [outer(mep, [inner(0, mep), inner(1, mep)]) for mep in range(3)])
    expected = [encode_mep([fragment(source, mep) for source in (1, 2, 3, 5)]) for mep in range(3)]
    assert [each.packet.tobytes() for each in found] == expected


def test_sources_of_a_missing_super_fragment_are_flagged_as_it_is(tmp_path: Path) -> None:
    meps = [outer(0, [inner(0, 0), None]), outer(1, [inner(0, 1), inner(1, 1)]), outer(2, [None, inner(1, 2)])]
    found = unpacked(tmp_path, meps)
    assert [each.flags for each in found] == [{2: "late", 3: "late"}, {}, {1: "late", 5: "late"}]
    assert [each.first_event for each in found] == [0, 2, 4]


def test_what_is_no_super_fragment_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="source 1, event 0: no super-fragment"):
        unpacked(tmp_path, [outer(0, [inner(0, 0), b"hello"])])
    assert not (tmp_path / "once.mep").exists()
    with pytest.raises(FormatError, match="a source is in two super-fragments"):
        unpacked(tmp_path, [outer(0, [inner(0, 0), inner(0, 0)])])
