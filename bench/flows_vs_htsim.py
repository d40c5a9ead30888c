"""Flows of web-search sizes on the packet model and on htsim: the same network, flows and paths (docs/flows.md).

htsim (https://github.com/Broadcom/csg-htsim) is built from a checkout that --htsim names; nothing of it is linked with
Incast. Both have the fat tree of k-port switches with lossless inputs (PFC), RoCE senders without congestion control
that share a host's link packet by packet, an acknowledgement for each packet, and store and forward. htsim sends whole
packets only, so sizes are rounded up to them.

`--causes N` shows what the difference is made of: htsim with each cause in turn as it is here, and with all of them,
for N traces that differ by less than a nanosecond in when each flow starts, which says what chance does.
"""

import argparse
import csv
import math
import random
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from incast.engine.program import find_engine
from incast.run.flow_patterns import WEB_SEARCH, PatternRequest, flows_text

RADIX = 8
HOSTS = RADIX**3 // 4
MBIT_PER_S = 100_000
PAYLOAD = 9000  # htsim's own
HEADER = 64
HIGH, LOW = 15, 12  # packets of an input: pauses above, goes on below
CAUSES = {
    "an acknowledgement takes a path of its own": "acks",
    "a pause waits for a packet, and takes time": "pauses",
    "memory is free as a packet begins to leave": "memory",
    "a new flow is the last of its host's round": "turns",
}
JITTER_PS = 1000
_MASK = (1 << 64) - 1
_BINS = (0, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
_QUANTILES = (0.5, 0.95, 0.99, 0.999)


def fabric_text() -> str:
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
pfc = {{ classes = [0], xoff = "{HIGH * PAYLOAD}B", xon_gap = "{(HIGH - LOW) * PAYLOAD}B", headroom = "256KiB" }}
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


def uplinks(entropy: int, source: int) -> tuple[int, int]:
    """Which uplinks the packet model's ECMP takes for that hash, at the edge and at the aggregation switch."""
    half = RADIX // 2

    def choice(node: int) -> int:
        return (mix64((node << 32) | entropy) >> 32) * half >> 32  # src/sim/packet/routing.h

    first = choice(HOSTS + source // half)
    pod = source // half**2
    return first, choice(HOSTS + RADIX * half + pod * half + first)


def paths(flow: int, source: int, destination: int, seed: int) -> tuple[int, ...]:
    """Uplinks of its data and of its acknowledgements."""
    entropy = mix64((mix64(seed) + flow) & _MASK) >> 33  # src/sim/flows/streams.h
    return *uplinks(entropy, source), *uplinks(entropy ^ 0xFFFFFFFF, destination)  # src/sim/packet/host_send.cpp


def trace(count: int, load: float, seed: int) -> list[list[int]]:
    """Rows of start in ps, source, destination and bytes, by start."""
    asked = PatternRequest((MBIT_PER_S * 1_000_000,) * HOSTS, seed, 0, count, load, 0)
    rows = [[int(word) for word in line.split(",")] for line in flows_text("web-search", asked).splitlines()[1:]]
    return [[*row[:3], math.ceil(row[3] / PAYLOAD) * PAYLOAD] for row in rows]


def shifted(rows: Sequence[Sequence[int]], draw: int) -> list[list[int]]:
    """The same with each start up to a nanosecond later, in the same order."""
    chance, last, found = random.Random(draw), 0, []
    for start, *rest in rows:
        last = max(last, start + chance.randrange(JITTER_PS))
        found.append([last, *rest])
    return found


def build_htsim(checkout: Path, folder: Path) -> Path:
    """The program of htsim_flows.cpp."""
    sim, program = checkout / "sim", folder / "htsim_flows"
    subprocess.run(["make", "-j", "-C", sim, "libhtsim.a"], check=True, stdout=subprocess.DEVNULL)
    sources = [sim / "datacenter" / name for name in ("fat_tree_switch.cpp", "firstfit.cpp", "connection_matrix.cpp")]
    words: list[str | Path] = ["g++", "-std=c++17", "-O3", "-w", "-fno-access-control"]
    words += ["-I", sim, "-I", sim / "datacenter"]
    own = Path(__file__).with_name("htsim_flows.cpp")
    subprocess.run([*words, own, *sources, sim / "libhtsim.a", "-o", program], check=True)
    return program


def quantile(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def run_incast(folder: Path, rows: Sequence[Sequence[int]], seed: int) -> list[tuple[int, int]]:
    """Completion time and time alone of each flow, in ps."""
    fabric = folder / "pauses.toml"
    fabric.write_text(fabric_text())
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
    program: Path, folder: Path, rows: Sequence[Sequence[int]], seed: int, as_incast: Sequence[str] = ()
) -> list[int]:
    """Completion times in ps."""
    flows = folder / "flows-htsim.txt"
    lines = (" ".join(map(str, (*row, *paths(number, row[1], row[2], seed)))) for number, row in enumerate(rows))
    flows.write_text("\n".join(lines) + "\n")
    words: list[str | Path] = [program, flows, *map(str, (RADIX, MBIT_PER_S, 1000, PAYLOAD, HIGH, LOW)), *as_incast]
    said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    (folder / "-".join(["htsim", *as_incast])).with_suffix(".csv").write_text(said)
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


def figures_of(rows: Sequence[Sequence[int]], times: Sequence[int], alone: Sequence[int]) -> list[float]:
    """Medians in us by size and of all, and the mean slowdown."""
    bins = [*pairwise(_BINS), (0, _BINS[-1])]
    chosen = [[number for number, row in enumerate(rows) if above < row[3] <= up_to] for above, up_to in bins]
    medians = [quantile([times[number] / 1e6 for number in each], 0.5) for each in chosen if each]
    return [*medians, statistics.fmean(time / least for time, least in zip(times, alone, strict=True))]


def caused(program: Path, folder: Path, rows: Sequence[Sequence[int]], seed: int, draws: int) -> Iterator[str]:
    """Lines of a Markdown table: the figures of each way, in the mean over the draws and with their deviation."""
    ways: Mapping[str, Sequence[str]] = {
        "htsim": (),
        **{name: (word,) for name, word in CAUSES.items()},
        "all of them": tuple(CAUSES.values()),
    }
    found: dict[str, list[list[float]]] = {}
    apart: dict[str, list[float]] = {}
    for draw in range(1, draws + 1):
        drawn = shifted(rows, draw)
        ours = run_incast(folder, drawn, seed)
        alone = [each[1] for each in ours]
        times = {name: run_htsim(program, folder, drawn, seed, words) for name, words in ways.items()}
        times["Incast"] = [each[0] for each in ours]
        times["Incast, another draw"] = [each[0] for each in run_incast(folder, shifted(rows, draw + draws), seed)]
        for name, listed in times.items():
            found.setdefault(name, []).append(figures_of(rows, listed, alone))
            pairs = zip(listed, times["Incast"], strict=True)
            apart.setdefault(name, []).append(quantile([abs(one / other - 1) for one, other in pairs], 0.5))
    names = [f"up to {up_to}" for above, up_to in pairwise(_BINS) if any(above < row[3] <= up_to for row in rows)]
    yield f"| | {' | '.join(names)} | all | mean slowdown | of a flow apart from Incast's, median |"
    yield "|---" * (len(names) + 4) + "|"
    for name, figures in found.items():
        cells = [f"{statistics.fmean(each):.4g} ({_deviation(each):.2g})" for each in zip(*figures, strict=True)]
        yield f"| {name} | {' | '.join(cells)} | {100 * statistics.fmean(apart[name]):.2g} % |"


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def main() -> None:
    """Runs both, and prints a table; then what the causes do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--htsim", type=Path, required=True, help="a checkout of htsim")
    parser.add_argument("--output", type=Path, required=True, help="folder for what both leave")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--load", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--causes", type=int, default=0, metavar="N", help="draws of the starts; 0: only the table")
    parser.add_argument("--causes-count", type=int, default=5000, metavar="N", help="flows for these (default: 5000)")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    program = build_htsim(asked.htsim, asked.output)
    rows = trace(asked.count, asked.load, asked.seed)
    mean = sum(row[3] for row in rows) / len(rows)
    print(f"{len(rows)} flows of {mean:.0f} bytes in the mean, load {asked.load}, {len(WEB_SEARCH)} points of sizes")
    ours = run_incast(asked.output, rows, asked.seed)
    theirs = run_htsim(program, asked.output, rows, asked.seed)
    print("\ncompletion times in us, Incast / htsim\n")
    print("\n".join(compared(rows, ours, theirs)))
    if asked.causes > 0:
        few = rows[: asked.causes_count]
        print(f"\nthe first {len(few)} flows, medians in us, mean and deviation of {asked.causes} draws\n")
        print("\n".join(caused(program, asked.output, few, asked.seed, asked.causes)))


if __name__ == "__main__":
    main()
