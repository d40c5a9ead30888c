#!/usr/bin/env python3
"""The RapidIO papers' comparisons, measured over SoftRIO and simulated (docs/rapidio-comparisons.md).

    python bench/rio_comparisons.py OUTPUT --simulate      # virtual time; about ten minutes of one core
    python bench/rio_comparisons.py OUTPUT --measure       # about ten minutes, on an idle machine
    python bench/rio_comparisons.py OUTPUT --document docs/rapidio-comparisons.md

What is in OUTPUT already is not taken again; a scan that was stopped goes on. The document is written from what is
there, with the conditions; its pictures go beside it. Measured and simulated figures are labelled and never mixed.
"""

import argparse
import csv
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import ROOT, IdleRule, Machine, conditions, usable_cores

_SCANS = Path(__file__).parent / "scans"
_MEASURED = ("rio-acknowledgement", "rio-buffer-size", "rio-old-limits")
_SIMULATED = ("rio-stop-and-wait-simulated", "rio-buffer-size-simulated", "rio-old-limits-simulated")
_LINKS = ("none", "tsi721")
_CLIENTS = (1, 3)  # two and four nodes
_PERF_REPEATS = 3
_PERF_SECONDS = 0.3  # of each figure
_PERF_SIZES = [4096 * 4**step for step in range(6)]
_KIB, _MIB = 1 << 10, 1 << 20
_UNITS = {"KiB": _KIB, "MiB": _MIB}

Rates = dict[int, float]  # Gb/s by size in bytes
Row = Mapping[str, str]


class ComparisonError(Exception):
    """One line for people."""


# --- taking figures


def incast(*words: str) -> None:
    """One command of the package. Points that failed are in the table with their reason."""
    print("incast " + " ".join(words), flush=True)
    paths = [str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    status = subprocess.run([sys.executable, "-m", "incast", *words], cwd=ROOT, env=environment, check=False).returncode
    if status not in (0, 1):
        raise ComparisonError(f"incast {words[0]} ended with status {status}")


def scan(name: str, output: Path) -> None:
    """Takes what is missing of it."""
    folder = (output / name).resolve()
    if (folder / "plan.json").exists():
        incast("scan", "--resume", str(folder))
    else:
        incast("scan", str(_SCANS / f"{name}.toml"), "--output", str(folder))


def perf(engine: Path, link: str, clients: int) -> list[dict[str, Any]]:
    """Buffers that are acknowledged one by one, by so many clients to one server at a time: summed over clients.

    Several begin every figure together: over all of them, who is done early would leave the server to the others.
    """
    environment = {**os.environ, "RIO_FABRIC": f"shm:compare-{os.getpid()}?link={link}"}
    command = [str(engine.with_name("softrio"))]
    with subprocess.Popen(
        [*command, "--destid", "5", "serve"], env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        server.stdout.readline()  # it is there
        # Three clients have one word to be acknowledged through between them; doorbells and CM know who asked.
        alone = clients == 1
        tests = ["acknowledged"] if alone else ["messages, acknowledged by CM", "write, acknowledged by CM"]
        spans = [(_PERF_SIZES[0], _PERF_SIZES[-1])] if alone else [(size, size) for size in _PERF_SIZES]
        said: list[str] = []
        try:
            for test, (smallest, largest) in itertools.product(tests, spans):
                words = ["perf", "5", "--from", str(smallest), "--up-to", str(largest), "--only", test, "--json"]
                running = [
                    subprocess.Popen(
                        [*command, *words, "--seconds", str(_PERF_SECONDS)],
                        env=environment,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                    for _ in range(clients)
                ]
                said += [each.communicate(timeout=300)[0] for each in running]
                if any(each.returncode for each in running):
                    raise ComparisonError(f"incast rio perf over link={link} failed")
        finally:
            server.terminate()
    total: dict[tuple[str, int], float] = {}
    for line in (json.loads(text) for lines in said for text in lines.splitlines()):
        key = (line["test"], line["bytes"])
        total[key] = total.get(key, 0) + line["bytes_per_s"]
    return [{"test": test, "bytes": size, "bytes_per_s": rate} for (test, size), rate in total.items()]


def measure_perf(engine: Path, target: Path) -> None:
    """All links and numbers of clients, in alternating order."""
    if target.exists():
        return
    cases = [(link, clients) for link in _LINKS for clients in _CLIENTS]
    rows: list[dict[str, Any]] = []
    for repeat in range(1, _PERF_REPEATS + 1):
        for link, clients in cases if repeat % 2 else reversed(cases):
            print(f"incast rio perf: link {link}, {clients} to one, repeat {repeat}", flush=True)
            before = Machine.parse(Path("/proc/stat").read_text(encoding="utf-8"))
            found = perf(engine, link, clients)
            after = Machine.parse(Path("/proc/stat").read_text(encoding="utf-8"))
            steal = after.steal - before.steal
            rows += [{"link": link, "clients": clients, "repeat": repeat, "stolen_s": steal, **one} for one in found]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"conditions": conditions(), "rows": rows}, indent=1) + "\n", encoding="utf-8")


