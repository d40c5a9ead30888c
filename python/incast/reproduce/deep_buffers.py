"""Deep-buffered switches of EPJ Web Conf. 245 01011 [S3]: an Arista, a line card of a Juniper, three of these.

Each device has one set of parameters, its fabric file, and around it what is not published (bounds.py).
"""

from collections.abc import Iterator, Mapping, Sequence

from incast.reproduce.bounds import ARISTA, AS_IN_THE_FILE, CHASSIS, JUNIPER, Unknown, Variant, variants
from incast.reproduce.model import (
    Experiment,
    Fabrics,
    Figures,
    Finding,
    Row,
    event_building,
    null_model,
    predict,
    shape,
    statements,
)

_ARISTA, _JUNIPER, _CHASSIS = "arista-7280cr2k-30", "qfx10000-30c", "qfx10008-3x30"
_GRANTS = 8  # [S3], figure 3
_PORTS = 30
_LINK_BYTES_PER_MS = 12.5e6  # 100 Gb/s
_KIB = 1024
_KIB_OF = {"64KiB": 64, "128KiB": 128, "256KiB": 256, "1MiB": 1024, "2MiB": 2048}
_SIZES = ("64KiB", "128KiB", "256KiB", "1MiB")
_SENDS = (1, 4, 8)
_LINE_GBIT = 100.0


# --- event building over all ports of one device: rows 11 to 13


def _all_ports(fabric: str, size: str, sends: int, variant: Variant = AS_IN_THE_FILE) -> Experiment:
    """Every port reads out and builds; measured for five times what all grants together hold, or twice around it."""
    rounds_ms = _GRANTS * _PORTS * _KIB_OF[size] * _KIB / _LINK_BYTES_PER_MS
    return event_building(
        f"{fabric}, {variant.name}, {size}, {sends} sends",
        fabric,
        variant.changes,
        nodes=_PORTS,
        message=size,
        ms=(5 if variant is AS_IN_THE_FILE else 2) * rounds_ms,
        warm_up_ms=rounds_ms,
        credits=_GRANTS,
        sends=sends,
        more=variant.settings,
    )


def _cells(fabric: str) -> dict[tuple[str, int], Experiment]:
    """Figure 3, coarser."""
    return {(size, sends): _all_ports(fabric, size, sends) for size in _SIZES for sends in _SENDS}


class _Around:
    """Runs around the set of a device: for each value of what is unknown the sizes given, and 4 and 8 sends.

    With less sends nodes wait for each other whatever the switch (docs/physics.md).
    """

    def __init__(self, fabric: str, unknowns: Sequence[Unknown], sizes: Sequence[str]) -> None:
        self._variants = [AS_IN_THE_FILE, *variants(unknowns)]
        self._runs = {
            (variant.name, size): [_all_ports(fabric, size, sends, variant) for sends in _SENDS[1:]]
            for variant in self._variants
            for size in sizes
        }
        self._sizes = sizes

    def __iter__(self) -> Iterator[Experiment]:
        return (run for runs in self._runs.values() for run in runs)

    def best(self, figures: Figures, size: str) -> dict[str, float]:
        """By value: Gb/s with the better number of sends, which the study tuned."""
        return {
            variant.name: max(figures.per_node(run.name) for run in self._runs[variant.name, size])
            for variant in self._variants
        }

    def text(self, figures: Figures) -> str:
        """Gb/s with 4 and 8 sends, for each value and size."""
        return "; ".join(
            f"{variant.name} "
            + ", ".join(
                f"{size} " + " ".join(f"{figures.per_node(run.name):.1f}" for run in self._runs[variant.name, size])
                for size in self._sizes
            )
            for variant in self._variants
        )


_ARISTA_CELLS, _JUNIPER_CELLS = _cells(_ARISTA), _cells(_JUNIPER)
_AROUND_ARISTA = _Around(_ARISTA, ARISTA, ("128KiB", "256KiB"))
_AROUND_JUNIPER = _Around(_JUNIPER, JUNIPER, ("256KiB",))


def _map_text(figures: Figures, cells: Mapping[tuple[str, int], Experiment]) -> str:
    """A line per message size."""
    lines = (
        f"{size} " + " ".join(f"{figures.per_node(run.name):.1f}" for (other, _), run in cells.items() if other == size)
        for size in _SIZES
    )
    return f"By message size, 1, 4 and 8 sends, Gb/s: {'; '.join(lines)}."


