"""Flows of web-search sizes on the packet model and on htsim: the same network, flows and paths (docs/flows.md).

htsim (https://github.com/Broadcom/csg-htsim) is built from a checkout that --htsim names; nothing of it is linked with
Incast. Both have the fat tree of k-port switches with lossless inputs (PFC), RoCE senders without congestion control
that share a host's link packet by packet, an acknowledgement for each packet, and store and forward. htsim sends whole
packets only, so sizes are rounded up to them.
"""

import argparse
import csv
import math
import subprocess
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from incast.engine.program import find_engine
from incast.run.flow_patterns import WEB_SEARCH, PatternRequest, flows_text

RADIX = 8
HOSTS = RADIX**3 // 4
MBIT_PER_S = 100_000
PAYLOAD = 9000  # htsim's own
HEADER = 64
PAUSE = {"pauses": (15, 12), "no pauses": (500_000, 499_999)}  # packets of an input: pauses above, goes on below
_MASK = (1 << 64) - 1
_BINS = (0, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
_QUANTILES = (0.5, 0.95, 0.99, 0.999)


def fabric_text(high: int, low: int) -> str:
    """The network as Incast reads it."""
    return f"""[fabric]
name = "htsim-fat-tree-{HOSTS}"
[hosts.nic]
mtu = "{PAYLOAD}B"
header = "{HEADER}B"
ack = "{HEADER}B"
[switches.sw]
kind = "shared-buffer"
latency = "0ns"
buffer = "64GiB"
pfc = {{ classes = [0], xoff = "{high * PAYLOAD}B", xon_gap = "{(high - low) * PAYLOAD}B", headroom = "256KiB" }}
[links.cable]
rate = "{MBIT_PER_S}Mb/s"
delay = "1us"
[network]
unstored = "0B"
pause_frame = "{HEADER}B"
[flow]
ack_packets = 1
[topology]
kind = "fat-tree"
radix = {RADIX}
"""


def mix64(value: int) -> int:
    """splitmix64, as src/base/prng.h has it."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uplinks(flow: int, source: int, seed: int) -> tuple[int, int]:
    """Which uplinks the packet model's ECMP takes for that flow, at its edge and at its aggregation switch."""
    entropy = mix64((mix64(seed) + flow) & _MASK) >> 33  # src/sim/flows/streams.h
    half = RADIX // 2

    def choice(node: int) -> int:
        return (mix64((node << 32) | entropy) >> 32) * half >> 32  # src/sim/packet/routing.h

    first = choice(HOSTS + source // half)
    pod = source // half**2
    return first, choice(HOSTS + RADIX * half + pod * half + first)


def trace(count: int, load: float, seed: int) -> list[list[int]]:
    """Rows of start in ps, source, destination and bytes, by start."""
    asked = PatternRequest((MBIT_PER_S * 1_000_000,) * HOSTS, seed, 0, count, load, 0)
    rows = [[int(word) for word in line.split(",")] for line in flows_text("web-search", asked).splitlines()[1:]]
    return [[*row[:3], math.ceil(row[3] / PAYLOAD) * PAYLOAD] for row in rows]


def build_htsim(checkout: Path, folder: Path) -> Path:
    """The program of htsim_flows.cpp."""
    sim, program = checkout / "sim", folder / "htsim_flows"
    subprocess.run(["make", "-j", "-C", sim, "libhtsim.a"], check=True, stdout=subprocess.DEVNULL)
    sources = [
        sim / "datacenter" / name
        for name in ("fat_tree_topology.cpp", "fat_tree_switch.cpp", "firstfit.cpp", "connection_matrix.cpp")
    ]
    words: list[str | Path] = ["g++", "-std=c++17", "-O3", "-w", "-I", sim, "-I", sim / "datacenter"]
    own = Path(__file__).with_name("htsim_flows.cpp")
    subprocess.run([*words, own, *sources, sim / "libhtsim.a", "-o", program], check=True)
    return program


def quantile(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def run_incast(folder: Path, rows: Sequence[Sequence[int]], fabric: Path, seed: int) -> list[tuple[int, int]]:
    """Completion time and time alone of each flow, in ps."""
    flows = folder / "flows-in.csv"
    lines = [",".join(map(str, row)) for row in rows]
    flows.write_text("start_ps,source,destination,bytes\n" + "\n".join(lines) + "\n")
    output = folder / fabric.stem
    words: list[str | Path] = [
        find_engine(),
        "--flows",
        flows,
        "--fabric",
        fabric,
        "--seed",
        str(seed),
        "--output",
        output,
        "--force",
    ]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    with (output / "flows.csv").open() as table:
        return [(int(row["completion_ps"]), int(row["alone_ps"])) for row in csv.DictReader(table)]


def run_htsim(
    program: Path, folder: Path, rows: Sequence[Sequence[int]], limits: tuple[int, int], seed: int
) -> list[int]:
    """Completion times in ps."""
    flows = folder / "flows-htsim.txt"
    lines = (" ".join(map(str, (*row, *uplinks(number, row[1], seed)))) for number, row in enumerate(rows))
    flows.write_text("\n".join(lines) + "\n")
    words: list[str | Path] = [program, flows, str(RADIX), str(MBIT_PER_S), "1000", str(PAYLOAD), *map(str, limits)]
    said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    (folder / f"htsim-{limits[0]}.csv").write_text(said)
    finished = {int(row["flow"]): int(row["delivered_ps"]) for row in csv.DictReader(said.splitlines())}
    return [finished[number] - row[0] for number, row in enumerate(rows)]


def compared(rows: Sequence[Sequence[int]], ours: Sequence[tuple[int, int]], theirs: Sequence[int]) -> Iterator[str]:
    """Lines of a Markdown table: completion times in us of Incast / htsim, and their slowdowns."""
    yield "| bytes of a flow | flows | median | 95 % | 99 % | 99.9 % | mean slowdown | of a flow apart: median, 95 % |"
    yield "|---|---|---|---|---|---|---|---|"
    for above, up_to in [*pairwise(_BINS), (0, _BINS[-1])]:
        chosen = [number for number, row in enumerate(rows) if above < row[3] <= up_to]
        if not chosen:
            continue
        pairs = [(ours[number][0] / 1e6, theirs[number] / 1e6, ours[number][1] / 1e6) for number in chosen]
        cells = [
            f"{quantile([pair[0] for pair in pairs], share):.4g} / {quantile([pair[1] for pair in pairs], share):.4g}"
            for share in _QUANTILES
        ]
        slowdowns = (sum(pair[which] / pair[2] for pair in pairs) / len(pairs) for which in (0, 1))
        apart = [abs(one / other - 1) for one, other, _ in pairs]
        yield " | ".join(
            [
                f"| {above} .. {up_to}",
                str(len(pairs)),
                *cells,
                " / ".join(f"{each:.3f}" for each in slowdowns),
                f"{100 * quantile(apart, 0.5):.2g} %, {100 * quantile(apart, 0.95):.2g} % |",
            ]
        )


def main() -> None:
    """Runs both, with pauses and without, and prints a table for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--htsim", type=Path, required=True, help="a checkout of htsim")
    parser.add_argument("--output", type=Path, required=True, help="folder for what both leave")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--load", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    program = build_htsim(asked.htsim, asked.output)
    rows = trace(asked.count, asked.load, asked.seed)
    mean = sum(row[3] for row in rows) / len(rows)
    print(f"{len(rows)} flows of {mean:.0f} bytes in the mean, load {asked.load}, {len(WEB_SEARCH)} points of sizes")
    for name, limits in PAUSE.items():
        fabric = asked.output / f"{name.replace(' ', '-')}.toml"
        fabric.write_text(fabric_text(*limits))
        ours = run_incast(asked.output, rows, fabric, asked.seed)
        theirs = run_htsim(program, asked.output, rows, limits, asked.seed)
        print(f"\n{name}: completion times in us, Incast / htsim\n")
        print("\n".join(compared(rows, ours, theirs)))


if __name__ == "__main__":
    main()
