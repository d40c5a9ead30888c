#!/usr/bin/env python3
"""Event building over tcp on loopback against iperf3 (docs/measuring.md).

The event builder: 4 nodes, null sink, what a node has for itself left where it is; its goodput without self traffic
counts. The references: one `iperf3 -P 12`, which has as many streams as 4 nodes have connections but one thread on each
side, and the number of iperf3 processes, up to 4, that was fastest in a trial, with the streams shared out among them.
`-l` is the size of the MFPs. Beside them `tcp_ways`: bare sockets between 4 processes, the same pieces from as much
memory, which iperf3 does not have: it sends one buffer over and over.
"""

import argparse

from harness import Entrant, Session, add_options, conditions, version_of
from programs import Incast, Iperf3, ProgramError, TcpWays, bench_program, event_building, source_bytes
from sizes import Size, cache_option, chosen_cache, parse_sizes


def best_processes(arguments: argparse.Namespace, length: Size) -> int:
    """The number of iperf3 processes with the highest rate: the best of two short runs each, in turn."""
    rates: dict[int, float] = {}
    for _round in range(2):
        for processes in arguments.processes:
            run = Iperf3(min(2, arguments.seconds), 1, arguments.streams, str(length.bytes), processes)
            rates[processes] = max(rates.get(processes, 0), run().rate)
    trials = ", ".join(f"{processes}: {rate / 1e9:.2f} GB/s" for processes, rate in rates.items())
    print(f"\niperf3 -l {length} by the number of processes, {arguments.streams} streams together: {trials}")
    return max(rates, key=lambda processes: rates[processes])


def bare_sockets(arguments: argparse.Namespace, piece: Size, cache: int) -> Entrant:
    """4 processes that send to each other, with the socket buffers that are fastest here (bench/tcp_ways.py)."""
    ways = TcpWays(
        program=bench_program("tcp_ways", arguments.engine),
        seconds=arguments.seconds,
        warm_up=arguments.warm_up,
        way="epoll",
        nodes=4,
        piece=piece.bytes,
        source_bytes=source_bytes(cache, 4),
        options=(("socket-buffer", 256 << 10), ("slots", max(1 << 20, 2 * piece.bytes))),
    )
    return Entrant("bare sockets", ways)


def main() -> int:
    """The comparisons of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("--mfp-sizes", type=parse_sizes, default=parse_sizes("1MiB,64KiB,4KiB"), metavar="SIZE,...")
    parser.add_argument("--schemes", default="push", help="comma-separated (default: push)")
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--processes", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2, 3, 4])
    arguments = parser.parse_args()
    found = conditions(
        incast=version_of([str(arguments.engine), "--version"]), iperf3=version_of(["iperf3", "--version"])
    )
    cache = chosen_cache(arguments, found)
    session = Session(arguments, found)
    for mfp in arguments.mfp_sizes:
        many = best_processes(arguments, mfp)
        for scheme in arguments.schemes.split(","):
            subject = Incast(
                engine=arguments.engine,
                seconds=arguments.seconds,
                warm_up=arguments.warm_up,
                settings=event_building(
                    transport="tcp",
                    scheme=scheme,
                    mfp_bytes=mfp.bytes,
                    nodes=4,
                    cache=cache,
                    self_traffic="pointer",
                ),
                overrides=tuple(arguments.overrides),
            )
            references = [
                Entrant(
                    f"iperf3 -P {arguments.streams}" + (f" in {processes} processes" if processes > 1 else ""),
                    Iperf3(arguments.seconds, arguments.warm_up, arguments.streams, str(mfp.bytes), processes),
                )
                for processes in dict.fromkeys((1, many))
            ]
            session.compare(
                f"tcp {scheme}, {mfp} MFPs, goodput without self, against iperf3 -l {mfp}",
                [Entrant("incast", subject), *references, bare_sockets(arguments, mfp, cache)],
            )
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
