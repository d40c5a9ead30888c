"""The RapidIO cluster: J. Phys. Conf. Ser. 898 082007 [S1], before it RT2016 [S2], IDT's samples."""

import statistics
from collections.abc import Mapping
from typing import Any

from incast.bridges.iperf import PUBLISHED_CLIENTS
from incast.reproduce.bounds import PCIE_COMPLETIONS, PCIE_ROUND_TRIP_US, ROOT_MESSAGES, WRITE_COST
from incast.reproduce.model import (
    OFF,
    OK,
    RANGE,
    Experiment,
    Fabrics,
    Figures,
    Finding,
    Row,
    compare,
    error_of,
    event_building,
    needs,
    null_model,
    predict,
    raw_traffic,
    shape,
    statement,
    statements,
)

_FABRIC = "rapidio-16"
_TRANSMIT_GBIT = 13.4  # [S1], section 2.5
_STACK_GBIT = 11.0  # [S1]: "the transmit speed caps at 11Gb/s"
_RIOSOCKET_FRAME = 65500  # bytes: the largest MTU of the driver (github.com/RapidIO/riosocket)
# What the network stack adds to each frame, if it is work that nothing overlaps: frame / 11 - frame / 13.4.
_STACK_NS = round(_RIOSOCKET_FRAME * 8 * (1 / _STACK_GBIT - 1 / _TRANSMIT_GBIT))
_STACK = {"hosts.tsi721.message_cost": f"{_STACK_NS}ns"}
_MIB = 1 << 20


# --- what the adapter can do: row 1


def _receive(_figures: Figures, fabrics: Fabrics) -> Finding:
    return compare(null_model(fabrics, _FABRIC, "tsi721", 16.0), 14.8)


def _transmit(figures: Figures, _fabrics: Fabrics) -> Finding:
    return compare(
        figures.gbit("one pair"),
        _TRANSMIT_GBIT,
        "A model of it: the DMA engine reads host memory, and PCIe completions of 128 B with 20 to 24 B of overhead "
        f"give {_completions(128, 20):.2f} to {_completions(128, 24):.2f} Gb/s, of 64 B {_completions(64, 20):.1f} "
        "Gb/s. Which size the hosts used is not published.",
    )


def _completions(payload: int, overhead: int) -> float:
    """Payload rate of reads over PCIe 2.1 x4: 16 Gb/s behind 8b/10b, in completions of so many bytes."""
    return 16 * payload / (payload + overhead)


# --- iperf over riosocket: rows 2 to 4

_PAIRS = [
    raw_traffic(
        f"{pairs} pairs",
        _FABRIC,
        _STACK,
        pattern="pairs",
        nodes=2 * pairs,
        message=str(_RIOSOCKET_FRAME),
        outstanding=4,
        messages=200,
    )
    for pairs in range(1, 9)
]
# Clients take turns packet by packet, so their messages end together, one of each: a window has to hold many of these.
_LONG_MS = 100
_CLIENTS = [
    raw_traffic(
        f"{clients} clients",
        _FABRIC,
        _STACK,
        pattern="many-to-one",
        nodes=clients + 1,
        message=str(_RIOSOCKET_FRAME),
        outstanding=4,
        ms=_LONG_MS,
        warm_up_ms=5,
    )
    for clients in range(2, 16)
]
# Header and symbols of a packet: 20 B with ids of 8 bits and short symbols (row 1); with ids of 8 or 16 bits, addresses
# of 34 to 66 bits, short or long control symbols and padding they are 18 to 28 (RapidIO 2.1, parts 1, 3 and 6).
_HEADERS = {
    header: raw_traffic(
        f"8 clients, {header} of header",
        _FABRIC,
        {**_STACK, "hosts.tsi721.header": header},
        pattern="many-to-one",
        nodes=9,
        message=str(_RIOSOCKET_FRAME),
        outstanding=4,
        ms=_LONG_MS,
        warm_up_ms=5,
    )
    for header in ("18B", "28B")
}
_TABLE_1 = PUBLISHED_CLIENTS[1:]
_DIPS = (4, 8, 12, 13, 15)
_ONE_PAIR = raw_traffic("one pair", _FABRIC, pattern="one-to-one", nodes=2, message="1MiB", outstanding=4, messages=100)


