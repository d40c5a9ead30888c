#!/usr/bin/env python3
"""Event building over tcp on loopback against MPI_Alltoall over Open MPI's TCP (docs/measuring.md).

Goodput without self traffic against the bytes MPI_Alltoall moves between ranks: messages as large as the MFPs, cycled
through as much memory as the event builder's sources, over as many ranks as nodes. What a node has for itself is left
where it is (`protocol.self_traffic = pointer`), as it does not count. MPI runs with mpi_yield_when_idle off and on in
every pair, and the better one counts.
"""

import argparse

from harness import Session, add_options
from mpi_comparison import against_mpi, mpi_conditions
from programs import ProgramError
from sizes import cache_option, chosen_cache, parse_sizes


def main() -> int:
    """The comparisons of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("--mfp-sizes", type=parse_sizes, default=parse_sizes("1MiB,64KiB"), metavar="SIZE,...")
    parser.add_argument("--schemes", default="push", help="comma-separated (default: push)")
    parser.add_argument("--nodes", type=int, default=4, help="and ranks")
    arguments = parser.parse_args()
    found = mpi_conditions(arguments)
    cache = chosen_cache(arguments, found)
    session = Session(arguments, found)
    for scheme in arguments.schemes.split(","):
        for mfp in arguments.mfp_sizes:
            against_mpi(session, arguments, "tcp", scheme=scheme, mfp=mfp, cache=cache)
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
