"""What systems ask for: scenarios on the shipped networks, to see whether the model of such a network carries them."""

from collections.abc import Mapping
from typing import Any

from incast.reproduce.bounds import AS_IN_THE_FILE, ETHERNET_1000, GIGABIT, RUN_3, SCHEDULED, Variant, variants
from incast.reproduce.model import (
    OFF,
    OK,
    RANGE,
    Experiment,
    Fabrics,
    Figures,
    Finding,
    Row,
    event_building,
    needs,
    statements,
)

_HOSTS = 100  # of 1000: 4 of 40 leaves; a link's load is the same, and the run takes seconds
_DEMANDS = {
    f"{message}, {sends} sends": event_building(
        f"{message}, {sends} sends",
        "ethernet-1000",
        nodes=_HOSTS,
        message=message,
        ms=ms,
        warm_up_ms=warm_up_ms,
        credits=credit,
        sends=sends,
    )
    for message, sends, credit, ms, warm_up_ms in (
        ("16KiB", 16, 2, 3, 2),
        ("128KiB", 8, 4, 12, 6),
        ("256KiB", 8, 4, 18, 10),
    )
}


def _demanded(variant: Variant) -> Experiment:
    """The best of these settings, on a network in which something is otherwise."""
    return event_building(
        variant.name,
        "ethernet-1000",
        variant.changes,
        nodes=_HOSTS,
        message="128KiB",
        ms=6,
        warm_up_ms=5,
        credits=4,
        sends=8,
        more=variant.settings,
    )


_DEMANDS_OTHERWISE = [_demanded(variant) for variant in variants(ETHERNET_1000)]


# All hosts of the network, each with one stream. Nodes look at what has come every 16 us, as looking at once takes too
# long to simulate. It costs them bandwidth.
_ALL_STREAMS = event_building(
    "1000 hosts",
    "ethernet-1000",
    nodes=1000,
    message="16KiB",
    ms=8,
    warm_up_ms=8,
    credits=2,
    more={
        "protocol.parallel_requests": 12,
        "transport.sim.poll_interval": "16us",
        "source.fragment_size": "1KiB",
    },
)


# --- LHCb's Gb Ethernet: row 28

_EVENT_BYTES, _SOURCES, _NODES = 60_000, 350, 1500  # [S5], and TIME 2013


def _token(variant: Variant) -> Experiment:
    """All sources send to one node after the other, which a credit of that node chose."""
    return event_building(
        variant.name,
        "lhcb-gbe",
        variant.changes,
        nodes=_SOURCES + _NODES,
        message="2KiB",
        ms=40,
        warm_up_ms=60,
        credits=1,
        scheme="push",
        schedule="linear-shift",
        more={
            "run.roles": "split",
            "run.readout_units": _SOURCES,
            "run.builder_units": _NODES,
            "source.fragment_size": str(_EVENT_BYTES // _SOURCES),
            **variant.settings,
        },
    )


_TOKENS = [_token(variant) for variant in variants(GIGABIT)]


def _gigabit(figures: Figures, _fabrics: Fabrics) -> Finding:
    rates = {run.name: figures.gbit(run.name, "goodput_without_self_bytes_per_s") for run in _TOKENS}
    low, high = min(rates.values()), max(rates.values())
    return Finding(
        [low, high],
        OK if low >= 60 else RANGE if high >= 60 else OFF,
        None,
        None,
        (
            f"Events of {_EVENT_BYTES // 1000} kB in {_SOURCES} parts, "
            f"{figures.number(_TOKENS[0].name, 'packing_events'):.0f} of them in a message, as fast as they are "
            "built. By what is unknown: " + ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items()) + " Gb/s.",
        ),
    )


# --- sends by a schedule and without: row 27

_SLOTS = {"32KiB": "2800ns", "64KiB": "5500ns", "256KiB": "22us"}  # some 4 % longer than a message on the link


def _sent(name: str, variant: Variant, scheduled: bool) -> Experiment:
    size = str(variant.settings.get("protocol.mfp_size", "64KiB"))
    order: dict[str, Any] = {"schedule": "linear-shift"}
    slots: dict[str, Any] = {}
    if scheduled:
        order = {"schedule": "barrel-time-slot"}
        slots = {"protocol.slot_time": _SLOTS[size], "protocol.overrun": "overlap"}
    scale = {"32KiB": 1, "64KiB": 2, "256KiB": 8}[size]
    return event_building(
        f"{name}, {variant.name}",
        "two-tiers-64",
        variant.changes,
        nodes=64,
        message=size,
        ms=4 * scale,
        warm_up_ms=2 * scale,
        credits=4,
        scheme="push",
        **order,
        more={"source.fragment_size": "1KiB", **slots},
    )


