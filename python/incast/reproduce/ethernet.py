"""RoCE v2 on Ethernet: EPJ Web Conf. 245 01011 [S3]."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
    predict,
    raw_traffic,
    shape,
    statement,
)

_ARISTA, _JUNIPER, _CHASSIS, _SHALLOW, _PAIR = (
    "arista-7280cr2k-30",
    "qfx10000-30c",
    "qfx10008-3x30",
    "qfx5200-8x100-30x25",
    "qfx-pfc-pair",
)
_GRANTS = 8  # [S3], figure 3
_PORTS = 30
_LINK_BYTES_PER_MS = 12.5e6  # 100 Gb/s
_KIB = 1024

# --- buffer memory of the Arista switch: row 14

# Rate of the memory that its break beyond 6 ports of about 90 Gb/s asks for: written and read, 2 x 6 x 90 with six
# ports a side, 2 x 3 x 90 with six in all.
_READINGS = {"per side": 1080, "in total": 540}
_SIDES = {"per side": (2, 4, 5, 6, 7, 8, 10), "in total": (1, 2, 3, 4, 5, 6)}


def _two_asics(reading: str, ports: int) -> Experiment:
    """Producers at the ports of one ASIC, consumers at those of another."""
    rounds_ms = _GRANTS * ports * 2 * _KIB * _KIB / _LINK_BYTES_PER_MS
    return event_building(
        f"{reading}, {ports} ports a side",
        _ARISTA,
        {
            "topology.hosts": 2 * ports,
            "switches.deep.ports_per_asic": ports,
            "switches.deep.memory_bandwidth": f"{_READINGS[reading]}Gb/s",
        },
        nodes=2 * ports,
        message="2MiB",
        ms=5 * rounds_ms,
        warm_up_ms=2 * rounds_ms,
        credits=_GRANTS,
        sends=4,
        more={"run.roles": "split"},
    )


_BREAK = {reading: [_two_asics(reading, ports) for ports in sides] for reading, sides in _SIDES.items()}


def _break(figures: Figures, _fabrics: Fabrics) -> Finding:
    last: dict[str, int] = {}
    remarks = []
    for reading, runs in _BREAK.items():
        rates = {
            ports: figures.gbit(run.name, "goodput_without_self_bytes_per_s") / ports
            for ports, run in zip(_SIDES[reading], runs, strict=True)
        }
        top = max(rates.values())
        last[reading] = max(ports for ports, rate in rates.items() if rate >= 0.9 * top)
        shown = ", ".join(f"{ports} {rate:.1f}" for ports, rate in rates.items())
        remarks.append(f"Six ports {reading} ({_READINGS[reading]} Gb/s), Gb/s by ports a side: {shown}.")
    good = last["per side"] == 6 and last["in total"] == 3
    return Finding(float(last["per side"]), OK if good else OFF, abs(last["per side"] - 6) / 6, None, tuple(remarks))


# --- event building over all ports of one device: rows 11 to 13

_ROUND_SIZES = {"64KiB": 64, "128KiB": 128, "256KiB": 256, "1MiB": 1024}
_SENDS = (1, 4, 8)
_SPILLS = ("64KiB", "256KiB", "1MiB")


def _all_ports(
    fabric: str, size: str, sends: int, changes: Mapping[str, Any] | None = None, variant: str = ""
) -> Experiment:
    """Every port reads out and builds; measured for five times what all grants together hold."""
    rounds_ms = _GRANTS * _PORTS * _ROUND_SIZES[size] * _KIB / _LINK_BYTES_PER_MS
    return event_building(
        f"{fabric}{variant}, {size}, {sends} sends",
        fabric,
        changes,
        nodes=_PORTS,
        message=size,
        ms=5 * rounds_ms,
        warm_up_ms=rounds_ms,
        credits=_GRANTS,
        sends=sends,
    )


def _cells(fabric: str) -> dict[tuple[str, int], Experiment]:
    """Figure 3, coarser."""
    return {(size, sends): _all_ports(fabric, size, sends) for size in _ROUND_SIZES for sends in _SENDS}


_ARISTA_CELLS, _JUNIPER_CELLS = _cells(_ARISTA), _cells(_JUNIPER)
_ARISTA_128 = [
    _all_ports(
        _ARISTA,
        "128KiB",
        sends,
        {"switches.deep.memory_bandwidth": f"{gbit}Gb/s", "switches.deep.spill": spill},
        f", {reading}, spill {spill}",
    )
    for reading, gbit in _READINGS.items()
    for spill in _SPILLS
    for sends in _SENDS
]


def _map_text(figures: Figures, cells: Mapping[tuple[str, int], Experiment]) -> str:
    """A line per message size."""
    return "; ".join(
        f"{size} " + " ".join(f"{figures.per_node(run.name):.1f}" for (other, _), run in cells.items() if other == size)
        for size in _ROUND_SIZES
    )


def _best(figures: Figures, cells: Mapping[tuple[str, int], Experiment]) -> tuple[tuple[str, int], float]:
    rates = {cell: figures.per_node(run.name) for cell, run in cells.items()}
    cell = max(rates, key=lambda each: rates[each])
    return cell, rates[cell]


def _juniper(figures: Figures, fabrics: Fabrics) -> Finding:
    (size, sends), best = _best(figures, _JUNIPER_CELLS)
    return predict(
        best,
        94.8,
        null_model(fabrics, _JUNIPER, "nic", 100.0),
        (),
        f"Best of the scan: {size}, {sends} sends. By message size, 1, 4 and 8 sends, Gb/s: "
        + _map_text(figures, _JUNIPER_CELLS)
        + ".",
    )


def _arista(figures: Figures, fabrics: Fabrics) -> Finding:
    best = {
        (reading, spill): max(
            figures.per_node(f"{_ARISTA}, {reading}, spill {spill}, 128KiB, {sends} sends") for sends in _SENDS
        )
        for reading in _READINGS
        for spill in _SPILLS
    }
    null = null_model(fabrics, _ARISTA, "nic", 100.0)
    found = {
        reading: predict(
            best[reading, "256KiB"],
            87.4,
            null,
            list(best.values()),
            "Best number of sends each: "
            + "; ".join(f"{' '.join(name)} {rate:.1f}" for name, rate in best.items())
            + " Gb/s (reading of row 14, spill).",
        )
        for reading in _READINGS
    }
    both = all(each.status == OK for each in found.values())
    return found["per side"] if both else replace(found["per side"], status=RANGE)


def _scan(figures: Figures, _fabrics: Fabrics) -> Finding:
    by_size = {
        size: max(figures.per_node(run.name) for (other, _), run in _ARISTA_CELLS.items() if other == size)
        for size in _ROUND_SIZES
    }
    larger = [size for size in _ROUND_SIZES if _ROUND_SIZES[size] > 128]
    holds = {
        "the maximum is at 128 KiB": max(by_size, key=lambda size: by_size[size]) == "128KiB",
        "above 80 Gb/s at 128 KiB": by_size["128KiB"] > 80,
        "every larger size below 80 Gb/s": all(by_size[size] < 80 for size in larger),
        "Juniper at or above Arista from 256 KiB": all(
            figures.per_node(_JUNIPER_CELLS[cell].name) >= figures.per_node(run.name)
            for cell, run in _ARISTA_CELLS.items()
            if cell[0] in larger
        ),
    }
    return statement(
        " ".join(f"{size} {rate:.1f}" for size, rate in by_size.items()),
        holds,
        "By message size, 1, 4 and 8 sends, Gb/s: " + _map_text(figures, _ARISTA_CELLS) + ".",
    )


# The smaller the limit and the slower the memory, the sooner: for each reading the limits around which it begins.
_SMALL_SPILLS = {
    (f"{reading}, {spill}", size): [
        _all_ports(
            _ARISTA,
            size,
            sends,
            {"switches.deep.spill": spill, "switches.deep.memory_bandwidth": f"{_READINGS[reading]}Gb/s"},
            f", {reading}, spill {spill}",
        )
        for sends in _SENDS[1:]
    ]
    for reading, spills in {"per side": ("32KiB", "64KiB"), "in total": ("128KiB", "256KiB")}.items()
    for spill in spills
    for size in ("128KiB", "256KiB")
}


def _spill_rule(figures: Figures, _fabrics: Fabrics) -> Finding:
    best = {cell: max(figures.per_node(run.name) for run in runs) for cell, runs in _SMALL_SPILLS.items()}
    return shape(
        "; ".join(f"{spill}, {size} {rate:.1f}" for (spill, size), rate in best.items()),
        [best[spill, "128KiB"] > 80 > best[spill, "256KiB"] for spill, size in best if size == "128KiB"],
        "By the reading of row 14 and the length of a virtual output queue beyond which packets go off chip (or if the "
        "chip is half full); by size, 4 and 8 sends: "
        + "; ".join(
            f"{spill}, {size} " + " ".join(f"{figures.per_node(run.name):.1f}" for run in runs)
            for (spill, size), runs in _SMALL_SPILLS.items()
        )
        + " Gb/s. The smaller the limit, the sooner larger messages and more sends pass the slow memory.",
    )


# --- three cards in a chassis: row 15

_EFFICIENCIES = (1.0, 0.5, 0.4)
_FABRIC_LINK_GBIT = 500  # fabrics/qfx10008-3x30.toml: 6 of these carry what 30 ports can send


def _three_cards(efficiency: float) -> Experiment:
    rounds_ms = _GRANTS * 88 * 128 * _KIB / _LINK_BYTES_PER_MS
    return event_building(
        f"efficiency {efficiency}",
        _CHASSIS,
        {"links.internal.rate": f"{efficiency * _FABRIC_LINK_GBIT:g}Gb/s"},
        nodes=88,
        message="128KiB",
        ms=1.5 * rounds_ms,
        warm_up_ms=0.7 * rounds_ms,
        credits=_GRANTS,
        sends=4,
    )


_CHASSIS_RUNS = [_three_cards(each) for each in _EFFICIENCIES]
_ONE_CARD = _JUNIPER_CELLS["128KiB", 4]


def _ceiling(cards: int, efficiency: float) -> float:
    """Gb/s of a port, if fabrics limit: of what 30 ports of a card send, (cards - 1) / cards goes over 6 links."""
    return 6 * efficiency * _FABRIC_LINK_GBIT / (30 * (cards - 1) / cards)


def _chassis(figures: Figures, _fabrics: Fabrics) -> Finding:
    rates = {each: figures.per_node(f"efficiency {each}") for each in _EFFICIENCIES}
    one_card = figures.per_node(_ONE_CARD.name)
    return shape(
        [min(rates.values()), max(rates.values())],
        [rate < 80 and rate < one_card for rate in rates.values()],
        f"One card: {one_card:.1f} Gb/s. By the share of 3 Tb/s a card that its fabric links carry: "
        + ", ".join(f"{each} {rate:.1f}" for each, rate in rates.items())
        + " Gb/s.",
        "With that share at 0.5 the links alone would allow "
        + ", ".join(f"{cards} cards {_ceiling(cards, 0.5):.0f}" for cards in (2, 3, 8))
        + " Gb/s a port (arithmetic).",
    )


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


_ALL = (*_ARISTA_CELLS.values(), *_JUNIPER_CELLS.values())

ROWS = [
    Row("11", "S3 figure 2", "QFX10000-30C, all ports, event building, tuned, 3 h: mean of producers; Gb/s", 94.8,
        "predicted", _juniper, list(_JUNIPER_CELLS.values()),
        note="Milliseconds of virtual time. The minimum over hours (87.1) is outside the model."),
    Row("12", "S3 figure 2", "Arista 7280CR2K-30, all ports, 128 KiB messages, tuned, 3 h: mean of producers; Gb/s",
        87.4, "predicted", _arista, _ARISTA_128,
        note="Only row 14 was fitted, under both readings of its 6 ports. The minimum (66.7) is outside the model."),
    Row("13", "S3 figure 3", "Arista, message size x parallel sends, 8 grants: above 80 Gb/s only at; Gb/s", "128KiB",
        "shape", _scan, list(_ALL)),
    Row("13b", "S3 figure 3", "the same, 4 and 8 sends, over what is not known of the rule to spill; Gb/s", "128KiB",
        "shape", _spill_rule, [each for runs in _SMALL_SPILLS.values() for each in runs],
        note="Holds where 128 KiB give more than 80 Gb/s and 256 KiB less."),
    Row("14", "S3 figure 4", "Arista, 2 MB messages, producers and consumers on different ASICs: most ports without a "
        "drop", 6.0, "fitted", _break, [each for runs in _BREAK.values() for each in runs]),
    Row("15", "S3 figure 5", "88 ports on 3 cards of a QFX10008: below, and below one card; Gb/s", 80.0, "shape",
        _chassis, [*_CHASSIS_RUNS, _ONE_CARD], note="What the fabric between the cards carries is not published."),
    Row("16a", "S3 figure 6", "8 x 100G to 30 x 25G, QFX5200: gain by ECN", "small", "shape", _ecn_gain, _GAIN_RUNS,
        note="Thresholds and carving are not published."),
    Row("16b", "S3 figure 6", "the same: above 15 Gb/s per consumer only up to", "256KiB", "shape", _sizes,
        _CARVING_RUNS, note="In at least 80 % of the samples of buffer, threshold and time-out."),
    Row("PFC", "S3 3.3", "100G - QFX10000 - 100G - QFX5200 - 25G: each alone works, together it loses; Gb/s",
        "loses only together", "shape", _pair, _PAIR_RUNS),
]  # fmt: skip
