"""Draws scans/schedules.toml and scans/barrels.toml: a map of credits and parallel sends for each network and schedule.

    python scans/draw_schedules.py SCAN_FOLDER... docs/schedules.png

Figures are medians over seeds. Also prints the numbers as a table of Markdown, with the range over seeds. Simulated,
and labelled so.
"""

import csv
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt

_NETWORKS = {
    ("fabrics/one-switch-64.toml", ""): "one switch",
    ("fabrics/two-tiers-64.toml", "ecmp"): "tree, ECMP",
    ("fabrics/two-tiers-64.toml", "shift-aware"): "tree, shift-aware",
}
_GBIT = 8 / 1e9

Cell = tuple[str, str, int, int]  # network, schedule, credits, parallel sends


def read(folders: Sequence[Path]) -> dict[Cell, list[float]]:
    """Gb/s a node, without what it keeps for itself, of each seed."""
    found: dict[Cell, list[float]] = {}
    for folder in folders:
        with (folder / "table.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["status"] != "complete":
                    raise SystemExit(f"{folder}: point {row['point']}: {row['status']}: {row['reason']}")
                cell = (
                    _NETWORKS[row["transport.sim.fabric"], row["fabric.network.routing"]],
                    row["protocol.schedule"],
                    int(row["protocol.credits"]),
                    int(row["protocol.parallel_sends"]),
                )
                rate = float(row["goodput_without_self_bytes_per_s"]) * _GBIT / int(row["nodes"])
                found.setdefault(cell, []).append(rate)
    return found


def _values(rates: dict[Cell, list[float]], field: int) -> list[str | int]:
    return list(dict.fromkeys(cell[field] for cell in rates))


def draw(rates: dict[Cell, list[float]], target: Path) -> None:
    """One map for each network (rows) and schedule (columns)."""
    networks, schedules = _values(rates, 0), _values(rates, 1)
    figure, axes = plt.subplots(
        len(networks), len(schedules), figsize=(2.1 * len(schedules), 2.6 * len(networks)), layout="constrained"
    )
    for row, network in enumerate(networks):
        for column, schedule in enumerate(schedules):
            one = axes[row][column]
            mine = {cell: statistics.median(seeds) for cell, seeds in rates.items() if cell[:2] == (network, schedule)}
            credits_ = sorted({cell[2] for cell in mine})
            sends = sorted({cell[3] for cell in mine})
            values = [
                [mine.get((str(network), str(schedule), credit, send), float("nan")) for send in sends]
                for credit in credits_
            ]
            one.imshow(values, cmap="cividis", vmin=0, vmax=100, origin="lower", aspect="auto")
            for y, line in enumerate(values):
                for x, value in enumerate(line):
                    colour = "black" if value > 55 else "white"
                    one.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=8, color=colour)
            one.set_xticks(range(len(sends)), sends, fontsize=7)
            one.set_yticks(range(len(credits_)), credits_, fontsize=7)
            if row == 0:
                one.set_title(schedule, fontsize=9)
            if column == 0:
                one.set_ylabel(f"{network}\ncredits", fontsize=8)
            if row == len(networks) - 1:
                one.set_xlabel("parallel sends", fontsize=8)
    figure.suptitle("Gb/s a node of 100, 64 nodes, push, 32 KiB MFPs. SIMULATED, virtual time", fontsize=10)
    figure.savefig(target, dpi=110, metadata={"Software": None})


def _cell_text(seeds: Sequence[float]) -> str:
    spread = f" [{min(seeds):.1f}..{max(seeds):.1f}]" if max(seeds) - min(seeds) > 0.05 else ""
    return f"{statistics.median(seeds):.1f}{spread}"


def table(rates: dict[Cell, list[float]]) -> str:
    """Lines of Markdown: the best setting of each schedule, and one send with its credits."""
    networks, schedules = _values(rates, 0), _values(rates, 1)
    lines = ["| schedule | " + " | ".join(map(str, networks)) + " |", "|---|" + "---|" * len(networks)]
    for schedule in schedules:
        cells = []
        for network in networks:
            of_these = {cell: seeds for cell, seeds in rates.items() if cell[:2] == (network, schedule)}
            best = max(of_these, key=lambda cell: statistics.median(of_these[cell]))
            first = of_these.get((best[0], best[1], best[2], 1), of_these[best])
            cells.append(f"{_cell_text(of_these[best])} ({best[2]}, {best[3]}); one send {_cell_text(first)}")
        lines.append(f"| `{schedule}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit("usage: draw_schedules.py SCAN_FOLDER... PICTURE")
    found = read([Path(word) for word in sys.argv[1:-1]])
    draw(found, Path(sys.argv[-1]))
    print(table(found), end="")