_WAYS = [AS_IN_THE_FILE, *variants(SCHEDULED)]
_SENT = {
    variant.name: (_sent("each by itself", variant, False), _sent("by schedule", variant, True)) for variant in _WAYS
}


def _scheduled(figures: Figures, _fabrics: Fabrics) -> Finding:
    holds: dict[str, dict[str, bool]] = {}
    shown: list[str] = []
    gains: list[float] = []
    for name, runs in _SENT.items():
        spreads = [
            figures.number(run.name, "latency_p99_ns") - figures.number(run.name, "latency_p50_ns") for run in runs
        ]
        rates = [figures.per_node(run.name) for run in runs]
        calmer, gain = (spreads[0] / max(spreads[1], 1.0)) ** 2, 100 * (rates[1] / rates[0] - 1)
        gains += [calmer, gain]
        holds[name] = {"variance down by 30 or more": calmer >= 30, "bandwidth up": gain > 0}
        shown.append(
            f"{name}: variance / {calmer:.1f}, bandwidth {gain:+.0f} % ({rates[0]:.1f} to {rates[1]:.1f} Gb/s)"
        )
    return statements(
        gains[:2],
        holds,
        "Variance as the square of the time from the median to the 99th percentile of a MEP's latency, as quantiles "
        "are what a result has. " + "; ".join(shown) + ".",
    )


# What is not published of Run 3, and may be so: how the servers lie on the leaves (the file has 20 on each, so that the
# last is half full, and a shift that wraps does so amid a leaf); the size of messages; and how senders are kept apart:
# each by itself in the order of the linear shift, spaced or not, at random, or all in the same phase of the shift by
# their clocks, in slots 4 % longer than a message takes.
_RUN_3_SERVERS = 170
_LEAVES_OF_17 = {"topology.leaves": 10, "topology.hosts_per_leaf": 17, "topology.spines": 17}


def _run_3_building(
    name: str,
    message: str,
    ms: float,
    warm_up_ms: float,
    *,
    leaves: Mapping[str, Any] | None = None,
    **order: Any,
) -> Experiment:
    return event_building(
        name,
        "lhcb-run3",
        leaves,
        nodes=_RUN_3_SERVERS,
        message=message,
        ms=ms,
        warm_up_ms=warm_up_ms,
        **{"credits": 8, "sends": 8, **order},
    )


_BY_THE_CLOCK: dict[str, Any] = {
    "scheme": "push",
    "schedule": "barrel-time-slot",
    "credits": 2,
    "sends": 0,
    "more": {"protocol.slot_time": "176us", "protocol.heartbeat": "1ms"},  # with each, the clocks are compared
}
_SPACED: dict[str, Any] = {"scheme": "push", "sends": 0, "more": {"protocol.inter_send_gap": "2800ns"}}
_RUN_3 = {
    each.name: each
    for each in (
        _run_3_building("64 KiB", "64KiB", 4, 4),
        _run_3_building("128 KiB", "128KiB", 8, 8),
        _run_3_building("64 KiB at random", "64KiB", 4, 4, schedule="random", credits=16, sends=16),
        _run_3_building("64 KiB, 17 servers to a leaf", "64KiB", 4, 4, leaves=_LEAVES_OF_17),
        _run_3_building("64 KiB every 2.8 us, 17 to a leaf", "64KiB", 8, 8, leaves=_LEAVES_OF_17, **_SPACED),
        _run_3_building("4 MiB by the clock", "4MiB", 60, 35, **_BY_THE_CLOCK),
        _run_3_building("4 MiB by the clock, 17 to a leaf", "4MiB", 60, 35, leaves=_LEAVES_OF_17, **_BY_THE_CLOCK),
    )
}

