#!/usr/bin/env python3
"""Event building over udp on loopback against plain datagrams (docs/measuring.md).

The event builder: null sink, what a node has for itself left where it is; its goodput without self traffic counts, over
`udp` as it is (all is repaired), over `udp` with bodies that are sent once, and over `tcp`. The reference is
`udp_pair`: datagrams of the same size, many per system call in both directions, between as many processes that all send
to each other, and nothing else; with `--one-way` a readout unit writes to a builder unit, and the first process to the
other. What may be on its way (`--window`) is more than by default: the plain pair waits for no acknowledgement. Of what
is sent once goodput counts only contributions that came whole.
"""

import argparse

from harness import Entrant, Session, add_options, conditions, version_of
from programs import Incast, ProgramError, UdpPair, bench_program, event_building, source_bytes
from sizes import cache_option, chosen_cache, parse_sizes

ONE_WAY = {"run.roles": "split", "run.readout_units": "1", "run.builder_units": "1", "run.em": "shared"}


def main() -> int:
    """The comparisons of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("--mfp-sizes", type=parse_sizes, default=parse_sizes("1MiB,64KiB"), metavar="SIZE,...")
    parser.add_argument("--nodes", type=lambda text: [int(word) for word in text.split(",")], default=[2, 4])
    parser.add_argument("--mtu", type=int, default=9000, help="bytes of an IP packet, of both (default: 9000)")
    parser.add_argument("--window", default="4MiB", help="transport.udp.window (default: 4MiB)")
    parser.add_argument("--one-way", action="store_true", help="two nodes, one readout unit and one builder unit")
    arguments = parser.parse_args()
    found = conditions(incast=version_of([str(arguments.engine), "--version"]))
    cache = chosen_cache(arguments, found)
    session = Session(arguments, found)
    for nodes in [2] if arguments.one_way else arguments.nodes:
        for mfp in arguments.mfp_sizes:

            def building(
                transport: str, settings: dict[str, str], nodes: int = nodes, mfp_bytes: int = mfp.bytes
            ) -> Incast:
                common = event_building(
                    transport=transport,
                    scheme="push",
                    mfp_bytes=mfp_bytes,
                    nodes=nodes,
                    cache=cache,
                    self_traffic="pointer",
                )
                return Incast(
                    engine=arguments.engine,
                    seconds=arguments.seconds,
                    warm_up=arguments.warm_up,
                    settings=common | (ONE_WAY if arguments.one_way else {}) | settings,
                    overrides=tuple(arguments.overrides),
                )

            datagrams = {
                "transport.udp.mtu": f"{arguments.mtu}B",
                "transport.udp.window": arguments.window,
                "transport.udp.socket_buffer": "32MiB",
            }
            once = {"transport.udp.repair": "none", "run.fail_above_incomplete": "1"}
            plain = Entrant(
                "plain pair",
                UdpPair(
                    program=bench_program("udp_pair", arguments.engine),
                    seconds=arguments.seconds,
                    warm_up=arguments.warm_up,
                    nodes=nodes,
                    mtu=arguments.mtu,
                    source_bytes=source_bytes(cache, nodes),
                    one_way=arguments.one_way,
                ),
            )
            tcp = Entrant("incast tcp", building("tcp", {}))
            how = "one way" if arguments.one_way else f"{nodes} nodes"
            title = f"push, {mfp} MFPs, {how}, goodput without self"
            for name, settings in (("incast udp", datagrams), ("incast udp, sent once", datagrams | once)):
                session.compare(f"{name}, {title}", [Entrant(name, building("udp", settings)), plain, tcp])
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
