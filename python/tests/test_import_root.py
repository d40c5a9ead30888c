"""ROOT trees as sources: the encoding, the grouping, and built events compared with the tree."""

import os
import warnings
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot
from hypothesis import given, settings
from hypothesis import strategies as st
from incast.data import branch_codec
from incast.data.branch_codec import (
    Jagged,
    Number,
    Record,
    Regular,
    Text,
    UnsupportedError,
    decode,
    encode,
    first_difference,
    join,
    parse_type,
    suppress_zeroes,
    type_of,
)
from incast.data.import_root import (
    MAX_SIDECAR_BYTES,
    Branch,
    Sources,
    compare,
    decode_group,
    default_groups,
    import_root,
    read_sources,
)
from incast.data.mep import check
from incast.data.root_tree import Tree
from incast.formats import FormatError, encode_phantom, read_mfps

from tests.mep_folder import MepFolder

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
REAL_FILES = {"HZZ.root": (2421, 51), "nanoAOD_2015_CMS_Open_Data_ttbar.root": (200, 947)}

# One event after the other; the second is all zeroes.
EVENTS: dict[str, Any] = {
    "run": np.array([7, 0, 9, 10], dtype=np.uint32),
    "weight": np.array([1.5, 0.0, np.nan, -0.0], dtype=np.float64),
    "passed": np.array([True, False, True, False]),
    "nJet": np.array([2, 0, 1, 0], dtype=np.int32),
    "Jet_pt": ak.values_astype(ak.Array([[1.5, np.nan], [], [np.inf], []]), np.float32),
    "Jet_id": ak.values_astype(ak.Array([[-1, 2], [], [3], []]), np.int32),
    "hit": np.arange(12, dtype=np.int16).reshape(4, 3),
}


