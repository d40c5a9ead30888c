#!/usr/bin/env python3
"""ZeroMQ over shm:// against ZeroMQ over tcp://, ipc:// and rio://, in turn (docs/zeromq.md).

All four by one libzmq, which bridges/zmq/build.sh makes, and one program (bridges/zmq/measure.c) that uses its public
functions alone. Two processes on this host:

- round trips of 8 B, REQ and REP, I/O threads that sleep (INCAST_ZMQ_SPIN_US=0), then I/O threads that look for so
  long before they sleep. Spinning costs a core for each: CPU time per round trip stands beside the rate. tcp and ipc
  have no such setting: they are the same in both;
- streams of 1 MiB, PUSH and PULL;
- streams of 8 B: messages per second.

`rate x` is that of shm over the other's: a round trip takes 1 / x of the other's time. rio runs in a fabric in shared
memory, without an emulated link. The medians over pairs and the ratios go to the screen, all readings to --json.
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from harness import GIGABYTES, MESSAGES, Entrant, Reading, Session, Unit, add_options, conditions
from incast.base.errors import OneLineError
from incast.bridges.zmq_program import LATENCY, STREAM, Case, Measuring, ReadingError, find_bridge
from programs import ProgramError

ROUND_TRIPS = Unit("k round trips", 1e3)
_WAYS = ("shm", "tcp", "ipc", "rio")  # the first is compared with each of the others
_SMALL, _LARGE = 8, 1 << 20


def reader(measuring: Measuring, case: Case) -> Callable[[], Reading]:
    """That case as the harness takes it."""

    def read() -> Reading:
        try:
            found = measuring.take(case)
        except ReadingError as error:
            raise ProgramError(str(error)) from error
        assert found.window is not None
        rate = found.messages_per_s * (case.message_bytes if case.message_bytes == _LARGE else 1)
        details = {"case": asdict(case), "round_trip_ns": dict(found.round_trip_ns)}
        return Reading(rate, found.window, details)

    return read


def main() -> int:
    """The comparisons of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--bridge", type=Path, metavar="DIR", help="of bridges/zmq/build.sh (default: build/zmq)")
    parser.add_argument("--spin-us", type=int, default=1000, help="of the threads that spin (default: 1000)")
    arguments = parser.parse_args()
    bridge = find_bridge(arguments.bridge)
    session = Session(arguments, conditions(bridge=str(bridge.name), load=f"{os.getloadavg()[0]:.1f}"))

    def compare(title: str, kind: str, size: int, unit: Unit, spin_us: int = 0) -> None:
        measuring = Measuring(bridge, arguments.seconds, arguments.warm_up, spin_us)
        entrants = [Entrant(name, reader(measuring, Case(name, kind, size))) for name in _WAYS]
        session.compare(title, entrants, unit)

    compare("round trips of 8 B, I/O threads sleep", LATENCY, _SMALL, ROUND_TRIPS)
    compare(f"round trips of 8 B, I/O threads look for {arguments.spin_us} us", LATENCY, _SMALL, ROUND_TRIPS,
            arguments.spin_us)  # fmt: skip
    compare("streams of 1 MiB", STREAM, _LARGE, GIGABYTES)
    compare("streams of 8 B", STREAM, _SMALL, MESSAGES)
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except (ProgramError, OneLineError) as error:
        raise SystemExit(f"{error}") from None
