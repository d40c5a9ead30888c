"""Draws the scan of scans/schedules.toml: a map of credits and parallel sends for each network and schedule.

    python scans/draw_schedules.py SCAN_FOLDER docs/schedules.png

Also prints the numbers as a table of Markdown. Simulated, and labelled so.
"""

import csv
import sys
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


def read(folder: Path) -> dict[Cell, float]:
    """Gb/s a node, without what it keeps for itself."""
    found: dict[Cell, float] = {}
    with (folder / "table.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["status"] != "complete":
                raise SystemExit(f"point {row['point']}: {row['status']}: {row['reason']}")
            network = _NETWORKS[row["transport.sim.fabric"], row["fabric.network.routing"]]
            cell = (
                network,
                row["protocol.schedule"],
                int(row["protocol.credits"]),
                int(row["protocol.parallel_sends"]),
            )
            found[cell] = float(row["goodput_without_self_bytes_per_s"]) * _GBIT / int(row["nodes"])
    return found


def draw(rates: dict[Cell, float], target: Path) -> None:
    """One map for each network (rows) and schedule (columns)."""
    networks, schedules = list(dict.fromkeys(cell[0] for cell in rates)), list(dict.fromkeys(cell[1] for cell in rates))
    credits_, sends = list(dict.fromkeys(cell[2] for cell in rates)), list(dict.fromkeys(cell[3] for cell in rates))
    figure, axes = plt.subplots(
        len(networks), len(schedules), figsize=(2.1 * len(schedules), 2.1 * len(networks)), layout="constrained"
    )
    for row, network in enumerate(networks):
        for column, schedule in enumerate(schedules):
            one = axes[row][column]
            values = [[rates[network, schedule, credit, send] for send in sends] for credit in credits_]
            one.imshow(values, cmap="cividis", vmin=0, vmax=100, origin="lower")
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


def table(rates: dict[Cell, float]) -> str:
    """Lines of Markdown: the first and the best setting of each schedule."""
    networks, schedules = list(dict.fromkeys(cell[0] for cell in rates)), list(dict.fromkeys(cell[1] for cell in rates))
    lines = ["| schedule | " + " | ".join(networks) + " |", "|---|" + "---|" * len(networks)]
    for schedule in schedules:
        cells = []
        for network in networks:
            of_these = {cell: rate for cell, rate in rates.items() if cell[:2] == (network, schedule)}
            best = max(of_these, key=lambda cell: of_these[cell])
            first = rates[network, schedule, best[2], 1]
            cells.append(f"{of_these[best]:.1f} ({best[2]}, {best[3]}); one send {first:.1f}")
        lines.append(f"| `{schedule}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: draw_schedules.py SCAN_FOLDER PICTURE")
    found = read(Path(sys.argv[1]))
    draw(found, Path(sys.argv[2]))
    print(table(found), end="")
