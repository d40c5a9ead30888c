"""Trees of ROOT files as columns: TTree, TNtuple and RNTuple, as far as uproot reads them.

Whatever is wrong with a file, a tree or a branch is one FormatError with its name: uproot has many exceptions for what
it cannot read, and damaged files cause others (struct.error, zlib.error, IndexError, ...).
Needs `pip install incast[root]`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import uproot

from incast.data.branch_codec import ColumnType, UnsupportedError, type_of
from incast.formats import FormatError

_RNTUPLE: Final = "RNTuple"
_TREES: Final = ("TTree", "TNtuple", "TNtupleD")
_LONGEST_REASON: Final = 200
_CHUNK_EVENTS: Final = 4096


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except UnsupportedError as error:
        raise UnsupportedError(f"{what}: {error}") from error
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:  # of whatever kind: see above
        raise UnsupportedError(f"{what}: {_in_one_line(error)}") from error


def _in_one_line(error: Exception) -> str:
    text = " ".join(str(error).split())[:_LONGEST_REASON]
    return text or type(error).__name__


def _is_tree(classname: str) -> bool:
    return classname in _TREES or classname.endswith(_RNTUPLE)


class Tree:
    """One tree; `name` is its path in the file."""

    def __init__(self, file: Path, name: str, tree: Any) -> None:
        self.file = file
        self.name = name
        self.events = int(tree.num_entries)  # Geant4 writes it as a float
        # By the key that sources.json keeps. A branch's own name may end in a slash, and is then no path of uproot's.
        self._branches: dict[str, Any] = {}
        for key, branch in tree.items(recursive=True):
            if not getattr(branch, "branches", None) and not getattr(branch, "fields", None):
                self._branches.setdefault(key, branch)

    def keys(self) -> list[str]:
        """The branches that have no others below them, in the tree's order."""
        return list(self._branches)

    def column(self, key: str, start: int, stop: int) -> Any:
        """The entries [start, stop) of a branch, as an Awkward array."""
        if key not in self._branches:
            raise FormatError(f"{self.file}: tree {self.name} has no branch {key!r}")
        with _reading(f"branch {key!r}"):
            array = self._branches[key].array(entry_start=start, entry_stop=stop, library="ak")
            if len(array) != stop - start:
                raise UnsupportedError(f"{len(array)} entries from {start}, expected {stop - start}")
            return array

    def type_of(self, key: str, events: int) -> ColumnType:
        """The type of a branch, by its first `events` entries, all of which are read; UnsupportedError with the reason
        if there is none, or if they cannot be read.
        """
        found: ColumnType | None = None
        for start in range(0, events, _CHUNK_EVENTS):
            array = self.column(key, start, min(start + _CHUNK_EVENTS, events))
            with _reading(f"branch {key!r}"):
                here = type_of(array)
            if found is not None and here != found:
                raise UnsupportedError(f"branch {key!r}: {here} in events from {start}, {found} before")
            found = here
        assert found is not None, "no events"
        return found


def _classes(path: Path) -> dict[str, str]:
    """What is in the file: classes by path."""
    if not path.is_file():
        raise FormatError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise FormatError(f"{path}: is empty, no ROOT file")
    with path.open("rb") as file:
        if file.read(4) != b"root":
            raise FormatError(f"{path}: is no ROOT file: it does not begin with 'root'")
    try:
        with uproot.open(path) as file:
            found: dict[str, str] = file.classnames(recursive=True, cycle=False)
    except Exception as error:  # as in _reading
        raise FormatError(f"{path}: cannot be read, and may be damaged: {_in_one_line(error)}") from error
    return found


def tree_names(path: Path) -> list[str]:
    """The trees of a file, by path."""
    return [name for name, classname in _classes(path).items() if _is_tree(classname)]


def open_tree(path: Path, name: str | None = None) -> Tree:
    """The tree of that name; without one, the only tree of the file, or the one called Events or events."""
    classes = _classes(path)
    names = [key for key, classname in classes.items() if _is_tree(classname)]
    if not names:
        others = Counter(classname for classname in classes.values() if not classname.startswith("TDirectory"))
        holds = ", ".join(f"{count} {classname}" for classname, count in others.most_common(5)) or "nothing"
        raise FormatError(f"{path}: has no tree; it holds {holds}")
    if name is None:
        candidates = names if len(names) == 1 else [each for each in names if each in {"Events", "events"}]
        if len(candidates) != 1:
            raise FormatError(f"{path}: which tree? There are {', '.join(names)}: choose one with --tree")
        name = candidates[0]
    elif name not in names:
        raise FormatError(f"{path}: no tree {name!r}; there are {', '.join(names)}")
    try:
        return Tree(path, name, uproot.open(path)[name])
    except Exception as error:  # as in _reading
        raise FormatError(f"{path}: {classes[name]} {name!r} cannot be read: {_in_one_line(error)}") from error
