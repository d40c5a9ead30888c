#!/usr/bin/env python3
"""One pair over shared memory beside UCX's own tests, `ucx_perftest` (docs/measuring.md).

- Goodput from one node to another, `incast net --buffers one`, beside ucp_put_bw, whose sender resends one buffer as
  well. `cycled` is the same with buffers in a cycle, which is Incast's default.
- Messages of 64 B one way, half of a ping-pong, beside ucp_put_lat and tag_lat: as rates, so that more is better.

Both ends of every program have a core each. UCX takes shared memory alone. What its tests do not do: a notice for each
message, credits, heads, several places at the receiver, and sleeping.
"""

import argparse
from dataclasses import dataclass
from typing import Any

from harness import GIGABYTES, Entrant, Reading, Session, Unit, add_options, conditions, version_of
from loops import UcxPerftest
from programs import Incast, ProgramError
from sizes import parse_sizes

ONE_WAY = Unit("M one way", 1e6)
_PING_BYTES = 64


@dataclass(frozen=True)
class RawTraffic(Incast):
    """`incast net` between two nodes."""

    def _check(self, result: dict[str, Any]) -> None:
        if result["status"] != "complete" or result["verify_errors"] != 0:
            raise ProgramError(f"{result['status']}, {result['verify_errors']} errors: not a measurement")

    def __call__(self) -> Reading:
        """Bytes per second, or of a ping-pong messages one way per second: the inverse of the mean."""
        window, result = self.result()
        rate = result["bytes_per_s"]["total"]
        if result["measure"] == "latency":
            rate = 2 * result["messages_per_s"]
        return Reading(rate, window, {key: result[key] for key in ("buffers", "outstanding", "sizes", "one_way_ns")})


def main() -> int:
    """The comparisons of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--sizes", type=parse_sizes, default=parse_sizes("4KiB,64KiB,1MiB"), metavar="SIZE,...")
    parser.add_argument(
        "--ucx-tls", default="posix,sysv,cma,self", metavar="LIST", help="UCX_TLS (default: shared memory)"
    )
    arguments = parser.parse_args()
    session = Session(
        arguments,
        conditions(incast=version_of([str(arguments.engine), "--version"]), ucx=version_of(["ucx_info", "-v"])),
    )

    def ours(**settings: str) -> RawTraffic:
        pair = {"run.task": "net", "net.pattern": "one-to-one", "transport.name": "shm"}
        return RawTraffic(
            engine=arguments.engine,
            seconds=arguments.seconds,
            warm_up=arguments.warm_up,
            settings=pair | {f"net.{key}": value for key, value in settings.items()},
            overrides=tuple(arguments.overrides),
        )

    def theirs(test: str, length: int) -> Entrant:
        return Entrant(test, UcxPerftest(arguments.seconds, arguments.warm_up, test, length, (0, 1), arguments.ucx_tls))

    for size in arguments.sizes:
        entrants = [
            Entrant("incast", ours(message_size=f"{size.bytes}B", buffers="one")),
            theirs("ucp_put_bw", size.bytes),
            Entrant("cycled", ours(message_size=f"{size.bytes}B")),
        ]
        session.compare(f"one pair over shm, {size}, one buffer", entrants, GIGABYTES)
    pings = Entrant("incast", ours(message_size=f"{_PING_BYTES}B", measure="latency", buffers="one"))
    session.compare(
        f"one way, {_PING_BYTES} B",
        [pings, theirs("ucp_put_lat", _PING_BYTES), theirs("tag_lat", _PING_BYTES)],
        ONE_WAY,
    )
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
