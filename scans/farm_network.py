"""Builds events and sends them to a farm, in simulated networks; writes the tables of docs/farm-network.md.

    python scans/farm_network.py                                   # prints them: some minutes of one core
    python scans/farm_network.py --small                           # the smallest of each: a minute
    python scans/farm_network.py --write docs/farm-network.md      # between the marks of that page
    python scans/farm_network.py --keep there                      # keeps every point's result, and takes what is there

Servers read out and build (100 Gb/s), farm nodes take built events (25 Gb/s), five for each server.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from incast.engine.program import find_engine

SERVERS = (16, 64, 400)
FARM_NODES_OF_A_SERVER = 5
FARM_NODES_OF_A_RACK = 20
UPLINKS_OF_A_RACK = 5
MARKS = ("<!-- tables: begin -->", "<!-- tables: end -->")
# LHCb, Run 3: 32 Tb/s of events, a farm of some 2000 nodes (EPJ Web Conf. 245 01011; J. Phys. Conf. Ser. 331 022008).
NEEDED_TBIT = 32.0

HOSTS = """[fabric]
name = "{name}"

[hosts.nic]
mtu = "4096B"                # assumed
header = "82B"               # arithmetic: preamble and gap 20, Ethernet 18, IPv4 20, UDP 8, BTH 12, ICRC 4
ack = "86B"                  # the same and AETH 4
cnp = "98B"                  # RoCE annex A17

[switches.core]
kind = "deep-buffer"         # [S3]: the core switches hold what waits
latency = "2us"              # assumed
ports_per_asic = 10          # assumed
buffer = "64GiB"             # assumed
memory_bandwidth = "none"    # assumed

[links.hundred]
rate = "100Gb/s"             # [S3]: servers, and between the switches
length_m = 20                # assumed

[links.twentyfive]
rate = "25Gb/s"              # [S3]: farm nodes
length_m = 3                 # assumed
"""
SHALLOW = """
[switches.tor]
kind = "shared-buffer"       # [S3]: the cheaper variant
latency = "500ns"            # recalled
buffer = "16MiB"             # assumed

[switches.tor.ecn]
classes = [0]                # [S3]: flow control is needed in this variant
kmin = "100KiB"              # HPCC artefact, for 25 Gb/s
kmax = "400KiB"              # HPCC artefact, for 25 Gb/s
pmax = 0.2                   # HPCC artefact
"""
DEEP = """
[switches.tor]
kind = "deep-buffer"         # [S3]: the more expensive variant, without flow control
latency = "2us"              # assumed
ports_per_asic = 10          # assumed
buffer = "4GiB"              # assumed
memory_bandwidth = "none"    # assumed
"""
FLOW = """
[flow]
transport = "reliable"       # [S3]: RoCE v2
ack_packets = 16             # assumed
retransmit_timeout = "4ms"   # assumed
window_packets = 1024        # assumed
dcqcn = {dcqcn}              # [S3]: ECN was the mechanism that worked

