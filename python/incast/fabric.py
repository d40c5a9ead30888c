"""`incast fabric check|show|draw|sources`: networks described by a file (docs/fabrics.md).

The engine reads and checks the file; here its answer is put into words, or into a picture.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from xml.sax.saxutils import escape

import typer

from incast import fabric_sources
from incast.engine import engine_answer
from incast.file_commands import EXIT_BAD_FILE, JsonOption
from incast.files import replace_file
from incast.shipped import fabric_file

fabric_app = typer.Typer(help="Networks for the simulation, described by a file.", no_args_is_help=True)

_GBIT = 1e9
_DRAWN_HOSTS_MAX = 24  # of a switch; more are drawn as one box with their number


@dataclass(frozen=True)
class Cable:
    """Between two nodes, by name; the same rate each way."""

    ends: tuple[str, str]
    bits_per_s: int
    delay_ps: int


@dataclass(frozen=True)
class Fabric:
    """What the engine says of a file."""

    name: str
    description: str
    hosts: tuple[str, ...]
    switches: dict[str, str]  # name: kind
    cables: tuple[Cable, ...]

    @staticmethod
    def read(path: Path) -> "Fabric":
        """EngineError, one line with the file's place, if something is wrong with it."""
        said = engine_answer("--describe-fabric", str(path))
        return Fabric(
            said["name"],
            said["description"],
            tuple(said["hosts"]),
            {one["name"]: one["kind"] for one in said["switches"]},
            tuple(
                Cable((one["ends"][0], one["ends"][1]), one["bits_per_s"], one["delay_ps"]) for one in said["cables"]
            ),
        )

    def tiers(self) -> list[list[str]]:
        """Switches by their distance from the nearest host, the nearest first."""
        left = dict(self.switches)
        reached = set(self.hosts)
        found: list[list[str]] = []
        while left:
            next_to = {
                other
                for cable in self.cables
                for one, other in (cable.ends, cable.ends[::-1])
                if one in reached and other in left
            }
            tier = [name for name in left if name in next_to]
            if not tier:
                break
            for name in tier:
                del left[name]
            reached |= set(tier)
            found.append(tier)
        return found

    def lines(self) -> list[str]:
        """For a person."""
        kinds = Counter(self.switches.values())
        switches = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        lines = [
            f"{self.name}: {self.description}",
            f"{len(self.hosts)} hosts, {len(self.switches)} switches ({switches}), {len(self.cables)} cables",
        ]
        hosts = set(self.hosts)
        at_hosts = [cable for cable in self.cables if hosts & set(cable.ends)]
        between = [cable for cable in self.cables if not hosts & set(cable.ends)]
        for title, cables in (("to hosts", at_hosts), ("between switches", between)):
            for (rate, delay), count in sorted(Counter((each.bits_per_s, each.delay_ps) for each in cables).items()):
                lines.append(f"  {count} cables {title}: {rate / _GBIT:g} Gb/s, {delay / 1000:g} ns")
        injected = sum(cable.bits_per_s for cable in at_hosts)
        lines.append(f"all hosts together: {injected / _GBIT:g} Gb/s each way")
        for number, tier in enumerate(self.tiers(), 1):
            lines.append(f"tier {number}: {_run_of(tier)}")
        return lines


def _run_of(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{names[0]} .. {names[-1]} ({len(names)})"


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
        f"<title>{' - '.join(map(escape, line.boxes))}: {line.bits_per_s / _GBIT:g} Gb/s</title></path>"
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


FileArgument = Annotated[
    Path,
    typer.Argument(metavar="FABRIC", parser=fabric_file, help="A file, or a shipped one's name (docs/fabrics.md)."),
]


@fabric_app.command()
def check(file: FileArgument) -> None:
    """Say in one line whether the file describes a network, or what is wrong with it."""
    fabric = Fabric.read(file)
    typer.echo(f"{file}: {fabric.name}, {len(fabric.hosts)} hosts, {len(fabric.switches)} switches")


@fabric_app.command()
def show(file: FileArgument, as_json: JsonOption = False) -> None:
    """Print what the network consists of."""
    if as_json:
        typer.echo(json.dumps(engine_answer("--describe-fabric", str(file)), indent=2))
    else:
        typer.echo("\n".join(Fabric.read(file).lines()))


@fabric_app.command()
def sources(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Networks (docs/fabrics.md).")],
    *,
    as_table: Annotated[bool, typer.Option("--table", help="One row of a Markdown table for each file.")] = False,
) -> None:
    """Say where the parameters come from, by the comments in the file: published, fitted, assumed."""
    try:
        text = fabric_sources.table(files) if as_table else "\n".join(map("\n".join, map(fabric_sources.lines, files)))
    except OSError as error:
        typer.echo(f"incast: {error.filename}: {error.strerror}", err=True)
        raise typer.Exit(EXIT_BAD_FILE) from error
    typer.echo(text.rstrip("\n"))


@fabric_app.command("draw")
def draw_command(
    file: FileArgument,
    output: Annotated[
        Path | None, typer.Option(metavar="SVG", help="Where to; the name of the file with .svg, by default.")
    ] = None,
) -> None:
    """Draw the topology as an SVG picture."""
    target = output or Path(file.with_suffix(".svg").name)
    try:
        replace_file(target, draw(Fabric.read(file)))
    except OSError as error:
        typer.echo(f"incast: {target} cannot be written: {error.strerror}", err=True)
        raise typer.Exit(EXIT_BAD_FILE) from error
    typer.echo(f"{target}")
