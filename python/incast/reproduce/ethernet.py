"""RoCE v2 on Ethernet: EPJ Web Conf. 245 01011 [S3]."""

from collections.abc import Mapping
from typing import Any

from incast.reproduce.bounds import SHALLOW_CARVING, SHALLOW_MARKS
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
    null_model,
    raw_traffic,
    shape,
)

_SHALLOW, _PAIR = "qfx5200-8x100-30x25", "qfx-pfc-pair"

# --- 100 into 25 Gb/s: row 16

_ECN_OFF = {"switches.qfx5200.ecn.classes": [], "flow.dcqcn": False}
_ECN_SETTINGS = [
    {"switches.qfx5200.ecn.kmin": kmin, "switches.qfx5200.ecn.kmax": kmax, "switches.qfx5200.ecn.pmax": pmax}
    for kmin, kmax, pmax in (
        ("100KiB", "400KiB", 0.2), ("20KiB", "100KiB", 0.2), ("20KiB", "400KiB", 0.01), ("5KiB", "200KiB", 0.01),
        ("200KiB", "400KiB", 1.0),
    )
]  # fmt: skip
_SMALL_GAIN = 0.2
_CARVINGS = [
    {"switches.qfx5200.buffer": buffer, "switches.qfx5200.alpha_egress": alpha, "flow.retransmit_timeout": timeout}
    for buffer, alpha, timeout in (
        ("16MiB", "1", "4ms"), ("16MiB", "1", "16ms"), ("12MiB", "1/2", "4ms"), ("8MiB", "4", "1ms"),
    )
]  # fmt: skip
_GAIN_SIZES, _CARVING_SIZES = ("64KiB", "256KiB", "1MiB"), ("64KiB", "256KiB", "512KiB", "1MiB")
# The study's benchmark is not described: every producer may send to all consumers all the time, or all of them to one
# consumer after the other, as event building does.
_TRAFFIC = ("streams", "bursts")


def _fan_out(traffic: str, name: str, size: str, changes: Mapping[str, Any]) -> Experiment:
    full_name = f"{traffic}, {name}, {size}"
    if traffic == "streams":
        return raw_traffic(
            full_name,
            _SHALLOW,
            changes,
            pattern="bipartite",
            nodes=38,
            message=size,
            outstanding=2,
            ms=20,
            warm_up_ms=5,
            producers=8,
            consumers=30,
        )
    return event_building(
        full_name,
        _SHALLOW,
        changes,
        nodes=38,
        message=size,
        ms=20,
        warm_up_ms=5,
        credits=2,
        scheme="push",
        more={"run.roles": "split", "run.readout_units": 8, "run.builder_units": 30},
    )


def _consumer_rate(figures: Figures, traffic: str, name: str, size: str) -> float:
    column = "throughput_bytes_per_s" if traffic == "streams" else "goodput_without_self_bytes_per_s"
    return figures.gbit(f"{traffic}, {name}, {size}", column) / 30


_GAIN_RUNS = [
    _fan_out(traffic, name, size, changes)
    for traffic in _TRAFFIC
    for size in _GAIN_SIZES
    for name, changes in [("off", _ECN_OFF), *((f"ECN {number}", each) for number, each in enumerate(_ECN_SETTINGS))]
]
_SAMPLES = {
    (traffic, f"{'/'.join(map(str, carving.values()))}, {ecn}"): carving | more
    for traffic in _TRAFFIC
    for carving in _CARVINGS
    for ecn, more in (("ECN", dict[str, Any]()), ("without", _ECN_OFF))
}
_CARVING_RUNS = [
    _fan_out(traffic, name, size, changes) for (traffic, name), changes in _SAMPLES.items() for size in _CARVING_SIZES
]


def _ecn_gain(figures: Figures, _fabrics: Fabrics) -> Finding:
    gains: dict[str, float] = {}
    without: list[str] = []
    for traffic in _TRAFFIC:
        for size in _GAIN_SIZES:
            off = _consumer_rate(figures, traffic, "off", size)
            best = max(_consumer_rate(figures, traffic, f"ECN {each}", size) for each in range(len(_ECN_SETTINGS)))
            gains[f"{traffic} {size}"] = best / off - 1
            without.append(f"{traffic} {size} {off:.1f}")
    return shape(
        "; ".join(f"{name} {100 * gain:+.0f} %" for name, gain in gains.items()),
        [gain <= _SMALL_GAIN for gain in gains.values()],
        f"Best of {len(_ECN_SETTINGS)} settings of Kmin, Kmax and Pmax; small: at most {100 * _SMALL_GAIN:.0f} %. "
        f"Without ECN: {', '.join(without)} Gb/s.",
        "Streams: every producer sends to all consumers all the time. Bursts: event building, all producers to one "
        "consumer after the other. Which of them the study's benchmark is nearer to, and how its adapters reacted to "
        "marks, is not published.",
    )


