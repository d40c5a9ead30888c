#!/usr/bin/env python3
"""The verbs transport against a plain loop of RDMA writes with immediate, and that against ib_write_bw.

Two nodes of this host, each on its own RDMA device or address: a readout unit writes MFPs to a builder unit with a null
sink, one way. `verbs_loop` writes as many bytes at a time, from and to as much memory, without any protocol.
Where there is no RDMA hardware it runs in the guest, on soft-RoCE, which shows the cost of the software and no more:

    tools/guest/run -- bash -c 'rdma-nodes.sh rxe 2 && bench/verbs_vs_loop.py --drift 0'
"""

import argparse
import shutil

from harness import Entrant, Session, add_options, conditions, version_of
from loops import IbWriteBw, VerbsLoop, loop_depth, one_way
from programs import ProgramError, bench_program
from sizes import cache_option, chosen_cache, parse_sizes


def main() -> int:
    """The comparisons of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("--mfp-sizes", type=parse_sizes, default=parse_sizes("64KiB"), metavar="SIZE,...")
    parser.add_argument("--addresses", default="10.0.0.1,10.0.0.2", metavar="FROM,TO")
    parser.add_argument("--devices", default="rxe1,rxe2", metavar="FROM,TO", help="of ib_write_bw; empty: without it")
    parser.add_argument("--gid-index", type=int, default=1)
    parser.add_argument("--depth", type=int, default=32, help="writes under way (default: 32)")
    arguments = parser.parse_args()
    here, there = arguments.addresses.split(",")
    found = conditions(incast=version_of([str(arguments.engine), "--version"]))
    cache = chosen_cache(arguments, found)
    session = Session(arguments, found)
    for mfp in arguments.mfp_sizes:
        subject = one_way(arguments, "verbs", mfp.bytes, cache, {"transport.verbs.bind": arguments.addresses})
        loop = VerbsLoop(
            program=bench_program("verbs_loop", arguments.engine),
            seconds=arguments.seconds,
            warm_up=arguments.warm_up,
            addresses=(here, there),
            length=mfp.bytes,
            depth=loop_depth(arguments.depth, mfp.bytes),
        )
        references = [Entrant("plain loop", loop)]
        if arguments.devices and shutil.which("ib_write_bw"):
            first, second = arguments.devices.split(",")
            perftest = IbWriteBw(arguments.seconds, (first, second), arguments.gid_index, there, mfp.bytes)
            references.append(Entrant("ib_write_bw", perftest))
        session.compare(f"verbs push, {mfp} MFPs, one way", [Entrant("incast", subject), *references])
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
