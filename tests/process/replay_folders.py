"""Folders of MFP files for replays: whole ones, and ones with every fault that a recording may have."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MISSING = {"missing-dead": 0xF2, "missing-unreachable": 0xF3, "late": 0xF4, "truncated": 0xF5, "bad-checksum": 0xF6}
END_OF_RUN = struct.pack("<HHIQHBB", 0x40CE, 2, 28, 2**64 - 1, 0, 3, 1) + bytes(8)


def _padded(data: bytes, to: int) -> bytes:
    return data + bytes(-len(data) % to)


def mfp(source: int, first: int, sizes: Sequence[int], *, types: bytes = b"", wide: bool = False) -> bytes:
    """One MFP with fragments of these sizes."""
    n = len(sizes)
    tables = _padded(types or bytes(n), 4) + _padded(struct.pack(f"<{n}{'I' if wide else 'H'}", *sizes), 4)
    body = tables + b"".join(_padded(bytes([1 + source % 200]) * size, 8) for size in sizes)
    if wide:
        return struct.pack("<HHBBBBQQHHI", 0x57CE, n, 1, 3, 1, 0, first, 32 + len(body), source, 0, 0) + body
    return struct.pack("<HHIQHBB", 0x40CE, n, 20 + len(body), first, source, 3, 1) + body


def run_of(source: int, first: int, mfps: int, n: int = 4, size: int = 100) -> bytes:
    """MFPs of n events each, one behind the other."""
    return b"".join(mfp(source, first + n * index, [size] * n) for index in range(mfps))


def write(folder: Path, files: Iterable[tuple[int, bytes]]) -> Path:
    """The files of the sources."""
    folder.mkdir(parents=True)
    for source, data in files:
        (folder / f"source-{source}.mfp").write_bytes(data)
    return folder


Spans = list[tuple[int, int]]  # of each MFP its first event, and how many


def _ends_early(rng: random.Random, spans: Spans, n: int) -> Spans:
    """Maybe with an MFP that is short."""
    at = rng.randrange(1, len(spans))
    return spans[:at] if rng.random() < 0.5 else [*spans[:at], (spans[at][0], rng.randint(1, n))]


def _gap(rng: random.Random, spans: Spans, _: int) -> Spans:
    at = rng.randrange(1, len(spans))
    return spans[:at] + spans[at + rng.randint(1, 3) :]


def _goes_back(rng: random.Random, spans: Spans, n: int) -> Spans:
    at = rng.randrange(1, len(spans))
    return [(event + 100 * n, events) for event, events in spans[:at]] + spans[at:]


def _shifted(rng: random.Random, spans: Spans, n: int) -> Spans:
    shift = rng.randint(1, 2 * n)
    return [(event + shift, events) for event, events in spans]


def _short_in_the_middle(rng: random.Random, spans: Spans, n: int) -> Spans:
    """What follows goes on there, or where it would have."""
    at, less = rng.randrange(1, len(spans)), rng.randint(1, n)
    back = n - less if rng.random() < 0.5 else 0
    return [*spans[:at], (spans[at][0], less), *((event - back, events) for event, events in spans[at + 1 :])]


def _twice(rng: random.Random, spans: Spans, _: int) -> Spans:
    at = rng.randrange(1, len(spans))
    return [*spans[:at], *spans[at - 1 :]]


def _goes_on(rng: random.Random, spans: Spans, n: int) -> Spans:
    last = spans[-1][0]
    return [*spans[:-1], *((last + n * index, n) for index in range(rng.randint(2, 5)))]


def _oversize(rng: random.Random, spans: Spans, n: int) -> Spans:
    """Longer than those of the others, which are then refused; or a longer one behind the first."""
    at = rng.randrange(len(spans))
    return [*spans[:at], (spans[at][0], n + 1), *spans[at + 1 :]]


FAULTS_OF_IDS: dict[str, Callable[[random.Random, Spans, int], Spans]] = {
    "empty": lambda _rng, _spans, _n: [],
    "ends early": _ends_early,
    "begins late": lambda rng, spans, _: spans[rng.randrange(1, len(spans)) :],
    "gap": _gap,
    "begins again": lambda rng, spans, _: spans + spans[: rng.randint(1, len(spans))],
    "goes back": _goes_back,
    "shifted": _shifted,
    "short in the middle": _short_in_the_middle,
    "twice": _twice,
    "goes on": _goes_on,
}
FAULTS = [*FAULTS_OF_IDS, "flagged", "wide", "end of run"]
FAULTS_OF_IDS["oversize"] = _oversize


@dataclass
class RandomFolder:
    """One that follows from its seed; `faults` says what was done to which source."""

    seed: int
    packing: int = 0
    faults: dict[int, str] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """Makes the files."""
        rng = random.Random(self.seed)
        self.packing = rng.choice([1, 2, 3, 4, 4, 8, 16])
        meps = rng.randint(2, 12)
        first = rng.choice([0, 0, 7, 1000, 2**40])
        last = rng.choice([self.packing, self.packing, rng.randint(1, self.packing)])
        sources = rng.sample(range(300), rng.randint(2, 5))
        data = {}
        for source in sources:
            fault = rng.choice(["none", "none", *FAULTS]) if source != sources[0] or rng.random() < 0.2 else "none"
            fault = "oversize" if rng.random() < 0.02 else fault
            self.faults[source] = fault
            spans = [(first + index * self.packing, self.packing) for index in range(meps)]
            spans[-1] = (spans[-1][0], last)
            data[source] = self._file(rng, source, fault, spans)
        return write(folder, data.items())

    def _file(self, rng: random.Random, source: int, fault: str, spans: list[tuple[int, int]]) -> bytes:
        flagged = set(rng.sample(range(len(spans)), rng.randint(1, len(spans)))) if fault == "flagged" else set()
        if fault in FAULTS_OF_IDS:
            spans = FAULTS_OF_IDS[fault](rng, spans, self.packing)
        file = b"".join(
            self._mfp(rng, source, event, events, flagged=index in flagged, wide=fault == "wide")
            for index, (event, events) in enumerate(spans)
        )
        return file + (END_OF_RUN if fault == "end of run" else b"")

    def _mfp(self, rng: random.Random, source: int, first: int, n: int, *, flagged: bool, wide: bool) -> bytes:
        sizes = [rng.choice([0, 0, 1, 9, 40, 300]) for _ in range(n)]
        types = bytearray([3] * n)
        if flagged:
            for event in range(n if rng.random() < 0.3 else rng.randint(1, n)):
                sizes[event], types[event] = 0, rng.choice(list(MISSING.values()))
        if wide and rng.random() < 0.2:
            sizes[0] = 70_000
        return mfp(source, first, sizes, types=bytes(types), wide=wide)
