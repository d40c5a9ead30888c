"""Folders and files of built events: `incast mep show` and `incast mep check`.

A builder unit writes `<bu>-<incarnation>-<seq>.mep` and one `manifest-<bu>-<incarnation>.jsonl` (docs/formats.md). Only
what a manifest lists is committed; bytes behind it are an uncommitted tail. A MEP that was committed more than once
counts once: the line with the highest attempt wins.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final

from incast.base.words import counted
from incast.data.detectors import daq_errors, in_words, says_missing
from incast.formats import FLAG_NAMES, Buffer, FormatError, Mep, Mfp, crc32c, map_file, parse_mep, read_meps

_DEFECTS: Final = FLAG_NAMES[2:]
_MEP_NAME: Final = re.compile(r"[0-9]+-[0-9]+-[0-9]+\.mep")
MAX_LINE_BYTES: Final = 16 << 20  # of a manifest; one that names all of 65536 sources is shorter
_MISSING: Final = ("incast", "lhcb")  # values of `sink.missing`
_CRC: Final = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True)
class ManifestEntry:
    """One line of a manifest: a MEP that is committed."""

    manifest: Path
    line: int
    file: str
    offset: int
    bytes: int
    mep: int
    attempt: int
    redelivered: bool
    first_event: int
    n_events: int
    n_mfps: int
    flags: dict[int, str]
    crc32c: int
    mfp_crc32c: dict[int, int]  # by source; empty: the run made no checksums of this MEP's MFPs
    missing: str  # incast, or lhcb: what is missing of a source are LHCb's error banks (`sink.missing`)

    @property
    def path(self) -> Path:
        """The file that holds the MEP."""
        return self.manifest.parent / self.file

    def __str__(self) -> str:
        return f"{self.manifest.name} line {self.line} (MEP {self.mep})"


def _natural(line: dict[str, Any], key: str) -> int:
    value = line[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise FormatError(f"{key} is {value!r}, expected a natural number")
    return value


def _entry(manifest: Path, number: int, text: str) -> ManifestEntry:
    try:
        line = json.loads(text)
        if not isinstance(line, dict):
            raise FormatError("not an object")
        if not isinstance(line["file"], str) or not _MEP_NAME.fullmatch(line["file"]):
            raise FormatError(f"file is {line['file']!r}, expected <bu>-<incarnation>-<seq>.mep")
        if not isinstance(line["redelivered"], bool):
            raise FormatError(f"redelivered is {line['redelivered']!r}, expected true or false")
        if not isinstance(line["crc32c"], str) or not _CRC.fullmatch(line["crc32c"]):
            raise FormatError(f"crc32c is {line['crc32c']!r}, expected 8 hexadecimal digits")
        flags = line["flags"]
        if not isinstance(flags, dict) or not all(key.isdecimal() and flag in _DEFECTS for key, flag in flags.items()):
            raise FormatError(f'flags is {flags!r}, expected {{"<source>": one of {", ".join(_DEFECTS)}}}')
        made = line.get("mfp_crc32c", {})
        if not isinstance(made, dict) or not all(
            key.isdecimal() and isinstance(value, str) and _CRC.fullmatch(value) for key, value in made.items()
        ):
            raise FormatError(f'mfp_crc32c is {made!r}, expected {{"<source>": 8 hexadecimal digits}}')
        if (missing := line.get("missing", "incast")) not in _MISSING:
            raise FormatError(f"missing is {missing!r}, expected one of {', '.join(_MISSING)}")
        return ManifestEntry(
            manifest=manifest,
            line=number,
            file=line["file"],
            offset=_natural(line, "offset"),
            bytes=_natural(line, "bytes"),
            mep=_natural(line, "mep"),
            attempt=_natural(line, "attempt"),
            redelivered=line["redelivered"],
            first_event=_natural(line, "first_event"),
            n_events=_natural(line, "n_events"),
            n_mfps=_natural(line, "n_mfps"),
            flags={int(source): flag for source, flag in flags.items()},
            crc32c=int(line["crc32c"], 16),
            mfp_crc32c={int(source): int(value, 16) for source, value in made.items()},
            missing=missing,
        )
    except json.JSONDecodeError as error:
        raise FormatError(f"{manifest.name} line {number}: no JSON ({error.msg})") from error
    except KeyError as error:
        raise FormatError(f"{manifest.name} line {number}: no {error.args[0]}") from error
    except RecursionError:
        raise FormatError(f"{manifest.name} line {number}: nested too deep") from None
    except ValueError as error:  # a FormatError, or a number of too many digits
        raise FormatError(f"{manifest.name} line {number}: {error}") from error


def read_manifest(path: Path) -> list[ManifestEntry]:
    """The committed MEPs of one builder unit. A last line without its end was torn by a crash and does not count."""
    entries: list[ManifestEntry] = []
    with path.open("rb") as file:
        while (line := file.readline(MAX_LINE_BYTES + 1)).endswith(b"\n"):
            entries.append(_entry(path, len(entries) + 1, _text(path, len(entries) + 1, line)))
        if len(line) > MAX_LINE_BYTES:
            raise FormatError(f"{path.name} line {len(entries) + 1}: longer than {MAX_LINE_BYTES} bytes")
    return entries


def _text(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path.name} line {number}: no UTF-8 text: {error.reason} at byte {error.start}") from error


def manifests(folder: Path) -> list[Path]:
    """The manifests of a folder, in order of their names."""
    return sorted(folder.glob("manifest-*.jsonl"))


def committed(folder: Path) -> list[ManifestEntry]:
    """The MEPs of a folder, each once, in order of their ids."""
    return _distinct(entry for path in manifests(folder) for entry in read_manifest(path))


def _alone(path: Path) -> list[Path]:
    """The files of MEPs that no manifest speaks of: the path itself, or those of a folder that has no manifest."""
    if not path.is_dir():
        return [path]
    if manifests(path):
        return []
    files = sorted(path.glob("*.mep"))
    if not files:
        raise FormatError(f"{path}: no built events in it: no manifest-*.jsonl, and no *.mep")
    return files


def _distinct(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    best: dict[int, ManifestEntry] = {}
    for entry in entries:
        if entry.mep not in best or entry.attempt > best[entry.mep].attempt:
            best[entry.mep] = entry
    return [best[mep] for mep in sorted(best)]


def load(entry: ManifestEntry, files: dict[Path, Buffer] | None = None) -> Mep:
    """Reads and checks the MEP of a manifest line; everything the line says must be true of it.

    `files` keeps the mapped files, for callers that read many.
    """
    cache = {} if files is None else files
    if entry.path not in cache:
        try:
            cache[entry.path] = map_file(entry.path)
        except OSError as error:
            raise FormatError(f"{entry}: {entry.file}: {error.strerror}") from error
    buffer = cache[entry.path]
    if entry.offset + entry.bytes > len(buffer):
        raise FormatError(f"{entry}: bytes {entry.offset} + {entry.bytes}, but {entry.file} has {len(buffer)}")
    data = buffer[entry.offset : entry.offset + entry.bytes]
    checksum = crc32c(data)
    if checksum != entry.crc32c:
        raise FormatError(f"{entry}: CRC-32C of the bytes {checksum:08x}, the line says {entry.crc32c:08x}")
    try:
        mep = parse_mep(data)
    except FormatError as error:
        raise FormatError(f"{entry}: {error}") from error
    facts = {
        "bytes": (len(mep.packet), entry.bytes),
        "first_event": (mep.first_event, entry.first_event),
        "n_events": (mep.n_events, entry.n_events),
        "n_mfps": (len(mep.mfps), entry.n_mfps),
        "flags": (_flags(entry, mep), entry.flags),
    }
    for name, (found, said) in facts.items():
        if found != said:
            raise FormatError(f"{entry}: {name} {found}, the line says {said}")
    if disorder := mep.disorder():
        raise FormatError(f"{entry}: MEP: {disorder}")
    _check_mfps(entry, mep)
    return mep


def _flags(entry: ManifestEntry, mep: Mep) -> dict[int, str]:
    """What the bytes say is missing. Error banks say less than flags, so a flag that agrees with them stands."""
    if entry.missing == "incast":
        return mep.flags
    agree = {mfp.source for mfp in mep.mfps if says_missing(mfp, entry.flags.get(mfp.source, ""))}
    return mep.flags | {source: flag for source, flag in entry.flags.items() if source in agree}


def _check_mfps(entry: ManifestEntry, mep: Mep) -> None:
    """The checksums that sources made: of all bytes from the 16th on, then of the first 16."""
    if not entry.mfp_crc32c:
        return
    packets = {mfp.source: mfp.packet for mfp in mep.mfps}
    for source, said in entry.mfp_crc32c.items():
        if source not in packets:
            raise FormatError(f"{entry}: mfp_crc32c names source {source}, of which there is no MFP")
        packet = packets[source]
        found = crc32c(packet[:16], crc32c(packet[16:]))
        if found != said:
            raise FormatError(f"{entry}: checksum of source {source} {found:08x}, it was sent with {said:08x}")


def read(path: Path) -> Iterator[Mep]:
    """The MEPs of a folder by its manifests, each once, in order of their ids; or all of a file, or of the files of a
    folder without manifests.
    """
    alone = _alone(path)
    for file in alone:
        for _, mep in read_meps(file):
            yield mep
    if not alone:
        files: dict[Path, Buffer] = {}
        for entry in committed(path):
            yield load(entry, files)


def in_order(paths: Sequence[Path]) -> list[tuple[Path, Mep]]:
    """The MEPs of files and folders, in the order of their events, and which path has them. Errors: none is there, an
    event is in two.
    """
    meps = sorted(((path, mep) for path in paths for mep in read(path)), key=lambda each: each[1].first_event)
    if not meps:
        raise FormatError(f"{', '.join(map(str, paths))}: there is no MEP in it")
    for (other, before), (path, mep) in pairwise(meps):
        if mep.first_event < before.first_event + before.n_events:
            where = str(path) if path == other else f"{other} and {path}"
            raise FormatError(f"{where}: event {mep.first_event} is in two MEPs")
    return meps


# ---- incast mep check


@dataclass
class CheckReport:
    """What `check` found. `problems` make it bad; `notes` are worth knowing and no fault of the files."""

    path: Path
    more_files: int = 0  # that were named beside it
    meps: int = 0
    events: int = 0
    mfps: int = 0
    wide_mfps: int = 0
    bytes: int = 0
    payload_bytes: int = 0
    redelivered: int = 0
    duplicates: int = 0
    incomplete_events: int = 0
    uncommitted_bytes: int = 0
    first_event: int | None = None
    last_event: int | None = None
    flags: Counter[str] = field(default_factory=Counter)
    flag_events: Counter[str] = field(default_factory=Counter)
    daq_errors: Counter[int] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything is as it should be."""
        return not self.problems

    @property
    def complete_events(self) -> int:
        """Those with what every source had."""
        return self.events - self.incomplete_events

    def lines(self) -> list[str]:
        """The report for a person."""
        span = "" if self.first_event is None else f" ({self.first_event} .. {self.last_event})"
        more = f" and {counted(self.more_files, 'more file')}" if self.more_files else ""
        lines = [
            f"{self.path}{more}: {counted(self.meps, 'MEP')}, {counted(self.events, 'event')}{span},"
            f" {counted(self.mfps, 'MFP')}, {self.bytes} bytes, {self.payload_bytes} of them payload",
            f"complete events: {self.complete_events}, incomplete events: {self.incomplete_events}"
            + "".join(
                f"; {flag}: {self.flag_events[flag]} events, {mfps} MFPs" for flag, mfps in sorted(self.flags.items())
            ),
            f"redelivered: {self.redelivered}, duplicates, not counted: {self.duplicates},"
            f" uncommitted bytes: {self.uncommitted_bytes}",
        ]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"BAD: {problem}" for problem in self.problems]
        return [*lines, "ok" if self.ok else f"bad: {counted(len(self.problems), 'problem')}"]

    def _add(self, mep: Mep, flags: dict[int, str]) -> None:
        self.meps += 1
        self.events += mep.n_events
        self.mfps += len(mep.mfps)
        self.wide_mfps += sum(mfp.wide for mfp in mep.mfps)
        self.bytes += len(mep.packet)
        self.payload_bytes += mep.payload_bytes
        for mfp in mep.mfps:
            self.daq_errors.update(daq_errors(mfp))
        self.flags.update(flags.values())
        self.flag_events.update(dict.fromkeys(flags.values(), mep.n_events))
        if flags:
            self.incomplete_events += mep.n_events
        last = mep.first_event + mep.n_events - 1
        self.first_event = mep.first_event if self.first_event is None else min(self.first_event, mep.first_event)
        self.last_event = last if self.last_event is None else max(self.last_event, last)


