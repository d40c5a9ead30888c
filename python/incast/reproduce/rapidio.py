"""The RapidIO cluster: J. Phys. Conf. Ser. 898 082007 [S1], before it RT2016 [S2], RIOZMQ [S4], IDT's samples."""

import statistics

from incast.reproduce.model import (
    Experiment,
    Fabrics,
    Figures,
    Finding,
    Row,
    compare,
    error_of,
    needs,
    null_model,
    predict,
    raw_traffic,
    shape,
    statement,
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
_TABLE_1 = [14.47, 14.47, 13.27, 14.81, 14.85, 14.70, 12.89, 14.95, 14.91, 14.95, 13.08, 13.85, 14.43, 13.40]
_DIPS = (4, 8, 12, 13, 15)
_ONE_PAIR = raw_traffic("one pair", _FABRIC, pattern="one-to-one", nodes=2, message="1MiB", outstanding=4, messages=100)


def _pair_rate(figures: Figures, _fabrics: Fabrics) -> Finding:
    return compare(figures.gbit("1 pairs", "pair_mean_bytes_per_s"), 10.8)


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


# --- IDT's goodput tool: row 23

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


ROWS = [
    Row("1a", "S1 2.5", "Tsi721, x4, 5 Gbaud, 8b/10b: receive maximum; Gb/s", 14.8, "arithmetic", _receive,
        note="16 Gb/s x 256 / (256 + 20): payload and what goes with it (headers 10, CRC 2 + 2, pad 2, symbol 4)."),
    Row("1b", "S1 2.5", "the same: transmit maximum; Gb/s", _TRANSMIT_GBIT, "input", _transmit, [_ONE_PAIR]),
    Row("2a", "S1 table 2", "riosocket, iperf, one pair; Gb/s", 10.8, "input", _pair_rate, _PAIRS[:1],
        note="The stack's cost is an input (row 4)."),
    Row("2b", "S1 table 2", "riosocket, iperf, k = 1..8 disjoint pairs of 16 nodes: every pair, whatever k; Gb/s",
        [10.7, 11.0], "shape", _independence, _PAIRS, note="Independent of the number of pairs within 1 %."),
    Row("3", "S1 table 1", "riosocket, iperf, n to one, n = 2..15: median of the 14 points; Gb/s",
        statistics.median(_TABLE_1), "input", _plateau, [*_CLIENTS, *_HEADERS.values()]),
    Row("4", "S1 2.5", "riosocket, stack cost: 13.4 - 11; Gb/s", 2.4, "input", _stack_cost,
        [_ONE_PAIR,
         raw_traffic("one pair with stack", _FABRIC, _STACK, pattern="one-to-one", nodes=2,
                     message=str(_RIOSOCKET_FRAME), outstanding=4, messages=200)]),
    Row("5", "S1 figure 5", "ROOT, one pair, rDMA circular buffer, memory polling: best; Gb/s", 8.5, "shape",
        needs("ROOT bridge"), note="Below iperf; best for tens of MB; polling costs."),
    Row("6", "S2", "ROOT, n clients to one, stop-and-wait acknowledgements by CM: CM and rDMA; MB/s", [120, 1000],
        "shape", _channels, [*_CM_RUNS.values(), *_RDMA_RUNS.values()], note="CM far below rDMA, about 1 : 8."),
    Row("7a", "S1 5.2", "DAQPIPE, two nodes, buffers of 2 MB; Gb/s", 10.0, "fitted", _fitted_write,
        [each for each in _WRITES if each.name == "2 MiB"]),
    Row("7b", "S1 5.2", "DAQPIPE, two nodes, larger buffers: up to; Gb/s", 12.0, "shape", _larger_writes, _WRITES,
        note="Rises with the size to 12 Gb/s and stays below 13.4."),
    Row("8", "S2 figure 6", "DAQPIPE, 3 and 4 nodes, multi-segment: still rising; values only in the image", None,
        "requirement", needs("published values")),
    Row("9", "S4", "ZeroMQ round trip, 2 nodes, slot 4 K: RIOZMQ faster than TCP for small messages; %", 65.0, "shape",
        needs("ZeroMQ bridge")),
    Row("23", "IDT goodput, sample output", "multi-thread DMA write, 16 KB and 4 MB; Gb/s", [12.38, 12.77],
        "predicted", _dma_write, _GOODPUT_RUNS),
    Row("24", "IDT goodput, sample output", "read through an outbound window, mean; us", 1.86, "requirement",
        needs("programmed I/O of hosts")),
    Row("25", "riosocket", "vendor's iperf, above; Gb/s", 14.0, "requirement", needs("riosocket")),
    Row("26", "S-RIO flow control study (2011)", "link use, flow control by transmitter and by receiver; %",
        [95.0, 50.0], "requirement", needs("the study's traffic: only its abstract is at hand"),
        note="Both kinds of flow control are in the model (packet-model.md, links that repeat). Sixteen nodes that all "
        "send to all, or to one, use their links alike with either, so what is published hangs on traffic or memory "
        "that is not."),
]  # fmt: skip
