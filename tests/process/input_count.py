"""What a replay of a folder must give, counted from the files alone, and what a folder of MEP files holds.

Shares no code with the engine or with python/incast: it has its own reader of docs/formats.md, and its own numbering
after the rules there. `python input_count.py FOLDER` prints what it expects of a run.
"""

from __future__ import annotations

import json
import struct
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

NAMES = ["ok", "empty", "missing-dead", "missing-unreachable", "late", "truncated", "bad-checksum", "desync", "dropped"]
END_OF_RUN = 2**64 - 1


@dataclass
class Packet:
    """One MFP: its first event, how many, and its flag."""

    first: int
    n: int
    source: int
    flag: str
    size: int


def read_packet(data: bytes, at: int) -> Packet:
    """The MFP at that byte."""
    (magic,) = struct.unpack_from("<H", data, at)
    if magic == 0x40CE:
        _, n, size, first, source, _, _ = struct.unpack_from("<HHIQHBB", data, at)
        types_at, width = at + 20, "H"
    else:
        assert magic == 0x57CE, f"magic {magic:#x} at byte {at}"
        _, n, _, _, _, _, first, size, source = struct.unpack_from("<HHBBBBQQH", data, at)
        types_at, width = at + 32, "I"
    types = data[types_at : types_at + n]
    sizes = struct.unpack_from(f"<{n}{width}", data, types_at + (n + 3) // 4 * 4)
    missing = [kind for kind, length in zip(types, sizes, strict=True) if length == 0 and 0xF2 <= kind <= 0xF8]
    flag = NAMES[missing[0] - 0xF0] if missing else "ok" if any(sizes) else "empty"
    return Packet(first, n, source, flag, size)


def read_file(path: Path) -> list[Packet]:
    """The MFPs of a file; an end-of-run packet is none."""
    data, at, packets = path.read_bytes(), 0, []
    while at < len(data):
        packet = read_packet(data, at)
        at += packet.size
        if packet.first != END_OF_RUN:
            packets.append(packet)
    return packets


@dataclass
class Count:
    """Of a run, or of what it wrote. `flags`: by name, events and MFPs."""

    events: int = 0
    incomplete: int = 0
    flag_events: Counter[str] = field(default_factory=Counter)
    flag_mfps: Counter[str] = field(default_factory=Counter)

    def add(self, n_events: int, flags: list[str]) -> None:
        """A MEP, with the flag of each of its sources."""
        bad = [flag for flag in flags if flag not in {"ok", "empty"}]
        self.events += n_events
        self.incomplete += n_events if bad else 0
        self.flag_mfps.update(bad)
        self.flag_events.update(dict.fromkeys(bad, n_events))

    def flags(self) -> dict[str, dict[str, int]]:
        """As result.json has them."""
        return {name: {"events": self.flag_events[name], "mfps": self.flag_mfps[name]} for name in self.flag_mfps}


@dataclass
class Expected(Count):
    """What a replay of a folder gives; `left_out`, `absent`: by source, where there is something."""

    first: int = 0
    files: int = 0
    left_out: dict[int, tuple[int, int]] = field(default_factory=dict)  # MFPs, events
    absent: dict[int, int] = field(default_factory=dict)  # events
    in_file: dict[int, int] = field(default_factory=dict)  # events

    def share(self) -> float:
        """What run.fail_above_incomplete is compared with: the larger of the two shares."""
        left = (events / self.in_file[source] for source, (_, events) in self.left_out.items())
        return max(self.incomplete / self.events, *left, 0)


class RefusedError(Exception):
    """The engine refuses such a folder."""


def _first_event(files: dict[int, list[Packet]], packing: int) -> int:
    """Most files decide; of those that agree, the one that begins first."""
    votes: dict[int, list[int]] = {}
    for packets in files.values():
        if len(packets) > 1 and packets[0].n != packing:
            raise RefusedError("MFPs of different lengths")
        if packets:
            votes.setdefault(packets[0].first % packing, []).append(packets[0].first)
    most = max(map(len, votes.values()))
    return min(min(firsts) for firsts in votes.values() if len(firsts) == most)


def _place(packets: list[Packet], first: int, packing: int) -> tuple[dict[int, Packet], list[Packet]]:
    """Those with a place in the run, by MEP, and those without."""
    placed: dict[int, Packet] = {}
    out = []
    beyond = 0
    for packet in packets:
        mep, rest = divmod(packet.first - first, packing)
        if rest or mep < beyond or (packet.n < packing and packet is not packets[-1]):
            out.append(packet)
        elif mep - beyond > len(packets) + 1_000_000:
            raise RefusedError("an id jumps ahead")
        else:
            placed[mep] = packet
            beyond = mep + 1
    return placed, out


def expect(folder: Path, repeat: int = 1) -> Expected:
    """Numbers the packets of all files as docs/formats.md says."""
    files = {int(path.stem.removeprefix("source-")): read_file(path) for path in sorted(folder.glob("source-*.mfp"))}
    packing = max(packet.n for packets in files.values() for packet in packets)
    first = _first_event(files, packing)
    numbered = {source: _place(packets, first, packing) for source, packets in files.items()}
    length = max(packet.first + packet.n for placed, _ in numbered.values() for packet in placed.values()) - first
    lengths = [min(packing, length - begin) for begin in range(0, length, packing)]
    expected = Expected(first=first, files=len(files))
    for source, (placed, out) in numbered.items():
        out += [placed.pop(mep) for mep in list(placed) if placed[mep].n != lengths[mep]]
        expected.in_file[source] = sum(packet.n for packet in files[source])
        if out:
            expected.left_out[source] = (len(out), sum(packet.n for packet in out))
        if absent := length - sum(packet.n for packet in placed.values()):
            expected.absent[source] = absent
    for mep, n in list(enumerate(lengths)) * repeat:
        flags = [placed[mep].flag if mep in placed else "desync" for placed, _ in numbered.values()]
        # What an earlier run missed is no word about the readout units of this one.
        expected.add(n, ["desync" if flag.startswith("missing") else flag for flag in flags])
    return expected


def count_built(folder: Path) -> Count:
    """What the MEP files of a folder hold, by their manifests."""
    best: dict[int, tuple[int, Path, int]] = {}
    for manifest in folder.glob("manifest-*.jsonl"):
        for line in manifest.read_text().splitlines():
            entry = json.loads(line)
            if entry["mep"] not in best or best[entry["mep"]][0] < entry["attempt"]:
                best[entry["mep"]] = (entry["attempt"], folder / entry["file"], entry["offset"])
    count = Count()
    data = {path: path.read_bytes() for path in {path for _, path, _ in best.values()}}
    for _, path, at in best.values():
        mep = data[path][at:]
        magic, n, _ = struct.unpack_from("<HHI", mep)
        assert magic == 0xCEFA
        offsets = struct.unpack_from(f"<{n}I", mep, 8 + 2 * (n + n % 2))
        packets = [read_packet(mep, 4 * offset) for offset in offsets]
        count.add(packets[0].n, [packet.flag for packet in packets])
    return count


if __name__ == "__main__":
    print(expect(Path(sys.argv[1])))
