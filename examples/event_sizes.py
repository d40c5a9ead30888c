"""Histograms the sizes of events while they are built: a consumer of every builder unit of this host.

    incast run --nodes 2 --size-distribution lognormal --sink consumer:farm --duration 10s --detach
    .venv/bin/python examples/event_sizes.py farm 0 1

Builder units hand over packets of events (MEPs), in place. docs/consumer.md has the interface.
"""

import sys

import numpy as np
import numpy.typing as npt
from incast.consumer import Consumers, Event

BINS = 16
WIDTH = 50


def sizes_of(packet: Event) -> npt.NDArray[np.int64]:
    """Bytes of each event of the packet, over all sources."""
    sizes = np.zeros(packet.n_events, dtype=np.int64)
    for source in packet.sources:
        mfp = packet.parse(int(source))
        if mfp is not None:  # a source may be missing: packet.flags says why
            sizes += mfp.sizes
    return sizes


def main() -> None:
    name, nodes = sys.argv[1], [int(word) for word in sys.argv[2:]]
    found: list[npt.NDArray[np.int64]] = []  # of each packet
    with Consumers(name, nodes or None, timeout=60) as consumers:
        # Until the run ends. The sizes are copies: a packet's memory goes back when the loop asks for the next one.
        found.extend(sizes_of(packet) for packet in consumers)
    sizes = np.concatenate(found)
    counts, edges = np.histogram(sizes, BINS)
    for count, low in zip(counts, edges, strict=False):
        print(f"{low:10.0f} B {'#' * round(WIDTH * count / counts.max()):{WIDTH}} {count}")
    print(f"{len(sizes)} events, {sizes.sum()} bytes")


if __name__ == "__main__":
    main()
