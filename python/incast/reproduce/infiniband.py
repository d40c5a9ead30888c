"""InfiniBand: J. Phys. Conf. Ser. 331 022008 [S5], and the EDR reference of EPJ Web Conf. 245 01011 [S3]."""

from incast.base.published import PRINTED
from incast.reproduce.bounds import EDR, QDR_READS
from incast.reproduce.model import (
    OFF,
    OK,
    RANGE,
    Experiment,
    Fabrics,
    Figures,
    Finding,
    Judge,
    Row,
    compare,
    error_of,
    event_building,
    null_model,
    predict,
    raw_traffic,
)

_QDR, _EDR = "ib-qdr-8", "ib-edr-36"
_MB = 1e6

# --- data rates: row 22

# Lanes x signalling rate (Gbaud) x line code (IBTA volume 2; SDR to QDR 8b/10b, then 64b/66b).
_RATES = {
    "SDR": 4 * 2.5 * 8 / 10,
    "DDR": 4 * 5.0 * 8 / 10,
    "QDR": 4 * 10.0 * 8 / 10,
    "FDR": 4 * 14.0625 * 64 / 66,
    "EDR": 4 * 25.78125 * 64 / 66,
}
_TABLE_1 = [8.0, 16.0, 32.0, 56.0, 100.0]


def _data_rates(_figures: Figures, _fabrics: Fabrics) -> Finding:
    ours = list(_RATES.values())
    worst = max(error_of(one, other) for one, other in zip(ours, _TABLE_1, strict=True))
    return Finding(
        ours,
        OK if worst <= 0.05 else OFF,
        worst,
        None,
        ("56 is FDR's rate before the line code (4 x 14.0625 = 56.25); all others are rates behind it.",),
    )


# --- the QDR test bench: rows 18 to 21

_WRITE = raw_traffic("write", _QDR, pattern="one-to-one", nodes=2, message="64KiB", outstanding=16, messages=2000)
_TRIPS = {
    operation: raw_traffic(
        f"latency of a {operation}",
        _QDR,
        pattern="one-to-one",
        nodes=2,
        message="2",
        outstanding=1,
        messages=1000,
        measure="latency",
        operation=operation,
    )
    for operation in PRINTED
}
_READ_SIZES, _OUTSTANDING = ("16KiB", "64KiB", "256KiB"), (1, 2, 4, 16)


def _reads(size: str, outstanding: int) -> Experiment:
    return event_building(
        f"reads of {size}, {outstanding} outstanding",
        _QDR,
        {"hosts.hca.outstanding_reads": outstanding},
        nodes=2,
        message=size,
        ms=10,
        warm_up_ms=2,
        scheme="pull-read",
        credits=32,
        more={"run.roles": "split"},
    )


_READS = [_reads(size, outstanding) for size in _READ_SIZES for outstanding in _OUTSTANDING]


def _write(figures: Figures, _fabrics: Fabrics) -> Finding:
    return compare(figures.number("write", "throughput_bytes_per_s") / _MB, 2581.0, "The peak, 2589, is the input.")


def _read(figures: Figures, _fabrics: Fabrics) -> Finding:
    rates = {each.name: figures.number(each.name, "goodput_without_self_bytes_per_s") / _MB for each in _READS}
    low, high = min(rates.values()), max(rates.values())
    inside = low <= 2081 <= high
    return Finding(
        [low, high],
        RANGE if inside else OK if high >= 2081 else OFF,
        None,
        None,
        (
            "Below the write's rate wherever requests wait for their turn. How many reads the adapter has outstanding, "
            "and of which size they were, is not published: "
            + ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
            + " MB/s.",
        ),
    )


def _latency(operation: str) -> Judge:
    """What the network alone takes, of what was published: half a round trip of a write, the whole of a read."""

    def judge(figures: Figures, _fabrics: Fabrics) -> Finding:
        halves = {each: 2 if each == "write" else 1 for each in PRINTED}
        ours = {
            each: [figures.number(run.name, f"round_trip_{key}_ns") / halves[each] / 1000 for key in ("min", "p50")]
            for each, run in _TRIPS.items()
        }
        ratio, published = ours["read"][1] / ours["write"][1], PRINTED["read"][3] / PRINTED["write"][3]
        least, typical = PRINTED[operation][2:4]
        return Finding(
            ours[operation],
            OK if ours[operation][0] <= least and ours[operation][1] <= typical else OFF,
            None,
            None,
            (
                "Links and switch alone; what is beyond that is adapters, PCIe and software, of which the model has "
                "nothing, so it says nothing of the most either.",
                f"A typical read takes {ratio:.2f} times half a round trip of writes; published {published:.2f}.",
            ),
        )

    return judge


_PUSH = event_building("push", _QDR, nodes=8, message="100000", ms=10, warm_up_ms=3, scheme="push")
_LARGE = event_building("large", _QDR, nodes=8, message="1MiB", ms=60, warm_up_ms=20, scheme="push")


