#!/usr/bin/env python3
"""Ways to use the kernel's TCP on loopback, against the one that the tcp transport takes (docs/measuring.md).

bench/tcp_ways: 4 processes send to each other at once, without any protocol: non-blocking calls under epoll, the same
with MSG_ZEROCOPY, and io_uring; several connections per pair; smaller socket buffers; small pieces one by one or many
in a call. What is faster here could make the transport faster; what is not, could not.
"""

import argparse

from harness import Entrant, Session, add_options, conditions
from programs import ProgramError, TcpWays, bench_program, source_bytes
from sizes import cache_option, chosen_cache, parse_sizes

VARIANTS: dict[str, tuple[str, tuple[tuple[str, int], ...]]] = {
    "epoll": ("epoll", ()),
    "zerocopy": ("zerocopy", ()),
    "uring": ("uring", ()),
    "streams-3": ("epoll", (("streams", 3),)),
    "buffers-512K": ("epoll", (("socket-buffer", 256 << 10),)),  # the kernel takes twice of what it is told
    "buffers-2M": ("epoll", (("socket-buffer", 1 << 20),)),
    "single": ("epoll", (("batch", 1),)),
    "batch-16": ("epoll", (("batch", 16),)),
}


def main() -> int:
    """The comparisons of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("--pieces", type=parse_sizes, default=parse_sizes("1MiB,64KiB,4KiB"), metavar="SIZE,...")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument(
        "--ways", default="epoll,zerocopy,uring,streams-3,buffers-512K", help=f"of {', '.join(VARIANTS)}"
    )
    arguments = parser.parse_args()
    program = bench_program("tcp_ways", arguments.engine)
    found = conditions()
    source = source_bytes(chosen_cache(arguments, found), arguments.nodes)
    session = Session(arguments, found)
    for piece in arguments.pieces:
        entrants = []
        for name in arguments.ways.split(","):
            if name not in VARIANTS:
                parser.error(f"--ways: there is no '{name}'; there are: {', '.join(VARIANTS)}")
            way, options = VARIANTS[name]
            room = (("slots", max(1 << 20, 2 * piece.bytes)),)
            entrants.append(
                Entrant(
                    name,
                    TcpWays(
                        program=program,
                        seconds=arguments.seconds,
                        warm_up=arguments.warm_up,
                        way=way,
                        nodes=arguments.nodes,
                        piece=piece.bytes,
                        source_bytes=source,
                        options=options + room,
                    ),
                )
            )
        for entrant in entrants[1:]:
            session.compare(f"{piece} pieces: {entrant.name} against {entrants[0].name}", [entrant, entrants[0]])
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
