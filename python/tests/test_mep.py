"""Folders of built events: what `mep show` tells and what `mep check` finds."""

import json
import os
from pathlib import Path

import pytest
from incast.data.mep import check, committed, read, show
from incast.formats import FormatError, crc32c, encode_mep, encode_mfp, encode_phantom

from tests.mep_folder import MepFolder


def packets(mep: int, *, dead: int | None = None) -> list[bytes]:
    """The MFPs of three sources for the four events of a MEP."""
    sizes = [3, 0, 5, 8]
    good = {source: encode_mfp(source, 4 * mep, sizes, bytes([source]) * 16) for source in (1, 2, 3)}
    if dead is not None:
        good[dead] = encode_phantom(dead, 4 * mep, 4, "missing-dead")
    return list(good.values())


@pytest.fixture
def folder(tmp_path: Path) -> MepFolder:
    """Six MEPs of two builder units."""
    folder = MepFolder(tmp_path / "out")
    for mep in range(6):
        folder.append(mep, packets(mep), bu=mep % 2)
    return folder


def only_problem(folder: MepFolder) -> str:
    """The one thing that is bad."""
    report = check(folder.path)
    assert not report.ok
    assert len(report.problems) == 1, report.problems
    assert any(line.startswith("BAD") for line in report.lines())
    return report.problems[0]


def test_a_good_folder_is_good(folder: MepFolder) -> None:
    report = check(folder.path)
    assert report.problems == []
    assert report.notes == []
    assert (report.meps, report.events, report.mfps, report.payload_bytes) == (6, 24, 18, 6 * 48)
    assert report.lines()[-1] == "ok"
    assert [mep.first_event for mep in read(folder.path)] == [0, 4, 8, 12, 16, 20]


def test_missing_sources_are_counted_and_no_fault(folder: MepFolder) -> None:
    folder.append(6, packets(6, dead=2))
    report = check(folder.path)
    assert report.ok
    assert report.incomplete_events == 4
    assert report.flags == {"missing-dead": 1}
    assert report.lines()[1] == "complete events: 24, incomplete events: 4; missing-dead: 4 events, 1 MFPs"