@pytest.fixture
def root_file(tmp_path: Path) -> Path:
    """A small file with every kind of branch that uproot writes."""
    path = tmp_path / "small.root"
    with uproot.recreate(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # uproot's writer of TTrees tells that it prefers RNTuples
        # Written as jagged arrays with a counter of their own, as NanoAOD does.
        file.mktree("Events", {key: _branch_type(value) for key, value in EVENTS.items() if key != "nJet"})
        file["Events"].extend({key: value for key, value in EVENTS.items() if key != "nJet"})
    return path


def _branch_type(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.dtype((value.dtype, value.shape[1:]))
    return str(ak.type(value)).removeprefix(f"{len(value)} * ")


def build(sources: Path, out: Path, *, dead: int | None = None) -> MepFolder:
    """Builds events of what import_root wrote, as a run with two builder units does."""
    imported = Sources.load(sources)
    folder = MepFolder(out)
    by_source = [list(read_mfps(sources / f"source-{group.source}.mfp")) for group in imported.groups]
    for mep, mfps in enumerate(zip(*by_source, strict=True)):
        packets = [mfp.packet.tobytes() for mfp in mfps]
        if dead is not None and mep == 0:
            packets[dead] = encode_phantom(dead, mfps[dead].first_event, mfps[dead].n_fragments, "missing-dead")
        folder.append(mep, packets, bu=mep % 2)
    return folder


# ---- the encoding


def test_encoding_is_the_documented_one() -> None:
    sizes, data = join(
        [
            encode(ak.Array(np.array([0x01020304], dtype=np.uint32))),
            encode(ak.Array(np.array([True]))),
            encode(ak.values_astype(ak.Array([[1, 2]]), np.int16)),
            encode(ak.Array(["hé"])),
            encode(ak.values_astype(ak.Array([[[5], []]]), np.uint8)),
            encode(ak.Array(np.array([[8, 9]], dtype=np.uint8))),
            encode(ak.Array([{"x": np.uint8(4), "y": [True]}])),
        ]
    )
    expected = (
        "04030201 01 02000000 0100 0200 03000000 68c3a9 02000000 01000000 05 00000000 0809 0400000000000000 01000000 01"
    )
    assert data.tobytes() == bytes.fromhex(expected)
    assert sizes.tolist() == [len(data)]


def test_all_zero_events_become_empty_fragments() -> None:
    sizes, data = suppress_zeroes(np.array([2, 3, 0, 1]), np.array([0, 0, 0, 7, 0, 0], dtype=np.uint8))
    assert sizes.tolist() == [0, 3, 0, 0]
    assert data.tolist() == [0, 7, 0]
    # -0.0 is not all zeroes, so it survives.
    sizes, _ = suppress_zeroes(*encode(ak.Array(np.array([0.0, -0.0]))))
    assert sizes.tolist() == [0, 8]


@pytest.mark.parametrize(
    "column",
    [
        Number("float32"),
        Jagged(Number("bool")),
        Jagged(Jagged(Text())),
        Regular(3, Jagged(Number("uint64"))),
        Text(),
        Jagged(Regular(2, Number("int8"))),
        Jagged(Record((("x.y", Number("int8")), ('"quoted", }', Jagged(Record((("0", Text()),))))))),
    ],
)
def test_types_survive_their_text(column: branch_codec.ColumnType) -> None:
    assert parse_type(str(column)) == column


@pytest.mark.parametrize(
    "text",
    [
        "",
        "float16",
        "0 * int8",
        "var *int8",
        "-1 * int8",
        "{x: int8}",
        "{}",
        '{"x": }',
        '{"x": int8',
        '{"x": int8} ',
        "int8, int8",
    ],
)
def test_unknown_types_are_refused(text: str) -> None:
    with pytest.raises(FormatError, match="unknown"):
        parse_type(text)


def test_types_nested_too_deep_are_refused() -> None:
    with pytest.raises(FormatError, match="nested more than 50 deep"):
        parse_type("var * " * 100_000 + "int8")
    with pytest.raises(FormatError, match="two fields 'x'"):
        parse_type('{"x": int8, "x": int8}')


NUMBERS = [Number(name) for name in ("bool", "int8", "uint16", "int32", "uint64", "float32", "float64")]
COLUMNS = st.recursive(
    st.sampled_from([*NUMBERS, Text()]),
    lambda inner: st.one_of(
        inner.map(Jagged),
        st.tuples(st.integers(1, 3), inner).map(lambda pair: Regular(*pair)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda contents: Record(tuple((f"f{index}", content) for index, content in enumerate(contents)))
        ),
    ),
    max_leaves=4,
)


def random_column(column: branch_codec.ColumnType, n: int, dice: np.random.Generator) -> Any:
    """An Awkward layout of n random items of that type."""
    match column:
        case Number(name="bool"):
            return ak.contents.NumpyArray(dice.integers(0, 2, n).astype(np.bool_))
        case Number():
            raw = dice.integers(0, 256, n * column.dtype.itemsize, dtype=np.uint8)
            return ak.contents.NumpyArray(raw.view(column.dtype))
        case Regular():
            return ak.contents.RegularArray(random_column(column.content, n * column.length, dice), column.length, n)
        case Record():
            contents = [random_column(content, n, dice) for _, content in column.fields]
            return ak.contents.RecordArray(contents, [name for name, _ in column.fields], n)
        case Text():
            letters = np.array(["", "a", "ü", "event", "\0"])
            return ak.to_layout(ak.Array(letters[dice.integers(0, len(letters), n)].tolist() or [""])[:n])
        case Jagged():
            counts = dice.integers(0, 4, n)
            offsets = ak.index.Index64(np.concatenate([[0], np.cumsum(counts)]))
            return ak.contents.ListOffsetArray(offsets, random_column(column.content, int(counts.sum()), dice))


@settings(max_examples=150, deadline=None)
@given(columns=st.lists(COLUMNS, min_size=1, max_size=4), n=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_columns_survive_the_round_trip(columns: list[branch_codec.ColumnType], n: int, seed: int) -> None:
    dice = np.random.default_rng(seed)
    arrays = [ak.Array(random_column(column, n, dice)) for column in columns]
    assert [type_of(array) for array in arrays] == columns
    sizes, data = suppress_zeroes(*join([encode(array) for array in arrays]))
    decoded = decode(columns, sizes, data)
    for array, back in zip(arrays, decoded, strict=True):
        assert first_difference(array, back) is None
    # Fragments that are too short or too long are refused, unless nothing is left: that stands for all zeroes.
    if data.size and sizes[sizes > 0][-1] > 1:
        with pytest.raises(FormatError):
            decode(columns, sizes - (np.arange(n) == np.flatnonzero(sizes)[-1]), data[:-1])
        with pytest.raises(FormatError):
            decode(columns, sizes + (np.arange(n) == np.flatnonzero(sizes)[-1]), np.append(data, np.uint8(0)))


def test_huge_counts_are_refused_before_they_are_believed() -> None:
    data = np.frombuffer(b"\xff\xff\xff\xff" + b"\0" * 8, dtype=np.uint8)
    for column in (Jagged(Number("uint8")), Jagged(Jagged(Number("uint8"))), Text()):
        with pytest.raises(FormatError, match="ends inside"):
            decode([column], np.array([len(data)]), data)
    with pytest.raises(FormatError, match="bool is 2"):
        decode([Number("bool")], np.array([1]), np.array([2], dtype=np.uint8))


def test_first_difference_sees_every_bit() -> None:
    base = ak.Array([[1.0, np.nan], [], [0.0]])
    assert first_difference(base, ak.Array([[1.0, np.nan], [], [0.0]])) is None
    assert first_difference(base, ak.Array([[1.0, np.nan], [], [-0.0]])) == 2
    assert first_difference(base, ak.Array([[1.0, np.nan], [3.0], []])) == 1
    assert first_difference(base, base[:2]) == 2
    assert first_difference(base, ak.values_astype(base, np.float32)) == 0
    grid = ak.Array(np.arange(6, dtype=np.int32).reshape(3, 2))
    assert first_difference(grid, ak.Array(np.arange(6, dtype=np.int32).reshape(3, 2))) is None
    assert first_difference(grid, ak.Array(np.array([[0, 1], [2, 4], [4, 5]], dtype=np.int32))) == 1


# ---- groups


def groups_of(**types: str) -> dict[str, list[str]]:
    """The default groups, by branch names."""
    branches = [Branch(key, parse_type(text)) for key, text in types.items()]
    return {name: [branch.key for branch in members] for name, members in default_groups(branches).items()}


def test_groups_follow_the_names() -> None:
    assert groups_of(
        run="uint32",
        NJet="int32",
        Jet_Px="var * float32",
        nMuon="uint32",
        Muon_pt="var * float32",
        Muon_n="int32",
        MET_px="float32",
        MET_py="float32",
        lone_px="float32",
        nWeight="uint32",
        Weight="var * float32",
        nothing="int32",
        NPrimaryVertices="int32",
    ) == {
        "event": ["run", "lone_px", "nothing", "NPrimaryVertices"],
        "Jet": ["NJet", "Jet_Px"],
        "Muon": ["nMuon", "Muon_pt", "Muon_n"],
        "MET": ["MET_px", "MET_py"],
        "Weight": ["nWeight", "Weight"],
    }


# ---- files


def test_small_tree_makes_the_round_trip(root_file: Path, tmp_path: Path) -> None:
    summary = import_root(root_file, tmp_path / "in", packing=3)
    names = {group.name: group.source for group in summary.sources.groups}
    assert {"event", "Jet"} <= set(names)
    sources, packets = read_sources(tmp_path / "in")
    assert sources == summary.sources
    assert [mfp.n_fragments for mfp in packets[names["Jet"]]] == [3, 1]
    assert packets[names["Jet"]][0].sizes.tolist()[1] == 0
    assert packets[names["Jet"]][1].sizes.tolist() == [0]
    columns = decode_group(sources, "Jet", packets[names["Jet"]]) | decode_group(sources, "event", packets[0])
    for key in ("run", "weight", "passed", "Jet_pt", "Jet_id", "hit"):
        assert first_difference(ak.Array(EVENTS[key]), columns[key]) is None, key
    folder = build(tmp_path / "in", tmp_path / "out")
    report = compare(root_file, tmp_path / "in", folder.path)
    assert report.ok, report.problems
    assert report.compared == report.branches == sum(len(group.branches) for group in sources.groups)


@pytest.mark.parametrize("name", REAL_FILES)
def test_real_files_make_the_round_trip(name: str, tmp_path: Path) -> None:
    path = DATA / name
    if not path.is_file():
        if os.environ.get("INCAST_REQUIRE_DATA"):
            pytest.fail(f"{path} is not there")
        pytest.skip(f"no real event data: {path} is not there")
    events, branches = REAL_FILES[name]
    summary = import_root(path, tmp_path / "in")
    assert summary.sources.events == events
    assert any(0 < source.empty_fragments < events for source in summary.written)
    assert any(line.startswith("empty: in so many events the group has no entries") for line in summary.lines())
    folder = build(tmp_path / "in", tmp_path / "out")
    report = check(folder.path)
    assert report.ok, report.problems
    assert report.events == events
    assert report.meps >= 50
    compared = compare(path, tmp_path / "in", folder.path)
    assert compared.ok, compared.problems
    assert (compared.events, compared.compared) == (events, branches)


def test_compare_finds_a_changed_bit(root_file: Path, tmp_path: Path) -> None:
    import_root(root_file, tmp_path / "in", packing=2)
    other = tmp_path / "other.root"
    with uproot.recreate(other) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        changed = EVENTS | {"weight": np.array([1.5, 0.0, np.nan, 0.0])}
        file.mktree("Events", {key: _branch_type(value) for key, value in changed.items() if key != "nJet"})
        file["Events"].extend({key: value for key, value in changed.items() if key != "nJet"})
    folder = build(tmp_path / "in", tmp_path / "out")
    report = compare(other, tmp_path / "in", folder.path)
    assert report.problems == ["branch 'weight': differs, first in event 3"]
    assert report.lines()[-1] == "different"


def test_compare_finds_missing_and_repeated_events(root_file: Path, tmp_path: Path) -> None:
    import_root(root_file, tmp_path / "in", packing=2)
    incomplete = build(tmp_path / "in", tmp_path / "dead", dead=1)
    assert any(
        "missing (missing-dead)" in line for line in compare(root_file, tmp_path / "in", incomplete.path).problems
    )

    short = build(tmp_path / "in", tmp_path / "short")
    (short.path / "manifest-1-0.jsonl").unlink()
    problems = compare(root_file, tmp_path / "in", short.path).problems
    assert any("events end at 2, expected 4" in problem for problem in problems)

    first = [mfps[0].packet.tobytes() for mfps in read_sources(tmp_path / "in")[1].values()]
    twice = build(tmp_path / "in", tmp_path / "twice")
    twice.append(2, first)
    problems = compare(root_file, tmp_path / "in", twice.path).problems
    assert any("event 0 is there more than once" in problem for problem in problems)


def test_packing_follows_the_mean_fragment(root_file: Path, tmp_path: Path) -> None:
    assert import_root(root_file, tmp_path / "default").sources.packing == 1
    large = import_root(root_file, tmp_path / "large", mfp_bytes=1 << 20).sources
    assert large.packing == 4  # as many as there are
    assert [mfp.n_fragments for mfp in read_sources(tmp_path / "large")[1][0]] == [4]
    assert import_root(root_file, tmp_path / "small", mfp_bytes=1).sources.packing == 1


def test_max_events_and_chosen_groups(root_file: Path, tmp_path: Path) -> None:
    summary = import_root(root_file, tmp_path / "in", packing=2, max_events=3, groups={"jets": ["*Jet*"]})
    assert [group.name for group in summary.sources.groups] == ["event", "jets"]
    assert summary.sources.events == 3
    folder = build(tmp_path / "in", tmp_path / "out")
    assert compare(root_file, tmp_path / "in", folder.path).ok
    with pytest.raises(FormatError, match="group 'x': no branch matches nix"):
        import_root(root_file, tmp_path / "none", groups={"x": ["nix"]})


def test_bad_input_is_one_clear_error(root_file: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such file"):
        import_root(tmp_path / "absent.root", tmp_path / "in")
    with pytest.raises(FormatError, match="no tree 'T'; there are Events"):
        import_root(root_file, tmp_path / "in", tree="T")
    with pytest.raises(FormatError, match="--packing 0"):
        import_root(root_file, tmp_path / "in", packing=0)
    with pytest.raises(FormatError, match="--max-events 0"):
        import_root(root_file, tmp_path / "in", max_events=0)
    import_root(root_file, tmp_path / "in")
    with pytest.raises(FormatError, match=r"already holds source-0\.mfp; allowed: another folder, or --force"):
        import_root(root_file, tmp_path / "in")
    (tmp_path / "in" / "source-77.mfp").write_text("of an earlier import")
    (tmp_path / "in" / "notes").write_text("mine")
    before = sorted(path.name for path in (tmp_path / "in").iterdir())
    import_root(root_file, tmp_path / "in", force=True)
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == [n for n in before if n != "source-77.mfp"]
    (tmp_path / "in" / "sources.json").write_text('{"format": "other", "version": 1}')
    with pytest.raises(FormatError, match="not incast-sources version 1"):
        Sources.load(tmp_path / "in")


def test_unsupported_branches_are_named_or_left_out(
    root_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def type_of_all_but_hit(array: Any) -> branch_codec.ColumnType:
        column = type_of(array)
        if column == Regular(3, Number("int16")):
            raise UnsupportedError(f"type {column} has no encoding")
        return column

    monkeypatch.setattr("incast.data.root_tree.type_of", type_of_all_but_hit)
    with pytest.raises(FormatError, match=r"small\.root: tree Events: branch 'hit': type 3 \* int16 has no encoding"):
        import_root(root_file, tmp_path / "in")
    summary = import_root(root_file, tmp_path / "in", skip_unsupported=True)
    assert len(summary.skipped) == 1
    assert "skipped branch 'hit'" in summary.lines()[-1]
    assert "hit" not in [branch.key for group in summary.sources.groups for branch in group.branches]


def test_options_have_no_encoding() -> None:
    with pytest.raises(UnsupportedError, match="no encoding"):
        type_of(ak.Array([1, None]))


def test_bools_of_any_byte_are_0_or_1() -> None:
    wild = ak.Array(np.array([0, 1, 2, 255], dtype=np.uint8).view(np.bool_))
    sizes, data = encode(wild)
    assert data.tolist() == [0, 1, 1, 1]
    assert first_difference(wild, decode([Number("bool")], sizes, data)[0]) is None
    assert first_difference(wild, ak.Array([False, True, False, True])) == 2


# ---- files of others (all of scikit-hep-testdata: test_files_of_others.py)


def test_trees_in_directories_keep_their_path(tmp_path: Path) -> None:
    path = tmp_path / "nested.root"
    with uproot.recreate(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("one/two/tree", "one/tree"):
            file.mktree(name, {"x": np.int32})
            file[name].extend({"x": np.arange(len(name), dtype=np.int32)})
    with pytest.raises(FormatError, match="which tree\\? There are one/two/tree, one/tree"):
        import_root(path, tmp_path / "in")
    sources = import_root(path, tmp_path / "in", tree="one/two/tree").sources
    assert (sources.tree, sources.events) == ("one/two/tree", 12)
    assert Sources.load(tmp_path / "in").tree == "one/two/tree"


def test_an_rntuple_makes_the_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "ntuple.root"
    columns = {
        "x": np.arange(10.0),
        "hits": ak.Array([[1, 2], [3]] * 5),
        "name": ak.Array(["a", "bb"] * 5),
        "ok": np.array([True, False] * 5),
        "grid": np.arange(30, dtype=np.int32).reshape(10, 3),
    }
    with uproot.recreate(path) as file:
        file.mkrntuple("Events", columns)
    import_root(path, tmp_path / "in")
    sources, packets = read_sources(tmp_path / "in")
    assert sources.events == 10
    for group in sources.groups:
        for key, array in decode_group(sources, group.name, packets[group.source]).items():
            assert first_difference(ak.Array(columns[key]), array) is None


class OneBranch:
    """A tree as Geant4 and others write them: its count is a float, and a branch's name ends in a slash."""

    num_entries = 3.0

    def __init__(self, fails_from: int = 3) -> None:
        self._fails_from = fails_from

    def items(self, recursive: bool) -> list[tuple[str, "OneBranch"]]:
        assert recursive
        return [("x/", self)]

    def array(self, entry_start: int, entry_stop: int, library: str) -> Any:
        assert library == "ak"
        if entry_stop > self._fails_from:
            raise IndexError("a basket is damaged")
        return ak.Array(np.arange(entry_start, entry_stop))


def test_odd_trees_are_read(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "odd.root", "Details", OneBranch())
    assert tree.events == 3
    assert tree.keys() == ["x/"]
    assert tree.column("x/", 1, 3).tolist() == [1, 2]
    assert tree.type_of("x/", 3) == Number("int64")


def test_damage_far_into_a_branch_leaves_it_out(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "damaged.root", "Details", OneBranch(fails_from=2))
    assert tree.type_of("x/", 1) == Number("int64")
    with pytest.raises(UnsupportedError, match="branch 'x/': a basket is damaged"):
        tree.type_of("x/", 3)


def test_files_without_a_tree_are_named_for_what_they_are(root_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.root"
    with uproot.recreate(path) as file:
        file["h"] = np.histogram(np.arange(3.0))
    with pytest.raises(FormatError, match=r"has no tree; it holds 1 TH1D$"):
        import_root(path, tmp_path / "in")
    path.write_bytes(b"no such thing")
    with pytest.raises(FormatError, match="is no ROOT file"):
        import_root(path, tmp_path / "in")
    path.write_bytes(b"")
    with pytest.raises(FormatError, match="is empty"):
        import_root(path, tmp_path / "in")
    path.write_bytes(root_file.read_bytes()[:600])
    with pytest.raises(FormatError, match="cannot be read"):
        import_root(path, tmp_path / "in")


def test_an_import_that_was_not_finished_is_in_nobodys_way(
    root_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"

    def interrupt(*_arguments: object, **_more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("incast.data.import_root.encode_mfp", interrupt)
        with pytest.raises(KeyboardInterrupt):
            import_root(root_file, folder)
    assert not folder.exists()
    folder.mkdir()
    for name in ("source-0.mfp", "import-unfinished"):  # as one that was killed leaves them
        (folder / name).touch()
    import_root(root_file, folder)
    assert not (folder / "import-unfinished").exists()
    (folder / "sources.json").unlink()
    with pytest.raises(FormatError, match="already holds"):
        import_root(root_file, folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xff\xfe", "no UTF-8 text"),
        (b"[" * 100_000, "nested too deep"),
        (b"[]", "expected what import-root wrote"),
        (b'{"format": "incast-sources", "version": 1, "sources": 7}', "sources.json: "),
        (b"1" * 10_000, "sources.json: "),
    ],
)
def test_a_sidecar_that_is_none_is_refused(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "sources.json").write_bytes(text)
    with pytest.raises(FormatError, match=message):
        Sources.load(tmp_path)


def test_a_huge_sidecar_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "sources.json").open("wb") as file:
        file.truncate(MAX_SIDECAR_BYTES + 1)
    with pytest.raises(FormatError, match="expected at most"):
        Sources.load(tmp_path)
