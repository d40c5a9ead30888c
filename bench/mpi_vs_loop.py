#!/usr/bin/env python3
"""The mpi transport against a plain loop of MPI's non-blocking messages.

Two nodes of this host: a readout unit writes MFPs to a builder unit with a null sink, one way. `mpi_loop` sends as many
bytes at a time with the same library, without any protocol. With --put its one-sided calls run beside it.
"""

import argparse

from harness import Entrant, Session, add_options, conditions, version_of
from loops import MPI_LAUNCHERS, MpiLoop, loop_depth, one_way
from programs import ProgramError, bench_program
from sizes import cache_option, chosen_cache, parse_sizes


def main() -> int:
    """The comparisons of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("--mfp-sizes", type=parse_sizes, default=parse_sizes("4KiB,64KiB,1MiB"), metavar="SIZE,...")
    parser.add_argument("--flavours", default=",".join(MPI_LAUNCHERS), metavar="NAME,...")
    parser.add_argument("--depth", type=int, default=32, help="messages under way (default: 32)")
    parser.add_argument("--put", action="store_true", help="a loop of puts, too")
    arguments = parser.parse_args()
    flavours = arguments.flavours.split(",")
    if unknown := set(flavours) - set(MPI_LAUNCHERS):
        parser.error(f"--flavours {min(unknown)}: allowed: {', '.join(MPI_LAUNCHERS)}")
    versions = {flavour: version_of([MPI_LAUNCHERS[flavour][0], "--version"]) for flavour in flavours}
    found = conditions(incast=version_of([str(arguments.engine), "--version"]), **versions)
    cache = chosen_cache(arguments, found)
    session = Session(arguments, found)
    for flavour in flavours:
        for mfp in arguments.mfp_sizes:
            subject = one_way(arguments, "mpi", mfp.bytes, cache, {"transport.mpi.launcher": MPI_LAUNCHERS[flavour][0]})
            entrants = [Entrant("incast", subject)]
            for way in ["send", "put"] if arguments.put else ["send"]:
                loop = MpiLoop(
                    program=bench_program(f"mpi_loop_{flavour}", arguments.engine),
                    seconds=arguments.seconds,
                    warm_up=arguments.warm_up,
                    flavour=flavour,
                    way=way,
                    length=mfp.bytes,
                    depth=loop_depth(arguments.depth, mfp.bytes),
                )
                entrants.append(Entrant(f"plain loop, {way}", loop))
            session.compare(f"mpi({flavour}) push, {mfp} MFPs, one way", entrants)
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