def test_missing_sources_may_be_error_banks_of_lhcb(folder: MepFolder) -> None:
    """The manifest says which of them the run wrote; those of the front ends are data."""
    banks = [encode_mfp(source, 24, [0] * 4, b"", types=kind) for source, kind in ((1, 92), (2, 92), (3, 96))]
    said: dict[str, object] = {"missing": "lhcb", "flags": {"1": "late", "3": "desync"}}
    folder.append(6, banks, changes=said)
    report = check(folder.path)
    assert report.problems == []
    assert report.flags == {"late": 1, "desync": 1}
    assert report.incomplete_events == 4
    assert [row.flag for row in show(folder.path).meps[6].mfps] == ["late", "empty", "desync"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flags": {"1": "late"}}, "flags {}, the line says {1: 'late'}"),
        ({"missing": "lhcb", "flags": {"1": "desync"}}, "flags {}, the line says {1: 'desync'}"),
        ({"missing": "lhcb", "flags": {"2": "late"}}, "flags {}, the line says {2: 'late'}"),
        ({"missing": "lhcb", "flags": {"9": "late"}}, "flags {}, the line says {9: 'late'}"),
        ({"missing": "others"}, "missing is 'others', expected one of incast, lhcb"),
        ({"missing": ["lhcb"]}, "missing is ['lhcb'], expected one of incast, lhcb"),
    ],
)
def test_error_banks_agree_with_the_manifest(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    folder = MepFolder(tmp_path / "out")
    mfps = [encode_mfp(1, 0, [0, 0], b"", types=92), encode_mfp(2, 0, [3, 1], b"data", types=92)]
    folder.append(0, mfps, changes=changes)
    assert message in check(folder.path).problems[0]


def test_checksums_that_sources_made_must_be_true(folder: MepFolder) -> None:
    good = {
        str(source): f"{crc32c(packet[:16], crc32c(packet[16:])):08x}" for source, packet in enumerate(packets(6), 1)
    }
    folder.append(6, packets(6), changes={"mfp_crc32c": good})
    assert check(folder.path).ok
    folder.append(7, packets(7), changes={"mfp_crc32c": good})
    assert "MEP 7): checksum of source 1" in only_problem(folder)


def test_flags_of_the_manifest_must_be_true(folder: MepFolder) -> None:
    folder.append(6, packets(6, dead=2), changes={"flags": {}})
    assert "flags {2: 'missing-dead'}, the line says {}" in only_problem(folder)


def test_uncommitted_tail_is_ignored(folder: MepFolder) -> None:
    with (folder.path / "0-0-0.mep").open("ab") as out:
        out.write(b"half a MEP")
    (folder.path / "0-0-1.mep").write_bytes(b"x" * 5)
    report = check(folder.path)
    assert report.ok
    assert report.uncommitted_bytes == 15
    assert any("uncommitted tail of 10 bytes" in note for note in report.notes)


def test_torn_last_line_does_not_count(folder: MepFolder) -> None:
    manifest = folder.path / "manifest-1-0.jsonl"
    text = manifest.read_text()
    manifest.write_text(text[:-20])
    report = check(folder.path)
    assert report.ok
    assert report.meps == 5
    assert report.uncommitted_bytes > 0
    assert any("torn" in note for note in report.notes)


def test_redelivered_mep_counts_once_with_its_highest_attempt(folder: MepFolder) -> None:
    folder.append(5, packets(5, dead=1), bu=0, attempt=1)
    report = check(folder.path)
    assert report.ok, report.problems
    assert (report.meps, report.duplicates, report.redelivered, report.incomplete_events) == (6, 1, 1, 4)
    assert [(entry.mep, entry.attempt) for entry in committed(folder.path)][-1] == (5, 1)


def test_same_attempt_twice_is_bad(folder: MepFolder) -> None:
    folder.append(5, packets(5), bu=0)
    assert only_problem(folder) == "MEP 5: attempt 0 is committed 2 times"


@pytest.mark.parametrize(("missing", "message"), [(0, "MEPs 0 .. 0 are"), (3, "MEPs 3 .. 3 are")])
def test_a_missing_mep_is_found(tmp_path: Path, missing: int, message: str) -> None:
    folder = MepFolder(tmp_path)
    for mep in range(6):
        if mep != missing:
            folder.append(mep, packets(mep))
    assert message in only_problem(folder)


def test_a_gap_in_the_events_is_found(folder: MepFolder) -> None:
    folder.append(6, packets(7))
    assert "starts with event 28, expected 24" in only_problem(folder)


def test_a_changed_byte_is_found(folder: MepFolder) -> None:
    path = folder.path / "1-0-0.mep"
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    assert "CRC-32C" in only_problem(folder)
    with pytest.raises(FormatError, match="CRC-32C"):
        list(read(folder.path))


def test_a_shortened_file_is_found(folder: MepFolder) -> None:
    path = folder.path / "1-0-0.mep"
    path.write_bytes(path.read_bytes()[:-1])
    assert "1-0-0.mep has" in only_problem(folder)
    path.unlink()
    assert len(check(folder.path).problems) == 3


def test_other_sources_than_before_are_found(folder: MepFolder) -> None:
    folder.append(6, packets(6)[:2])
    assert "sources differ from those of other MEPs: [3]" in only_problem(folder)


def test_mep_inside_of_another_and_holes_are_found(folder: MepFolder) -> None:
    size = len((folder.path / "0-0-0.mep").read_bytes()) // 3
    with (folder.path / "0-0-0.mep").open("ab") as out:
        out.write(b"\0" * 8)
    folder.positions["0-0-0.mep"] += 8
    folder.append(6, packets(6))
    assert "8 bytes before it belong to no MEP" in only_problem(folder)
    folder.append(7, packets(7), bu=1, changes={"offset": 3 * size - 8})
    assert any("inside of the MEP before it" in problem for problem in check(folder.path).problems)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offset": -1}, "offset is -1"),
        ({"mep": "6"}, "mep is '6'"),
        ({"attempt": True}, "attempt is True"),
        ({"redelivered": 0}, "redelivered is 0"),
        ({"file": "../0-0-0.mep"}, "file is '../0-0-0.mep'"),
        ({"crc32c": "123"}, "crc32c is '123'"),
        ({"flags": {"1": "ok"}}, "flags is"),
        ({"n_mfps": None}, "no n_mfps"),
    ],
)
def test_bad_manifest_lines_name_the_key(folder: MepFolder, changes: dict[str, object], message: str) -> None:
    folder.append(6, packets(6), bu=2, changes=changes)
    problems = check(folder.path).problems
    assert any(message in problem and "manifest-2-0.jsonl line 1" in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_mfps": 2}, "n_mfps 3, the line says 2"),
        ({"n_events": 5}, "n_events 4, the line says 5"),
        ({"first_event": 25}, "first_event 24, the line says 25"),
    ],
)
def test_manifest_lines_must_be_true(folder: MepFolder, changes: dict[str, object], message: str) -> None:
    folder.append(6, packets(6), changes=changes)
    assert any(message in problem for problem in check(folder.path).problems)


def test_what_is_no_mep_folder_is_bad(tmp_path: Path) -> None:
    assert "no manifest" in check(tmp_path).problems[0]
    with pytest.raises(FileNotFoundError):
        check(tmp_path / "absent")
    (tmp_path / "manifest-0-0.jsonl").write_text("{nonsense\n")
    assert "line 1: no JSON" in check(tmp_path).problems[0]