def _pair_rate(figures: Figures, _fabrics: Fabrics) -> Finding:
    return compare(figures.gbit("1 pairs", "pair_mean_bytes_per_s"), 10.8)


IPERF_ROWS = ("2b", "3")


def iperf_gbit(figures: Mapping[str, Figures]) -> tuple[list[float], list[float]]:
    """Of the rows IPERF_ROWS: a pair's rate for 1 to 8 pairs, and that of all clients for 1 to 15 of them; Gb/s."""
    pairs = [figures["2b"].gbit(each.name, "pair_mean_bytes_per_s") for each in _PAIRS]
    return pairs, [pairs[0], *(figures["3"].gbit(each.name) for each in _CLIENTS)]


def _independence(figures: Figures, _fabrics: Fabrics) -> Finding:
    means = [figures.gbit(each.name, "pair_mean_bytes_per_s") for each in _PAIRS]
    spread = (max(means) - min(means)) / statistics.mean(means)
    return shape(
        [min(means), max(means)],
        [spread <= 0.01],
        f"Mean of a pair over 1 to 8 pairs: it differs by {100 * spread:.2f} %.",
    )


def _plateau(figures: Figures, fabrics: Fabrics) -> Finding:
    ours = [figures.gbit(each.name) for each in _CLIENTS]
    near = sum(error_of(one, other) <= 0.05 for one, other in zip(ours, _TABLE_1, strict=True))
    return compare(
        statistics.median(ours),
        statistics.median(_TABLE_1),
        f"{near} of 14 points are within 5 %. The receiver's link is full from two clients on, so the model says what "
        f"the formula for an idle network says ({null_model(fabrics, _FABRIC, 'tsi721', 16.0):.2f} Gb/s): the link's "
        "rate and the header, which are inputs. Unknown: the length of ids, addresses "
        "and symbols, so 18 to 28 B with each packet of 256 B ("
        + ", ".join(f"{header} {figures.gbit(each.name):.2f}" for header, each in _HEADERS.items())
        + " Gb/s), and what iperf was told.",
        f"The dips at {', '.join(map(str, _DIPS))} clients are unexplained and no parameter aims at them.",
    )


def _stack_cost(figures: Figures, _fabrics: Fabrics) -> Finding:
    ours = figures.gbit("one pair") - figures.gbit("one pair with stack")
    return compare(ours, 2.4, f"As {_STACK_NS} ns for each frame of {_RIOSOCKET_FRAME} B.")


# --- buffers by CM and by rDMA: row 6

# What a message costs its host, and its answer the other: unpublished, for CM through system calls and interrupts.
_MESSAGE_COSTS = ("2us", "10us", "30us")
_CM_BYTES, _BUFFER_BYTES = 4096, 2_000_000  # [S2]: buffers of at most 2 MB
_FAR_BELOW = 4  # half of the published ratio


def _one_at_a_time(name: str, size: int, cost: str) -> Experiment:
    return raw_traffic(
        name,
        _FABRIC,
        {"hosts.tsi721.message_cost": cost},
        pattern="one-to-one",
        nodes=2,
        message=str(size),
        outstanding=1,
        ms=30,
        warm_up_ms=5,
    )


_CM_RUNS = {cost: _one_at_a_time(f"CM at {cost}", _CM_BYTES, cost) for cost in _MESSAGE_COSTS}
_RDMA_RUNS = {cost: _one_at_a_time(f"rDMA at {cost}", _BUFFER_BYTES, cost) for cost in _MESSAGE_COSTS}


