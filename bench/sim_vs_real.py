#!/usr/bin/env python3
"""Event building over tcp between network namespaces with shaped cables, against its simulation (docs/simulation.md).

Every node is a namespace of its own, joined by a veth cable to a bridge in another one. tbf at both ends of each cable
limits it to a rate, as a link would, with a queue of so many bytes; segmentation offload is off, so that packets are as
long as on a wire. The same configuration then runs on the packet model with a fabric made for these links: their rate,
their queues, the headers that tbf counts. Rates are low enough that the links are the limit, not the CPU: the share of
CPU time that was used on the machine stands beside each measurement.

Needs root, iproute2 and a kernel with veth, bridge and tbf. Namespaces are removed at the end, with all in them.
"""

import argparse
import itertools
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import ROOT

IP_AND_TCP = 52  # IPv4 20, TCP 20, time stamps 12
ETHERNET = 14  # what tbf counts of it: no FCS, preamble or gap
HUB = "10.77.0.254"
# What the list of transports calls it: the one that is taken between hosts.
_TRAITS: dict[str, dict[str, Any]] = json.loads((ROOT / "schema" / "config.schema.json").read_text())["x-transports"]
TCP = max(_TRAITS, key=lambda name: int(_TRAITS[name]["rank_across"]))
DEADLINE_S = 120


class NoNetworkError(Exception):
    """Such a network cannot be made on this host; the text says why."""


@dataclass(frozen=True)
class Link:
    """All cables of a network."""

    mbit_per_s: int
    mtu: int = 9000
    queue_bytes: int = 512 * 1024  # of tbf, at either end
    burst_bytes: int = 36 * 1024  # of tbf: four packets of the largest size

    @property
    def payload(self) -> int:
        """Bytes of a full packet that TCP carries."""
        return self.mtu - IP_AND_TCP

    @property
    def bound(self) -> float:
        """Payload in Mb/s of a cable that is always busy."""
        return self.mbit_per_s * self.payload / (self.mtu + ETHERNET)


@dataclass(frozen=True)
class Case:
    """One comparison."""

    nodes: int
    link: Link
    schedule: str
    em: str = "shared"  # or own: on a node beside the others
    scheme: str = "push"
    mfp: str = "64KiB"
    seconds: float = 4
    warm_up: float = 2
    simulated_seconds: float = 10  # virtual ones are cheap, and loss is a matter of chance

    @property
    def hosts(self) -> int:
        """Namespaces with a node."""
        return self.nodes + (self.em == "own")

    def settings(self) -> dict[str, str]:
        """Of both runs."""
        return {
            "run.nodes": str(self.nodes),
            "run.em": self.em,
            "run.warm_up": f"{self.warm_up}s",
            "run.duration": f"{self.seconds}s",
            "protocol.scheme": self.scheme,
            "protocol.schedule": self.schedule,
            "protocol.mfp_size": self.mfp,
            "protocol.self_traffic": "pointer",
            "sink.kind": "null",
            "source.prefill_size": "4MiB",
        }


@dataclass(frozen=True)
class Measured:
    """Goodput without self traffic, in Mb/s and node."""

    mbit_per_s: float
    busy: float  # of all CPU time of the machine, by whomever
    retransmitted: int  # TCP segments, of all nodes, in the whole run


@dataclass(frozen=True)
class Comparison:
    """What was measured and what was simulated."""

    case: Case
    real: list[Measured]
    simulations: list[float]  # Mb/s and node, by seed

    @property
    def measured(self) -> float:
        """The median of the repeats."""
        return statistics.median(one.mbit_per_s for one in self.real)

    @property
    def simulated(self) -> float:
        """The median over seeds."""
        return statistics.median(self.simulations)

    @property
    def difference(self) -> float:
        """Of the simulation from the measurement, as a share of the latter."""
        return self.simulated / self.measured - 1

    def row(self) -> str:
        """Of the table in docs/simulation.md."""
        low, high = (pick(one.mbit_per_s for one in self.real) for pick in (min, max))
        busy = max(one.busy for one in self.real)
        lost = statistics.median(one.retransmitted for one in self.real)
        link = self.case.link
        cells = (
            f"{self.case.nodes}{'' if self.case.em == 'shared' else ' + EM'}",
            f"{link.mbit_per_s} Mb/s",
            self.case.schedule,
            f"{link.bound:.1f}",
            f"{self.measured:.1f} ({low:.1f}..{high:.1f})",
            f"{self.simulated:.1f} ({min(self.simulations):.1f}..{max(self.simulations):.1f})",
            f"{100 * self.difference:+.1f} %",
            f"{lost:.0f}",
            f"{100 * busy:.0f} %",
        )
        return f"| {' | '.join(cells)} |"


