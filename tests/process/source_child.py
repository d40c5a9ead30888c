"""A program for test_programs.py: is a source of a run, and sends what it is told to.

usage: source_child.py NAME SOURCE

It prints `attached`, then does each line of standard input and prints what came of it:
  to N     sends events up to N, and waits until they were taken
  next     goes on from the readout unit's next event; prints its number
  from N   goes on from event N
  mfp N    as `to N`, with all of them in one MFP
  close    leaves in order
"""

import sys

import numpy as np
from incast.formats import encode_mfp
from incast.source import Source, SourceError


def fragment(source: int, event: int, size: int) -> bytes:
    """As those of `incast emit`."""
    data = (np.arange(size) + event + source).astype(np.uint8)
    data[:8] = np.frombuffer(event.to_bytes(8, "little"), np.uint8)
    data[8:10] = np.frombuffer(source.to_bytes(2, "little"), np.uint8)
    return data.tobytes()


def size_of(source: int, event: int) -> int:
    return 40 + (source * 7 + event * 13) % 300


def main(name: str, number: int) -> None:
    source = Source(name, number, timeout=30)
    print("attached", flush=True)
    event = 0
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "to":
            for each in range(event, int(rest[0])):
                source.send(each, fragment(number, each, size_of(number, each)))
            source.flush()
        elif word == "mfp":
            bodies = [fragment(number, each, size_of(number, each)) for each in range(event, int(rest[0]))]
            packet = encode_mfp(number, event, [len(body) for body in bodies], b"".join(bodies), types=1)
            source.space(len(packet))[:] = np.frombuffer(packet, np.uint8)
            source.commit_mfp(len(packet))
            source.flush()
        elif word == "close":
            source.close()
        event = source.next_event if word == "next" else int(rest[0]) if rest else event
        print(event, flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except SourceError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