[topology]
kind = "explicit"
"""


@dataclass(frozen=True)
class Network:
    """One way to connect the farm."""

    name: str
    is_shallow: bool
    is_own: bool


NETWORKS = (
    Network("one network, shallow top-of-rack switches, ECN", True, False),
    Network("one network, deep switches alone", False, False),
    Network("a network of the farm's own, deep", False, True),
)


def fabric(network: Network, servers: int, farm_nodes: int) -> str:
    """The fabric's file: servers on the core, farm nodes in racks, in the order of the run's hosts."""
    racks = -(-farm_nodes // FARM_NODES_OF_A_RACK)
    text = HOSTS.format(name="farm") + (SHALLOW if network.is_shallow else DEEP)
    text += FLOW.format(dcqcn="true" if network.is_shallow else "false")
    cables = []

    def host(name: str, count: int, to: str, link: str) -> str:
        cables.append((name, to, link, 1))
        return f'\n[[topology.hosts]]\nname = "{name}"\ncount = {count}\n'

    text += host("server", servers, "core", "hundred")
    for rack in range(racks):
        count = min(FARM_NODES_OF_A_RACK, farm_nodes - rack * FARM_NODES_OF_A_RACK)
        text += host(f"farm-{rack:03}-", count, f"tor-{rack}", "twentyfive")
    # What a server sends the farm by: its own host, or a second one, in the same box, on another core.
    farm_core = "farm-core" if network.is_own else "core"
    if network.is_own:
        text += host("second", servers, farm_core, "hundred")
        # Nothing crosses it: a fabric is one piece.
        cables.append(("core", farm_core, "hundred", 1))
    switches = [("core", "core")] + ([(farm_core, "core")] if network.is_own else [])
    switches += [(f"tor-{rack}", "tor") for rack in range(racks)]
    cables += [(farm_core, f"tor-{rack}", "hundred", UPLINKS_OF_A_RACK) for rack in range(racks)]
    text += "".join(f'\n[[topology.switches]]\nname = "{name}"\nswitch = "{kind}"\n' for name, kind in switches)
    for one, other, link, count in cables:
        text += f'\n[[topology.cables]]\nfrom = "{one}"\nto = "{other}"\nlink = "{link}"\ncount = {count}\n'
    return text


class Laboratory:
    """Runs points, and keeps their results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def result(self, name: str, settings: dict[str, str | int], fabric_text: str | None = None) -> dict[str, Any]:
        """Of one run, with those settings."""
        place = self.folder / name
        if not (place / "result.json").exists():
            chosen = dict(settings)
            if fabric_text is not None:
                file = self.folder / f"{name}.toml"
                file.write_text(fabric_text, encoding="utf-8")
                chosen["transport.sim.fabric"] = str(file)
            words = [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
            command = [str(find_engine()), "--set", "transport.name=sim", "--output", str(place), *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(f"{name}: {done.stderr.strip()}")
        found: dict[str, Any] = json.loads((place / "result.json").read_text(encoding="utf-8"))
        return found


def gbit(bytes_per_s: float) -> float:
    return bytes_per_s * 8e-9


def building(servers: int) -> dict[str, str | int]:
    """What all runs of a size have in common."""
    return {
        "run.nodes": servers,
        "run.warm_up": "6ms",
        "run.duration": "10ms",
        "run.seed": 1,
        "protocol.scheme": "push",
        "protocol.schedule": "random",
        "protocol.credits": 8,
        "protocol.parallel_sends": 8,
        "protocol.mfp_size": "128KiB" if servers <= 16 else "32KiB" if servers <= 64 else "8KiB",
        "source.fragment_size": "1KiB",
    }


def figure_one(laboratory: Laboratory, sizes: tuple[int, ...]) -> Iterator[str]:
    """Building alone, and with the farm."""
    yield (
        "| network | servers | farm nodes | building alone | with the farm | less by | a farm node gets | "
        "servers for 32 Tb/s |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for servers in sizes:
        farm_nodes = servers * FARM_NODES_OF_A_SERVER
        for network in NETWORKS:
            text = fabric(network, servers, farm_nodes)
            kind = "own" if network.is_own else "shallow" if network.is_shallow else "deep"
            alone = laboratory.result(f"alone-{kind}-{servers}", building(servers) | {"sink.kind": "null"}, text)
            farm: dict[str, str | int] = {
                "sink.kind": "farm",
                "sink.window": 16,
                "farm.nodes": farm_nodes,
                "farm.dispatchers": 1,
                "farm.window": 2,
                "farm.network": "own" if network.is_own else "shared",
            }
            both = laboratory.result(f"farm-{kind}-{servers}", building(servers) | farm, text)
            before = gbit(alone["goodput_bytes_per_s"]["total"]) / servers
            built = gbit(both["goodput_bytes_per_s"]["total"]) / servers
            got = gbit(both["farm"]["goodput_bytes_per_s"]["per_node"]["mean"])
            needed = round(NEEDED_TBIT * 1000 / built)
            yield (
                f"| {network.name} | {servers} | {farm_nodes} | {before:.1f} | {built:.1f} | "
                f"{100 * (1 - built / before):.0f} % | {got:.2f} | {needed} |"
            )


LATENCIES = ("1us", "10us", "100us", "1ms")
WINDOWS = (1, 2, 4)


def idle_time(laboratory: Laboratory, latencies: tuple[str, ...]) -> Iterator[str]:
    """How much of its time a farm node waits for events, by the network's latency."""
    yield "| latency | pulls fragments, waits for | idle | built MEPs, window 1: idle | window 2 | window 4 |"
    yield "|---|---|---|---|---|---|"
    work_us = 200
    for latency in latencies:
        network: dict[str, str | int] = {
            "transport.sim.rate": "32Gb/s",
            "transport.sim.latency": latency,
            "run.warm_up": "20ms",
            "run.duration": "100ms",
            "source.fragment_size": "1KiB",
            "protocol.mfp_size": "8KiB",
        }
        pulls = laboratory.result(
            f"pulls-{latency}",
            network
            | {
                "run.nodes": 16,
                "run.roles": "split",
                "run.readout_units": 8,
                "run.builder_units": 8,
                "protocol.scheme": "pull",
                "protocol.credits": 1,
                "sink.kind": "null",
            },
        )
        waits_us = pulls["latency_ns"]["p50"] / 1000
        shares = []
        for window in WINDOWS:
            farm = laboratory.result(
                f"takes-{latency}-{window}",
                network
                | {
                    "run.nodes": 8,
                    "protocol.credits": 8,
                    "sink.kind": "farm",
                    "sink.window": 16,
                    "farm.nodes": 8,
                    "farm.dispatchers": 1,
                    "farm.window": window,
                    "farm.work": f"{work_us}us",
                },
            )
            shares.append(f"{100 * farm['farm']['idle_fraction']['mean']:.0f} %")
        idle = 100 * waits_us / (waits_us + work_us)
        yield f"| {latency} | {waits_us:.0f} us | {idle:.0f} % | {' | '.join(shares)} |"


def replaced(page: str, tables: str) -> str:
    """The page with those tables between its marks."""
    before, begin, rest = page.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        raise SystemExit(f"the page has no {MARKS[0]} or {MARKS[1]}")
    return f"{before}{MARKS[0]}\n{tables}{MARKS[1]}{after}"


def main() -> None:
    """Runs all points, one after the other."""
    parser = argparse.ArgumentParser(description="Building and dispatch in one simulated network.")
    parser.add_argument("--small", action="store_true", help="only the smallest of each")
    parser.add_argument("--largest", type=int, default=64, help="servers at most (default: 64)")
    parser.add_argument("--keep", type=Path, help="folder for the results of points")
    parser.add_argument("--write", type=Path, help="page whose tables these are")
    given = parser.parse_args()
    sizes = (4,) if given.small else tuple(size for size in SERVERS if size <= given.largest)
    latencies = LATENCIES[:2] if given.small else LATENCIES
    with tempfile.TemporaryDirectory() as scratch:
        laboratory = Laboratory((given.keep or Path(scratch)).absolute())
        lines = [*figure_one(laboratory, sizes), "", *idle_time(laboratory, latencies), ""]
    tables = "\n".join(lines)
    if given.write:
        given.write.write_text(replaced(given.write.read_text(encoding="utf-8"), tables), encoding="utf-8")
    else:
        print(tables)


if __name__ == "__main__":
    main()
