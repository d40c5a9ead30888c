#!/usr/bin/env python3
"""Event building over shared memory against plain copying of the same memory (docs/measuring.md).

The event builder: 4 nodes, push and pull, null sink, self traffic copied; its total goodput counts, self included.
The reference: 4 threads that copy pieces of the same size from as large a source set to a destination that is as large,
past the cache (bench/streaming_copy.cpp). Beside it: the transport's own way of copying past the cache; and what nodes
that share cores could reach at best, memcpy to a destination of half the cache by threads that let each other run as
often as nodes do, which come to a few hundred KiB in their turn.
"""

import argparse
from dataclasses import replace

from harness import Entrant, Session, add_options, conditions, version_of
from programs import Incast, ProgramError, StreamingCopy, bench_program, event_building, source_bytes
from sizes import cache_option, chosen_cache, parse_sizes

# Of an event builder's node on two cores with 64 KiB MFPs (docs/measuring.md).
TURN_BYTES = 640 << 10


def main() -> int:
    """The comparisons of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("--mfp-sizes", type=parse_sizes, default=parse_sizes("64KiB,1MiB"), metavar="SIZE,...")
    parser.add_argument("--schemes", default="push,pull", help="comma-separated (default: push,pull)")
    parser.add_argument("--nodes", type=int, default=4, help="and threads of the reference")
    arguments = parser.parse_args()
    program = bench_program("streaming_copy", arguments.engine)
    found = conditions(incast=version_of([str(arguments.engine), "--version"]))
    cache = chosen_cache(arguments, found)
    session = Session(arguments, found)
    for mfp in arguments.mfp_sizes:
        for scheme in arguments.schemes.split(","):
            everything = arguments.nodes * source_bytes(cache, arguments.nodes)
            subject = Incast(
                engine=arguments.engine,
                seconds=arguments.seconds,
                warm_up=arguments.warm_up,
                settings=event_building(
                    transport="shm",
                    scheme=scheme,
                    mfp_bytes=mfp.bytes,
                    nodes=arguments.nodes,
                    cache=cache,
                    self_traffic="copy",
                ),
                overrides=tuple(arguments.overrides),
                quantity="total",
            )
            copy = StreamingCopy(
                program=program,
                seconds=arguments.seconds,
                warm_up=arguments.warm_up,
                threads=arguments.nodes,
                piece=mfp.bytes,
                source_bytes=everything,
                destination_bytes=everything,
            )
            in_turns = replace(
                copy,
                stores="memcpy",
                destination_bytes=max(cache // 2, arguments.nodes * mfp.bytes),
                turn=max(1, TURN_BYTES // mfp.bytes),
            )
            references = [
                Entrant("streaming copy", copy),
                Entrant("transport's copy", replace(copy, stores="transport")),
                Entrant("copy in turns", in_turns),
            ]
            session.compare(
                f"shm {scheme}, {mfp} MFPs, total goodput, against copying", [Entrant("incast", subject), *references]
            )
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
