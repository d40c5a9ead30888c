"""How figures look: readable in light and dark, on paper, and without telling red from green (decisions/0010).

A figure is drawn for a `Theme`. In the page it is SVG, drawn with colours that stand for the page's own: `adaptive_svg`
replaces them by the page's variables, so that one drawing follows light, dark and paper.
"""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incast.base.files import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Theme:
    """Colours of what is not data."""

    text: str
    muted: str
    grid: str
    background: str
    series: tuple[str, ...]


# Okabe and Ito's palette without black and yellow, which one of the backgrounds swallows; the strongest first.
_SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LIGHT = Theme("#1b1b1b", "#5c5c5c", "#d9d9d9", "#ffffff", _SERIES)
# The same hues; the blue is lighter, to stand out against black.
DARK = Theme("#ececec", "#a8a8a8", "#3d3d3d", "#16181b", ("#3D9BD6", *_SERIES[1:]))
# No figure holds these colours; each is replaced by a variable of the page.
_PAGE = Theme("#010203", "#040506", "#070809", "none", ("#0a0b0c", *_SERIES[1:]))
_VARIABLES = {
    _PAGE.text: "var(--text)",
    _PAGE.muted: "var(--muted)",
    _PAGE.grid: "var(--grid)",
    _PAGE.series[0]: "var(--series-1)",
}

MARKERS = "osD^vPX"
DASHES = ("-", "--", "-.", ":")
SCALE = "cividis"
_PIXELS_PER_POINT = 1.6  # text of 10 points is then as large as the page's
Draw = Callable[[Theme], "Figure"]


def series_style(theme: Theme, index: int) -> dict[str, Any]:
    """Colour, marker and dashes: any of them alone tells the first series apart, and together they do not repeat."""
    count = len(theme.series)
    return {
        "color": theme.series[index % count],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": DASHES[(index + index // count) % len(DASHES)],
    }


@contextmanager
def themed(theme: Theme) -> Iterator[None]:
    """Everything drawn within has the colours of the theme."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "incast",
        "pdf.fonttype": 42,  # text stays text
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": theme.muted,
        "axes.labelcolor": theme.text,
        "axes.titlecolor": theme.text,
        "text.color": theme.text,
        "xtick.color": theme.text,
        "ytick.color": theme.text,
        "grid.color": theme.grid,
        "figure.facecolor": theme.background,
        "axes.facecolor": "none",
        "savefig.facecolor": theme.background,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "lines.markersize": 6,
        "hatch.color": theme.muted,
    }
    with mpl.rc_context(settings):
        yield


def new_figure(width: float = 8.0, height: float = 4.2) -> "Figure":
    """Inches; without pyplot, which keeps figures alive and looks for a display."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def finish(axes: "Axes", *, grid: str = "y") -> None:
    """A grid behind the data."""
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis=grid)  # type: ignore[arg-type]


def page_svg(draw: Draw, number: int) -> str:
    """For the page: follows its colours, fits its width, and has ids of its own."""
    with themed(_PAGE):
        buffer = io.StringIO()
        draw(_PAGE).savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # As wide as drawn at most: a small figure is not blown up.
    opening, rest = svg.split(">", 1)
    width = re.search(r'viewBox="0 0 ([0-9.]+) ', opening)
    assert width is not None
    opening = re.sub(r' (?:width|height)="[^"]*"', "", opening)
    svg = f'{opening} style="max-width: {float(width[1]) * _PIXELS_PER_POINT:.0f}px">{rest}'
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    prefix = f"figure{number}-"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = svg.replace("url(#", f"url(#{prefix}")
    return re.sub(r'(xlink:)?href="#', rf'href="#{prefix}', svg)


def save(draw: Draw, theme: Theme, path: str, file_format: str, conditions: list[str]) -> None:
    """As a file for slides or paper, with the conditions under the figure."""
    import textwrap

    with themed(theme):
        figure = draw(theme)
        width = figure.get_figwidth()
        lines = [part for line in conditions for part in textwrap.wrap(line, int(width * 15.5))]
        extra = 0.16 * len(lines) + 0.1
        height = figure.get_figheight()
        figure.set_figheight(height + extra)
        share = extra / (height + extra)
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.set(rect=(0, share, 1, 1 - share))  # type: ignore[call-arg]
        figure.text(0.01, share - 0.01, "\n".join(lines), fontsize=7.5, color=theme.muted, va="top", ha="left")
        metadata = {"CreationDate": None} if file_format == "pdf" else {}
        picture = io.BytesIO()
        figure.savefig(picture, format=file_format, dpi=160, metadata=metadata)
        replace_file(Path(path), picture.getvalue())
