#!/usr/bin/env python3
"""The ofi transport against a plain loop of libfabric writes with completion data.

Two nodes of this host: a readout unit writes MFPs to a builder unit with a null sink, one way. `ofi_loop` writes as
many bytes at a time with the same provider, without any protocol.
"""

import argparse

from harness import Entrant, Session, add_options, conditions, version_of
from loops import LibraryLoop, loop_depth, one_way
from programs import ProgramError, bench_program
from sizes import cache_option, chosen_cache, parse_sizes


def main() -> int:
    """The comparisons of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("--mfp-sizes", type=parse_sizes, default=parse_sizes("4KiB,64KiB,1MiB"), metavar="SIZE,...")
    parser.add_argument("--providers", default="tcp,shm", metavar="NAME,...")
    parser.add_argument("--depth", type=int, default=32, help="writes under way (default: 32)")
    arguments = parser.parse_args()
    found = conditions(incast=version_of([str(arguments.engine), "--version"]))
    cache = chosen_cache(arguments, found)
    session = Session(arguments, found)
    for provider in arguments.providers.split(","):
        for mfp in arguments.mfp_sizes:
            subject = one_way(arguments, "ofi", mfp.bytes, cache, {"transport.ofi.provider": provider})
            loop = LibraryLoop(
                program=bench_program("ofi_loop", arguments.engine),
                seconds=arguments.seconds,
                warm_up=arguments.warm_up,
                way=provider,
                length=mfp.bytes,
                depth=loop_depth(arguments.depth, mfp.bytes),
            )
            entrants = [Entrant("incast", subject), Entrant("plain loop", loop)]
            session.compare(f"ofi({provider}) push, {mfp} MFPs, one way", entrants)
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
