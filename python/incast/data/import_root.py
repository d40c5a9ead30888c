"""`incast import-root`: a ROOT tree as input for a run, one source per group of branches; and the way back.

A group of branches (jets, muons, ...) of one event makes a natural fragment: real, uneven, often empty. The tree
becomes one `source-<id>.mfp` per group and a `sources.json` that says what the bytes mean (docs/formats.md).
Needs `pip install incast[root]`.
"""

from __future__ import annotations

import fcntl
import fnmatch
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from incast.base.files import named, remove_files, replace_file
from incast.base.words import counted
from incast.data import mep as mep_files
from incast.data.branch_codec import (
    ColumnType,
    Int64s,
    Jagged,
    Number,
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
from incast.data.detectors import ODIN, ODIN_BYTES, Detector, odin_banks
from incast.data.root_tree import Tree, open_tree
from incast.formats import DEFAULT_ALIGN_LOG2, MAX_FRAGMENTS, Buffer, FormatError, Mfp, encode_mfp, mfp_name, read_mfps

SIDECAR: Final = "sources.json"
UNFINISHED: Final = "import-unfinished"  # there while source-*.mfp are written
SIDECAR_FORMAT: Final = "incast-sources"
SIDECAR_VERSION: Final = 1
EVENT_GROUP: Final = "event"
MAX_SIDECAR_BYTES: Final = 64 << 20
DEFAULT_MFP_BYTES: Final = 64 * 1024
DEFAULT_MEPS: Final = 64
_CHUNK_EVENTS: Final = 4096
_TABLE_BYTES_PER_FRAGMENT: Final = 3  # type and size in the MFP's tables


@dataclass(frozen=True)
class Branch:
    """A branch of the tree; `key` is its path, as `tree[key]` takes it."""

    key: str
    type: ColumnType


@dataclass(frozen=True)
class Group:
    """The branches that make the fragments of one source, in the order of their encoding."""

    source: int
    name: str
    branches: tuple[Branch, ...]
    type: int = 0
    version: int = 0


@dataclass(frozen=True)
class Sources:
    """What sources.json says."""

    file: str
    tree: str
    events: int
    packing: int
    groups: tuple[Group, ...]

    def group(self, name: str) -> Group:
        """The group of that name."""
        for group in self.groups:
            if group.name == name:
                return group
        raise FormatError(f"group {name!r}: unknown; there are {', '.join(group.name for group in self.groups)}")

    def save(self, folder: Path) -> None:
        """Writes sources.json."""
        sources = [
            {
                "id": group.source,
                "name": group.name,
                "file": mfp_name(group.source),
                "type": group.type,
                "version": group.version,
                "branches": [{"name": branch.key, "type": str(branch.type)} for branch in group.branches],
            }
            for group in self.groups
        ]
        document = {
            "format": SIDECAR_FORMAT,
            "version": SIDECAR_VERSION,
            "file": self.file,
            "tree": self.tree,
            "events": self.events,
            "first_event": 0,
            "packing": self.packing,
            "sources": sources,
        }
        replace_file(folder / SIDECAR, json.dumps(document, indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Sources:
        """Reads sources.json, given itself or its folder."""
        path = path / SIDECAR if path.is_dir() else path
        if path.is_file() and path.stat().st_size > MAX_SIDECAR_BYTES:
            raise FormatError(f"{path}: {path.stat().st_size} bytes, expected at most {MAX_SIDECAR_BYTES}")
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if (document["format"], document["version"]) != (SIDECAR_FORMAT, SIDECAR_VERSION):
                raise FormatError(f"not {SIDECAR_FORMAT} version {SIDECAR_VERSION}")
            groups = tuple(
                Group(
                    int(source["id"]),
                    str(source["name"]),
                    tuple(Branch(str(item["name"]), parse_type(item["type"])) for item in source["branches"]),
                    int(source.get("type", 0)),
                    int(source.get("version", 0)),
                )
                for source in document["sources"]
            )
            return Sources(
                str(document["file"]),
                str(document["tree"]),
                int(document["events"]),
                int(document["packing"]),
                groups,
            )
        except RecursionError:
            raise FormatError(f"{path}: nested too deep") from None
        except UnicodeDecodeError as error:
            raise FormatError(f"{path}: no UTF-8 text: {error.reason} at byte {error.start}") from error
        except KeyError as error:
            raise FormatError(f"{path}: has no {error.args[0]!r}; expected what import-root wrote") from error
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"{path}: expected what import-root wrote: {error}") from error


# ---- reading the tree


def _branches(tree: Tree, events: int, skip_unsupported: bool) -> tuple[list[Branch], list[str]]:
    """The branches with their types; and those left out, with the reason.

    Those that may be left out are read whole, as damage shows nowhere else; of others the first entry tells the type.
    """
    branches: list[Branch] = []
    skipped = [f"branch {key!r}: another one before it has that name" for key in tree.repeated]
    for key in tree.keys():  # noqa: SIM118
        if skipped and not skip_unsupported:
            break
        try:
            branches.append(Branch(key, tree.type_of(key, events if skip_unsupported else 1)))
        except UnsupportedError as error:
            skipped.append(str(error))
    if skipped and not skip_unsupported:
        raise UnsupportedError(f"{skipped[0]} (--skip-unsupported leaves such branches out)")
    return branches, skipped


# ---- groups


def _own_name(key: str) -> str:
    """The part of the path behind the last slash that does not end it."""
    return key.rstrip("/").rpartition("/")[2]


def _prefix(key: str) -> str:
    """`Jet` of Jet_pt, Jet.fPt and jets/Jet_pt."""
    name = _own_name(key)
    for index, character in enumerate(name):
        if index and character in "_.":
            return name[:index]
    return name


def _is_list(column: ColumnType) -> bool:
    return isinstance(column, Jagged | Text)


def default_groups(branches: Sequence[Branch]) -> dict[str, list[Branch]]:
    """Groups by the part of the name before the first `_`, with the counters of their lists: nJet or NJet of Jet_*, and
    nJet_pt of Jet_pt, as uproot writes them.

    A prefix makes a group if several branches share it or if it has lists; all other branches are the group `event`,
    which comes first.
    """
    lists = {_own_name(branch.key) for branch in branches if _is_list(branch.type)}
    counted = lists | {_prefix(name) for name in lists}
    home: dict[str, str] = {}
    families: dict[str, list[Branch]] = defaultdict(list)
    for branch in branches:
        name = _own_name(branch.key)
        if name[:1] in {"n", "N"} and name[1:] in counted and isinstance(branch.type, Number):
            home[branch.key] = _prefix(name[1:])
        else:
            families[_prefix(branch.key)].append(branch)
    for prefix, family in families.items():
        if prefix and (len(family) > 1 or any(_is_list(branch.type) for branch in family)):
            home.update((branch.key, prefix) for branch in family)
    groups: dict[str, list[Branch]] = {EVENT_GROUP: []}
    for branch in branches:
        groups.setdefault(home.get(branch.key, EVENT_GROUP), []).append(branch)
    return {name: members for name, members in groups.items() if members}


def chosen_groups(branches: Sequence[Branch], patterns: Mapping[str, Sequence[str]]) -> dict[str, list[Branch]]:
    """Groups by shell patterns, `{"jets": ["Jet_*", "nJet"]}`: the first that matches; the rest are `event`."""
    groups: dict[str, list[Branch]] = {EVENT_GROUP: [], **{name: [] for name in patterns}}
    for branch in branches:
        matches = (
            name
            for name, globs in patterns.items()
            if any(fnmatch.fnmatchcase(branch.key, pattern) for pattern in globs)
        )
        groups[next(matches, EVENT_GROUP)].append(branch)
    for name in patterns:
        if not groups[name]:
            raise FormatError(f"group {name!r}: no branch matches {', '.join(patterns[name])}")
    return {name: members for name, members in groups.items() if members}


def _numbered(groups: Mapping[str, Sequence[Branch]], detectors: Mapping[str, Detector]) -> tuple[Group, ...]:
    """Sources from 0 on; or, once one group is a detector, all of them as told, in the order of their ids."""
    if not detectors:
        return tuple(Group(source, name, tuple(members)) for source, (name, members) in enumerate(groups.items()))
    if ODIN in detectors and ODIN not in groups:
        groups = {**groups, ODIN: ()}
    names = ", ".join(groups)
    for name in detectors:
        if name not in groups:
            raise FormatError(f"--detector {name}: there is no such group; there are {names}")
    for name in groups:
        if name not in detectors:
            raise FormatError(f"--detector: group {name} has none; with one, all groups need one: {names}")
    told = [
        Group(detectors[name].source, name, tuple(members), detectors[name].type, detectors[name].version)
        for name, members in groups.items()
    ]
    return tuple(sorted(told, key=lambda group: group.source))


# ---- writing sources


@dataclass(frozen=True)
class SourceSummary:
    """What became of one group."""

    group: Group
    payload_bytes: int
    empty_fragments: int
    largest_fragment: int
    mfps: int


@dataclass(frozen=True)
class ImportSummary:
    """What import_root wrote."""

    folder: Path
    sources: Sources
    written: tuple[SourceSummary, ...]
    skipped: tuple[str, ...]

    def lines(self) -> list[str]:
        """The summary for a person."""
        events = self.sources.events
        width = max(len(source.group.name) for source in self.written)
        packing = counted(self.sources.packing, "event")
        lines = [
            f"{self.sources.file}, tree {self.sources.tree}: {counted(events, 'event')},"
            f" {counted(len(self.written), 'source')}, {packing} in an MFP -> {self.folder}",
            f"source  {'group':{width}}  branches  mean B  largest B  empty",
        ]
        lines += [
            f"{source.group.source:6}  {source.group.name:{width}}  {len(source.group.branches):8}"
            f"  {source.payload_bytes / events:6.1f}  {source.largest_fragment:9}"
            f"  {100 * source.empty_fragments / events:4.0f}%"
            for source in self.written
        ]
        if any(source.empty_fragments for source in self.written):
            lines.append("empty: in so many events the group has no entries, or all of its values are zero")
        return lines + [f"skipped {reason}" for reason in self.skipped]


def _fragments(tree: Tree, group: Group, start: int, stop: int) -> tuple[Int64s, Buffer]:
    """The fragments of a group for the events [start, stop): sizes, and bytes one behind the other."""
    if not group.branches:
        return np.full(stop - start, ODIN_BYTES, dtype=np.int64), odin_banks(start, stop)
    columns = []
    for branch in group.branches:
        array = tree.column(branch.key, start, stop)
        if type_of(array) != branch.type:
            raise FormatError(f"branch {branch.key!r}: {type_of(array)} in events from {start}, expected {branch.type}")
        columns.append(encode(array))
    return suppress_zeroes(*join(columns))


def _packing_for(tree: Tree, groups: Sequence[Group], events: int, mfp_bytes: int) -> int:
    """Events per MFP so that a mean MFP has about `mfp_bytes`, by the mean fragment of the first events."""
    sample = min(events, _CHUNK_EVENTS)
    total = sum(int(_fragments(tree, group, 0, sample)[0].sum()) for group in groups)
    mean = total / (sample * len(groups)) + _TABLE_BYTES_PER_FRAGMENT
    return max(1, min(MAX_FRAGMENTS, round(mfp_bytes / mean)))


def _write_source(tree: Tree, group: Group, events: int, packing: int, out: BinaryIO) -> SourceSummary:
    payload = empty = largest = mfps = 0
    chunk = packing * max(1, _CHUNK_EVENTS // packing)
    for start in range(0, events, chunk):
        sizes, data = _fragments(tree, group, start, min(start + chunk, events))
        payload += len(data)
        empty += int((sizes == 0).sum())
        largest = max(largest, int(sizes.max()))
        ends = np.concatenate([[0], np.cumsum(sizes)])
        for first in range(0, len(sizes), packing):
            last = min(first + packing, len(sizes))
            fragments = data[ends[first] : ends[last]]
            out.write(
                encode_mfp(
                    group.source,
                    start + first,
                    sizes[first:last],
                    fragments,
                    types=group.type,
                    align_log2=DEFAULT_ALIGN_LOG2,
                    fragment_version=group.version,
                )
            )
            mfps += 1
    return SourceSummary(group, payload, empty, largest, mfps)


def import_root(
    path: Path,
    out_dir: Path,
    tree: str | None = None,
    *,
    packing: int | None = None,
    mfp_bytes: int | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    detectors: Mapping[str, Detector] | None = None,
    max_events: int | None = None,
    skip_unsupported: bool = False,
    force: bool = False,
) -> ImportSummary:
    """Writes `source-<id>.mfp` for every group of branches, and sources.json, into `out_dir`.

    Event k of the tree gets the event id k. All sources have the same packing: `packing`, or as many events as make a
    mean MFP of `mfp_bytes`. With neither, as for 64 KiB, but few enough to give 64 MEPs, since events this small would
    else all end up in one. `detectors` has source id, type and version for every group, and for ODIN, which then is a
    source more. Raises FormatError for a file, tree, branch or option that will not do.
    """
    if packing is not None and not 1 <= packing <= MAX_FRAGMENTS:
        raise FormatError(f"--packing {packing}, expected 1 .. {MAX_FRAGMENTS}")
    if mfp_bytes is not None and mfp_bytes < 1:
        raise FormatError(f"--mfp-size {mfp_bytes}, expected at least 1 byte")
    if max_events is not None and max_events < 1:
        raise FormatError(f"--max-events {max_events}, expected at least 1")
    source_tree = open_tree(path, tree)
    events = source_tree.events if max_events is None else min(max_events, source_tree.events)
    if events < 1:
        raise FormatError(f"{path}: tree {source_tree.name} has no events")
    try:
        branches, skipped = _branches(source_tree, events, skip_unsupported)
        if not branches:
            reasons = f": {skipped[0]}" if skipped else ""
            more = f" (and {counted(len(skipped) - 1, 'other')})" if len(skipped) > 1 else ""
            raise FormatError(f"has no branch that can be imported{reasons}{more}")
        by_name = default_groups(branches) if groups is None else chosen_groups(branches, groups)
        numbered = _numbered(by_name, detectors or {})
        if packing is None:
            packing = _packing_for(source_tree, numbered, events, mfp_bytes or DEFAULT_MFP_BYTES)
            if mfp_bytes is None:
                packing = min(packing, -(-events // DEFAULT_MEPS))
            packing = min(packing, events)
    except FormatError as error:
        raise FormatError(f"{path}: tree {source_tree.name}: {error}") from error
    sources = Sources(path.name, source_tree.name, events, packing, numbered)
    with _sole_import(out_dir, force):
        try:
            written = _write(source_tree, sources, out_dir)
        except FormatError as error:
            raise FormatError(f"{path}: tree {source_tree.name}: {error}") from error
    return ImportSummary(out_dir, sources, tuple(written), tuple(skipped))


def _write(tree: Tree, sources: Sources, out_dir: Path) -> list[SourceSummary]:
    written = []
    for group in sources.groups:
        file = out_dir / mfp_name(group.source)
        with named(file), file.open("wb") as out:
            written.append(_write_source(tree, group, sources.events, sources.packing, out))
    sources.save(out_dir)
    return written


def _mfp_files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("source-*.mfp"))


@contextmanager
def _sole_import(folder: Path, force: bool) -> Iterator[None]:
    """The folder is this import's alone, and no half of an import stays in it, or only one that is marked as such.

    What an import left unfinished goes away; what somebody may still want only if they say so with `force`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / UNFINISHED
    unfinished = mark.exists() and not (folder / SIDECAR).exists()
    with named(mark), mark.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = not mark.exists() or not os.path.samestat(os.fstat(lock.fileno()), mark.stat())
        except BlockingIOError:
            taken = True
        if taken:
            raise FormatError(f"{folder}: another import is writing into it; allowed: another folder")
        stale = _mfp_files(folder)
        if stale and not unfinished and not force:
            remove_files(folder, [UNFINISHED])
            raise FormatError(
                f"{folder}: already holds {stale[0]}; allowed: another folder, or --force, which removes an earlier "
                "import's files"
            )
        try:
            remove_files(folder, [SIDECAR, *stale])
            yield
        except BaseException:
            remove_files(folder, [SIDECAR, *_mfp_files(folder)])
            remove_files(folder, [UNFINISHED])
            raise
        remove_files(folder, [UNFINISHED])


# ---- the way back


def decode_group(sources: Sources, group: str, mfps: Iterable[Mfp]) -> dict[str, Any]:
    """The branches of a group, by name, as Awkward arrays, from its MFPs in the order of their events."""
    packets = list(mfps)
    for packet in packets:
        if packet.missing().any():
            raise FormatError(
                f"group {group}: fragments from event {packet.first_event} on are missing ({packet.flag})"
            )
    sizes = np.concatenate([np.empty(0, np.int64), *(packet.sizes for packet in packets)])
    payload = np.concatenate([np.empty(0, np.uint8), *(packet.payload() for packet in packets)])
    branches = sources.group(group).branches
    try:
        arrays = decode([branch.type for branch in branches], sizes, payload)
    except FormatError as error:
        raise FormatError(f"group {group}: {error}") from error
    return {branch.key: array for branch, array in zip(branches, arrays, strict=True)}


@dataclass
class CompareReport:
    """Whether built events are the tree's, bit for bit, every event once."""

    events: int
    branches: int
    compared: int
    problems: list[str]

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.problems

    def lines(self) -> list[str]:
        """The report for a person."""
        head = f"{self.events} events, {self.compared} of {self.branches} branches compared bit by bit"
        return [head, *(f"BAD: {problem}" for problem in self.problems), "identical" if self.ok else "different"]


def compare(root_file: Path, sources_json: Path, mep_path: Path) -> CompareReport:
    """Compares the built events of `mep_path` (a folder of MEP files) with the tree they were imported from.

    Every event must be there exactly once, complete, and every branch the same to the last bit.
    """
    sources = Sources.load(sources_json)
    n_branches = sum(len(group.branches) for group in sources.groups)
    report = CheckedPackets.of(sources, mep_files.read(mep_path))
    result = CompareReport(sources.events, n_branches, 0, report.problems)
    if result.problems:
        return result
    tree = open_tree(root_file, sources.tree)
    for group in sources.groups:
        if not group.branches:
            if any(mfp.payload().tobytes() != _odin_of(mfp) for mfp in report.packets[group.source]):
                result.problems.append(f"group {group.name}: differs from what was imported")
            continue
        try:
            decoded = decode_group(sources, group.name, report.packets[group.source])
        except FormatError as error:
            result.problems.append(str(error))
            continue
        for key, actual in decoded.items():
            result.compared += 1
            event = first_difference(tree.column(key, 0, sources.events), actual)
            if event is not None:
                result.problems.append(f"branch {key!r}: differs, first in event {event}")
    return result


def _odin_of(mfp: Mfp) -> bytes:
    return odin_banks(mfp.first_event, mfp.first_event + mfp.n_fragments).tobytes()


@dataclass(frozen=True)
class CheckedPackets:
    """The MFPs of every source in the order of their events, and what is wrong with their number."""

    packets: dict[int, list[Mfp]]
    problems: list[str]

    @staticmethod
    def of(sources: Sources, meps: Iterator[Any]) -> CheckedPackets:
        """Sorts the MFPs of MEPs by source; all sources and all events must be there exactly once."""
        packets: dict[int, list[Mfp]] = {group.source: [] for group in sources.groups}
        problems: list[str] = []
        strangers: Counter[int] = Counter()
        try:
            for packet in meps:
                for mfp in packet.mfps:
                    if mfp.source in packets:
                        packets[mfp.source].append(mfp)
                    else:
                        strangers[mfp.source] += 1
        except FormatError as error:
            problems.append(str(error))
        problems += [
            f"source {source}: {count} MFPs, but {SIDECAR} has no such source" for source, count in strangers.items()
        ]
        for group in sources.groups:
            packets[group.source].sort(key=lambda mfp: mfp.first_event)
            problems += _coverage(group, packets[group.source], sources.events)
        return CheckedPackets(packets, problems)


def _coverage(group: Group, mfps: Sequence[Mfp], events: int) -> Iterator[str]:
    expected = 0
    name = f"source {group.source} ({group.name})"
    for mfp in mfps:
        if mfp.first_event > expected:
            yield f"{name}: events {expected} .. {mfp.first_event - 1} are not there"
        elif mfp.first_event < expected:
            yield f"{name}: event {mfp.first_event} is there more than once"
        expected = max(expected, mfp.first_event + mfp.n_fragments)
    if expected != events:
        yield f"{name}: events end at {expected}, expected {events}"


def read_sources(folder: Path) -> tuple[Sources, dict[int, list[Mfp]]]:
    """What import_root wrote: sources.json and the MFPs of every source."""
    sources = Sources.load(folder)
    return sources, {group.source: list(read_mfps(folder / mfp_name(group.source))) for group in sources.groups}
