"""A picture of a network: hosts below, switches in tiers above, as SVG."""

from collections import Counter
from dataclasses import dataclass
from xml.sax.saxutils import escape

from incast.engine.fabric import GBIT, Cable, Fabric

_DRAWN_HOSTS_MAX = 24  # of a switch; more are drawn as one box with their number


def _style() -> str:
    """Readable on light and dark; on paper light is used."""
    return (
        "text{font:12px system-ui,sans-serif;fill:#222}.cable{stroke:#777;fill:none}"
        ".host{fill:#e8f1fa;stroke:#0072b2}.switch{fill:#fdf1df;stroke:#d55e00}"
        "@media (prefers-color-scheme:dark){svg{background:#16181c}text{fill:#e6e6e6}.cable{stroke:#9a9a9a}"
        ".host{fill:#10344d;stroke:#56b4e9}.switch{fill:#4d2d10;stroke:#e69f00}}"
    )


@dataclass(frozen=True)
class Box:
    """A host, many hosts of one switch, or a switch; its middle, in pixels, with y downwards."""

    name: str
    label: str
    kind: str  # host or switch
    x: float
    y: float
    half_width: float


@dataclass(frozen=True)
class Line:
    """All cables between two boxes. A curve from one end to the other, drawn towards `bend` (quadratic Bezier)."""

    boxes: tuple[str, str]
    cables: tuple[Cable, ...]
    begin: tuple[float, float]
    bend: tuple[float, float]
    end: tuple[float, float]

    @property
    def bits_per_s(self) -> int:
        """Of all of them together."""
        return sum(cable.bits_per_s for cable in self.cables)


@dataclass(frozen=True)
class Layout:
    """Hosts below, switches in tiers above."""

    boxes: list[Box]
    lines: list[Line]
    width: float
    top: float
    height: float

    def thickness(self, line: Line) -> float:
        """The wider, the higher the rate; in pixels."""
        return 0.6 + 3.4 * line.bits_per_s / max(each.bits_per_s for each in self.lines)


def lay_out(fabric: Fabric) -> Layout:
    """Where everything is drawn."""
    groups = _grouped_hosts(fabric)
    rows = [[(name, label, "host") for name, label in dict.fromkeys(groups.values())]]
    rows += [[(name, name, "switch") for name in tier] for tier in fabric.tiers()]
    width = max(640, 96 * max(len(row) for row in rows))
    height = 110 * len(rows) + 40
    boxes: list[Box] = []
    for level, row in enumerate(rows):
        half = min(44.0, width / len(row) / 2 - 2)
        boxes += [
            Box(name, label, kind, width * (index + 0.5) / len(row), height - 60 - 110 * level, half)
            for index, (name, label, kind) in enumerate(row)
        ]
    place = {box.name: (box.x, box.y) for box in boxes}
    between: dict[tuple[str, str], list[Cable]] = {}
    for cable in fabric.cables:
        one, two = (groups[end][0] if end in groups else end for end in cable.ends)
        between.setdefault((one, two), []).append(cable)
    lines = []
    top = 24.0
    for (one, two), cables in between.items():
        (x1, y1), (x2, y2) = place[one], place[two]
        # Within a tier a cable goes over what stands between, the higher the more that is.
        bend = y1 - 16 - abs(x2 - x1) / 4 if y1 == y2 else (y1 + y2) / 2
        top = min(top, (bend + y1) / 2 - 10)
        lines.append(Line((one, two), tuple(cables), (x1, y1), ((x1 + x2) / 2, bend), (x2, y2)))
    return Layout(boxes, lines, width, top, height)


def draw(fabric: Fabric) -> str:
    """The topology as SVG."""
    layout = lay_out(fabric)
    boxes = [
        f'<g><title>{escape(box.name)}</title><rect class="{box.kind}" x="{box.x - box.half_width:.1f}"'
        f' y="{box.y - 16}" rx="4" width="{2 * box.half_width:.1f}" height="32"/><text x="{box.x:.1f}"'
        f' y="{box.y + 4}" text-anchor="middle">{escape(box.label)}</text></g>'
        for box in layout.boxes
    ]
    lines = [
        f'<path class="cable" d="M{line.begin[0]:.1f} {line.begin[1]}Q{line.bend[0]:.1f} {line.bend[1]:.1f}'
        f' {line.end[0]:.1f} {line.end[1]}" stroke-width="{layout.thickness(line):.2f}">'
        f"<title>{' - '.join(map(escape, line.boxes))}: {line.bits_per_s / GBIT:g} Gb/s</title></path>"
        for line in layout.lines
    ]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" role="img"'
        f' viewBox="0 {layout.top - 24:.0f} {layout.width} {layout.height - layout.top + 24:.0f}">'
        f"<title>{escape(fabric.name)}</title><style>{_style()}</style>"
        f'<text x="12" y="{layout.top - 4:.0f}">{escape(fabric.name)}: {escape(fabric.description)}</text>'
        + "".join(lines)
        + "".join(boxes)
        + "</svg>\n"
    )


def _grouped_hosts(fabric: Fabric) -> dict[str, tuple[str, str]]:
    """By host: the box it is drawn as, and what stands in it. Many hosts of one switch are one box."""
    switch_of = {
        one: other
        for cable in fabric.cables
        for one, other in (cable.ends, cable.ends[::-1])
        if one not in fabric.switches
    }
    crowd = Counter(switch_of.values())
    many = len(fabric.hosts) > _DRAWN_HOSTS_MAX
    boxes = {}
    for host in fabric.hosts:
        switch = switch_of[host]
        boxes[host] = (f"hosts of {switch}", f"{crowd[switch]} hosts") if many else (host, host)
    return boxes
