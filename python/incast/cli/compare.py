"""`incast compare A B`: which differences are larger than the noise."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from incast.base import units
from incast.base.console import open_console
from incast.figures.compare import Difference
from incast.figures.compare import compare as compared
from incast.figures.run_figures import unit_of


def _figure_text(figure: str, value: float) -> str:
    unit = unit_of(figure)
    if unit == "bytes_per_s":
        return units.rate(value)
    if unit == "ns":
        return units.duration_ns(value)
    return units.fraction(value) if unit == "fraction" else f"{value:.4g}"


def _words(figure: str) -> str:
    unit = unit_of(figure)
    words = figure.removesuffix(f"_{unit}").replace("_", " ") if unit else figure
    return f"{words}, s/GB" if unit == "s_per_gb" else words


def _print(console: Console, answer: dict[str, Any], differences: Sequence[Difference]) -> None:
    if answer["mixed"]:
        console.print("MEASURED AGAINST SIMULATED: differences are those of the model, too", style="bold magenta")
    for side in ("a", "b"):
        line = f"{side.upper()}: {answer[side]['directory']} ({', '.join(answer[side]['data'])})"
        console.print(line, markup=False, soft_wrap=True)
    for key, one, other in answer["other_conditions"]:
        console.print(Text(f"   {key}: {one} against {other}", style="dim"), soft_wrap=True)
    known = [each for each in differences if each.noise is not None]
    larger = [each for each in known if each.larger]
    if larger:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("point" if any(each.where for each in larger) else "")
        for heading in ("figure", "A", "B", "B / A", "noise"):
            table.add_column(heading, justify="left" if heading == "figure" else "right")
        for each in larger:
            texts = [_figure_text(each.figure, value) for value in (each.a, each.b)]
            ratio = units.ABSENT if each.ratio is None else f"{each.ratio:.3g}"
            noise = f"± {_figure_text(each.figure, each.noise or 0.0)}"
            table.add_row(*(Text(cell) for cell in (each.where, _words(each.figure), *texts, ratio, noise)))
        console.print(table)
    console.print(f"{len(larger)} of {len(known)} differences are larger than the noise.", markup=False)
    unknown = [each for each in differences if each.noise is None]
    if unknown:
        console.print(f"Of {len(unknown)} figures the noise is not known (one reading a side); B / A:", markup=False)
        for each in unknown[:20]:
            ratio = units.ABSENT if each.ratio is None else f"{each.ratio:.3g}"
            texts = [_figure_text(each.figure, value) for value in (each.a, each.b)]
            name = " ".join(part for part in (each.where, _words(each.figure)) if part)
            console.print(Text(f"   {name}: {ratio}   ({texts[0]}, {texts[1]})", style="dim"), soft_wrap=True)
    for note in answer["notes"]:
        console.print(Text(note, style="dim"), soft_wrap=True)


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Directory of a run, of raw traffic, or of a scan.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one of the same sort.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Every figure, in JSON.")] = False,
) -> None:
    """Print what differs between two runs or two scans by more than the noise, and the rule for that."""
    differences, answer = compared(a, b)
    if as_json:
        listed = [{**asdict(each), "ratio": each.ratio, "larger_than_noise": each.larger} for each in differences]
        sys.stdout.write(json.dumps({**answer, "differences": listed}, indent=2) + "\n")
        return
    _print(open_console(), answer, differences)
