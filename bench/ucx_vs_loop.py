#!/usr/bin/env python3
"""The ucx transport against a plain loop of UCX's writes, flushes and active messages.

Two nodes of this host: a readout unit writes MFPs to a builder unit with a null sink, one way. `ucx_loop` writes as
many bytes at a time over the same transports of UCX, without any protocol.
"""

import argparse

from harness import Entrant, Session, add_options, conditions, version_of
from loops import LibraryLoop
from programs import Incast, ProgramError, bench_program, event_building, source_bytes
from sizes import cache_option, chosen_cache, parse_sizes


def main() -> int:
    """The comparisons of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("--mfp-sizes", type=parse_sizes, default=parse_sizes("4KiB,64KiB,1MiB"), metavar="SIZE,...")
    parser.add_argument("--ways", nargs="+", default=["tcp,self", "posix,self"], metavar="TLS")
    parser.add_argument("--depth", type=int, default=32, help="writes under way (default: 32)")
    arguments = parser.parse_args()
    found = conditions(incast=version_of([str(arguments.engine), "--version"]))
    cache = chosen_cache(arguments, found)
    session = Session(arguments, found)
    for way in arguments.ways:
        for mfp in arguments.mfp_sizes:
            building = event_building(
                transport="ucx", scheme="push", mfp_bytes=mfp.bytes, nodes=2, cache=cache, self_traffic="pointer"
            )
            subject = Incast(
                engine=arguments.engine,
                seconds=arguments.seconds,
                warm_up=arguments.warm_up,
                settings=building
                | {
                    "run.roles": "split",
                    "run.readout_units": "1",
                    "run.builder_units": "1",
                    "run.em": "shared",
                    "transport.ucx.tls": way,
                    "source.prefill_size": f"{min(source_bytes(cache, 2), 16 << 20)}B",
                },
                overrides=tuple(arguments.overrides),
                copies=False,
            )
            loop = LibraryLoop(
                program=bench_program("ucx_loop", arguments.engine),
                seconds=arguments.seconds,
                warm_up=arguments.warm_up,
                way=way,
                length=mfp.bytes,
                depth=min(arguments.depth, (16 << 20) // mfp.bytes),
            )
            entrants = [Entrant("incast", subject), Entrant("plain loop", loop)]
            session.compare(f"ucx({way}) push, {mfp} MFPs, one way", entrants)
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
