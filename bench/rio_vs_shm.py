#!/usr/bin/env python3
"""Event building over RapidIO in software against shared memory (docs/measuring.md): the same runs, alternated.

4 nodes, push and pull, null sink, self traffic copied; the goal for rio is 0.85 of shm.
"""

import argparse

from harness import Entrant, Session, add_options, conditions, version_of
from programs import Incast, ProgramError, event_building
from sizes import cache_option, chosen_cache, parse_sizes


def main() -> int:
    """The comparisons of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("--mfp-sizes", type=parse_sizes, default=parse_sizes("64KiB,1MiB"), metavar="SIZE,...")
    parser.add_argument("--schemes", default="push,pull", help="comma-separated (default: push,pull)")
    parser.add_argument("--notices", default="doorbell,memory,cm", help="comma-separated (default: all three)")
    parser.add_argument("--nodes", type=int, default=4)
    arguments = parser.parse_args()
    found = conditions(incast=version_of([str(arguments.engine), "--version"]))
    cache = chosen_cache(arguments, found)
    session = Session(arguments, found)
    for mfp in arguments.mfp_sizes:
        for scheme in arguments.schemes.split(","):

            def building(transport: str, *overrides: str, mfp_bytes: int = mfp.bytes, scheme: str = scheme) -> Incast:
                settings = event_building(
                    transport=transport,
                    scheme=scheme,
                    mfp_bytes=mfp_bytes,
                    nodes=arguments.nodes,
                    cache=cache,
                    self_traffic="copy",
                )
                return Incast(
                    engine=arguments.engine,
                    seconds=arguments.seconds,
                    warm_up=arguments.warm_up,
                    settings=settings,
                    overrides=(*arguments.overrides, *overrides),
                    quantity="total",
                )

            for notice in arguments.notices.split(","):
                session.compare(
                    f"rio {scheme}, {mfp} MFPs, notices by {notice}, total goodput, against shm",
                    [
                        Entrant("rio", building("rio", f"transport.rio.notice={notice}")),
                        Entrant("shm", building("shm")),
                    ],
                )
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
