#!/usr/bin/env python3
"""What it costs to hand built events to other processes: the consumer sink against the null sink (docs/measuring.md).

Two runs of the event builder, alike but for the sink (4 nodes, shm, 1 MiB MFPs, self traffic copied, as consumers read
everything in the slot). In the subject's, as many Python processes as `--processes` share the builder units and
take every event as numpy views, in place:

    view   a read-only array per MFP, and its header read
    read   the same, and every byte of it summed up (that is the consumer's own work, shown to tell it apart)

Goodput is the engine's own figure; the CPU time of the consumers counts as the engine's does.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec

from harness import Entrant, Reading, Session, add_options, conditions, version_of
from programs import Incast, ProgramError, details_of, event_building, rate_of
from sizes import cache_option, chosen_cache, parse_size


def consume(name: str, nodes: list[int], work: str) -> None:
    """A consumer process: all events of these builder units until they end."""
    import numpy as np
    from incast.consumer import Consumers, Event

    def view(event: Event) -> int:
        return sum(int(mfp[2]) | int(mfp[3]) << 8 for _, mfp in event.mfps() if mfp is not None)

    def read(event: Event) -> int:
        return sum(int(mfp.view(np.uint8).sum(dtype=np.uint64)) for _, mfp in event.mfps() if mfp is not None)

    use: Callable[[Event], int] = view if work == "view" else read
    events = total = 0
    for event in Consumers(name, nodes, timeout=60):
        total += use(event)
        events += 1
    print(json.dumps({"events": events, "check": total}))


@dataclass(frozen=True)
class ConsumerRun:
    """The engine with its consumers; what they were handed has to be what it says."""

    engine: Incast

    def __call__(self) -> Reading:
        """Runs it once."""
        window, result = self.engine.result()
        taken = sum(each["events"] for each in result["beside"])
        counts = result["consumers"]
        if taken != counts["taken_meps"]:
            raise ProgramError(f"the consumers saw {taken} MEPs, but were handed {counts['taken_meps']}")
        if counts["dropped_meps"] > 0:
            share = counts["dropped_meps"] / result["accounting"]["meps_committed"]
            print(f"  dropped {share:.1%} of the MEPs, those before the consumers came included", flush=True)
        details = details_of(result) | {"consumers": counts}
        return Reading(rate_of(result, self.engine.quantity), window, details)


def main() -> int:
    """The comparison of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--mfp-size", type=parse_size, default=parse_size("1MiB"))
    parser.add_argument("--transport", default="shm", choices=["shm", "tcp", "inproc"])
    parser.add_argument("--scheme", default="push")
    parser.add_argument("--processes", type=int, default=1, help="consumer processes; they share the builder units")
    parser.add_argument("--policy", default="block", choices=["block", "drop"])
    parser.add_argument("--work", default="view", choices=["view", "read"])
    parser.add_argument("--consume", help=argparse.SUPPRESS)
    parser.add_argument("--of", type=int, nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.consume:
        consume(arguments.consume, arguments.of, arguments.work)
        return 0
    if find_spec("numpy") is None:
        raise ProgramError(f"{sys.executable} has no numpy, which consumers need: run this with .venv/bin/python")
    found = conditions(incast=version_of([str(arguments.engine), "--version"]))
    cache = chosen_cache(arguments, found)
    session = Session(arguments, found)
    name = f"bench-{os.getpid()}"

    null = Incast(
        engine=arguments.engine,
        seconds=arguments.seconds,
        warm_up=arguments.warm_up,
        settings=event_building(
            transport=arguments.transport,
            scheme=arguments.scheme,
            mfp_bytes=arguments.mfp_size.bytes,
            nodes=arguments.nodes,
            cache=cache,
            self_traffic="copy",
        ),
        overrides=tuple(arguments.overrides),
        quantity="total",
    )
    nodes = [str(node) for node in range(arguments.nodes)]
    this = (sys.executable, __file__, "--consume", name, "--work", arguments.work, "--of")
    sink = {"sink.kind": "consumer", "sink.name": name, "sink.policy": arguments.policy}
    consumer = replace(
        null,
        settings=null.settings | sink,
        beside=tuple((*this, *nodes[process :: arguments.processes]) for process in range(arguments.processes)),
    )
    title = (
        f"{arguments.processes} x numpy ({arguments.work}), {arguments.nodes} nodes, {arguments.transport}, "
        f"{arguments.scheme}, {arguments.mfp_size} MFPs, policy {arguments.policy}"
    )
    session.compare(title, [Entrant("consumer", ConsumerRun(consumer)), Entrant("null", null)])
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