# --- reading them


@dataclass(frozen=True)
class Curve:
    """One line of a picture and one column of a table."""

    name: str
    nodes: int
    simulated: bool
    rates: Rates

    @property
    def label(self) -> str:
        """For legends and headings."""
        return f"{self.name}, {'SIMULATED' if self.simulated else 'measured'}"


def size_of(text: str) -> int:
    """`64KiB` in bytes."""
    found = re.fullmatch(r"(\d+)(KiB|MiB)", text)
    if not found:
        raise ComparisonError(f"a size is {text}; allowed: whole KiB or MiB")
    return int(found[1]) * _UNITS[found[2]]


def size_text(size: int) -> str:
    """Bytes as `64 KiB`."""
    return f"{size // _MIB} MiB" if size >= _MIB else f"{size // _KIB} KiB"


def rows_of(output: Path, name: str) -> list[Row]:
    """The complete rows of a scan."""
    try:
        with (output / name / "table.csv").open(encoding="utf-8", newline="") as file:
            return [row for row in csv.DictReader(file) if row["status"] == "complete"]
    except FileNotFoundError:
        flag = "--simulate" if name in _SIMULATED else "--measure"
        raise ComparisonError(f"{output}: no {name}; take it with {flag}") from None


def rate_of(row: Row) -> float:
    """Gb/s: of the receiver where all send to one, of a node where everybody sends."""
    if row["kind"] == "run":
        return float(row["goodput_without_self_bytes_per_s"]) * 8e-9 / int(row["nodes"])
    share = int(row["nodes"]) if row["net.pattern"] == "all-to-all" else 1
    return float(row["throughput_bytes_per_s"]) * 8e-9 / share


def medians(rows: Iterable[Row]) -> Rates:
    """Over repeats, by size, in Gb/s."""
    found: dict[int, list[float]] = {}
    for row in rows:
        found.setdefault(size_of(row["protocol.mfp_size" if row["kind"] == "run" else "net.message_size"]), []).append(
            rate_of(row)
        )
    return {size: statistics.median(values) for size, values in sorted(found.items())}