def _channels(figures: Figures, _fabrics: Fabrics) -> Finding:
    rates = {
        cost: (figures.gbit(_CM_RUNS[cost].name) * 125, figures.gbit(_RDMA_RUNS[cost].name) * 125)
        for cost in _MESSAGE_COSTS
    }
    least, most = (pick(rdma for _, rdma in rates.values()) for pick in (min, max))
    return statement(
        "; ".join(f"at {cost} {cm:.0f} and {rdma:.0f}" for cost, (cm, rdma) in rates.items()),
        {
            f"CM under 1 : {_FAR_BELOW} of rDMA at every cost": all(
                rdma > _FAR_BELOW * cm for cm, rdma in rates.values()
            ),
            f"the published 1000 MB/s by rDMA within {least:.0f} ... {most:.0f}": least <= 1000 <= most,
        },
        "Messages of 4 KiB and buffers of 2 MB, each acknowledged before the next goes, by what each of them and each "
        "answer costs a host. The published ratio, 8.3, is that of some 9 us, the "
        "published 120 MB/s those of some 16; both rates are ROOT's, whose own work is not in the model. The same over "
        "SoftRIO: bench/rio_comparisons.py.",
    )


# --- DAQPIPE between two nodes: row 7

_FITTED_NS = round(2 * _MIB * 8 * (1 / 10 - 1 / _TRANSMIT_GBIT))  # 426 us
_WRITE_COST = {"hosts.tsi721.message_cost": f"{_FITTED_NS}ns"}
_SIZE_FOR_12 = round(_FITTED_NS / 8 / (1 / 12 - 1 / _TRANSMIT_GBIT))
_SIZES = {
    f"{size / _MIB:.3g} MiB": (size, count)
    for size, count in (
        (_MIB // 4, 40), (_MIB, 40), (2 * _MIB, 30), (4 * _MIB, 15), (_SIZE_FOR_12, 10), (16 * _MIB, 5), (64 * _MIB, 2),
    )
}  # fmt: skip
_WRITES = [
    raw_traffic(
        name,
        _FABRIC,
        _WRITE_COST,
        pattern="one-to-one",
        nodes=2,
        message=str(size),
        outstanding=2,
        messages=count,
    )
    for name, (size, count) in _SIZES.items()
]


def _fitted_write(figures: Figures, _fabrics: Fabrics) -> Finding:
    return compare(figures.gbit("2 MiB"), 10.0, f"Fitted: {_FITTED_NS / 1000:.0f} us for each write.")


def _larger_writes(figures: Figures, _fabrics: Fabrics) -> Finding:
    rates = [figures.gbit(name) for name in _SIZES]
    at_size = f"{_SIZE_FOR_12 / _MIB:.3g} MiB"
    return statement(
        f"{figures.gbit(at_size):.2f} Gb/s at {at_size}, {rates[-1]:.2f} Gb/s at 64 MiB",
        {
            "it rises with the size": rates == sorted(rates),
            "it stays below 13.4 Gb/s": rates[-1] < _TRANSMIT_GBIT,
            f"12 Gb/s within 5 % at {at_size}": error_of(figures.gbit(at_size), 12.0) < 0.05,
        },
        "By size of a write: " + ", ".join(f"{name} {figures.gbit(name):.2f}" for name in _SIZES) + " Gb/s. With the "
        f"fitted cost 12 Gb/s are reached at {at_size}, and never 13.4.",
    )


# --- DAQPIPE on more nodes: rows 8 and 32

# [S2]: libraries allowed 8 buffers of 2 MB. One buffer for all slots of a builder unit, or one for each fragment.
_LIMITS = {"protocol.max_buffer_size": "2MB", "protocol.max_buffers": 8, "protocol.quarantine_slots": 0}
_SLOTS = {"contiguous": 1, "segmented": 2}
_FRAGMENTS = {"contiguous": ("128KiB", "256KiB", "448KiB"), "segmented": ("256KiB", "448KiB", "896KiB", "1792KiB")}
_KIB_OF = {"128KiB": 128, "256KiB": 256, "448KiB": 448, "896KiB": 896, "1792KiB": 1792, "2MiB": 2048}
_COSTS = WRITE_COST[0].values


def _daqpipe(
    name: str,
    nodes: int,
    size: str,
    *,
    cost: str,
    slots: int,
    rounds: int,
    more: Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
) -> Experiment:
    """Every node reads out and builds, and asks the others in turn."""
    round_ms = nodes * _KIB_OF[size] * 1024 * 8 / 10e6  # at 10 Gb/s
    return event_building(
        name,
        _FABRIC,
        {"hosts.tsi721.message_cost": cost, **(changes or {})},
        nodes=nodes,
        message=size,
        ms=rounds * round_ms + 20,
        warm_up_ms=2 * round_ms + 10,
        credits=slots,
        schedule="sequential",
        more=more,
    )


_SEGMENTS = {
    (nodes, layout, size, cost): _daqpipe(
        f"{nodes} nodes, {layout}, {size}, {cost}",
        nodes,
        size,
        cost=cost,
        slots=_SLOTS[layout],
        rounds=8,
        more={"protocol.layout": layout, **_LIMITS},
    )
    for nodes in (3, 4)
    for layout, sizes in _FRAGMENTS.items()
    for size in sizes
    for cost in _COSTS
}


def _segments(figures: Figures, _fabrics: Fabrics) -> Finding:
    rates = {key: figures.per_node(run.name) for key, run in _SEGMENTS.items()}

    def best(nodes: int, layout: str, cost: str) -> float:
        return max(rates[nodes, layout, size, cost] for size in _FRAGMENTS[layout])

    holds: dict[str, dict[str, bool]] = {}
    for cost in _COSTS:
        holds[cost] = {}
        for nodes in (3, 4):
            *_, before, last = (rates[nodes, "segmented", size, cost] for size in _FRAGMENTS["segmented"])
            holds[cost][f"{nodes} nodes: segmented still rises at the largest fragment"] = last > 1.02 * before
            above = best(nodes, "segmented", cost) > best(nodes, "contiguous", cost)
            holds[cost][f"{nodes} nodes: segmented above contiguous at equal limits"] = above
    return statements(
        "; ".join(
            f"{nodes} nodes, {layout} {best(nodes, layout, _COSTS[0]):.1f} ... {best(nodes, layout, _COSTS[-1]):.1f}"
            for nodes in (3, 4)
            for layout in _FRAGMENTS
        ),
        holds,
        "Limits of [S2]: 8 buffers of 2 MB. Contiguous, one of them holds a slot of all fragments, at most 448 KiB "
        "here; segmented, each fragment of two slots has one. Gb/s a node by size of fragment: "
        + "; ".join(
            f"{nodes} nodes, {layout}, {cost} "
            + ", ".join(f"{size} {rates[nodes, layout, size, cost]:.1f}" for size in _FRAGMENTS[layout])
            for nodes in (3, 4)
            for layout in _FRAGMENTS
            for cost in _COSTS
        )
        + ".",
    )


def _quads(trunks: int) -> dict[str, Any]:
    """Four nodes to a switch, as in a chassis of [S1], and so many trunks of each of the four switches."""
    return {
        "topology": {
            "kind": "leaf-spine",
            "leaves": 4,
            "hosts_per_leaf": 4,
            "spines": trunks,
            "host": "tsi721",
            "leaf": "tor",
            "spine": "tor",
            "host_link": "x4",
            "uplink": "x4",
        }
    }


_PROVISIONS = {"one switch": None, "4 trunks": _quads(4), "2 trunks": _quads(2), "1 trunk": _quads(1)}
_SIXTEEN = {
    (name, nodes, cost): _daqpipe(
        f"{name}, {nodes} nodes, {cost}", nodes, "2MiB", cost=cost, slots=2, rounds=2, more={}, changes=changes
    )
    for name, changes in _PROVISIONS.items()
    for nodes in ((2, 4, 8, 16) if changes is None else (16,))
    for cost in _COSTS
}


def _sixteen(figures: Figures, _fabrics: Fabrics) -> Finding:
    rates = {key: figures.per_node(run.name) for key, run in _SIXTEEN.items()}
    on_one = [rates["one switch", 16, cost] for cost in _COSTS]
    return Finding(
        [min(on_one), max(on_one)],
        OK if min(on_one) > 12 else RANGE if max(on_one) > 12 else OFF,
        None,
        None,
        (
            "The authors expect more from all-to-all than from a pair, and leave switch provisioning and load to be "
            "studied. Gb/s a node: "
            + "; ".join(f"{name}, {nodes} nodes, {cost} {rate:.2f}" for (name, nodes, cost), rate in rates.items())
            + ". Trunks: four nodes to a switch, and so many x4 links from each of four switches.",
        ),
    )


# --- IDT's goodput tool: rows 23 and 24

_GOODPUT = {"16 KiB": ("16KiB", 2000), "4 MiB": ("4MiB", 20)}
_COMPLETIONS = {"64 B": _completions(64, 20), "128 B": _completions(128, 20)}


def _goodput(name: str, limit_gbit: float | None) -> list[Experiment]:
    changes = {} if limit_gbit is None else {"hosts.tsi721.transmit_limit": f"{limit_gbit:.3f}Gb/s"}
    return [
        raw_traffic(
            f"{size}{name}",
            _FABRIC,
            changes,
            pattern="one-to-one",
            nodes=2,
            message=text,
            outstanding=16,
            messages=count,
        )
        for size, (text, count) in _GOODPUT.items()
    ]


_GOODPUT_RUNS = _goodput("", None) + [
    each for name, limit in _COMPLETIONS.items() for each in _goodput(f", completions of {name}", limit)
]


def _dma_write(figures: Figures, fabrics: Fabrics) -> Finding:
    published = {"16 KiB": 12.38, "4 MiB": 12.77}
    null = null_model(fabrics, _FABRIC, "tsi721", 16.0)
    found = {
        size: predict(
            figures.gbit(size), value, null, [figures.gbit(f"{size}, completions of {name}") for name in _COMPLETIONS]
        )
        for size, value in published.items()
    }
    states = [each.status for each in found.values()]
    status = next((one for one in ("off", "range") if one in states), "ok")
    return Finding(
        [figures.gbit(size) for size in found],
        status,
        max(each.relative_error or 0 for each in found.values()),
        min(each.null_model_error or 0 for each in found.values()),
        (
            "With the 13.4 Gb/s of [S1]. The hosts of that sample are unnamed; over the sizes of PCIe completions "
            "(64 and 128 B) "
            + "; ".join(f"{size}: {' '.join(each.remarks).split(': ')[-1]}" for size, each in found.items()),
        ),
    )


_LOADS = {
    size: raw_traffic(
        f"load of {size} B",
        _FABRIC,
        pattern="one-to-one",
        nodes=2,
        message=size,
        outstanding=1,
        messages=1000,
        measure="latency",
        operation="read",
    )
    for size in ("4", "8")
}


def _window_read(figures: Figures, _fabrics: Fabrics) -> Finding:
    """A processor reads a few bytes of another host: a request and its answer over a switch, and PCIe at both ends."""
    network = [figures.number(run.name, "round_trip_p50_ns") / 1000 for run in _LOADS.values()]
    low, high = (2 * each + max(network) for each in PCIE_ROUND_TRIP_US)
    return Finding(
        max(network),
        OK if max(network) <= 1.86 else OFF,
        None,
        None,
        (
            "Links and switch alone, for a load of 8 B. A load also crosses PCIe twice, at the reader's and at the "
            f"owner's host; with {PCIE_ROUND_TRIP_US[0]} to {PCIE_ROUND_TRIP_US[1]} us a round trip (bounds.py) it "
            f"takes {low:.2f} to {high:.2f} us, so the network is a small part of what was published.",
        ),
    )


ROWS = [
    Row("1a", "S1 2.5", "Tsi721, x4, 5 Gbaud, 8b/10b: receive maximum; Gb/s", 14.8, "arithmetic", _receive,
        note="16 Gb/s x 256 / (256 + 20): payload and what goes with it (headers 10, CRC 2 + 2, pad 2, symbol 4)."),
    Row("1b", "S1 2.5", "the same: transmit maximum; Gb/s", _TRANSMIT_GBIT, "input", _transmit, [_ONE_PAIR]),
    Row("2a", "S1 table 2", "riosocket, iperf, one pair; Gb/s", 10.8, "input", _pair_rate, _PAIRS[:1],
        note="The stack's cost is an input (row 4)."),
    Row("2b", "S1 table 2", "riosocket, iperf, k = 1..8 disjoint pairs of 16 nodes: every pair, whatever k; Gb/s",
        [10.7, 11.0], "shape", _independence, _PAIRS, nothing_unknown="Pairs share no link.",
        note="Independent of the number of pairs within 1 %."),
    Row("3", "S1 table 1", "riosocket, iperf, n to one, n = 2..15: median of the 14 points; Gb/s",
        statistics.median(_TABLE_1), "input", _plateau, [*_CLIENTS, *_HEADERS.values()]),
    Row("4", "S1 2.5", "riosocket, stack cost: 13.4 - 11; Gb/s", 2.4, "input", _stack_cost,
        [_ONE_PAIR,
         raw_traffic("one pair with stack", _FABRIC, _STACK, pattern="one-to-one", nodes=2,
                     message=str(_RIOSOCKET_FRAME), outstanding=4, messages=200)]),
    Row("6", "S2", "ROOT, n clients to one, stop-and-wait acknowledgements by CM: CM and rDMA; MB/s", [120, 1000],
        "shape", _channels, [*_CM_RUNS.values(), *_RDMA_RUNS.values()], unknowns=ROOT_MESSAGES,
        note="CM far below rDMA, about 1 : 8."),
    Row("7a", "S1 5.2", "DAQPIPE, two nodes, buffers of 2 MB; Gb/s", 10.0, "fitted", _fitted_write,
        [each for each in _WRITES if each.name == "2 MiB"]),
    Row("7b", "S1 5.2", "DAQPIPE, two nodes, larger buffers: up to; Gb/s", 12.0, "shape", _larger_writes, _WRITES,
        nothing_unknown="The cost of a write is fitted in row 7a.",
        note="Rises with the size to 12 Gb/s and stays below 13.4."),
    Row("8", "S2 figure 6", "DAQPIPE, 3 and 4 nodes, 8 buffers of 2 MB: at the largest fragment, segmented", "rising",
        "shape", _segments, list(_SEGMENTS.values()), unknowns=WRITE_COST, note="Values stand only in the image."),
    Row("23", "IDT goodput, sample output", "multi-thread DMA write, 16 KB and 4 MB; Gb/s", [12.38, 12.77],
        "predicted", _dma_write, _GOODPUT_RUNS, unknowns=PCIE_COMPLETIONS),
    Row("24", "IDT goodput, sample output", "read through an outbound window, mean; us", 1.86, "bound", _window_read,
        list(_LOADS.values())),
    Row("25", "riosocket", "vendor's iperf, above; Gb/s", 14.0, "requirement", needs("riosocket")),
    Row("26", "S-RIO flow control study (2011)", "link use, flow control by transmitter and by receiver; %",
        [95.0, 50.0], "requirement", needs("the study's traffic: only its abstract is at hand"),
        note="Both kinds of flow control are in the model (packet-model.md, links that repeat). Sixteen nodes that all "
        "send to all, or to one, use their links alike with either, so what is published hangs on traffic or memory "
        "that is not."),
    Row("32", "S1 5.2, 6", "DAQPIPE, 16 nodes, all to all: above what two nodes reach; Gb/s", 12.0, "requirement",
        _sixteen, list(_SIXTEEN.values()), unknowns=WRITE_COST,
        note="An outlook of the paper, not a result."),
]  # fmt: skip
