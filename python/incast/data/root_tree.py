"""Trees of ROOT files as columns: TTree, TNtuple and RNTuple, as far as uproot reads them.

Whatever is wrong with a file, a tree or a branch is one FormatError with its name: uproot has many exceptions for what
it cannot read, and damaged files cause others (struct.error, zlib.error, IndexError, ...).
Needs `pip install incast[root]`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import awkward as ak
import numpy as np
import uproot
from uproot.interpretation.strings import StringArray
from uproot.models.RNTuple import RField

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
    """Without what follows of the file, which we name, and of uproot's options."""
    text = re.split(r" in file | instead, try library", " ".join(str(error).split()))[0][:_LONGEST_REASON]
    return text or f"uproot stops with {type(error).__name__}"


class _CStrings(uproot.AsStrings):  # type: ignore[misc]
    """Of an empty C string (leaf type /C) ROOT writes nothing, not even its length, which uproot expects of each."""

    def basket_array(self, data: Any, byte_offsets: Any, *args: Any, **kwargs: Any) -> Any:
        """The strings of one basket; `byte_offsets` tell where each begins and ends in `data`."""
        if byte_offsets is None:
            return super().basket_array(data, byte_offsets, *args, **kwargs)
        there = np.diff(byte_offsets) > 0
        read = super().basket_array(data, byte_offsets[np.concatenate([[True], there])], *args, **kwargs)
        lengths = np.zeros(len(there), dtype=np.int64)
        lengths[there] = np.diff(read.offsets)
        return StringArray(np.concatenate([[0], np.cumsum(lengths)]), read.content)


def _read(branch: Any, start: int, stop: int) -> Any:
    if isinstance(branch, RField) and branch.top_level:  # its name may have dots, and is then no path of uproot's
        whole = branch.parent.arrays(filter_field=lambda each: each is branch, entry_start=start, entry_stop=stop)
        return whole[branch.name]
    told = getattr(branch, "interpretation", None)
    if isinstance(told, uproot.AsStrings):
        told = _CStrings(told.header_bytes, told.length_bytes, told.typename, told.original)
        return branch.array(told, entry_start=start, entry_stop=stop, library="ak")
    return branch.array(entry_start=start, entry_stop=stop, library="ak")


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
        self.repeated: list[str] = []  # keys of branches that others before them have
        for key, branch in tree.items(recursive=True):
            if getattr(branch, "branches", None) or getattr(branch, "fields", None):
                continue
            if key in self._branches:
                self.repeated.append(key)
            else:
                self._branches[key] = branch

    def keys(self) -> list[str]:
        """The branches that have no others below them, in the tree's order."""
        return list(self._branches)

    def column(self, key: str, start: int, stop: int) -> Any:
        """The entries [start, stop) of a branch, as an Awkward array."""
        if key not in self._branches:
            raise FormatError(f"{self.file}: tree {self.name} has no branch {key!r}")
        with _reading(f"branch {key!r}"):
            array = _read(self._branches[key], start, stop)
            if len(array) != stop - start:
                raise UnsupportedError(f"only {len(array)} of the events {start} .. {stop - 1} are there")
            if not ak.is_valid(array):
                raise UnsupportedError("has lists of less than 0 items")
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
        raise FormatError(f"{path}: {'is no file; allowed: a ROOT file' if path.exists() else 'no such file'}")
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
    """The tree of that name, its newest cycle unless it ends in `;1` or so; without a name the only tree of the file,
    or the one called Events or events.
    """
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
    elif name not in names and re.sub(r";\d+$", "", name) not in names:
        raise FormatError(f"{path}: no tree {name!r}; there are {', '.join(names)}")
    try:
        return Tree(path, name, uproot.open(path)[name])
    except Exception as error:  # as in _reading
        raise FormatError(f"{path}: tree {name!r} cannot be read: {_in_one_line(error)}") from error
