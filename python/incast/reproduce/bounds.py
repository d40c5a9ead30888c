"""What is not published of the devices and networks of rows, and between what values it may lie.

A row over what is unknown changes one of these at a time and leaves the rest as the fabric file has it. Bounds are laid
down before they are run, in an earlier commit, and outcomes do not move them (docs/decisions/0025-reproduction.md). A
source that begins with `hypothesis` is ours.

Sources that several share, both on Jericho and Jericho+, the Arista's processor:
  Cisco A   "NCS 5500 Buffering Architecture", xrdocs.io/ncs5500, 2020-09-04
  Cisco B   "NCS5500 QoS Part 1 - Understanding Packet Buffering", xrdocs.io/ncs5500, 2019-04-16
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from incast.engine.quantity import Scalar


@dataclass(frozen=True)
class Unknown:
    """One of them. `fabric`: a key of the fabric file, else `setting`: one of the run; `values`: what is tried."""

    name: str
    values: Sequence[Any]
    source: str
    fabric: str = ""
    setting: str = ""


@dataclass(frozen=True)
class Variant:
    """A network in which one thing that is unknown has another value."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the fabric file
    settings: Mapping[str, Scalar] = field(default_factory=dict)


AS_IN_THE_FILE = Variant("as in the file")


def variants(unknowns: Sequence[Unknown]) -> Iterator[Variant]:
    """Each value of each, alone."""
    for each in unknowns:
        for value in each.values:
            changes = {each.fabric: value} if each.fabric else {}
            settings = {each.setting: value} if each.setting else {}
            yield Variant(f"{each.name} {value}", changes, settings)


# Row 11's 94.8 Gb/s are above what 1024 B allow (92.6); the same hosts stood at both switches.
_HOSTS = (
    Unknown("MTU", ("2048B",), "IBTA volume 1: 2048 or 4096; 1024 cannot give the 94.8 Gb/s of row 11",
            fabric="hosts.nic.mtu"),
    Unknown("cable", (1, 30), "IEEE 802.3: copper of 1 m to active cables of 30 m", fabric="links.cable.length_m"),
    Unknown("acknowledgement after", (1, 64), "hypothesis: every packet, or 256 KiB; IBTA leaves it to the adapter",
            fabric="flow.ack_packets"),
    Unknown("time-out", ("1ms", "67ms"), "adapter settings 8 and 14: 4.096 us x 2^n (IBTA volume 1, 9.7.6.1.3)",
            fabric="flow.retransmit_timeout"),
    Unknown("window", (1024, 16384), "hypothesis: 4 to 64 MiB; verbs limit requests, not packets",
            fabric="flow.window_packets"),
)  # fmt: skip
_PROTOCOL = (
    Unknown("scheme", ("push",), "[S3] does not say whether nodes pushed or pulled; [S1] pulled",
            setting="protocol.scheme"),
    Unknown("order", ("sequential", "random"), "[S1]: in sequential order; [S3] does not say",
            setting="protocol.schedule"),
)  # fmt: skip


def _deep_switch(kind: str) -> tuple[Unknown, ...]:
    """What neither vendor says of a switch with virtual output queues."""
    return (
        Unknown("latency", ("1us", "4500ns"), "with 1 us inside, 2 to 5.5 us in all: data sheets of the 7280R2 (3.8) "
                "and QFX10002 (2.5 in an ASIC, 5.5 between two), recalled", fabric=f"switches.{kind}.latency"),
        Unknown("latency inside", ("500ns", "2us"), "hypothesis: a part of the above; beyond 2.2 us the egress credit "
                "of 32 KiB would not fill a link", fabric=f"switches.{kind}.fabric_latency"),
        Unknown("egress credit", ("20KiB", "128KiB", "1600kB"), "at least what fills a link, 100 Gb/s x 1 us and two "
                "packets, as data sheets promise line rate; at most 16 MB of egress memory over 10 ports (Cisco B)",
                fabric=f"switches.{kind}.egress_credit"),
        Unknown("on chip", ("8MiB", "32MiB"), "Cisco A: about 16 MB; a factor of two, as the rule for all queues "
                "together (half of it) is a hypothesis", fabric=f"switches.{kind}.on_chip"),
    )  # fmt: skip


# Rows 12, 13, 13b and 14: one set, fabrics/arista-7280cr2k-30.toml, and this around it.
ARISTA = (
    Unknown("memory", ("850Gb/s", "950Gb/s"), "Cisco A: approximately 900; what rounds to it",
            fabric="switches.deep.memory_bandwidth"),
    Unknown("spill", ("100kB", "400kB"), "hypothesis: Arista's setting is within a factor of two of Cisco's (Cisco B: "
            "6000 packets or 200 kB)", fabric="switches.deep.spill"),
    *_deep_switch("deep"),
    *_HOSTS,
    *_PROTOCOL,
)  # fmt: skip

# Row 11: fabrics/qfx10000-30c.toml.
JUNIPER = (
    Unknown("memory", ("1000Gb/s",), "500 Gb/s in and out of each Q5 (Juniper, QFX10002 overview), all written and "
            "read", fabric="switches.card.memory_bandwidth"),
    Unknown("spill", ("64KiB", "1MiB"), "hypothesis; it only counts with a memory that limits",
            fabric="switches.card.spill"),
    Unknown("ports to an ASIC", (10,), "12 GB of the card [S3] over 4 GB an ASIC (QFX10002)",
            fabric="switches.card.ports_per_asic"),
    *_deep_switch("card"),
    *_HOSTS,
    *_PROTOCOL,
)  # fmt: skip