# 1 MB events at 100 kHz over 64 readout units, on the two-tier tree at FDR's rate.
_CMS_UNITS = 64
_CMS = {
    requests: event_building(
        name,
        "edr-fat-tree-504",
        {"links.host.rate": "54.545Gb/s", "links.trunk.rate": "54.545Gb/s"},
        nodes=2 * _CMS_UNITS,
        message="64KiB",
        ms=6,
        warm_up_ms=6,
        credits=8,
        more={
            "run.roles": "split",
            "protocol.parallel_requests": requests,
            "source.trigger_rate": "100kHz",
            "source.fragment_size": str(1_000_000 // _CMS_UNITS),
            "source.policy": "throttle",
        },
    )
    for requests, name in ((4, "CMS"), (0, "CMS, all asked at once"))
}


def _demand(figures: Figures, _fabrics: Fabrics) -> Finding:
    links = {name: figures.per_node(name) for name in _DEMANDS}
    best = max(links, key=lambda name: links[name])
    total = figures.gbit(best, "goodput_without_self_bytes_per_s") / 1000
    otherwise = {run.name: figures.per_node(run.name) for run in _DEMANDS_OTHERWISE}
    outcomes = [links[best], *otherwise.values()]
    return Finding(
        links[best],
        OK if min(outcomes) >= 80 else RANGE if max(outcomes) >= 80 else OFF,
        None,
        None,
        (
            f"In all {total:.1f} Tb/s over {_HOSTS} hosts; 32 Tb/s over 1000 are 32 Gb/s each. "
            "Senders are not synchronised, so the message size decides: "
            + ", ".join(f"{name} {link:.1f}" for name, link in links.items())
            + " Gb/s. By what is unknown, 128 KiB, 8 sends: "
            + ", ".join(f"{name} {link:.1f}" for name, link in otherwise.items())
            + " Gb/s.",
        ),
    )


def _all_hosts(figures: Figures, _fabrics: Fabrics) -> Finding:
    total = figures.gbit(_ALL_STREAMS.name, "goodput_without_self_bytes_per_s") / 1000
    return Finding(
        total,
        OK if total >= 32 else OFF,
        None,
        None,
        (
            f"{figures.per_node(_ALL_STREAMS.name):.1f} Gb/s a host, on links of 100 Gb/s. One run, of one choice of "
            "settings: a builder unit asks 12 sources at a time, and nothing is varied.",
        ),
    )


def _run_3(figures: Figures, _fabrics: Fabrics) -> Finding:
    totals = {name: figures.gbit(name, "goodput_without_self_bytes_per_s") / 1000 for name in _RUN_3}
    low, high = min(totals.values()), max(totals.values())
    return Finding(
        [low, high],
        OK if low >= 32 else RANGE if high >= 32 else OFF,
        None,
        None,
        (
            "32 Tb/s are 188 of 200 Gb/s a server. Size of messages, order of sending, and how servers lie on leaves "
            "are not published: " + ", ".join(f"{name} {total:.1f}" for name, total in totals.items()) + " Tb/s.",
        ),
    )


def _cms(figures: Figures, _fabrics: Fabrics) -> Finding:
    total = figures.number("CMS", "goodput_without_self_bytes_per_s") / 1e9
    at_once = figures.number("CMS, all asked at once", "goodput_without_self_bytes_per_s") / 1e9
    return Finding(
        total,
        OK if total >= 99 else OFF,
        None,
        None,
        (
            f"{_CMS_UNITS} readout and as many builder units are assumed, and that a builder unit asks four sources at "
            f"a time. If it asks all at once, {at_once:.0f} GB/s are built: all send to one link, what waits for it "
            "fills the input memory of switches, and others stand behind it.",
        ),
    )


ROWS = [
    Row("17", "S3", "1000 streams, 32 Tb/s: mean of each 100 Gb/s link at least; Gb/s", 80.0, "requirement", _demand,
        [*_DEMANDS.values(), *_DEMANDS_OTHERWISE], unknowns=ETHERNET_1000,
        note="Leaf-spine of fabrics/ethernet-1000.toml, 100 of its hosts; pull, shift-aware; best of three settings."),
    Row("17b", "S3", "1000 streams, one on each of 1000 hosts: built; Tb/s", 32.0, "requirement", _all_hosts,
        [_ALL_STREAMS], note="fabrics/ethernet-1000.toml as it is; pull, messages of 16 KiB."),
    Row("27", "CBM data-flow scheduler, Cray XC40", "variance of arrival times down by a factor; bandwidth up by; %",
        [30.0, 50.0], "shape", _scheduled, [run for runs in _SENT.values() for run in runs], unknowns=SCHEDULED,
        note="64 nodes on a tree (fabrics/two-tiers-64.toml), push: each sends when it can, in linear shift, or all by "
        "the barrel shifter's clock."),
    Row("28", "LHCb Run 1 and 2", "350 sources to 1500 nodes, Gb Ethernet, credit token: above; Gb/s", 60.0,
        "requirement", _gigabit, _TOKENS, unknowns=GIGABIT,
        note="fabrics/lhcb-gbe.toml: the switches are assumed."),
    Row("29", "CMS Run 2", "FDR Clos, 100 kHz: built; GB/s", 100.0, "requirement", _cms, list(_CMS.values())),
    Row("30", "ESRF, FPGA RDMA", "100 Gb/s, messages above 1 KB and above 32 KB; Gb/s", [90.0, 95.0], "requirement",
        needs("model of that FPGA")),
    Row("31", "LHCb Run 3", "about 170 servers, 200 Gb/s: built; Tb/s", 32.0, "requirement", _run_3,
        list(_RUN_3.values()), unknowns=RUN_3, note="fabrics/lhcb-run3.toml, whose topology is assumed."),
]  # fmt: skip
