#!/usr/bin/env python3
"""SendRaw and Send(TMessage) of ROOT by a channel against a socket of TCP, in turn (docs/root.md).

Two processes on this host, of bridges/root/measure.cpp, which build.sh builds: one opens a socket and a channel to the
same server, and sends 256 MiB (20,000 messages at most, 2 at least) by one and the other, which goes first alternating.
What is given is the median over pairs, in GB/s, and that of the ratio within a pair with the lowest and the highest.
rio runs in a fabric in shared memory, without an emulated link.
"""

import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 3600


def measure(program: Path, over: str, pairs: int) -> list[dict[str, object]]:
    """The lines of one run."""
    environment = os.environ | {"INCAST_ROOT": over, "RIO_FABRIC": f"shm:root-bench-{os.getpid()}"}
    with subprocess.Popen([program, "serve"], env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            words = [str(program), "ask", server.stdout.readline().strip(), str(pairs)]
            asked = subprocess.run(
                words, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE_S
            )
            return [json.loads(line) for line in asked.stdout.splitlines()]
        finally:
            server.kill()


def main() -> int:
    """Both transports, all sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bridge", type=Path, default=ROOT / "build/root", help="what build.sh made (build/root)")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--over", nargs="+", choices=["shm", "rio"], default=["shm", "rio"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="all readings")
    arguments = parser.parse_args()
    program = arguments.bridge.resolve() / "bin/root_measure"
    if not program.exists():
        raise SystemExit(f"{program} is not there: bridges/root/build.sh {arguments.bridge} makes it")
    print(f"{arguments.pairs} pairs, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':14} {'bytes':>10} {'over':>5} {'GB/s':>7} {'tcp':>7}  ratio")
    readings = [line for over in arguments.over for line in measure(program, over, arguments.pairs)]
    for line in readings:
        over = next(name for name in line if name in {"shm", "rio"})
        own, tcp = line[over], line["tcp"]
        assert isinstance(own, list) and isinstance(tcp, list)
        ratios = [a / b for a, b in zip(own, tcp, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
        medians = f"{statistics.median(own):7.2f} {statistics.median(tcp):7.2f}"
        print(f"{line['what']:14} {line['bytes']:>10} {over:>5} {medians}  {spread}")
    if arguments.json:
        arguments.json.write_text(json.dumps(readings, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