# Row 17: fabrics/ethernet-1000.toml, a scenario.
ETHERNET_1000 = (
    Unknown("routing", ("ecmp",), "what a network without plan does", fabric="network.routing"),
    Unknown("buffer", ("16MiB", "64MiB"), "QFX5200 (16 MB) to switches of today (64 MB: Tomahawk 3), recalled",
            fabric="switches.ethernet.buffer"),
    Unknown("DCQCN", (False,), "the study's adapters may not have reacted to marks", fabric="flow.dcqcn"),
    Unknown("order", ("random", "sequential"), "not said", setting="protocol.schedule"),
    Unknown("scheme", ("push",), "not said", setting="protocol.scheme"),
)  # fmt: skip

# Row 6: rapidio-16.
ROOT_MESSAGES = (
    Unknown("cost of a message", ("2us", "10us", "30us"), "hypothesis: from a write to a window to system calls and "
            "interrupts at both ends", fabric="hosts.tsi721.message_cost"),
)  # fmt: skip

# Row 10: ib-edr-36.
EDR = (
    Unknown("input memory", ("32KiB", "128KiB", "512KiB"), "hypothesis: per virtual lane, not published",
            fabric="switches.edr.input_buffer"),
    Unknown("scheme", ("push",), "[S3] does not say", setting="protocol.scheme"),
)  # fmt: skip

# Row 15: qfx10008-3x30.
CHASSIS = (
    Unknown("fabric links", ("500Gb/s", "250Gb/s", "200Gb/s"), "hypothesis: 6 of these carry all, half or 0.4 of what "
            "30 ports send", fabric="links.internal.rate"),
)  # fmt: skip

# Rows 16a and 16b: qfx5200-8x100-30x25.
SHALLOW_MARKS = (
    Unknown("Kmin", ("5KiB", "20KiB", "100KiB", "200KiB"), "hypothesis: DCQCN paper to HPCC artefact",
            fabric="switches.qfx5200.ecn.kmin"),
    Unknown("Kmax", ("100KiB", "200KiB", "400KiB"), "hypothesis: as Kmin", fabric="switches.qfx5200.ecn.kmax"),
    Unknown("Pmax", (0.01, 0.2, 1.0), "hypothesis: as Kmin", fabric="switches.qfx5200.ecn.pmax"),
)  # fmt: skip
SHALLOW_CARVING = (
    Unknown("buffer", ("8MiB", "12MiB", "16MiB"), "QFX5200: 16 MB, recalled, of which carving takes up to a half "
            "(QFX3500)", fabric="switches.qfx5200.buffer"),
    Unknown("share of a queue", ("1/2", "1", "4"), "hypothesis: SLX 9150 has 2",
            fabric="switches.qfx5200.alpha_egress"),
    Unknown("time-out", ("1ms", "4ms", "16ms"), "adapter settings 8 to 12: 4.096 us x 2^n",
            fabric="flow.retransmit_timeout"),
)  # fmt: skip

# Row 18: ib-qdr-8.
QDR_READS = (
    Unknown("outstanding reads", (1, 2, 4, 16), "IBTA volume 1: 1 to what the adapter has, 16 in ConnectX-2, recalled",
            fabric="hosts.hca.outstanding_reads"),
    Unknown("size of a read", ("16KiB", "64KiB", "256KiB"), "[S5] has means over sizes", setting="protocol.mfp_size"),
)  # fmt: skip

# Row 23: rapidio-16; completions of 64 and of 128 B with 20 B of overhead.
PCIE_COMPLETIONS = (
    Unknown("transmit limit", ("12.190Gb/s", "13.838Gb/s"), "PCIe 2.1: completions of 64 or 128 B",
            fabric="hosts.tsi721.transmit_limit"),
)  # fmt: skip

# Row 31: lhcb-run3.
RUN_3 = (
    Unknown("size", ("64KiB", "128KiB", "4MiB"), "hypothesis: 31 to 2000 events of 2 KiB",
            setting="protocol.mfp_size"),
    Unknown("order", ("random", "barrel-time-slot"), "hypothesis: none, by chance, or by the clock",
            setting="protocol.schedule"),
    Unknown("leaves", (10,), "hypothesis: 17 or 20 servers to a leaf", fabric="topology.leaves"),
)  # fmt: skip

# Row 24: what a load of a processor from a window of the adapter takes beside the network, at each end.
PCIE_ROUND_TRIP_US = (0.3, 1.0)  # R. Neugebauer et al., SIGCOMM 2018, recalled: 0.5 to 1 us with a DMA engine

# Rows 8 and 32: rapidio-16. Row 7a has 426 us for a write of two nodes, with what orders and acknowledges it.
WRITE_COST = (
    Unknown("cost of a message", ("30us", "142us"), "hypothesis: from row 6's largest to a third of row 7a's 426 us, "
            "as a write has a request and an acknowledgement", fabric="hosts.tsi721.message_cost"),
)  # fmt: skip

# Row 27: two-tiers-64; the Cray's own network, a dragonfly with adaptive routes, is not in Incast.
SCHEDULED = (
    Unknown("routing", ("ecmp", "shift-aware"), "hypothesis: adaptive routes lie between chance and plan",
            fabric="network.routing"),
    Unknown("size", ("32KiB", "256KiB"), "hypothesis: contributions to a time slice; not in the abstract",
            setting="protocol.mfp_size"),
)  # fmt: skip

# Row 28: lhcb-gbe.
GIGABIT = (
    Unknown("buffer", ("64MiB", "256MiB"), "hypothesis: of all ports together, switches to routers of 2010",
            fabric="switches.core.buffer"),
)  # fmt: skip
