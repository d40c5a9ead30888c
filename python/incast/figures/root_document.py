"""The measured parts of docs/root.md, one for each experiment, written from results of `incast bridge root`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from incast.base.files import replace_file
from incast.bridges.root_tables import conditions, tables, way_lines
from incast.figures.datasets import Bridge
from incast.figures.measured_part import around, markdown
from incast.figures.root_figures import root_drawings
from incast.figures.style import LIGHT, save

_PICTURES = "root"


def marks(experiment: str) -> tuple[str, str]:
    """The lines around the part of that experiment."""
    words = f"incast bridge root --experiment {experiment} --write-docs"
    return f"<!-- {experiment}: made by {words}, not to be edited -->", f"<!-- end of {experiment} -->"


def around_measured(path: Path, experiment: str) -> tuple[str, str]:
    """What stands before and behind that part. OneLineError if the file has no such part."""
    return around(path, *marks(experiment))


def write_document(path: Path, result: Mapping[str, Any]) -> None:
    """Replaces that part, and the figure of the rates beside the file."""
    begin, end = marks(result["experiment"])
    before, after = around_measured(path, result["experiment"])
    drawing = root_drawings(Bridge("", path, result), _PICTURES)[0]
    said = [line for line in drawing.conditions if line not in way_lines(result)]
    picture = path.parent / f"{drawing.name}.png"
    save(drawing.draw, LIGHT, str(picture), "png", [f"{drawing.label}:", *said])
    lines = [f"- {line}" for line in conditions(result)]
    if result["readings_not_idle"]:
        lines.append(
            "- **Not idle: a trial, no measurement.** Others used the machine; what is compared was measured in turn"
        )
    lines += [f"- not measured: {line}" for line in result["unfinished"]]
    lines += ["", f"![{drawing.title}]({picture.name})"]
    for table in tables(result):
        lines += ["", f"{table.title}:", "", *markdown(table)]
    text = "\n".join(lines)
    replace_file(path, f"{before}{begin}\n\n{text}\n\n{end}{after}")
