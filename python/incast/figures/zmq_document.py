"""The measured part of docs/zeromq.md, written from a result of `incast bridge zmq --evaluation`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from incast.base.files import replace_file
from incast.bridges.zmq import BREAKDOWN, SCANNED
from incast.bridges.zmq_program import WAYS
from incast.bridges.zmq_tables import conditions, of_section, ring_words, tables, way_lines, ways_of
from incast.figures.datasets import Bridge
from incast.figures.measured_part import around, markdown
from incast.figures.style import LIGHT, save
from incast.figures.zmq_figures import zmq_drawings

BEGIN = "<!-- measured: made by incast bridge zmq --evaluation --write-docs, not to be edited -->"
END = "<!-- end of measured -->"
_FIGURES = "zeromq"


def around_measured(path: Path) -> tuple[str, str]:
    """What stands before and behind the measured part. OneLineError if the file has no such part."""
    return around(path, BEGIN, END)


def write_document(path: Path, result: Mapping[str, Any]) -> None:
    """Replaces that part, and the figures beside the file."""
    before, after = around_measured(path)
    drawn = {
        drawing.name.removeprefix(f"{_FIGURES}-"): drawing
        for drawing in zmq_drawings(Bridge("", path, result), _FIGURES)
    }
    shown = [name for name in drawn if name in _pictured(result)]
    for name in shown:
        drawing = drawn[name]
        picture = path.parent / f"{drawing.name}.png"
        said = [line for line in drawing.conditions if line not in way_lines(result)]
        save(drawing.draw, LIGHT, str(picture), "png", [f"{drawing.label}:", *said])
    replace_file(path, f"{before}{BEGIN}\n\n{measured_text(result, shown)}\n{END}{after}")


def _pictured(result: Mapping[str, Any]) -> set[str]:
    """Of scans the throughput; of breakdowns those of the first way over a fabric, as [S4] has them."""
    ways = ways_of(of_section(result, BREAKDOWN))
    first = sorted(ways, key=lambda way: not WAYS[way].fabric)[:1]
    kind, size = SCANNED[-1]
    scans = {f"{scan}-{kind}-{size}" for scan in ("buffer-scan", "ring-scan")}
    sides = {f"{side}-{way}" for side in ("send", "receive") for way in first}
    return {"latency-small", "latency-large", "throughput"} | scans | sides


def measured_text(result: Mapping[str, Any], shown: list[str]) -> str:
    """Conditions, then the tables, with the figures named."""
    lines = [f"- {line}" for line in conditions(result)]
    if result["readings_not_idle"]:
        lines.append(
            "- **Not idle: a trial, no measurement.** Others used the machine; what is compared was measured in turn"
        )
    lines += [f"- not measured: {line}" for line in result["unfinished"]]
    for table in tables(result):
        lines += ["", f"### {table.title}", ""]
        if words := ring_words(result, table.name):
            lines += [words, ""]
        if table.name in shown:
            lines += [f"![{table.title}]({_FIGURES}-{table.name}.png)", ""]
        lines += markdown(table)
    return "\n".join(lines) + "\n"
