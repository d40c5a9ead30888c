"""ROOT files that others wrote: all of the package scikit-hep-testdata, bit by bit.

What becomes of each tree stands in files_of_others.txt; INCAST_FILES_OF_OTHERS=write writes it anew. It takes some
minutes, so it runs only where the package is installed: `pip install --no-deps scikit-hep-testdata==0.3.12`.
"""

import importlib.util
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from incast.data.branch_codec import first_difference
from incast.data.import_root import decode_group, import_root, read_sources
from incast.data.root_tree import open_tree, tree_names
from incast.formats import FormatError

PACKAGE = "skhep_testdata"
TABLE = Path(__file__).with_name("files_of_others.txt")
HEADER = """\
# What `incast import-root --skip-unsupported` makes of every tree of scikit-hep-testdata 0.3.12, with uproot 5:
#   FILE TREE imported BRANCHES left-out BRANCHES     compared bit by bit with what uproot reads
#   FILE TREE refused REASON
"""


def outcomes(file: Path, folder: Path) -> Iterator[str]:
    """A line for every tree of the file, or the one line that says that it has none."""
    try:
        trees = tree_names(file) or [""]
    except FormatError as error:
        yield f"{file.name} - refused {reason_of(error)}"
        return
    for name in trees:
        try:
            summary = import_root(file, folder, name or None, skip_unsupported=True, force=True)
        except FormatError as error:
            assert str(error).startswith(f"{file}: ")
            assert "\n" not in str(error)
            yield f"{file.name} {name or '-'} refused {reason_of(error)}"
            continue
        sources, packets = read_sources(folder)
        tree = open_tree(file, name)
        imported = 0
        for group in sources.groups:
            for key, array in decode_group(sources, group.name, packets[group.source]).items():
                assert first_difference(tree.column(key, 0, sources.events), array) is None, (file, name, key)
                imported += 1
        assert imported + len(summary.skipped) == len(tree.keys()) + len(tree.repeated)
        yield f"{file.name} {name} imported {imported} left-out {len(summary.skipped)}"


def reason_of(error: FormatError) -> str:
    """In a few words: the messages of others' libraries change."""
    for words in ("no events", "has no tree", "no branch that can be imported", "cannot be read"):
        if words in str(error):
            return words.replace(" ", "-")
    return re.sub(r"\W+", "-", str(error).partition(": ")[2])


def test_every_file_is_imported_or_refused_in_one_line(tmp_path: Path) -> None:
    package = importlib.util.find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        pytest.skip("scikit-hep-testdata is not installed")
    files = sorted((Path(package.submodule_search_locations[0]) / "data").glob("*.root"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines = [line for file in files for line in outcomes(file, tmp_path / "in")]
    text = HEADER + "".join(f"{line}\n" for line in lines)
    if os.environ.get("INCAST_FILES_OF_OTHERS") == "write":
        TABLE.write_text(text, encoding="utf-8")
    assert text == TABLE.read_text(encoding="utf-8")
