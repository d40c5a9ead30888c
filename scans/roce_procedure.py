"""The RoCE study's procedure (EPJ Web Conf. 245 01011) on simulated switches: scan, optimum, long run, ports.

    python scans/roce_procedure.py OUTPUT        # from the folder of a checkout; four minutes of one core

Everything is done by `incast`; this program only says in which order, and picks the optimum from the scan's table.
Coarser than in the study: 20 ms of virtual time for 15 s, and 200 ms (88 ports: 100 ms) for 3 h; figures over time
every 10 ms for every 2 s.
"""

import csv
import json
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_LONG_RUN = {30: "200ms", 88: "100ms"}
_GBIT = 8 / 1e9


def incast(*words: str) -> None:
    """One command; ends the program if it fails."""
    print("incast " + " ".join(words), flush=True)
    if subprocess.run([sys.executable, "-m", "incast", *words], stdout=subprocess.DEVNULL, check=False).returncode:
        raise SystemExit(f"incast {words[0]} failed")


def optima(table: Path) -> dict[str, dict[str, str]]:
    """By fabric, the row with the highest goodput."""
    best: dict[str, dict[str, str]] = {}
    with table.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            fabric = row["transport.sim.fabric"]
            if row["status"] == "complete" and (fabric not in best or per_node(row) > per_node(best[fabric])):
                best[fabric] = row
    return best


def per_node(row: dict[str, str]) -> float:
    """Gb/s that a node sends to the others."""
    return float(row["goodput_without_self_bytes_per_s"]) * _GBIT / int(row["nodes"])


def long_run(row: dict[str, str], output: Path) -> str:
    """Runs the optimum for long; a row of the summary."""
    nodes, fabric = int(row["nodes"]), row["transport.sim.fabric"]
    settings = {
        "protocol.credits": "8",
        "protocol.mfp_size": row["protocol.mfp_size"],
        "protocol.parallel_sends": row["protocol.parallel_sends"],
        "source.fragment_size": "4KiB",
        "run.sample_interval": "10ms",
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    incast("run", "--fabric", fabric, "--nodes", str(nodes), "--protocol", "pull", "--sink", "null",
           "--duration", _LONG_RUN[nodes], "--warm-up", "10ms", *words, "--output", str(output))  # fmt: skip
    result = json.loads((output / "result.json").read_text(encoding="utf-8"))
    rates = result["goodput_bytes_per_s"]
    # Over time all that is built is counted, also what nodes have for themselves.
    kept = rates["total_without_self"] / rates["total"]
    mean, lowest = (value * kept * _GBIT / nodes for value in (rates["total"], rates["over_time"]["min"]))
    return (
        f"| {Path(fabric).stem} | {nodes} | {row['protocol.mfp_size']} | {row['protocol.parallel_sends']} "
        f"| {per_node(row):.1f} | {mean:.1f} | {lowest:.1f} |"
    )


def main(output: Path) -> None:
    """All steps; results, summary and report go below that folder."""
    scan, ports, runs = output / "scan", output / "ports", []
    incast("scan", str(_HERE / "roce-scan.toml"), "--output", str(scan))
    lines = [
        "| switch | ports | message | sends | scan Gb/s | long run | lowest 10 ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for fabric, row in optima(scan / "table.csv").items():
        runs.append(output / f"long-{Path(fabric).stem}")
        lines.append(long_run(row, runs[-1]))
    incast("scan", str(_HERE / "roce-ports.toml"), "--output", str(ports))
    axes = ("--x", "protocol.mfp_size", "--y", "protocol.parallel_sends")
    incast("report", str(scan), *map(str, runs), *axes, "--output", str(output / "report"))
    incast("report", str(ports), "--output", str(output / "report-ports"))
    summary = "\n".join(lines) + "\n"
    (output / "summary.md").write_text(summary, encoding="utf-8")
    print(summary, end="")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: roce_procedure.py OUTPUT")
    main(Path(sys.argv[1]))