def _juniper(figures: Figures, fabrics: Fabrics) -> Finding:
    rates = {cell: figures.per_node(run.name) for cell, run in _JUNIPER_CELLS.items()}
    size, sends = max(rates, key=lambda each: rates[each])
    return predict(
        rates[size, sends],
        94.8,
        null_model(fabrics, _JUNIPER, "nic", _LINE_GBIT),
        list(_AROUND_JUNIPER.best(figures, "256KiB").values()),
        f"Best of the scan: {size}, {sends} sends. {_map_text(figures, _JUNIPER_CELLS)}",
        f"By what is unknown, 256 KiB, 4 and 8 sends: {_AROUND_JUNIPER.text(figures)} Gb/s.",
    )


def _arista(figures: Figures, fabrics: Fabrics) -> Finding:
    best = _AROUND_ARISTA.best(figures, "128KiB")
    return predict(
        best[AS_IN_THE_FILE.name],
        87.4,
        null_model(fabrics, _ARISTA, "nic", _LINE_GBIT),
        list(best.values()),
        "By what is unknown: " + ", ".join(f"{name} {rate:.1f}" for name, rate in best.items()) + " Gb/s.",
    )


def _scan(figures: Figures, _fabrics: Fabrics) -> Finding:
    by_size = {
        size: max(figures.per_node(run.name) for (other, _), run in _ARISTA_CELLS.items() if other == size)
        for size in _SIZES
    }
    larger = [size for size in _SIZES if _KIB_OF[size] > 128]
    return statements(
        " ".join(f"{size} {rate:.1f}" for size, rate in by_size.items()),
        {
            AS_IN_THE_FILE.name: {
                "the maximum is at 128 KiB": max(by_size, key=lambda size: by_size[size]) == "128KiB",
                "above 80 Gb/s at 128 KiB": by_size["128KiB"] > 80,
                "every larger size below 80 Gb/s": all(by_size[size] < 80 for size in larger),
                "Juniper at or above Arista from 256 KiB": all(
                    figures.per_node(_JUNIPER_CELLS[cell].name) >= figures.per_node(run.name)
                    for cell, run in _ARISTA_CELLS.items()
                    if cell[0] in larger
                ),
            },
            **_narrow(figures),
        },
        _map_text(figures, _ARISTA_CELLS),
    )


def _narrow(figures: Figures) -> dict[str, dict[str, bool]]:
    """Of each value of what is unknown: is 128 KiB above 80 Gb/s, and 256 KiB below."""
    small, large = (_AROUND_ARISTA.best(figures, size) for size in ("128KiB", "256KiB"))
    return {
        name: {"above 80 Gb/s at 128 KiB": small[name] > 80, "256 KiB below 80 Gb/s": large[name] < 80}
        for name in small
        if name != AS_IN_THE_FILE.name
    }


def _spill_rule(figures: Figures, _fabrics: Fabrics) -> Finding:
    small, large = (_AROUND_ARISTA.best(figures, size) for size in ("128KiB", "256KiB"))
    holds = {name: small[name] > 80 > large[name] for name in small}
    return shape(
        f"in {sum(holds.values())} of {len(holds)} networks",
        list(holds.values()),
        f"By what is unknown, with 4 and 8 sends: {_AROUND_ARISTA.text(figures)} Gb/s.",
    )


# --- producers and consumers at different ASICs: row 14

_SIDES = (2, 3, 4, 5, 6, 7, 8, 10)
_NEAR_THE_BREAK = (2, 4, 5, 6)
_KEPT = 0.9  # of the best rate: less is a drop
# What could move the break; the rest of what is unknown is a matter of latency.
_OF_THE_MEMORY = [
    each for each in ARISTA if each.name in ("memory", "spill", "egress credit", "on chip", "scheme", "order")
]


