"""Writes folders of built events as the engine's file sink does, for tests of what reads them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from incast.formats import crc32c, encode_mep, parse_mep


@dataclass
class MepFolder:
    """A folder of MEP files, one builder unit after the other."""

    path: Path
    positions: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def append(
        self,
        mep: int,
        packets: list[bytes],
        *,
        bu: int = 0,
        attempt: int = 0,
        changes: Mapping[str, object] | None = None,
    ) -> None:
        """Commits one MEP; `changes` falsify its manifest line."""
        data = encode_mep(packets)
        packet = parse_mep(data)
        name = f"{bu}-0-0.mep"
        line: dict[str, object] = {
            "file": name,
            "offset": self.positions.get(name, 0),
            "bytes": len(data),
            "mep": mep,
            "attempt": attempt,
            "redelivered": attempt > 0,
            "first_event": packet.first_event,
            "n_events": packet.n_events,
            "n_mfps": len(packet.mfps),
            "flags": {str(source): flag for source, flag in packet.flags.items()},
            "crc32c": f"{crc32c(data):08x}",
        } | dict(changes or {})
        with (self.path / name).open("ab") as out:
            out.write(data)
        self.positions[name] = self.positions.get(name, 0) + len(data)
        with (self.path / f"manifest-{bu}-0.jsonl").open("a") as out:
            out.write(json.dumps({key: value for key, value in line.items() if value is not None}) + "\n")