HEADING = (
    "| nodes | links | schedule | link's payload, Mb/s | measured, Mb/s per node | simulated | difference |"
    " segments sent again | CPU busy |\n|---|---|---|---|---|---|---|---|---|"
)


# --- the network


def _tool(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoNetworkError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def shaped_network(nodes: int, link: Link) -> Iterator[tuple[str, list[str]]]:
    """The namespace of the bridge, which has the address HUB, and those of the nodes.

    NoNetworkError if it cannot be made.
    """
    if os.geteuid() != 0:
        raise NoNetworkError("network namespaces need root")
    hub, *names = (f"incast-{os.getpid()}-{name}" for name in ("hub", *range(nodes)))
    try:
        for name in (hub, *names):
            _tool("ip", "netns", "add", name)
            _tool("ip", "-n", name, "link", "set", "lo", "up")
        _tool("ip", "-n", hub, "link", "add", "bridge", "mtu", str(link.mtu), "type", "bridge")
        for number, name in enumerate(names):
            port = f"port{number}"
            cable = ("mtu", str(link.mtu), "gso_max_segs", "1")
            _tool(
                *("ip", "link", "add", port, *cable, "netns", hub, "type", "veth"),
                *("peer", "name", "cable", *cable, "netns", name),
            )
            _tool("ip", "-n", hub, "link", "set", port, "master", "bridge", "up")
            _tool("ip", "-n", name, "address", "add", f"10.77.0.{number + 1}/24", "dev", "cable")
            _tool("ip", "-n", name, "link", "set", "cable", "up")
            for space, device in ((hub, port), (name, "cable")):
                _tool(
                    *("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf"),
                    *("rate", f"{link.mbit_per_s}mbit", "burst", str(link.burst_bytes), "limit", str(link.queue_bytes)),
                )
        _tool("ip", "-n", hub, "address", "add", f"{HUB}/24", "dev", "bridge")
        _tool("ip", "-n", hub, "link", "set", "bridge", "gso_max_segs", "1", "up")
        yield hub, names
    except FileNotFoundError as error:
        raise NoNetworkError(f"{error.filename} is not here (iproute2)") from None
    finally:
        for name in (hub, *names):
            with suppress(FileNotFoundError):
                subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _cpu() -> tuple[int, int]:
    """Busy and all jiffies of the machine; stolen ones are busy."""
    words = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(words) - words[3] - words[4], sum(words)


def _retransmitted(namespace: str) -> int:
    """TCP segments that this namespace has sent again."""
    text = _tool("ip", "netns", "exec", namespace, "cat", "/proc/net/snmp")
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])


def _goodput(result: dict[str, Any], nodes: int) -> float:
    if result["status"] != "complete" or result["lost_events"] != 0:
        raise RuntimeError(f"the run is not complete: {result['status']}, {result.get('reason', '')}")
    return float(result["goodput_bytes_per_s"]["total_without_self"]) * 8 / 1e6 / nodes


# --- the two runs


def _command(engine: Path, case: Case, output: Path, extra: dict[str, str]) -> list[str]:
    settings = {**case.settings(), **extra}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return [str(engine), "--progress", "json", "--output", str(output), *words]


def end(process: subprocess.Popen[Any]) -> None:
    """It may have ended by itself."""
    if process.poll() is None:
        process.kill()
    process.wait()