def curves_of(
    rows: Sequence[Row], axes: Sequence[str], named: Callable[..., str | None], *, simulated: bool
) -> list[Curve]:
    """One for each number of nodes and combination of the axes that `named` has a name for."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["nodes"], *(row[axis] for axis in axes)), []).append(row)
    named_groups = [(key[0], named(*key[1:]), mine) for key, mine in groups.items()]
    return [Curve(name, int(nodes), simulated, medians(mine)) for nodes, name, mine in named_groups if name]


_OVER = {"none": "bare fabric", "tsi721": "emulated Tsi721"}
_COST = "fabric.hosts.tsi721.message_cost"


def perf_curves(output: Path, chosen: Mapping[str, str]) -> list[Curve]:
    """Of the tests that have a name there."""
    try:
        rows = json.loads((output / "perf.json").read_text(encoding="utf-8"))["rows"]
    except FileNotFoundError:
        raise ComparisonError(f"{output}: no perf.json; take it with --measure") from None
    curves = []
    for link in _LINKS:
        for clients in _CLIENTS:
            for test, name in chosen.items():
                found: dict[int, list[float]] = {}
                for row in rows:
                    if (row["link"], row["clients"], row["test"]) == (link, clients, test):
                        found.setdefault(row["bytes"], []).append(row["bytes_per_s"] * 8e-9)
                rates = {size: statistics.median(values) for size, values in found.items()}
                if rates:
                    curves.append(Curve(f"{name}, {_OVER[link]}", clients + 1, False, rates))
    return curves


def stop_and_wait(output: Path, named: Callable[[str], str | None]) -> list[Curve]:
    """Simulated, by what a message costs."""
    return curves_of(rows_of(output, "rio-stop-and-wait-simulated"), [_COST], named, simulated=True)


def data_curves(output: Path) -> list[Curve]:
    """CM against rDMA for data."""
    measured = perf_curves(
        output, {"messages, acknowledged by CM": "CM messages", "write, acknowledged by CM": "rDMA write"}
    )
    simulated = []
    for curve in stop_and_wait(output, lambda cost: cost):
        sizes = curve.rates
        if curve.name == "0us":
            simulated.append(Curve("rDMA write", curve.nodes, True, sizes))
        # CM is 4 KiB at a time, whatever the buffer.
        flat = dict.fromkeys(sizes, sizes[4 * _KIB])
        simulated.append(Curve(f"CM messages at {curve.name}", curve.nodes, True, flat))
    return measured + simulated


def acknowledgement_curves(output: Path) -> list[Curve]:
    """CM, polled memory, doorbell."""
    ways = {"cm": "CM", "memory": "polled memory", "doorbell": "doorbell"}
    measured = curves_of(
        rows_of(output, "rio-acknowledgement"),
        ["transport.rio.notice", "transport.rio.link"],
        lambda notice, link: f"{ways[notice]}, {_OVER[link]}",
        simulated=False,
    )
    return measured + stop_and_wait(output, lambda cost: f"{cost} a message")


def api_curves(output: Path) -> list[Curve]:
    """The same at the API, without the transport, point to point."""
    ways = {"CM": "CM", "memory": "polled memory", "doorbell": "doorbell"}
    chosen = {f"write, acknowledged by {way}": name for way, name in ways.items()}
    return [curve for curve in perf_curves(output, chosen) if curve.nodes == 2]


def buffer_curves(output: Path) -> list[Curve]:
    """By size of a buffer."""
    costs = {"0us": "adapter alone", "426us": "and 426 us a write (fitted)"}
    measured = curves_of(rows_of(output, "rio-buffer-size"), ["transport.rio.link"], _OVER.get, simulated=False)
    return measured + curves_of(rows_of(output, "rio-buffer-size-simulated"), [_COST], costs.get, simulated=True)


def _fits_old_limits(row: Row) -> bool:
    """Two slots of twice an MFP for each source, in the 7 pieces of 2 MiB that are not its peers' slots."""
    return 2 * 2 * int(row["nodes"]) * size_of(row["protocol.mfp_size"]) < 7 * 2 * _MIB


def limit_curves(output: Path) -> list[Curve]:
    """2 MB x 8 against a pool."""
    limits = {"old": "2 MB x 8", "none": "pool"}
    measured = curves_of(
        rows_of(output, "rio-old-limits"),
        ["transport.rio.limits", "transport.rio.link"],
        lambda limit, link: f"{limits[limit]}, {_OVER[link]}",
        simulated=False,
    )
    simulated = curves_of(
        [
            row
            for row in rows_of(output, "rio-old-limits-simulated")
            if row["protocol.credits"] == "8" or _fits_old_limits(row)
        ],
        ["protocol.credits", _COST],
        lambda credit, cost: f"{'2 MB x 8' if credit == '2' else 'pool'}, {cost} a write",
        simulated=True,
    )
    return measured + simulated


# --- showing them