def _datagrams(figures: Figures, _fabrics: Fabrics) -> Finding:
    total = figures.number("push", "goodput_without_self_bytes_per_s") / 1e9
    return Finding(
        total,
        OK if total >= 3.0 else OFF,
        None,
        None,
        ("The network allows this much, so 3 GB/s are what the software made of it (IPoIB, one core per node).",),
    )


def _verbs(figures: Figures, _fabrics: Fabrics) -> Finding:
    total = figures.number("large", "goodput_without_self_bytes_per_s") / 1e9
    return Finding(
        [total / 8, total],
        OK if total >= 8.0 else OFF,
        None,
        None,
        ("The network allows this much; [S5] saw one core per node busy, so it was not the network that limited.",),
    )


# --- the EDR reference: row 10


def _tuned(size: str, sends: int, memory: str, scheme: str = "pull") -> Experiment:
    return event_building(
        f"{size}, {sends} sends, {memory}" + (", push" if scheme == "push" else ""),
        _EDR,
        {"switches.edr.input_buffer": memory},
        nodes=36,
        message=size,
        sends=sends,
        ms=15 * _SIZES[size],
        warm_up_ms=4 * _SIZES[size],
        scheme=scheme,
    )


_SIZES = {"128KiB": 1, "256KiB": 2}
_MEMORY = "64KiB"  # fabrics/ib-edr-36.toml; assumed
_TUNED = [_tuned(size, sends, _MEMORY) for size in _SIZES for sends in (4, 8, 16)]
_MEMORIES = [_tuned("128KiB", sends, memory) for memory in ("32KiB", "128KiB", "512KiB") for sends in (8, 16)]
_MEMORIES += [_tuned("256KiB", sends, memory) for memory in ("128KiB", "512KiB") for sends in (8, 16)]
_MEMORIES += [_tuned("256KiB", 8, memory, "push") for memory in (_MEMORY, "512KiB")]


def _reference(figures: Figures, fabrics: Fabrics) -> Finding:
    rates = {run.name: figures.per_node(run.name) for run in (*_TUNED, *_MEMORIES)}
    best = max((run.name for run in _TUNED), key=lambda name: rates[name])
    # Message and sends are tuned, so of each thing that is unknown the best of them counts.
    tuned: dict[str, float] = {}
    for name, rate in rates.items():
        unknown = name.partition(" sends, ")[2]
        tuned[unknown] = max(rate, tuned.get(unknown, 0.0))
    return predict(
        rates[best],
        95.1,
        null_model(fabrics, _EDR, "hca", 100.0),
        list(tuned.values()),
        f"Best of the scan (message, sends, input memory of the switch): {best}. All: "
        + "; ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
        + " Gb/s.",
        "What is unknown: input memory and arbitration of the switch, and whether the nodes pushed or pulled, and in "
        "which order.",
    )


ROWS = [
    Row("10", "S3 figure 2", "MSB7700, EDR, all 36 ports, event building, tuned, 3 h: mean of producers; Gb/s", 95.1,
        "predicted", _reference, [*_TUNED, *_MEMORIES], unknowns=EDR,
        note="Milliseconds of virtual time, without what a node keeps for itself. The minimum over hours (94.7) is "
        "outside the model: its cause is not published."),
    Row("18", "S5 table 2", "QDR, verbs, RDMA read: mean; MB/s", 2081.0, "bound", _read, _READS,
        unknowns=QDR_READS),
    Row("18b", "S5 table 2", "the same: latency, least and typical, 2 B; us", list(PRINTED["read"][2:4]), "bound",
        _latency("read"), list(_TRIPS.values())),
    Row("19", "S5 table 2", "QDR, verbs, RDMA write: mean; MB/s", 2581.0, "input", _write, [_WRITE],
        note="MB of 10^6 bytes. perftest, whose columns table 2 has, divides by 2^20, which would be 4.9 % more."),
    Row("19b", "S5 table 2", "the same: latency, least and typical, 2 B; us", list(PRINTED["write"][2:4]), "bound",
        _latency("write"), list(_TRIPS.values())),
    Row("20", "S5 figure 2", "8 nodes, QDR, IPoIB datagrams, push, 100 kB: total hardly reaches; GB/s", 3.0, "bound",
        _datagrams, [_PUSH]),
    Row("21", "S5 figure 3", "8 nodes, QDR, CBM's verbs event building, large buffers: above, per node and in total; "
        "GB/s", [1.0, 8.0], "bound", _verbs, [_LARGE]),
    Row("22", "S5 table 1", "InfiniBand data rates, 4X: SDR, DDR, QDR, FDR, EDR; Gb/s", _TABLE_1, "arithmetic",
        _data_rates),
]  # fmt: skip