def test_a_manifest_of_no_text_or_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "manifest-0-0.jsonl"
    for text, message in (
        (b"\xff\xfe\n", "manifest-0-0.jsonl line 1: no UTF-8 text"),
        (b"[" * 100_000 + b"\n", "manifest-0-0.jsonl line 1: nested too deep"),
    ):
        path.write_bytes(text)
        assert message in check(tmp_path).problems[0]
    monkeypatch.setattr("incast.data.mep.MAX_LINE_BYTES", 1000)
    path.write_bytes(bytes(1001))
    assert check(tmp_path).problems[0] == "manifest-0-0.jsonl line 1: longer than 1000 bytes"
    os.truncate(path, 1 << 40)  # more than fits into memory
    assert check(tmp_path).problems[0] == "manifest-0-0.jsonl line 1: longer than 1000 bytes"


def test_a_folder_without_manifests_is_checked_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "a.mep").write_bytes(encode_mep(packets(3)))
    (tmp_path / "b.mep").write_bytes(encode_mep(packets(0)) + encode_mep(packets(1)))
    report = check(tmp_path)
    assert (report.ok, report.meps, report.events) == (True, 3, 12)
    assert "3 MEPs, 12 events (0 .. 15)" in report.lines()[0]
    assert report.notes == [
        "no manifest in this folder: its files are taken as they are",
        "no MEP here has events 8 .. 11",
    ]
    assert [row.first_event for row in show(tmp_path).meps] == [12, 0, 4]
    with (tmp_path / "b.mep").open("ab") as out:
        out.write(b"tail")
    assert "b.mep at byte" in check(tmp_path).problems[0]


def test_a_file_alone_is_checked_too(folder: MepFolder) -> None:
    path = folder.path / "0-0-0.mep"
    report = check(path)
    assert report.ok
    assert (report.meps, report.events) == (3, 12)
    with path.open("ab") as out:
        out.write(b"tail")
    assert "MEP: 4 bytes" in check(path).problems[0]


@pytest.mark.parametrize("second", [1, 0], ids=["twice", "unsorted"])
def test_a_file_of_others_may_have_a_source_twice_or_out_of_order(tmp_path: Path, second: int) -> None:
    data = bytearray(encode_mep(packets(0)[:2]))
    data[10:12] = second.to_bytes(2, "little")  # in the table of sources
    at = 4 * int.from_bytes(data[16:20], "little")
    data[at + 16 : at + 18] = second.to_bytes(2, "little")  # and in the MFP itself
    path = tmp_path / "some.mep"
    path.write_bytes(data)
    report = check(path)
    assert report.ok
    assert report.mfps == 2
    words = f"the first at byte 0: source {second}: follows source 1, expected ascending ids"
    assert report.notes[-1].endswith(words)
    assert [mfp.source for mfp in show(path).meps[0].mfps] == [1, second]


def test_packets_that_only_incast_reads_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "some.mep"
    path.write_bytes(encode_mep([encode_mfp(1, 0, [70_000], bytes(70_000)), encode_mfp(2, 0, [4], bytes(4))]))
    report = check(path)
    assert report.ok
    assert report.notes[-1].startswith("1 MFPs are of the wide variant")


def test_ours_have_every_source_once_and_in_order(folder: MepFolder) -> None:
    path = folder.path / "0-0-0.mep"
    data = bytearray(path.read_bytes())
    data[10:12] = (9).to_bytes(2, "little")
    at = 4 * int.from_bytes(data[20:24], "little")
    data[at + 16 : at + 18] = (9).to_bytes(2, "little")
    path.write_bytes(data)
    manifest = folder.path / "manifest-0-0.jsonl"
    lines = manifest.read_text().splitlines()
    first = json.loads(lines[0])
    first["crc32c"] = f"{crc32c(bytes(data[: first['bytes']])):08x}"
    manifest.write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    assert any("follows source 9, expected ascending ids" in problem for problem in check(folder.path).problems)


def test_show_tells_of_meps_mfps_and_fragments(folder: MepFolder) -> None:
    summary = show(folder.path, limit=2, fragments=1)
    assert summary.total == 6
    assert [(row.mep, row.file, row.first_event) for row in summary.meps] == [(0, "0-0-0.mep", 0), (1, "1-0-0.mep", 4)]
    mfp = summary.meps[1].mfps[2]
    assert (mfp.source, mfp.n_fragments, mfp.payload_bytes, mfp.largest_fragment, mfp.empty_fragments) == (
        3,
        4,
        16,
        8,
        1,
    )
    assert mfp.first_fragments == (b"\x03\x03\x03",)
    text = "\n".join(summary.lines())
    assert "event 4: 3 B: 03 03 03" in text
    assert "... and 4 more" in text


def test_show_of_a_file(folder: MepFolder) -> None:
    summary = show(folder.path / "1-0-0.mep")
    assert summary.total == 3
    assert [(row.mep, row.first_event) for row in summary.meps] == [(None, 4), (None, 12), (None, 20)]


def test_nothing_is_not_ok(tmp_path: Path) -> None:
    empty = tmp_path / "empty.mep"
    empty.touch()
    assert check(empty).problems == [f"{empty}: there is no MEP in it"]
