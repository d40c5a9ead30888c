"""Source ids, types and versions of sources as LHCb has them, and ODIN, its timing source (docs/formats.md).

The upper five bits of a source id are the detector (0: ODIN), the other eleven a number within it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from incast.formats import FLAG_NAMES, FLAG_TYPE_BASE, FormatError, Mfp

ODIN: Final = "odin"
ODIN_TYPE: Final = 16  # LHCb's RawBank::ODIN
ODIN_VERSION: Final = 7
ODIN_BYTES: Final = 40
# Fragment types by which LHCb's front ends say what went wrong with the data of an event (RawBank::DaqError...).
DAQ_ERRORS: Final = {
    89: "fragment throttled",
    90: "BXID corrupted",
    91: "BXID of synchronisation corrupted",
    92: "fragment missing",
    93: "fragment truncated",
    94: "BXID of idle frame corrupted",
    95: "fragment malformed",
    96: "event id jumped",
    100: "alignment buffer full",
    101: "size of front-end fragment wrong",
}
# Our types of missing fragments (docs/formats.md), and the error bank that says the same to LHCb's readers.
MISSING_AS: Final = {
    FLAG_TYPE_BASE | FLAG_NAMES.index(flag): kind
    for flag, kind in {
        "missing-dead": 92,
        "missing-unreachable": 92,
        "late": 92,
        "truncated": 93,
        "bad-checksum": 95,
        "desync": 96,
        "dropped": 89,
    }.items()
}
_FILLED_BUNCHES: Final = 3564  # places for bunches in an orbit of the LHC
_BEAM_CROSSING: Final = 3 << 12
_PHYSICS: Final = 2


def daq_errors(mfp: Mfp) -> Counter[int]:
    """How many fragments are error banks of LHCb, by type."""
    kinds, counts = np.unique(mfp.types, return_counts=True)
    return Counter({int(k): int(n) for k, n in zip(kinds, counts, strict=True) if int(k) in DAQ_ERRORS})


def says_missing(mfp: Mfp, flag: str) -> bool:
    """Whether it has a fragment without bytes that is the error bank for this flag."""
    kind = MISSING_AS.get(FLAG_TYPE_BASE | FLAG_NAMES.index(flag)) if flag in FLAG_NAMES else None
    return kind is not None and bool(((mfp.types == kind) & (mfp.sizes == 0)).any())


def in_words(errors: Counter[int]) -> str:
    """`2 x 92 (fragment missing)`, and so on."""
    return ", ".join(f"{count} x {kind} ({DAQ_ERRORS[kind]})" for kind, count in sorted(errors.items()))


@dataclass(frozen=True)
class Detector:
    """What a source is to LHCb's readers: its id, and type and version of all its fragments."""

    source: int
    type: int = 0
    version: int = 0


def parse_detectors(texts: Sequence[str]) -> dict[str, Detector]:
    """`["Jet=0x5801:21:3", "odin=0x0001"]` by group. ODIN's type and version are known."""
    detectors: dict[str, Detector] = {}
    for text in texts:
        name, _, rest = text.partition("=")
        numbers = rest.split(":")
        allowed = "GROUP=ID, GROUP=ID:TYPE or GROUP=ID:TYPE:VERSION, such as Jet=0x5801:21:3"
        try:
            values = [int(number, 0) for number in numbers]
        except ValueError:
            values = []
        if not name or not 1 <= len(values) <= 3:
            raise FormatError(f"--detector {text!r}: expected {allowed}")
        if name == ODIN and len(values) == 1:
            values += [ODIN_TYPE, ODIN_VERSION]
        limits = ((0xFFFF, "id"), (FLAG_TYPE_BASE - 1, "type"), (0xFF, "version"))
        for value, (most, what) in zip(values, limits, strict=False):
            if not 0 <= value <= most:
                raise FormatError(f"--detector {text!r}: {what} {value}, expected 0 .. {most}")
        if name in detectors:
            raise FormatError(f"--detector {text!r}: {name} has one already")
        detectors[name] = Detector(*values)
    by_id: dict[int, str] = {}
    for name, detector in detectors.items():
        if (other := by_id.setdefault(detector.source, name)) != name:
            raise FormatError(f"--detector {name}: id {detector.source:#06x} is that of {other}, too")
    return detectors


def odin_banks(start: int, stop: int) -> npt.NDArray[np.uint8]:
    """ODIN's fragments of the events [start, stop), one behind the other, in the layout of version 7.

    Ten little-endian words: run; event type and calibration step; GPS time (2); trigger configuration; partition;
    bunch, crossing and trigger type in bits; orbit; event (2). Events fill one bunch after the other, run 1, all of
    them physics at crossings of both beams.
    """
    events = np.arange(start, stop, dtype=np.uint64)
    words = np.zeros((len(events), ODIN_BYTES // 4), dtype="<u4")
    words[:, 0] = 1
    words[:, 1] = _PHYSICS
    words[:, 6] = (events % _FILLED_BUNCHES).astype(np.uint32) | _BEAM_CROSSING
    words[:, 7] = (events // _FILLED_BUNCHES).astype(np.uint32)
    words[:, 8] = (events & 0xFFFFFFFF).astype(np.uint32)
    words[:, 9] = (events >> np.uint64(32)).astype(np.uint32)
    return words.reshape(-1).view(np.uint8)
