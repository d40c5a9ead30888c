#!/usr/bin/env python3
"""What it costs to hand built events to a farm over the network: dispatcher and farm nodes against the null sink.

Two runs of the event builder, alike but for the sink (4 nodes, shm, 1 MiB MFPs, self traffic copied, as the dispatcher
reads everything in the slot). In the subject's, one dispatcher hands every MEP to `--farm` farm nodes, which drop what
they get (docs/farm.md). Goodput is the engine's own figure; the CPU time of dispatcher and farm nodes counts as the
engine's does. All of it shares the cores of this host, which the farm of a real one does not.
"""

import argparse
import os
import socket
from dataclasses import dataclass, replace

from harness import Entrant, Reading, Session, add_options, conditions, version_of
from programs import Incast, ProgramError, details_of, event_building, rate_of
from sizes import cache_option, chosen_cache, parse_size


@dataclass(frozen=True)
class FarmRun:
    """The engine with its farm; what farm nodes got has to be what builder units say."""

    engine: Incast

    def __call__(self) -> Reading:
        """Runs it once."""
        window, result = self.engine.result()
        dispatched, *nodes = result["beside"]
        counts = result["consumers"]
        done = sum(each["done_meps"] for each in nodes)
        if not counts["taken_meps"] == dispatched["done_meps"] == done or dispatched["repeated_meps"] > 0:
            raise ProgramError(f"handed out {counts['taken_meps']} MEPs, dispatched {dispatched}, done {done}")
        details = details_of(result) | {"farm": dispatched, "meps_of_nodes": [each["meps"] for each in nodes]}
        return Reading(rate_of(result, self.engine.quantity), window, details)


def free_port() -> int:
    """One that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main() -> int:
    """The comparison of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--mfp-size", type=parse_size, default=parse_size("1MiB"))
    parser.add_argument("--transport", default="shm", choices=["shm", "tcp", "inproc"], help="of the builder")
    parser.add_argument("--farm-transport", default="shm", choices=["shm", "tcp"], help="to the farm")
    parser.add_argument("--scheme", default="push")
    parser.add_argument("--farm", type=int, default=2, help="farm nodes")
    parser.add_argument("--window", type=int, default=4, help="MEPs of a farm node, and of each builder unit")
    arguments = parser.parse_args()
    found = conditions(incast=version_of([str(arguments.engine), "--version"]))
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
            cache=chosen_cache(arguments, found),
            self_traffic="copy",
        ),
        overrides=tuple(arguments.overrides),
        quantity="total",
    )
    program = str(arguments.engine.with_name("incast-farm"))
    address = f"shm://{name}" if arguments.farm_transport == "shm" else f"tcp://127.0.0.1:{free_port()}"
    node = (program, "consume", address, "--drop", "--window", str(arguments.window))
    sink = {"sink.kind": "consumer", "sink.name": name, "sink.window": str(arguments.window)}
    farm = replace(
        null,
        settings=null.settings | sink,
        beside=((program, "dispatch", name, address), *(node for _ in range(arguments.farm))),
    )
    title = (
        f"{arguments.farm} farm nodes over {arguments.farm_transport}, {arguments.nodes} nodes, "
        f"{arguments.transport}, {arguments.scheme}, {arguments.mfp_size} MFPs"
    )
    session.compare(title, [Entrant("farm", FarmRun(farm)), Entrant("null", null)])
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
