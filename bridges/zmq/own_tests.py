"""Runs libzmq's own test programs, unchanged, over another transport, and says what came of each.

    python3 bridges/zmq/own_tests.py OUT --turn shm [--known FILE] [--only NAME...]

OUT is what `build.sh OUT --tests` made. `turn.so` turns the tcp and ipc endpoints of a program to the transport; only
programs of which an endpoint was really turned count. A line for each says how many calls were turned, how many
with an address of tcp or ipc were left as they are, how many texts were turned back for the program, and how many
TCP sockets of its own went through a channel (turn.c). Without --turn they run as they are: the base line. `--fabric`
is that of rio, as RIO_FABRIC; `{n}` in it becomes a number of its own for each program. Exit status 1 if a program
fails that --known does not name, or if none was turned.
"""

import argparse
import collections
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

SKIPPED = 77
BROKEN_BY_NAME = re.compile(r"fuzzer|_tipc$|_vmci$|_wss?_transport$|_gssapi$|_socks$")  # nothing of theirs is turned


class Outcome(NamedTuple):
    name: str
    what: str  # pass, fail, time or skip
    log: collections.Counter[str]  # lines of turn.so by their first word: turned, left, back, client
    line: str

    def turning(self) -> str:
        return ", ".join(f"{self.log[word]} {word}" for word in ("turned", "left", "back", "client") if self.log[word])


def run_program(program: Path, number: int, arguments: argparse.Namespace) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="zmq") as folder:
        log = Path(folder, "turned.log")
        library = arguments.library or str(arguments.out / "lib")
        environment = {**os.environ, "LD_LIBRARY_PATH": library}
        if arguments.turn:
            environment |= {
                "LD_PRELOAD": str(arguments.shim or arguments.out / "lib" / "turn.so"),
                "INCAST_ZMQ_TURN": arguments.turn,
                "INCAST_ZMQ_TURN_ID": f"turned-{os.getpid()}-{number}",
                "INCAST_ZMQ_TURN_LOG": str(log),
            }
        if arguments.fabric:
            environment |= {"RIO_FABRIC": arguments.fabric.format(n=number), "RIO_DESTID": "1"}
            environment["INCAST_ZMQ_TURN_HOST"] = "1"
        if arguments.host:
            environment["INCAST_ZMQ_TURN_HOST"] = arguments.host
        process = subprocess.Popen(
            [str(program)],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output = process.communicate(timeout=arguments.timeout)[0]
            status = process.returncode
            what = "pass" if status == 0 else "skip" if status == SKIPPED else "fail"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0]
            status, what = -signal.SIGKILL, "time"
        words = [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []
    lines = [line for line in output.splitlines() if line.strip()]
    wrong = [line for line in lines if ":FAIL" in line or "Assertion" in line]
    line = "" if what == "pass" else f"[{status}] " + (wrong or lines or [""])[0 if wrong else -1][:300]
    return Outcome(program.name, what, collections.Counter(words), line)


def read_known(path: Path | None) -> dict[str, str]:
    """Programs that fail, and why: `NAME: reason` a line."""
    if path is None:
        return {}
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {name.strip(): reason.strip() for name, _, reason in (line.partition(":") for line in lines)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--turn", choices=["shm", "rio", "verbs"])
    parser.add_argument("--fabric")
    parser.add_argument("--host", help="of verbs: an address of an RDMA device")
    parser.add_argument("--known", type=Path)
    parser.add_argument("--library", help="where libzmq.so.5 is, instead of OUT/lib")
    parser.add_argument("--shim", type=Path, help="instead of OUT/lib/turn.so")
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=4)
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()

    programs = sorted((arguments.out / "build" / "bin").glob("test_*"))
    programs = [p for p in programs if not BROKEN_BY_NAME.search(p.name)]
    if arguments.only:
        programs = [p for p in programs if p.name in arguments.only]
    known = read_known(arguments.known)
    counts = {"pass": 0, "fail": 0, "time": 0, "skip": 0}
    unexpected = 0
    lock = threading.Lock()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = [pool.submit(run_program, p, n, arguments) for n, p in enumerate(programs)]
        for job in concurrent.futures.as_completed(jobs):
            outcome = job.result()
            counts_here = not arguments.turn or outcome.log["turned"] > 0
            reason = known.get(outcome.name, "")
            with lock:
                if counts_here:
                    counts[outcome.what] += 1
                    if outcome.what in {"fail", "time"} and not reason:
                        unexpected += 1
                note = "" if counts_here else " (nothing was turned)"
                why = f" known: {reason}" if reason and outcome.what != "pass" else ""
                print(f"{outcome.what} {outcome.name} ({outcome.turning()}){note} {outcome.line}{why}", flush=True)
    total = sum(counts.values())
    over = f"over {arguments.turn}" if arguments.turn else "as they are"
    print(f"{total} programs {over}: {', '.join(f'{n} {what}' for what, n in counts.items())}; {unexpected} unexpected")
    return 1 if unexpected or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