def draw(title: str, curves: Sequence[Curve], target: Path) -> None:
    """Two nodes on the left, four on the right; solid is measured, dashed simulated."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    nodes = sorted({curve.nodes for curve in curves})
    figure, axes = pyplot.subplots(
        1, len(nodes), figsize=(5.5 * len(nodes), 4.6), layout="constrained", sharey=True, squeeze=False
    )
    for one, number in zip(axes[0], nodes, strict=True):
        mine = [curve for curve in curves if curve.nodes == number]
        colours = iter(mpl.colormaps["tab10"].colors)  # type: ignore[attr-defined]
        greys = iter(mpl.colormaps["copper"]([0.0, 0.3, 0.5, 0.7, 0.85, 1.0]))
        for curve in mine:
            look = {"linestyle": "--", "marker": "x", "color": next(greys)} if curve.simulated else {
                "marker": "o", "color": next(colours)}  # fmt: skip
            one.plot(list(curve.rates), list(curve.rates.values()), label=curve.label, markersize=4, **look)
        one.set_xscale("log", base=2)
        one.set_yscale("log")
        sizes = sorted({size for curve in mine for size in curve.rates})
        one.set_xticks(sizes, [size_text(size) for size in sizes], rotation=60, fontsize=7)
        one.set_title(f"{number} nodes", fontsize=10)
        one.grid(visible=True, alpha=0.3)
        one.legend(fontsize=6)
    axes[0][0].set_ylabel("Gb/s")
    figure.suptitle(title, fontsize=11)
    figure.savefig(target, dpi=100, metadata={"Software": None})
    pyplot.close(figure)


def table(curves: Sequence[Curve]) -> str:
    """A row per curve, a column per size, Gb/s."""
    sizes = sorted({size for curve in curves for size in curve.rates})
    lines = [
        "| nodes | what | " + " | ".join(size_text(size) for size in sizes) + " |",
        "|---|---|" + "---|" * len(sizes),
    ]
    for curve in sorted(curves, key=lambda each: (each.nodes, each.simulated)):
        cells = [f"{curve.rates[size]:.3g}" if size in curve.rates else "-" for size in sizes]
        lines.append(f"| {curve.nodes} | {curve.label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def machine(output: Path) -> str:
    """Where and how it was measured, in words."""
    found = json.loads((output / "perf.json").read_text(encoding="utf-8"))["conditions"]
    rows = [row for name in _MEASURED for row in rows_of(output, name)]
    busy = sum(row["idle"].lower() == "false" for row in rows)
    rule = IdleRule()
    said = (
        "idle all the while"
        if busy == 0
        else f"**not idle in {busy} of {len(rows)} readings** (others took more than {100 * rule.others:.0f} % of all "
        f"cores, or the hypervisor more than {100 * rule.steal:.0f} %)"
    )
    return f"{found['cpu']}, {found['cores']} cores, Linux {found['kernel']}, {found['date'][:10]}; {said}."


_HEAD = """# The RapidIO papers' comparisons

Made by `bench/rio_comparisons.py`; not to be edited.

```
python bench/rio_comparisons.py OUTPUT --simulate --measure --document docs/rapidio-comparisons.md
```

DAQPIPE's port and ROOT's to RapidIO (seeds: J. Phys. Conf. Ser. 898 082007; RT2016) compared what carries data, what
carries acknowledgements, buffer sizes, and the old limits of memory. The same four questions here, each *measured* over
SoftRIO on shared memory of one host - once bare, and once with `link=tsi721`, which lets transfers take the time they
would over that adapter - and *simulated* on `fabrics/rapidio-16.toml`. All figures are Gb/s of payload: of the one
receiver where all send to one, of a node where everybody sends; medians of repeats.

Measured on: {machine} More nodes than cores share them, so "bare fabric" says what the software costs on this host
and nothing about a network; a row with a real adapter's numbers is "emulated" or "SIMULATED".