def measure(engine: Path, case: Case, output: Path) -> Measured:
    """One real run. The coordinator is at the bridge, beside the links that are measured."""
    with shaped_network(case.hosts, case.link) as (hub, names):
        environment = {**os.environ, "INCAST_TOKEN": secrets.token_hex(16)}
        # The model is of Reno's kind, and the default of the host may be any.
        command = _command(engine, case, output, {"transport.name": TCP, f"transport.{TCP}.congestion_control": "reno"})
        members: list[subprocess.Popen[bytes]] = []
        errors = output.with_suffix(".stderr")
        with errors.open("w") as said:
            coordinator = subprocess.Popen(
                ["ip", "netns", "exec", hub, *command, "--spawn", "0", "--listen", f"{HUB}:0"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        reports = coordinator.stdout
        assert reports is not None
        try:
            before = (0, 0)
            busy = 0.0
            for line in reports:
                report = json.loads(line)
                if report["type"] == "listening":
                    members = [
                        subprocess.Popen(
                            ["ip", "netns", "exec", name, str(engine), "--join", report["address"]],
                            env=environment,
                            stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL,
                            cwd=output,  # where the event manager's node writes its ledger
                        )
                        for name in names
                    ]
                elif report["type"] == "phase" and report["phase"] == "measuring":
                    before = _cpu()
                elif report["type"] == "phase" and report["phase"] == "draining":
                    after = _cpu()
                    busy = (after[0] - before[0]) / max(1, after[1] - before[1])
            statuses = [coordinator.wait(DEADLINE_S), *(member.wait(DEADLINE_S) for member in members)]
            if any(statuses):
                raise RuntimeError(f"exit statuses {statuses}: {errors.read_text()}")
        finally:
            end(coordinator)
            for member in members:
                end(member)
            reports.close()
        retransmitted = sum(map(_retransmitted, names))
    result = json.loads((output / "result.json").read_text())
    return Measured(_goodput(result, case.nodes), busy, retransmitted)


def fabric_text(nodes: int, link: Link) -> str:
    """The fabric file of these links."""
    return f"""# {nodes} namespaces on a bridge, tbf at {link.mbit_per_s} Mb/s.
[fabric]
name = "veth-{nodes}x{link.mbit_per_s}"
description = "{nodes} namespaces with shaped veth cables on a bridge"

[hosts.namespace]
mtu = "{link.payload}B"     # payload of a TCP segment: MTU without IPv4 20, TCP 20, time stamps 12
header = "{IP_AND_TCP + ETHERNET}B"       # the same and Ethernet 14: what tbf counts
ack = "{IP_AND_TCP + ETHERNET}B"

[switches.bridge]
kind = "shared-buffer"
latency = "20us"    # assumed: soft interrupts on the way
buffer = "1GiB"
egress_limit = "{link.queue_bytes}B"    # tbf's limit

[links.tbf]
rate = "{link.mbit_per_s}Mb/s"

[network]
unstored = "0B"

[flow]
transport = "tcp"
ack_packets = 2             # RFC 1122: at least every second segment
retransmit_timeout = "200ms"    # Linux: the smallest

[topology]
kind = "single-switch"
hosts = {nodes}
"""


def simulate(engine: Path, case: Case, output: Path, seed: int) -> float:
    """The same on the packet model: Mb/s and node."""
    file = output.with_suffix(".toml")
    file.write_text(fabric_text(case.hosts, case.link))
    extra = {
        "transport.name": "sim",
        "transport.sim.fabric": str(file),
        "run.seed": str(seed),
        "run.duration": f"{case.simulated_seconds}s",
    }
    command = _command(engine, case, output, extra)
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=DEADLINE_S, check=True)
    return _goodput(json.loads((output / "result.json").read_text()), case.nodes)


def compare(engine: Path, case: Case, folder: Path, repeats: int = 1) -> Comparison:
    """Simulated and measured, each as often as asked for."""
    simulated = [simulate(engine, case, folder / f"simulated{seed}", seed) for seed in range(1, repeats + 1)]
    return Comparison(case, [measure(engine, case, folder / f"real{turn}") for turn in range(repeats)], simulated)


def main(words: Sequence[str] | None = None) -> int:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, default=ROOT / "build" / "release" / "bin" / "incast-node")
    parser.add_argument("--nodes", default="4,8", help="comma-separated (default: %(default)s)")
    parser.add_argument("--rates", default="100,300,1000", help="Mb/s, comma-separated (default: %(default)s)")
    parser.add_argument("--schedules", default="linear-shift,random", help="comma-separated (default: %(default)s)")
    parser.add_argument(
        "--ems", default="shared", help="where the event manager is: shared, own (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=4, help="measured, of each run (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="of each measurement (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    arguments = parser.parse_args(words)
    done: list[Comparison] = []
    print(HEADING)
    chosen = (arguments.ems, arguments.nodes, arguments.rates, arguments.schedules)
    for em, nodes, rate, schedule in itertools.product(*(text.split(",") for text in chosen)):
        case = Case(int(nodes), Link(int(rate)), schedule, em=em, seconds=arguments.seconds)
        with tempfile.TemporaryDirectory() as folder:
            done.append(compare(arguments.engine.resolve(), case, Path(folder), arguments.repeats))
        print(done[-1].row(), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(one) for one in done], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except NoNetworkError as error:
        sys.exit(str(error))
