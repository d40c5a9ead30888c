"""What was built of fragments that say whose they are: those of `incast emit`, and of programs in tests."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from incast.data.mep import read
from incast.formats import Buffer, Mfp


def fragment_of(mfp: Mfp, index: int) -> Buffer:
    """What the board made: of a multi-event fragment, the body of its one bank."""
    data = mfp.fragment(index)
    if len(data) >= 8 and data[0] == data[1] == 0xCB:
        length = int.from_bytes(data[2:4].tobytes(), "little")
        assert int.from_bytes(data[6:8].tobytes(), "little") == mfp.source
        return data[8:length]
    return data


def built(folder: Path) -> dict[int, dict[int, str]]:
    """What MEP files hold, by source and event: ok, or why it is missing. Each event once; what is there is right."""
    found: dict[int, dict[int, str]] = defaultdict(dict)
    for mep in read(folder / "built"):
        for mfp in mep.mfps:
            missing = mfp.missing()
            for index in range(mfp.n_fragments):
                event = mfp.first_event + index
                assert event not in found[mfp.source], f"event {event} of source {mfp.source} was built twice"
                if missing[index]:
                    found[mfp.source][event] = str(int(mfp.types[index]) & 0x0F)
                    continue
                found[mfp.source][event] = "ok"
                data = fragment_of(mfp, index)
                expected = (np.arange(len(data)) + event + mfp.source).astype(np.uint8)
                expected[:8] = np.frombuffer(event.to_bytes(8, "little"), np.uint8)
                expected[8:10] = np.frombuffer(mfp.source.to_bytes(2, "little"), np.uint8)
                assert np.array_equal(data, expected)
    return dict(found)


LATE = "4"
DESYNC = "7"


def total(result: dict[str, Any], name: str) -> int:
    return sum(node["totals"][name] for node in result["nodes"])
