"""Odd files of others: names, strings, cycles and repeated branches, and two imports into one folder."""

import fcntl
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot
from incast.data.import_root import Branch, default_groups, import_root, read_sources
from incast.data.root_tree import Tree, _CStrings
from incast.formats import FormatError

NUMBERS = np.arange(1, 4)


def write(path: Path, columns: dict[str, Any], *, ntuple: bool = False) -> Path:
    """A file with these columns of numbers as its tree `T`."""
    with uproot.recreate(path) as file:
        if ntuple:
            file.mkrntuple("T", columns)
        else:
            file.mktree("T", {name: np.dtype(np.int64) for name in columns})
            file["T"].extend(columns)
    return path


@pytest.mark.parametrize("ntuple", [False, True])
def test_branches_of_any_name_are_read(ntuple: bool, tmp_path: Path) -> None:
    names = [
        "",
        "/",
        "end/",
        "/start",
        "a/b",
        ".hidden",
        "..",
        "Jet.pt",
        "a\\b",
        "a;1",
        " x",
        "Pt",
        "pt",
        "日本",
        "n",
        "_",
    ]
    import_root(write(tmp_path / "odd.root", dict.fromkeys(names, NUMBERS), ntuple=ntuple), tmp_path / "in")
    sources, packets = read_sources(tmp_path / "in")
    keys = [branch.key for group in sources.groups for branch in group.branches]
    assert sorted(keys) == sorted(names)
    assert sum(mfp.payload_bytes for mfps in packets.values() for mfp in mfps) == len(names) * NUMBERS.nbytes


def test_a_counter_of_one_list_is_in_its_group() -> None:
    lists = ak.Array([[1.0]])
    with_lists = [Branch(key, Tree.type_of(OneColumn({key: lists}), key, 1)) for key in ("Jet_pt", "Jet_eta")]
    counters = [Branch(key, Tree.type_of(OneColumn({key: NUMBERS}), key, 1)) for key in ("nJet_pt", "nJet_eta", "n")]
    groups = default_groups([*with_lists, *counters])
    assert {name: [branch.key for branch in members] for name, members in groups.items()} == {
        "event": ["n"],
        "Jet": ["Jet_pt", "Jet_eta", "nJet_pt", "nJet_eta"],
    }


class OneColumn(Tree):
    """A tree of arrays; of a name that is there twice the list has both."""

    def __init__(self, columns: dict[str, Any] | list[tuple[str, Any]]) -> None:
        pairs = columns.items() if isinstance(columns, dict) else columns
        super().__init__(Path("columns.root"), "T", _Arrays([(key, _Array(array)) for key, array in pairs]))


class _Array:
    def __init__(self, array: Any) -> None:
        self._array = array

    def array(self, entry_start: int, entry_stop: int, library: str) -> Any:
        assert library == "ak"
        return ak.Array(self._array)[entry_start:entry_stop]


class _Arrays:
    num_entries = 3

    def __init__(self, pairs: list[tuple[str, _Array]]) -> None:
        self._pairs = pairs

    def items(self, recursive: bool) -> list[tuple[str, _Array]]:
        assert recursive
        return self._pairs


def test_a_branch_with_the_name_of_another_is_not_lost_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = OneColumn([("x", NUMBERS), ("y", NUMBERS), ("x", -NUMBERS)])
    monkeypatch.setattr("incast.data.import_root.open_tree", lambda *_: tree)
    with pytest.raises(FormatError, match=r"a\.root: tree T: branch 'x': another one before it has that name"):
        import_root(Path("a.root"), tmp_path / "in")
    summary = import_root(Path("a.root"), tmp_path / "in", skip_unsupported=True)
    assert summary.skipped == ("branch 'x': another one before it has that name",)
    assert [branch.key for branch in summary.sources.groups[0].branches] == ["x", "y"]


def test_branches_that_are_short_or_make_no_sense_are_refused_with_file_and_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = ak.index.Index64(np.array([0, 2, 1, 3]))
    broken = ak.Array(ak.contents.ListOffsetArray(offsets, ak.contents.NumpyArray(NUMBERS)))
    for array, reason in (
        (NUMBERS[:2], "only 2 of the events 0 .. 2 are there"),
        (broken, "lists of less than 0 items"),
    ):
        tree = OneColumn({"x": array})
        monkeypatch.setattr("incast.data.import_root.open_tree", lambda *_, tree=tree: tree)
        with pytest.raises(FormatError, match=rf"^a\.root: tree T: branch 'x': .*{reason}"):
            import_root(Path("a.root"), tmp_path / "in")
        assert not (tmp_path / "in").exists()


def test_empty_c_strings_take_nothing_of_their_neighbours() -> None:
    """Of an empty one ROOT writes no byte into the basket."""
    strings = [b"", b"abc", b"", b"", b"d", b"e" * 300, b""]
    written = [b"" if not each else _with_length(each) for each in strings]
    ends = np.cumsum([0, *(len(each) for each in written)])
    basket = np.frombuffer(b"".join(written), dtype=np.uint8)
    read = _CStrings().basket_array(basket, ends, None, None, {}, 0, None, {})
    assert [read.content[a:b] for a, b in zip(read.offsets, read.offsets[1:], strict=False)] == strings


def _with_length(text: bytes) -> bytes:
    length = bytes([len(text)]) if len(text) < 255 else b"\xff" + len(text).to_bytes(4, "big")
    return length + text


def test_older_cycles_of_a_tree_are_read_by_their_number(tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "two.root") as file:
        for events in (2, 3):
            file.mktree("T", {"x": np.int64})
            file["T"].extend({"x": NUMBERS[:events]})
    for name, events in (("T", 3), ("T;2", 3), ("T;1", 2)):
        sources = import_root(tmp_path / "two.root", tmp_path / name, tree=name).sources
        assert (sources.tree, sources.events) == (name, events)
    with pytest.raises(FormatError, match="tree 'T;3' cannot be read: not found: 'T' with cycle 3"):
        import_root(tmp_path / "two.root", tmp_path / "in", tree="T;3")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is no file; allowed: a ROOT file"):
        import_root(tmp_path, tmp_path / "in")


def test_a_second_import_keeps_out_of_a_folder_that_one_is_writing_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "a.root", {"x": NUMBERS})
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "source-0.mfp").write_bytes(b"half of it")
    with (folder / "import-unfinished").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(FormatError, match="another import is writing into it"):
            import_root(file, folder, force=True)
    assert (folder / "source-0.mfp").read_bytes() == b"half of it"
    import_root(file, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["source-0.mfp", "sources.json"]


def test_mfps_have_a_size_and_no_more_events_than_there_are(tmp_path: Path) -> None:
    file = write(tmp_path / "a.root", {"x": NUMBERS})
    with pytest.raises(FormatError, match="--mfp-size 0, expected at least 1 byte"):
        import_root(file, tmp_path / "in", mfp_bytes=0)
    assert import_root(file, tmp_path / "in", mfp_bytes=1 << 20).sources.packing == len(NUMBERS)