def _sizes(figures: Figures, _fabrics: Fabrics) -> Finding:
    holds, remarks = [], []
    for traffic, name in _SAMPLES:
        rates = [_consumer_rate(figures, traffic, name, size) for size in _CARVING_SIZES]
        small, large = rates[:2], rates[2:]
        holds.append(max(small) > 15 and max(large) <= 15)
        remarks.append(f"{traffic} {name}: " + " ".join(f"{rate:.1f}" for rate in rates))
    share = sum(holds) / len(holds)
    return Finding(
        f"in {sum(holds)} of {len(holds)} samples",
        OK if share >= 0.8 else RANGE if share > 0 else OFF,
        None,
        None,
        (f"Gb/s per consumer at {', '.join(_CARVING_SIZES)}, by buffer/alpha/time-out:", "; ".join(remarks) + "."),
    )


# --- pauses that are ignored: the pair of section 3.3


def _through(*switches: tuple[str, str], heeded: bool = False) -> dict[str, Any]:
    """The topology sender - switches - receiver."""
    names = [name for name, _ in switches]
    between = {"from": names[0], "to": names[-1], "link": "hundred"}
    if not heeded:
        between["from_ignores_pause"] = True  # type: ignore[assignment]
    return {
        "topology": {
            "kind": "explicit",
            "hosts": [{"name": "sender"}, {"name": "receiver"}],
            "switches": [{"name": name, "switch": kind} for name, kind in switches],
            "cables": [
                {"from": "sender", "to": names[0], "link": "hundred"},
                *([between] if len(switches) > 1 else []),
                {"from": "receiver", "to": names[-1], "link": "twentyfive"},
            ],
        }
    }


_PAIR_RUNS = [
    raw_traffic(
        name, _PAIR, changes, pattern="one-to-one", nodes=2, message="1MiB", outstanding=40, ms=40, warm_up_ms=10
    )
    for name, changes in {
        "QFX5200 alone": _through(("shallow", "qfx5200")),
        "QFX10000 alone": _through(("deep", "qfx10000")),
        "together": {},
        "together, if pauses were heeded": _through(("deep", "qfx10000"), ("shallow", "qfx5200"), heeded=True),
    }.items()
]


def _pair(figures: Figures, fabrics: Fabrics) -> Finding:
    rates = {run.name: figures.gbit(run.name) for run in _PAIR_RUNS}
    full = null_model(fabrics, _PAIR, "nic", 25.0)
    return shape(
        "; ".join(f"{name} {rate:.1f}" for name, rate in rates.items()),
        [
            rates["QFX5200 alone"] > 0.95 * full,
            rates["QFX10000 alone"] > 0.95 * full,
            rates["together"] < 0.8 * full,
            rates["together, if pauses were heeded"] > 0.95 * full,
        ],
        f"An idle 25 Gb/s link carries {full:.1f} Gb/s.",
    )


ROWS = [
    Row("16a", "S3 figure 6", "8 x 100G to 30 x 25G, QFX5200: gain by ECN", "small", "shape", _ecn_gain, _GAIN_RUNS,
        unknowns=SHALLOW_MARKS,
        note="Thresholds and carving are not published."),
    Row("16b", "S3 figure 6", "the same: above 15 Gb/s per consumer only up to", "256KiB", "shape", _sizes,
        _CARVING_RUNS, unknowns=SHALLOW_CARVING,
        note="In at least 80 % of the samples of buffer, threshold and time-out."),
    Row("PFC", "S3 3.3", "100G - QFX10000 - 100G - QFX5200 - 25G: each alone works, together it loses; Gb/s",
        "loses only together", "shape", _pair, _PAIR_RUNS,
        nothing_unknown="It is a matter of who heeds pauses, which is published; buffers only say how soon."),
]  # fmt: skip
