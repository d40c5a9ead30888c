"""`incast mep` and `incast import-root` on the command line: what they print, and how they refuse."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import uproot
from incast.cli.files import parse_size
from incast.formats import encode_mfp, read_mfps

from tests.conftest import Incast
from tests.mep_folder import MepFolder

N_EVENTS = 40


@pytest.fixture
def root_file(incast: Incast) -> Path:
    """Two branches of one group and one that stands alone."""
    path = incast.folder / "small.root"
    numbers = np.arange(N_EVENTS)
    with uproot.recreate(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # uproot's writer of TTrees tells that it prefers RNTuples
        file.mktree("tree", {"MET_x": "float32", "MET_y": "float32", "run": "int32"})
        file["tree"].extend({"MET_x": np.sqrt(numbers, dtype="f4"), "MET_y": np.ones(N_EVENTS, "f4"), "run": numbers})
    return path


@pytest.fixture
def imported(incast: Incast, root_file: Path) -> Path:
    """The tree as MFP files, ten events in each MFP."""
    done = incast("import-root", root_file.name, "--packing", "10")
    assert done.returncode == 0, done.stderr
    return incast.folder / "small-mfp"


@pytest.fixture
def built(incast: Incast, imported: Path) -> Path:
    """The imported fragments as built events."""
    folder = MepFolder(incast.folder / "built")
    sources = [list(read_mfps(file)) for file in sorted(imported.glob("source-*.mfp"))]
    for mep, packets in enumerate(zip(*sources, strict=True)):
        folder.append(mep, [bytes(packet.packet) for packet in packets])
    return folder.path


def test_import_root_says_what_became_of_the_tree(incast: Incast, root_file: Path) -> None:
    done = incast("import-root", root_file.name, "--packing", "10", "--group", "met=MET_*", "--output", "there")
    assert done.returncode == 0, done.stderr
    assert "tree tree: 40 events, 2 sources, 10 events in an MFP -> there" in done.stdout
    assert {path.name for path in (incast.folder / "there").iterdir()} == {
        "source-0.mfp",
        "source-1.mfp",
        "sources.json",
    }


def test_import_root_as_json(incast: Incast, root_file: Path) -> None:
    done = incast("import-root", root_file.name, "--packing", "10", "--max-events", "15", "--json")
    summary = json.loads(done.stdout)
    assert summary["sources"]["events"] == 15
    assert [source["mfps"] for source in summary["written"]] == [2, 2]


def test_built_events_compare_equal_to_their_tree(incast: Incast, root_file: Path, built: Path) -> None:
    done = incast("mep", "compare", str(built), "--root", root_file.name, "--sources", "small-mfp")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "40 events, 3 of 3 branches compared bit by bit" in done.stdout


def test_events_that_are_not_there_are_a_difference(incast: Incast, root_file: Path, built: Path) -> None:
    manifest = built / "manifest-0-0.jsonl"
    manifest.write_text("".join(line + "\n" for line in manifest.read_text().splitlines()[:-1]))
    done = incast("mep", "compare", str(built), "--root", root_file.name, "--sources", "small-mfp", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["ok"] is False
    assert any("events end at 30" in problem for problem in report["problems"])


def test_check_of_a_good_folder(incast: Incast, built: Path) -> None:
    done = incast("mep", "check", str(built))
    assert done.returncode == 0
    assert "4 MEPs, 40 events (0 .. 39), 8 MFPs" in done.stdout
    report = json.loads(incast("mep", "check", str(built), "--json").stdout)
    assert (report["ok"], report["events"], report["flags"]) == (True, 40, {})


def test_check_of_a_folder_with_one_wrong_bit(incast: Incast, built: Path) -> None:
    file = built / "0-0-0.mep"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    done = incast("mep", "check", str(built))
    assert done.returncode == 1
    assert "CRC-32C" in done.stdout
    assert json.loads(incast("mep", "check", str(built), "--json").stdout)["ok"] is False


def test_show_limits_itself_and_shows_bytes_on_demand(incast: Incast, built: Path) -> None:
    text = incast("mep", "show", str(built), "--limit", "2").stdout
    assert "4 MEPs" in text
    assert "MEP 1 attempt 0 events 10 .. 19, 2 MFPs" in text
    assert "MEP 2" not in text
    summary = json.loads(incast("mep", "show", str(built), "--limit", "1", "--fragments", "1", "--json").stdout)
    fragments = [bytes.fromhex(mfp["first_fragments"][0]) for mfp in summary["meps"][0]["mfps"]]
    assert np.float32(0).tobytes() + np.float32(1).tobytes() in fragments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mep", "show", "absent"], "absent: No such file"),
        (["mep", "show", "foreign"], "foreign at byte 0"),
        (["import-root", "absent.root"], "absent.root: no such file"),
        (["import-root", "foreign"], "is no ROOT file"),
        (["import-root", "small.root", "--tree", "other"], "no tree 'other'"),
        (["import-root", "small.root", "--group", "jets=Jet_*"], "no branch matches"),
        (["import-root", "damaged.root"], ""),
    ],
)
def test_a_bad_file_is_one_line(incast: Incast, root_file: Path, arguments: list[str], words: str) -> None:
    (incast.folder / "foreign").write_text("not of this kind, long enough for any header " * 20)
    content = bytearray(root_file.read_bytes())
    # Only the way to the tree survives: what uproot then finds are lengths and types that make no sense.
    content[300:-600] = bytes(255 - byte for byte in content[300:-600])
    (incast.folder / "damaged.root").write_bytes(content)
    done = incast(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("incast: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


@pytest.mark.parametrize("option", [["--mfp-size", "64 apples"], ["--group", "jets"]])
def test_an_option_that_cannot_be_read_is_wrong_usage(incast: Incast, root_file: Path, option: list[str]) -> None:
    done = incast("import-root", root_file.name, *option)
    assert done.returncode == 2
    assert option[1] in done.stderr


def test_without_uproot_the_way_to_get_it_is_one_line(incast: Incast, root_file: Path) -> None:
    (incast.folder / "uproot.py").write_text("raise ModuleNotFoundError('No module named uproot', name='uproot')")
    incast.environment["PYTHONPATH"] = ":".join([str(incast.folder), *sys.path])
    done = incast("import-root", root_file.name)
    assert done.returncode == 2
    assert done.stderr == f"incast: this needs uproot: {sys.executable} -m pip install 'incast[root]'\n"


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("65536", 65536), ("64KiB", 65536), ("1.5 MB", 1_500_000), ("2GiB", 2 << 30)]
)
def test_sizes_as_the_engine_reads_them(text: str, n_bytes: int) -> None:
    assert parse_size(text) == n_bytes


def test_several_files_are_checked_together(incast: Incast, tmp_path: Path) -> None:
    folder = MepFolder(tmp_path / "meps")
    for mep in range(2):
        folder.append(mep, [encode_mfp(mep, 0, [3], b"one")])
    files = []
    for number in range(2):
        files.append(tmp_path / f"{number}.mep")
        files[-1].write_bytes(next(iter(sorted(folder.path.glob("*.mep")))).read_bytes())
    done = incast("mep", "check", *map(str, files))
    assert "and 1 more file: 4 MEPs" in done.stdout
    assert "event 0 is in the file more than once" in done.stdout
    done = incast("mep", "check", str(files[0]), str(folder.path))
    assert done.returncode == 1
    assert "a folder among several paths" in done.stdout
