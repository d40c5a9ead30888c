#!/usr/bin/env python3
"""iperf3 over `incast netdev` against a bare forwarder between two TAP devices, and against veth (docs/netdev.md).

Two network namespaces, one stream of TCP. Each pair takes every entrant once, and what counts is the median of the
ratios within pairs (docs/measuring.md). CPU time is that of iperf3's two processes and of what carries the frames; what
the kernel does for them in their stead is theirs. Needs root and iperf3.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness import Entrant, Reading, Session, add_options, conditions, version_of
from programs import Running, bench_program, watch

PORT = 5201  # in namespaces of our own, so that it is free
CABLE_PORT = 7000
SUBJECTS = ("shm", "rio-shm", "tcp", "rio-udp")


def ip(*words: str) -> None:
    """iproute2."""
    subprocess.run(["ip", *words], check=True)


@contextmanager
def hosts() -> Iterator[list[str]]:
    """Two namespaces with a cable between them: host i has 10.0.0.(1 + 8 i) and the one behind it."""
    names = [f"incast-bench-{os.getpid()}-{index}" for index in range(2)]
    try:
        for name in names:
            ip("netns", "add", name)
        peer = ("type", "veth", "peer", "name", "cable1", "netns", names[1])
        ip("link", "add", "cable0", "netns", names[0], *peer)
        for index, name in enumerate(names):
            for number in range(2):
                ip("-n", name, "address", "add", f"10.0.0.{1 + 8 * index + number}/24", "dev", f"cable{index}")
            ip("-n", name, "link", "set", f"cable{index}", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


@dataclass
class Place:
    """Where a reading is taken; what is started for it ends with `stack`."""

    names: Sequence[str]
    mtu: int
    stack: ExitStack
    folder: Path

    def start(self, command: list[str], mark: Callable[[str], bool]) -> Running:
        """Returns once it has said so."""
        running = Running(command, mark, self.folder)
        self.stack.callback(running.end)
        running.wait_for_mark()
        return running

    def set_cable(self, mtu: int) -> None:
        for index, name in enumerate(self.names):
            ip("-n", name, "link", "set", f"cable{index}", "mtu", str(mtu))


def veth(place: Place) -> tuple[str, list[Running]]:
    """The cable itself."""
    place.set_cable(place.mtu)
    return "10.0.0.9", []


def forwarder(program: Path, place: Place) -> tuple[str, list[Running]]:
    """One process between two TAP devices."""
    command = [str(program), *place.names, str(place.mtu)]
    return "10.9.0.2", [place.start(command, lambda line: "forwarding" in line)]


def netdev(program: Path, way: str, more: Sequence[str], place: Place) -> tuple[str, list[Running]]:
    """Two processes of `incast netdev`. The cable below has the MTU that its transport is used to: 1500."""
    place.set_cable(1500)
    transport = way.partition("-")[0]
    ids = {"rio-shm": (1001, 1002), "rio-udp": (1, 9), "tcp": (1, 9)}.get(way, (1, 2))
    at = {"shm": f"shm://{place.folder}/{{id}}", "tcp": f"tcp://10.0.0.{{id}}:{CABLE_PORT}"}.get(way, "rio://{id}:700")
    fabric = {"rio-shm": f"shm:bench-{os.getpid()}", "rio-udp": f"udp:10.0.0.0/24:{CABLE_PORT}"}.get(way, "")
    made = []
    for index, name in enumerate(place.names):
        command = [str(program), "up", "rio0", "--foreground", "--transport", transport, "--id", str(ids[index])]
        command += ["--peers", ",".join(map(str, ids)), "--at", at, "--mtu", str(place.mtu), *more]
        command += ["--address", f"10.9.0.{index + 1}/24", *(["--fabric", fabric] if fabric else [])]
        # SoftRIO's endpoints of shared memory find each other within one network namespace.
        inside = ["ip", "netns", "exec", name, *command]
        made.append(place.start([*command, "--netns", name] if way == "rio-shm" else inside, lambda _line: True))
    until = time.monotonic() + 20
    while '"queues_up":0,' in _status(program, place.names[0]):
        if time.monotonic() > until:
            raise SystemExit(f"{way}: the devices do not find each other")
        time.sleep(0.05)
    return "10.9.0.2", made


def _status(program: Path, name: str) -> str:
    words = ["ip", "netns", "exec", name, str(program), "status", "rio0", "--json"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


Setup = Callable[[Place], tuple[str, list[Running]]]


def read(setup: Setup, names: Sequence[str], mtu: int, seconds: float, warm_up: float) -> Reading:
    """One stream of iperf3 over it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place = Place(names, mtu, stack, folder)
        address, carriers = setup(place)
        serve = ["ip", "netns", "exec", names[1], "iperf3", "-s", "-1", "-p", str(PORT), "--forceflush"]
        server = place.start(serve, lambda line: "listening" in line)
        measured, omitted = max(1, round(seconds)), max(1, round(warm_up))
        words = ["-c", address, "-p", str(PORT), "-t", str(measured), "-O", str(omitted), "-J"]
        client = Running(["ip", "netns", "exec", names[0], "iperf3", *words], lambda _line: False, folder)
        stack.callback(client.end)
        time.sleep(omitted)  # iperf3 says nothing when it begins to measure
        window = watch([each.pid for each in (server, client, *carriers)], measured)
        end = json.loads("".join(client.finish(60)))["end"]
        details = {"mtu": mtu, "retransmits": end["sum_sent"]["retransmits"]}
        return Reading(end["sum_received"]["bits_per_second"] / 8, window, details)


def main() -> int:
    """The comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--mtu", default="1500,65520", help="bytes; a list measures each (default: 1500,65520)")
    parser.add_argument("--over", default=",".join(SUBJECTS), help="what devices go by (default: all)")
    parser.add_argument("--device", default="", metavar="WORDS", help="further options of each device, as '--queues 4'")
    arguments = parser.parse_args()
    program = arguments.engine.with_name("incast-netdev")
    bare = bench_program("tap_forwarder", arguments.engine)
    found = conditions(
        incast=version_of([str(arguments.engine), "--version"]), iperf3=version_of(["iperf3", "--version"])
    )
    session = Session(arguments, found)
    with hosts() as names:
        for mtu in map(int, arguments.mtu.split(",")):
            ways: dict[str, Setup] = {
                f"netdev over {way}": partial(netdev, program, way, arguments.device.split())
                for way in arguments.over.split(",")
            }
            ways["bare TAP forwarder"] = partial(forwarder, bare)
            ways["veth"] = veth
            entrants = [
                Entrant(name, partial(read, setup, names, mtu, arguments.seconds, arguments.warm_up))
                for name, setup in ways.items()
            ]
            session.compare(f"one stream of TCP, MTU {mtu}", entrants)
    return session.exit_status()


if __name__ == "__main__":
    sys.exit(main())