def check(path: Path, *more: Path) -> CheckReport:
    """Reads everything there is and compares it with what the manifests say. Never raises for bad content, but OSError
    where there is nothing of that name. Several files are taken together, without their manifests.
    """
    for each in (path, *more):
        each.stat()
    report = CheckReport(path, more_files=len(more))
    try:
        if folder := next((each for each in (path, *more) if more and each.is_dir()), None):
            raise FormatError(f"{folder}: a folder among several paths; allowed: one folder, or files")
        if more:
            _check_files([path, *more], report)
        elif alone := _alone(path):
            _check_files(alone, report)
        else:
            _check_folder(path, report)
        if report.daq_errors:
            report.notes.append(f"fragments that are LHCb's error banks: {in_words(report.daq_errors)}")
        if report.wide_mfps:
            report.notes.append(
                f"{report.wide_mfps} MFPs are of the wide variant: only Incast reads it (docs/formats.md)"
            )
        if not report.meps and not report.problems:
            report.problems.append(f"{path}: there is no MEP in it")
    except FormatError as error:
        report.problems.append(str(error))
    except OSError as error:
        report.problems.append(f"{path}: {error.strerror}")
    return report


def _check_files(paths: Sequence[Path], report: CheckReport) -> None:
    """Files without manifests must hold MEPs and nothing else; the events between them may be in other files."""
    report.notes.append(
        "no manifest in this folder: its files are taken as they are"
        if report.path.is_dir()
        else f"{'files' if len(paths) > 1 else 'a file'} alone: manifests are checked when the folder is"
    )
    spans: list[tuple[int, int]] = []
    disorders: list[str] = []
    for path in paths:
        for offset, mep in read_meps(path):
            report._add(mep, mep.flags)
            spans.append((mep.first_event, mep.n_events))
            if disorder := mep.disorder():
                where = f"at byte {offset}" if len(paths) == 1 else f"in {path.name} at byte {offset}"
                disorders.append(f"{where}: {disorder}")
    if disorders:
        report.notes.append(
            f"not as Incast writes them: source ids of {counted(len(disorders), 'MEP')}; the first {disorders[0]}"
        )
    twice: list[str] = []
    absent: list[str] = []
    for (first, n), (following, _) in pairwise(sorted(spans)):
        if following < first + n:
            twice.append(f"event {following} is in the file more than once")
        elif following > first + n:
            absent.append(f"events {first + n} .. {following - 1}")
    report.notes += twice
    if absent:
        report.notes.append(
            f"no MEP here has {absent[0]}" + (f" and {len(absent) - 1} more such gaps" if absent[1:] else "")
        )


