#!/usr/bin/env python3
"""What it costs to hand built events to other processes: the consumer sink against the null sink, alternating.

Every pair is one `incast-node` run with the null sink and one with the consumer sink, else alike (4 nodes, shm, 1 MiB
MFPs, sources cycled beyond four times the last-level cache); which goes first alternates. Of the consumer's run, as
many Python processes as `--processes` share the builder units and take every event as numpy views, in place:

    view   a read-only array per MFP, and its header read
    read   the same, and every byte of it summed up (that is the consumer's own work, shown to tell it apart)

Goodput is the engine's own figure, of its window; CPU seconds per GB are the engine's, of its window, plus what the
consumer processes took from attaching to the end over what they were handed. Prints each pair, and the median of the
ratios with their spread; a pair during which the hypervisor took more than `--steal` of the machine's time is left out.
Ends with status 1 if events were lost.
"""

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CPU_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def consume(name: str, nodes: list[int], work: str) -> None:
    """A consumer process: all events of these builder units until they end."""
    import numpy as np
    from incast.consumer import BuilderEndedError, Consumer, Event

    def view(event: Event) -> int:
        return sum(int(mfp[2]) | int(mfp[3]) << 8 for _, mfp in event.mfps() if mfp is not None)

    def read(event: Event) -> int:
        return sum(int(mfp.view(np.uint8).sum(dtype=np.uint64)) for _, mfp in event.mfps() if mfp is not None)

    use: Callable[[Event], int] = view if work == "view" else read
    attached = {consumer.fileno(): consumer for consumer in (Consumer(name, node, timeout=60) for node in nodes)}
    begin = time.process_time()
    events = total = goodput = 0
    poller = select.poll()
    for fd in attached:
        poller.register(fd, select.POLLIN)
    ready = list(attached)
    while attached:
        asleep = []
        for fd in ready:
            consumer = attached[fd]
            try:
                while (event := consumer.next(0)) is not None:
                    total += use(event)
                    goodput += event.goodput_bytes
                    event.release()
                    events += 1
                if not consumer.arm():
                    asleep.append(fd)
            except BuilderEndedError:
                poller.unregister(fd)
                del attached[fd]
        ready = [fd for fd in ready if fd in attached and fd not in asleep]
        if attached:
            woken = [fd for fd, _ in poller.poll(0 if ready else None)]
            ready += [fd for fd in woken if fd not in ready]
    cpu_s = time.process_time() - begin
    print(json.dumps({"events": events, "goodput_bytes": goodput, "cpu_s": cpu_s, "check": total}))


def stolen_ticks() -> int:
    return int(Path("/proc/stat").read_text(encoding="ascii").split()[8])


def run(arguments: argparse.Namespace, sink: str) -> tuple[float, float]:
    """Goodput in bytes per second, CPU seconds per GB."""
    name = f"bench-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        settings = [
            f"run.nodes={arguments.nodes}",
            f"run.duration={arguments.seconds}s",
            "run.warm_up=1s",
            f"transport.name={arguments.transport}",
            f"protocol.mfp_size={arguments.mfp_size}",
            "source.fragment_size=16KiB",
            "protocol.self_traffic=copy",  # in both: the consumer sink reads everything in the slot
            f"sink.kind={sink}",
            *([f"sink.name={name}", f"sink.policy={arguments.policy}"] if sink == "consumer" else []),
            *arguments.overrides,
        ]
        command = [str(arguments.engine), "--output", folder, "--progress", "none"]
        for setting in settings:
            command += ["--set", setting]
        engine = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        consumers = []
        if sink == "consumer":
            nodes = [str(node) for node in range(arguments.nodes)]
            for process in range(arguments.processes):
                mine = nodes[process :: arguments.processes]
                child = [sys.executable, __file__, "--consume", name, "--work", arguments.work, "--of", *mine]
                consumers.append(subprocess.Popen(child, stdout=subprocess.PIPE, text=True))
        status = engine.wait()
        told = [json.loads(child.communicate()[0]) for child in consumers]
        if status != 0:
            raise SystemExit(f"incast-node ended with status {status}")
        result = json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))
    if result["lost_events"] or result["incomplete_events"]:
        raise SystemExit("events were lost: not a measurement")
    taken = sum(each["events"] for each in told)
    if sink == "consumer" and taken != result["consumers"]["taken_meps"]:
        raise SystemExit(f"the consumers saw {taken} MEPs, but were handed {result['consumers']['taken_meps']}")
    if sink == "consumer" and result["consumers"]["dropped_meps"]:
        share = result["consumers"]["dropped_meps"] / result["accounting"]["meps_committed"]
        print(f"  dropped {share:.1%} of the MEPs, those before the consumers came included", flush=True)
    consumed = sum(each["goodput_bytes"] for each in told) / 1e9
    cpu = float(result["cpu_s_per_gb"]) + (sum(each["cpu_s"] for each in told) / consumed if consumed else 0.0)
    return float(result["goodput_bytes_per_s"]["total"]), cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--mfp-size", default="1MiB")
    parser.add_argument("--transport", default="shm", choices=["shm", "tcp", "inproc"])
    parser.add_argument("--processes", type=int, default=1, help="consumer processes; they share the builder units")
    parser.add_argument("--policy", default="block", choices=["block", "drop"])
    parser.add_argument("--work", default="view", choices=["view", "read"])
    parser.add_argument("--steal", type=float, default=0.02)
    parser.add_argument("--engine", type=Path, default=ROOT / "build/release/bin/incast-node")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--consume", help=argparse.SUPPRESS)
    parser.add_argument("--of", type=int, nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.consume:
        consume(arguments.consume, arguments.of, arguments.work)
        return

    cores = os.cpu_count() or 1
    conditions = f"{arguments.nodes} nodes, {arguments.transport}, {arguments.mfp_size} MFPs, policy {arguments.policy}"
    print(
        f"{cores} cores; {conditions}; {arguments.processes} x numpy ({arguments.work}); window {arguments.seconds} s"
    )
    ratios: list[tuple[float, float]] = []
    for pair in range(arguments.pairs):
        stolen, begin = stolen_ticks(), os.times().elapsed
        order = ["null", "consumer"] if pair % 2 == 0 else ["consumer", "null"]
        seen = {sink: run(arguments, sink) for sink in order}
        steal = (stolen_ticks() - stolen) / CPU_TICKS_PER_S / (os.times().elapsed - begin) / cores
        ratio = (seen["consumer"][0] / seen["null"][0], seen["consumer"][1] / seen["null"][1])
        kept = steal <= arguments.steal
        if kept:
            ratios.append(ratio)
        print(
            f"pair {pair + 1}: null {seen['null'][0] / 1e9:6.2f} GB/s {seen['null'][1]:.3f} CPU-s/GB   "
            f"consumer {seen['consumer'][0] / 1e9:6.2f} GB/s {seen['consumer'][1]:.3f} CPU-s/GB   "
            f"ratios {ratio[0]:.3f} {ratio[1]:.3f}   stolen {steal:.1%}{'' if kept else '   left out'}",
            flush=True,
        )
    if ratios:
        goodput = sorted(ratio[0] for ratio in ratios)
        cpu = sorted(ratio[1] for ratio in ratios)
        print(
            f"median of {len(ratios)}: consumer {statistics.median(goodput):.3f} x the null sink's goodput "
            f"({goodput[0]:.3f}..{goodput[-1]:.3f}), {statistics.median(cpu):.3f} x its CPU seconds per GB "
            f"({cpu[0]:.3f}..{cpu[-1]:.3f})"
        )


if __name__ == "__main__":
    main()
