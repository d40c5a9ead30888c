#!/usr/bin/env python3
"""rDMA over SoftRIO's udp fabric against a plain sender of the same datagrams, between two network namespaces.

Pairs of runs that alternate; what counts is the median of the ratios within pairs (docs/measuring.md). Needs root.
"""

import argparse
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

DATAGRAM_BYTES = 1412  # five NWRITE packets of 256 bytes, each with 20 bytes around it, behind a header of 32
PORT = 7000


class Cable:
    """Two namespaces with a veth pair between them: host i has the address 10.0.0.(i+1)."""

    def __init__(self) -> None:
        self.names = [f"incast-bench-{os.getpid()}-{index}" for index in range(2)]

    def __enter__(self) -> "Cable":
        for name in self.names:
            ip("netns", "add", name)
        ip(
            "link",
            "add",
            "cable0",
            "netns",
            self.names[0],
            "type",
            "veth",
            "peer",
            "name",
            "cable1",
            "netns",
            self.names[1],
        )
        for index, name in enumerate(self.names):
            ip("-n", name, "address", "add", f"10.0.0.{index + 1}/24", "dev", f"cable{index}")
            ip("-n", name, "link", "set", f"cable{index}", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def start(self, host: int, *words: str) -> subprocess.Popen[str]:
        """A program on that host; what it prints is read by the caller."""
        command = ["ip", "netns", "exec", self.names[host], *words]
        environment = os.environ | {"RIO_FABRIC": f"udp:10.0.0.0/24:{PORT}"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def ip(*words: str) -> None:
    """iproute2."""
    subprocess.run(["ip", *words], check=True)


@dataclass(frozen=True)
class Figures:
    """Of one run, by those who counted the payload: the sender alone for rDMA, each for itself for plain."""

    bytes_per_s: float
    sender_cpu_s_per_gb: float
    target_cpu_s_per_gb: float


def both(cable: Cable, target: list[str], sender: list[str]) -> Figures:
    """Starts the target, then the sender; what the last lines of both say."""
    ends = [cable.start(1, *target)]
    try:
        assert ends[0].stdout is not None
        ends[0].stdout.readline()
        ends.append(cable.start(0, *sender))
        printed = [end.communicate(timeout=120)[0] for end in reversed(ends)][::-1]
    finally:
        for end in ends:
            end.kill()
    came, sent = ([float(word) for word in text.split()[-3:]] for text in printed)
    counted = came if came[0] else sent
    return Figures(counted[0] / counted[1], sent[2] / sent[0] * 1e9, came[2] / counted[0] * 1e9)


def main() -> int:
    """The comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, default=Path("build/bench/bin/incast-node"), help="of the build to take")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--size", type=int, default=4 << 20, help="bytes of one rDMA write")
    arguments = parser.parse_args()
    program = str(arguments.engine.parent.parent / "bench-bin" / "softrio_udp")
    seconds = str(arguments.seconds)
    runs: dict[str, list[Figures]] = {"rdma": [], "plain": []}
    with Cable() as cable:
        for pair in range(arguments.pairs):
            for kind in ["rdma", "plain"] if pair % 2 == 0 else ["plain", "rdma"]:
                if kind == "rdma":
                    writer = [program, "rdma-write", "2", seconds, str(arguments.size)]
                    runs[kind].append(both(cable, [program, "rdma-target"], writer))
                else:
                    where = ["10.0.0.2", str(PORT)]
                    target = [program, "plain-target", *where, seconds]
                    sender = [program, "plain-send", *where, str(arguments.seconds + 0.5), str(DATAGRAM_BYTES)]
                    runs[kind].append(both(cable, target, sender))
            print(*(f"{kind} {described([each[-1]])}" for kind, each in runs.items()), sep="; ", flush=True)
    ratios = [rdma.bytes_per_s / plain.bytes_per_s for rdma, plain in zip(runs["rdma"], runs["plain"], strict=True)]
    print(f"rDMA of {arguments.size} bytes, medians: {described(runs['rdma'])}; plain: {described(runs['plain'])}")
    print(f"ratio: median {statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})")
    return 0


def described(runs: list[Figures]) -> str:
    """Their medians."""

    def median(name: str) -> float:
        return float(statistics.median(getattr(each, name) for each in runs))

    return (
        f"{median('bytes_per_s') / 1e9:.2f} GB/s "
        f"(CPU s/GB: {median('sender_cpu_s_per_gb'):.2f} sender, {median('target_cpu_s_per_gb'):.2f} target)"
    )


if __name__ == "__main__":
    sys.exit(main())