def _is_torn(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def _check_folder(folder: Path, report: CheckReport) -> None:
    entries: list[ManifestEntry] = []
    for path in manifests(folder):
        try:
            entries += read_manifest(path)
        except FormatError as error:
            report.problems.append(str(error))
        if _is_torn(path):
            report.notes.append(f"{path.name}: the last line is torn and does not count")
    _check_layout(folder, entries, report)
    distinct = _distinct(entries)
    report.duplicates = len(entries) - len(distinct)
    report.redelivered = sum(entry.redelivered for entry in distinct)
    # Farm nodes write what another one may have written, and mark it.
    unmarked = Counter((entry.mep, entry.attempt) for entry in entries if not entry.redelivered)
    for (mep_id, attempt), count in unmarked.items():
        if count > 1:
            report.problems.append(f"MEP {mep_id}: attempt {attempt} is committed {count} times")
    files: dict[Path, Buffer] = {}
    sources: set[int] | None = None
    chosen = set(map(id, distinct))
    for entry in entries:
        try:
            mep = load(entry, files)
        except FormatError as error:
            report.problems.append(str(error))
            continue
        if id(entry) not in chosen:
            continue
        report._add(mep, entry.flags)
        found = {mfp.source for mfp in mep.mfps}
        if sources is not None and found != sources:
            report.problems.append(f"{entry}: sources differ from those of other MEPs: {sorted(found ^ sources)}")
        sources = found if sources is None else sources
    _check_sequence(distinct, report)


def _check_layout(folder: Path, entries: list[ManifestEntry], report: CheckReport) -> None:
    """No two lines share bytes; what no line mentions is an uncommitted tail, or a hole, which is bad."""
    by_file: dict[str, list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        by_file[entry.file].append(entry)
    for path in sorted(folder.glob("*.mep")):
        end = 0
        for entry in sorted(by_file.get(path.name, []), key=lambda entry: entry.offset):
            if entry.offset < end:
                report.problems.append(f"{entry}: starts at byte {entry.offset}, inside of the MEP before it")
            elif entry.offset > end:
                report.problems.append(f"{entry}: {entry.offset - end} bytes before it belong to no MEP")
            end = max(end, entry.offset + entry.bytes)
        tail = path.stat().st_size - end
        if tail > 0:
            report.uncommitted_bytes += tail
            report.notes.append(f"{path.name}: uncommitted tail of {tail} bytes, ignored")


def _check_sequence(distinct: list[ManifestEntry], report: CheckReport) -> None:
    """MEP ids count from 0 without a gap, and so do the events in their order."""
    expected_mep = 0
    expected_event: int | None = None
    for entry in distinct:
        if entry.mep != expected_mep:
            report.problems.append(f"MEPs {expected_mep} .. {entry.mep - 1} are missing")
        elif expected_event is not None and entry.first_event != expected_event:
            report.problems.append(f"{entry}: starts with event {entry.first_event}, expected {expected_event}")
        expected_mep = entry.mep + 1
        expected_event = entry.first_event + entry.n_events


# ---- incast mep show


@dataclass(frozen=True)
class MfpRow:
    """One MFP of a MEP."""

    source: int
    n_fragments: int
    packet_bytes: int
    payload_bytes: int
    largest_fragment: int
    empty_fragments: int
    wide: bool
    flag: str
    daq_errors: dict[int, int]
    first_fragments: tuple[bytes, ...]


@dataclass(frozen=True)
class MepRow:
    """One MEP, where it lies and, where a manifest says so, which one it is."""

    file: str
    offset: int
    bytes: int
    mep: int | None
    attempt: int | None
    first_event: int
    n_events: int
    payload_bytes: int
    mfps: tuple[MfpRow, ...]


@dataclass(frozen=True)
class MepSummary:
    """The first MEPs of a file or folder; `total` is how many there are."""

    path: Path
    total: int
    meps: tuple[MepRow, ...]

    def lines(self) -> list[str]:
        """The summary for a person."""
        lines = [f"{self.path}: {counted(self.total, 'MEP')}"]
        for row in self.meps:
            name = "" if row.mep is None else f" MEP {row.mep} attempt {row.attempt}"
            lines.append(
                f"{row.file} at {row.offset}:{name} events {row.first_event} .. {row.first_event + row.n_events - 1},"
                f" {counted(len(row.mfps), 'MFP')}, {row.bytes} bytes, {row.payload_bytes} payload"
            )
            lines.append("  source  fragments  packet B  payload B  largest B  empty  flag")
            for mfp in row.mfps:
                lines.append(
                    f"  {mfp.source:6}  {mfp.n_fragments:9}  {mfp.packet_bytes:8}  {mfp.payload_bytes:9}"
                    f"  {mfp.largest_fragment:9}  {mfp.empty_fragments:5}  {mfp.flag}{' (wide)' if mfp.wide else ''}"
                )
                if mfp.daq_errors:
                    lines.append(f"          error banks: {in_words(Counter(mfp.daq_errors))}")
                lines += [
                    f"    event {row.first_event + k}: {len(data)} B{_hex(data)}"
                    for k, data in enumerate(mfp.first_fragments)
                ]
        if self.total > len(self.meps):
            lines.append(f"... and {self.total - len(self.meps)} more")
        return lines


def _hex(data: bytes, limit: int = 32) -> str:
    return f": {data[:limit].hex(' ')}{' ...' if len(data) > limit else ''}" if data else ""


def _mfp_row(mfp: Mfp, flag: str, fragments: int) -> MfpRow:
    return MfpRow(
        source=mfp.source,
        n_fragments=mfp.n_fragments,
        packet_bytes=len(mfp.packet),
        payload_bytes=mfp.payload_bytes,
        largest_fragment=int(mfp.sizes.max()),
        empty_fragments=int((mfp.sizes == 0).sum()),
        wide=mfp.wide,
        flag=flag,
        daq_errors=dict(daq_errors(mfp)),
        first_fragments=tuple(mfp.fragment(k).tobytes() for k in range(min(fragments, mfp.n_fragments))),
    )


def show(path: Path, *, limit: int = 10, fragments: int = 0) -> MepSummary:
    """The first `limit` MEPs of a folder (by its manifests) or of a file.

    With the bytes of the first `fragments` of each MFP. Raises FormatError or OSError for what cannot be read.
    """

    def row(file: str, offset: int, entry: ManifestEntry | None, mep: Mep) -> MepRow:
        said = {} if entry is None else entry.flags
        return MepRow(
            file=file,
            offset=offset,
            bytes=len(mep.packet),
            mep=None if entry is None else entry.mep,
            attempt=None if entry is None else entry.attempt,
            first_event=mep.first_event,
            n_events=mep.n_events,
            payload_bytes=mep.payload_bytes,
            mfps=tuple(_mfp_row(mfp, said.get(mfp.source, mfp.flag), fragments) for mfp in mep.mfps),
        )

    alone = _alone(path)
    if not alone:
        entries = committed(path)
        rows = [row(entry.file, entry.offset, entry, load(entry)) for entry in entries[:limit]]
        return MepSummary(path, len(entries), tuple(rows))
    meps = ((file.name, offset, mep) for file in alone for offset, mep in read_meps(file))
    rows = [row(name, offset, None, mep) for name, offset, mep in islice(meps, limit)]
    return MepSummary(path, len(rows) + sum(1 for _ in meps), tuple(rows))