def _two_asics(ports: int, variant: Variant = AS_IN_THE_FILE) -> Experiment:
    """Producers at `ports` ports of one ASIC, consumers at as many of another; the other ports are not there."""
    rounds_ms = _GRANTS * ports * _KIB_OF["2MiB"] * _KIB / _LINK_BYTES_PER_MS
    return event_building(
        f"{variant.name}, {ports} ports a side",
        _ARISTA,
        {"topology.hosts": 2 * ports, "switches.deep.ports_per_asic": ports, **variant.changes},
        nodes=2 * ports,
        message="2MiB",
        ms=(5 if variant is AS_IN_THE_FILE else 2) * rounds_ms,
        warm_up_ms=(2 if variant is AS_IN_THE_FILE else 1) * rounds_ms,
        credits=_GRANTS,
        sends=4,
        more={"run.roles": "split", **variant.settings},
    )


_BREAK = {ports: _two_asics(ports) for ports in _SIDES}
_BREAKS = {
    variant.name: {ports: _two_asics(ports, variant) for ports in _NEAR_THE_BREAK}
    for variant in variants(_OF_THE_MEMORY)
}


def _last_without_a_drop(figures: Figures, runs: Mapping[int, Experiment]) -> tuple[int, str]:
    rates = {ports: figures.gbit(run.name, "goodput_without_self_bytes_per_s") / ports for ports, run in runs.items()}
    top = max(rates.values())
    last = max(ports for ports in rates if all(rates[each] >= _KEPT * top for each in rates if each <= ports))
    return last, " ".join(f"{ports}: {rate:.1f}" for ports, rate in rates.items())


def _break(figures: Figures, _fabrics: Fabrics) -> Finding:
    last, shown = _last_without_a_drop(figures, _BREAK)
    others = {name: _last_without_a_drop(figures, runs) for name, runs in _BREAKS.items()}
    return predict(
        float(last),
        6.0,
        float(max(_SIDES)),
        [float(each) for each, _ in others.values()],
        f"A drop: less than {100 * _KEPT:.0f} % of the best. Gb/s a producer by ports a side: {shown}.",
        "By what is unknown of the memory and the order, the most ports a side, and Gb/s: "
        + "; ".join(f"{name} {each} ({rates})" for name, (each, rates) in others.items())
        + ".",
        f"Tried: {', '.join(map(str, _NEAR_THE_BREAK))} ports. If the 6 ports of the study are both sides together, "
        "3 a side are published.",
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


ROWS = [
    Row("11", "S3 figure 2", "QFX10000-30C, all ports, event building, tuned, 3 h: mean of producers; Gb/s", 94.8,
        "predicted", _juniper, [*_JUNIPER_CELLS.values(), *_AROUND_JUNIPER], unknowns=JUNIPER,
        note="Milliseconds of virtual time. The minimum over hours (87.1) is outside the model."),
    Row("12", "S3 figure 2", "Arista 7280CR2K-30, all ports, 128 KiB messages, tuned, 3 h: mean of producers; Gb/s",
        87.4, "predicted", _arista, [*_AROUND_ARISTA], unknowns=ARISTA,
        note="One set of parameters for rows 12 to 14, from documents on the same processor; none is fitted. The "
        "minimum (66.7) is outside the model. So is a limit that this processor may have: it forwards 900 Gb/s (Linley "
        "newsletter, 2018-03-13), which ten busy ports would share, 88.2 Gb/s of payload each."),
    Row("13", "S3 figure 3", "Arista, message size x parallel sends, 8 grants: above 80 Gb/s only at; Gb/s", "128KiB",
        "shape", _scan, [*_ARISTA_CELLS.values(), *_JUNIPER_CELLS.values(), *_AROUND_ARISTA], unknowns=ARISTA),
    Row("13b", "S3 figure 3", "the same, 128 KiB above and 256 KiB below 80 Gb/s, over what is not known", "128KiB",
        "shape", _spill_rule, [*_AROUND_ARISTA], unknowns=ARISTA),
    Row("14", "S3 figure 4", "Arista, 2 MB messages, producers and consumers on different ASICs: most ports without a "
        "drop", 6.0, "predicted", _break,
        [*_BREAK.values(), *(run for runs in _BREAKS.values() for run in runs.values())], unknowns=_OF_THE_MEMORY),
    Row("15", "S3 figure 5", "88 ports on 3 cards of a QFX10008: below, and below one card; Gb/s", 80.0, "shape",
        _chassis, [*_CHASSIS_RUNS, _ONE_CARD], unknowns=CHASSIS,
        note="What the fabric between the cards carries is not published."),
]  # fmt: skip
