"""A consumer for test_consumer.py: takes events, compares every byte with what the generator sends, writes down each.

usage: consumer_child.py NAME NODE RUN NOTES [SLOW_MS]

NOTES gets, before an event is given back, the number of its MEP and whether it is a repeat (u64, u64). Standard output
gets `attached`, `first` after the first event, and one JSON object at the end.
"""

import json
import os
import struct
import sys
import time

import numpy as np
import numpy.typing as npt
from incast.consumer import BuilderEndedError, BuilderLostError, Consumer, EjectedError, Event
from incast.formats import Mfp

STEP = np.uint64(0x9E3779B97F4A7C15)


def mix64(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """src/base/prng.h"""
    value = value + STEP
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def expected(run: int, mfp: Mfp, words: int) -> npt.NDArray[np.uint64]:
    """src/runtime/sources/content.h, for fragments of whole words that are made anew for every event."""
    stream = mix64(mix64(np.array([run], dtype=np.uint64)) + np.uint64(mfp.source))
    events = np.arange(mfp.n_fragments, dtype=np.uint64) + np.uint64(mfp.first_event)
    return mix64(stream + events)[:, None] + np.arange(words, dtype=np.uint64)[None, :] * STEP


def wrong_mfps(run: int, event: Event) -> int:
    wrong = 0
    for source in event.sources:
        mfp = event.parse(int(source))
        if mfp is None:
            wrong += int(source) not in event.flags
            continue
        size = int(mfp.sizes[0])
        assert size % 8 == 0, "the test's fragments are whole words"
        assert (mfp.sizes == size).all()
        begin = int(mfp.starts[0])
        found = mfp.packet[begin : begin + size * mfp.n_fragments].view(np.uint64).reshape(mfp.n_fragments, size // 8)
        right = mfp.first_event == event.first_event and mfp.n_fragments == event.n_events
        wrong += not right or not np.array_equal(found, expected(run, mfp, size // 8))
    return wrong


def main() -> None:
    name, node, run, notes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    slow_s = float(sys.argv[5]) / 1000 if len(sys.argv) > 5 else 0.0
    summary = {"events": 0, "wrong": 0, "overtaken": 0, "repeated": 0, "missed": 0, "end": "ended"}
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    consumer = Consumer(name, node, timeout=60)
    print("attached", flush=True)
    try:
        while True:
            event = consumer.next()
            assert event is not None
            wrong = wrong_mfps(run, event)
            if not event.intact:
                summary["overtaken"] += 1  # whatever it held, it was not this event
                event.release()
                continue
            summary["events"] += 1
            summary["wrong"] += wrong
            summary["repeated"] += event.repeated
            summary["missed"] = event.missed
            os.write(file, struct.pack("<QQ", event.mep, event.repeated))
            if slow_s:
                time.sleep(slow_s)  # house: allow sleep: the stimulus
            summary["overtaken"] += not event.release()
            if summary["events"] == 1:
                print("first", flush=True)
    except BuilderEndedError:
        pass
    except BuilderLostError:
        summary["end"] = "lost"
    except EjectedError:
        summary["end"] = "ejected"
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
