#!/usr/bin/env python3
"""Event building over tcp on loopback against iperf3, in one run, alternating (docs/measuring.md).

Every pair is one `incast-node` run (4 nodes, tcp, 1 MiB MFPs, sources cycled beyond four times the last-level cache,
null sink, what a node has for itself not copied) and one `iperf3 -P 12 -l 1M`; which goes first alternates. Prints each
pair and the median of the ratios: goodput without self traffic, and CPU seconds (user + system, both sides, in the
measured window) per GB of it.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def stolen_ticks() -> int:
    return int(Path("/proc/stat").read_text(encoding="ascii").split()[8])


def run_incast(engine: Path, seconds: int, mfp_size: str, scheme: str, overrides: list[str]) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "bench.toml"
        config.write_text("", encoding="utf-8")
        settings = [
            "run.nodes=4",
            f"run.duration={seconds}s",
            "run.warm_up=1s",
            "transport.name=tcp",
            f"protocol.scheme={scheme}",
            f"protocol.mfp_size={mfp_size}",
            "source.fragment_size=16KiB",
            "sink.kind=null",
            # What crosses processes is compared: copying what does not is left out (and not counted either).
            "protocol.self_traffic=pointer",
            *overrides,
        ]
        command = [str(engine), str(config), "--output", folder, "--progress", "none"]
        for setting in settings:
            command += ["--set", setting]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        result = json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))
    if result["lost_events"] or result["incomplete_events"]:
        raise SystemExit("events were lost: not a measurement")
    cpu = result["cpu"]["seconds"]
    crossed = result["goodput_bytes_per_s"]["total_without_self"]
    return crossed, cpu / (crossed * result["window"]["seconds"] / 1e9)


def run_iperf3(seconds: int, streams: int, length: str) -> tuple[float, float]:
    # iperf3 refuses port 0, so a free one is asked from the kernel and used at once.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        ["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", str(port), "--forceflush"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    for line in server.stdout:
        if "listening" in line:
            break
    client = subprocess.run(
        [
            "iperf3",
            "-c",
            "127.0.0.1",
            "-p",
            str(port),
            "-P",
            str(streams),
            "-l",
            length,
            "-t",
            str(seconds),
            "-O",
            "1",
            "-J",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    server.communicate()
    end = json.loads(client.stdout)["end"]
    received = end["sum_received"]
    use = end["cpu_utilization_percent"]
    rate = received["bits_per_second"] / 8
    # Both are shares of one core over the test; each side of iperf3 is one thread.
    return rate, (use["host_total"] + use["remote_total"]) / 100 / (rate / 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--mfp-size", default="1MiB")
    parser.add_argument("--scheme", default="push", choices=["push", "pull"])
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--engine", type=Path, default=ROOT / "build/release/bin/incast-node")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    arguments = parser.parse_args()

    ratios: list[tuple[float, float]] = []
    conditions = f"{arguments.mfp_size} MFPs, {arguments.scheme}; iperf3 -P {arguments.streams} -l 1M"
    print(f"{os.cpu_count()} cores; {conditions}; window {arguments.seconds} s")
    for pair in range(arguments.pairs):
        steal = stolen_ticks()
        order = ["incast", "iperf3"] if pair % 2 == 0 else ["iperf3", "incast"]
        seen: dict[str, tuple[float, float]] = {}
        for name in order:
            if name == "incast":
                seen[name] = run_incast(
                    arguments.engine, arguments.seconds, arguments.mfp_size, arguments.scheme, arguments.overrides
                )
            else:
                seen[name] = run_iperf3(arguments.seconds, arguments.streams, "1M")
        ratio = (seen["incast"][0] / seen["iperf3"][0], seen["incast"][1] / seen["iperf3"][1])
        ratios.append(ratio)
        print(
            f"pair {pair + 1}: incast {seen['incast'][0] / 1e9:6.2f} GB/s {seen['incast'][1]:.3f} CPU-s/GB   "
            f"iperf3 {seen['iperf3'][0] / 1e9:6.2f} GB/s {seen['iperf3'][1]:.3f} CPU-s/GB   "
            f"ratios {ratio[0]:.2f} {ratio[1]:.2f}   steal ticks {stolen_ticks() - steal}",
            flush=True,
        )
    goodput = sorted(ratio[0] for ratio in ratios)
    cpu = sorted(ratio[1] for ratio in ratios)
    print(
        f"median of {len(ratios)}: "
        f"goodput without self {statistics.median(goodput):.2f} x iperf3 ({goodput[0]:.2f}..{goodput[-1]:.2f}), "
        f"CPU-s per GB {statistics.median(cpu):.2f} x ({cpu[0]:.2f}..{cpu[-1]:.2f})"
    )


if __name__ == "__main__":
    main()
