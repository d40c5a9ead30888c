#!/usr/bin/env python3
"""What checksums of MFPs cost (docs/measuring.md): event building with protocol.checksum full against off.

Sources send MFPs that they made beforehand, so what is added is the look that the builder units take. For scale the
same rounds hold the CRC alone: as many threads as nodes that checksum pieces of the size of an MFP, in memory that is
half the cache. Time per MFP is that of all cores: cores over MFPs per second.
"""

import argparse
from dataclasses import replace

from harness import Entrant, Outcome, Session, Spread, add_options, conditions, usable_cores, version_of
from programs import Incast, ProgramError, StreamingCopy, bench_program, event_building
from sizes import cache_option, chosen_cache, parse_sizes


def added_lines(outcome: Outcome, mfp_bytes: int) -> list[str]:
    """Time that checksums add to an MFP, within rounds."""
    if not outcome.counted:
        return []

    def us_per_mfp(rate: float) -> float:
        return 1e6 * usable_cores() * mfp_bytes / rate

    times = [{name: us_per_mfp(reading.rate) for name, reading in each.readings.items()} for each in outcome.counted]
    added = Spread.of([each["full"] - each["off"] for each in times])
    ratio = Spread.of([(each["full"] - each["off"]) / each["CRC alone"] for each in times])
    per_mfp = ", ".join(f"{name} {Spread.of([each[name] for each in times])}" for name in times[0])
    return [
        f"us per MFP: {per_mfp}",
        f"added by checksums: {added} us per MFP, {ratio} x the CRC alone",
    ]


def main() -> int:
    """The comparisons of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("--mfp-sizes", type=parse_sizes, default=parse_sizes("64KiB"), metavar="SIZE,...")
    parser.add_argument("--transports", default="tcp,shm", help="comma-separated (default: tcp,shm)")
    parser.add_argument("--nodes", type=int, default=4, help="and threads of the CRC alone")
    arguments = parser.parse_args()
    program = bench_program("streaming_copy", arguments.engine)
    found = conditions(incast=version_of([str(arguments.engine), "--version"]))
    cache = chosen_cache(arguments, found)
    session = Session(arguments, found)
    for transport in arguments.transports.split(","):
        for mfp in arguments.mfp_sizes:
            off = Incast(
                engine=arguments.engine,
                seconds=arguments.seconds,
                warm_up=arguments.warm_up,
                settings=event_building(
                    transport=transport,
                    scheme="push",
                    mfp_bytes=mfp.bytes,
                    nodes=arguments.nodes,
                    cache=cache,
                    self_traffic="copy",
                ),
                overrides=tuple(arguments.overrides),
                quantity="total",
            )
            memory = max(cache // 2, arguments.nodes * mfp.bytes)
            alone = StreamingCopy(
                program=program,
                seconds=arguments.seconds,
                warm_up=arguments.warm_up,
                threads=arguments.nodes,
                piece=mfp.bytes,
                source_bytes=memory,
                destination_bytes=memory,
                stores="crc32c",
            )
            outcome = session.compare(
                f"{transport} push, {mfp} MFPs: checksums of all against none",
                [
                    Entrant("full", replace(off, overrides=(*off.overrides, "protocol.checksum=full"))),
                    Entrant("off", off),
                    Entrant("CRC alone", alone),
                ],
            )
            for line in added_lines(outcome, mfp.bytes):
                print(line, flush=True)
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