"""

_PARTS: tuple[tuple[str, str, str, Callable[[Path], list[Curve]]], ...] = (
    (
        "data",
        "CM against rDMA for data",
        "A buffer goes as one rDMA write, or as messages of CM of 4 KiB; its arrival is acknowledged by CM, and only "
        "then the next one goes (`incast rio perf`; an answer is a message of 4 KiB). Four nodes: three clients, one "
        "server. In the simulation every message of CM waits for an answer and costs its host the time given each way, "
        "never published. [S2] saw about 120 MB/s (0.96 Gb/s) by CM and 1000 MB/s (8 Gb/s) by rDMA, for "
        "buffers of up to 2 MB: the ratio is 8.",
        data_curves,
    ),
    (
        "acknowledgement",
        "CM, polled memory or doorbell for acknowledgement",
        "One message at a time under the transport contract (`net.outstanding = 1`), from one node, or from three, to "
        "one. On the cable the three are the same to a few bytes, so the simulation shows what they differ in: what a "
        "message and its answer cost a host. Where the curves have met, it does not matter what acknowledges.",
        acknowledgement_curves,
    ),
    (
        "api",
        "The same at the API",
        "Writes that a program acknowledges by each of the three (`incast rio perf`), point to point, without the "
        "transport.",
        api_curves,
    ),
    (
        "buffers",
        "Buffer size, 4 KiB to 128 MiB",
        "Two buffers under way; point to point, and between all of four nodes. [S1]: up to 10 Gb/s with buffers of 2 "
        "MB, up to 12 with larger ones. The cost of a write is fitted to the first of these (row 7a of "
        "[reproduction.md](reproduction.md)); the rest of that curve follows. A window holds 18 buffers of 128 MiB at "
        "most, so the last column is good to 6 %. Measured between four nodes it is mostly the first touch of 3 GiB "
        "of memory: after a warm-up of 4 s (`incast net --transport rio --nodes 4 --pattern all-to-all "
        "--message-size 128MiB --outstanding 2 --warm-up 4s`) it is as fast as its neighbours. Four nodes that pace "
        "all their transfers by the clock share the cores of this host, so the emulated link is not full between them.",
        buffer_curves,
    ),
    (
        "limits",
        "2 MB x 8 against a memory pool",
        "Event building, push, null sink, without what a node keeps for itself. The old library gave out 8 pieces of 2 "
        "MB: two credits, in segments; a pool has eight credits in one piece. What has no room under the old limits is "
        "refused (`-`); in the simulation only their two credits and largest sizes are seen.",
        limit_curves,
    ),
)


def write_document(output: Path, target: Path) -> None:
    """The document, and a picture for each part beside it."""
    parts = []
    for name, title, words, curves_in in _PARTS:
        curves = curves_in(output)
        picture = target.with_name(f"{target.stem}-{name}.png")
        draw(f"{title} (solid: measured; dashed: SIMULATED)", curves, picture)
        parts.append(f"## {title}\n\n{words}\n\n![{title}]({picture.name})\n\n{table(curves)}\n")
    target.write_text(_HEAD.format(machine=machine(output)) + "\n".join(parts).rstrip() + "\n", encoding="utf-8")


def main(words: Sequence[str] | None = None) -> int:
    """What the command line asks for, in order: simulate, measure, document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="where figures are kept")
    parser.add_argument("--simulate", action="store_true", help="the simulated figures")
    parser.add_argument("--measure", action="store_true", help="the measured figures")
    parser.add_argument("--document", type=Path, metavar="FILE", help="write tables and pictures")
    parser.add_argument("--engine", type=Path, default=ROOT / "build/release/bin/incast-node")
    arguments = parser.parse_args(words)
    if not (arguments.simulate or arguments.measure or arguments.document):
        parser.error("nothing to do; allowed: --simulate, --measure, --document FILE")
    os.environ["INCAST_NODE"] = str(arguments.engine.resolve())
    output: Path = arguments.output
    for name in _SIMULATED if arguments.simulate else ():
        scan(name, output)
    if arguments.measure:
        print(f"{usable_cores()} cores; the machine should be idle from now on", flush=True)
        measure_perf(arguments.engine, output / "perf.json")
        for name in _MEASURED:
            scan(name, output)
    if arguments.document:
        write_document(output, arguments.document)
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ComparisonError as error:
        sys.exit(str(error))
