#!/usr/bin/env python3
"""Event building over shared memory against MPI_Alltoall over shared memory (docs/measuring.md).

- 64 KiB and 1 MiB MFPs: goodput without self traffic against the bytes MPI_Alltoall moves between ranks.
- MFPs of 4 KiB, and of 4000 B, headers verified: MFPs that cross processes per second against MPI's messages between
  ranks. Open MPI sends up to 4 KiB at once, its own header included (`btl_vader_eager_limit`); a message of 4096 B has
  to be agreed upon first, which halves its rate. Scheme `views` is pull-read with zero-copy views: a builder unit
  looks at the MFPs where they are, in the readout units' memory. Nothing is copied but what a node has for itself;
  MPI copies everything.

MPI_Alltoall (bench/mpi_alltoall.cpp, Open MPI, vader BTL) sends messages as large as the MFPs, cycled through as much
memory as the event builder's sources, to buffers cycled through as much as its slots, over as many ranks as nodes. It
runs with mpi_yield_when_idle off and on in every pair, and the better one counts.
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
    parser.add_argument("--mfp-sizes", type=parse_sizes, default=parse_sizes("64KiB,1MiB"), metavar="SIZE,...")
    parser.add_argument(
        "--rate-sizes",
        type=parse_sizes,
        default=parse_sizes("4000B,4KiB"),
        metavar="SIZE,...",
        help="compared by MFPs/s",
    )
    parser.add_argument(
        "--schemes", default="push,pull", help="of --mfp-sizes, comma-separated, or empty (default: push,pull)"
    )
    parser.add_argument("--rate-schemes", default="push,pull,views", help="of --rate-sizes (default: push,pull,views)")
    parser.add_argument("--nodes", type=int, default=4, help="and ranks")
    arguments = parser.parse_args()
    found = mpi_conditions(arguments)
    cache = chosen_cache(arguments, found)
    session = Session(arguments, found)
    for scheme in filter(None, arguments.schemes.split(",")):
        for mfp in arguments.mfp_sizes:
            against_mpi(session, arguments, "shm", scheme=scheme, mfp=mfp, cache=cache)
    for scheme in filter(None, arguments.rate_schemes.split(",")):
        for mfp in arguments.rate_sizes:
            against_mpi(session, arguments, "shm", scheme=scheme, mfp=mfp, cache=cache, message_rate=True)
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
