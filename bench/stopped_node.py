#!/usr/bin/env python3
"""A long detached run over tcp whose terminal is closed and of which a node is stopped for a while, twice.

Starts `incast run --detach` in a terminal of its own, closes that terminal, stops the process of one node (SIGSTOP)
after a third and after two thirds of the time, and then looks at what the summary and the report say of it: a dip for
each stop, with its cause, and memory that stays flat. Ends with status 1 if any of that is missing (docs/measuring.md).
"""

import argparse
import contextlib
import itertools
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness import ROOT
from long_run import Growth, memory_by_node

_START_S = 120.0
_END_S = 180.0
_POLL_S = 0.1
_NODE = 2  # not that of the event manager, without which a run ends
_SLACK_S = 4.0  # two samples of 2 s


def command(*words: str) -> list[str]:
    """`incast` of this checkout."""
    return [sys.executable, "-m", "incast", *words]


def environment() -> dict[str, str]:
    """In which this checkout's package is found first."""
    path = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def start_in_terminal(words: Sequence[str]) -> None:
    """Runs the command to its end in a new terminal, and then closes that: whatever hangs on it gets SIGHUP."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(words[0], list(words), environment())
    said = b""
    with contextlib.suppress(OSError):  # the end of the terminal's other side
        while chunk := os.read(terminal, 4096):
            said += chunk
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"the run did not start: {said.decode(errors='replace')}")


def wait_for(condition: Callable[[], Any], what: str, seconds: float) -> Any:
    """What the condition gives, once that is something."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > until:
            raise SystemExit(f"not within {seconds:.0f} s: {what}")
        time.sleep(_POLL_S)
    return found


def status_of(output: Path) -> dict[str, Any]:
    """As `incast status` has it."""
    said = subprocess.run(
        command("status", str(output), "--json"), env=environment(), capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(said.stdout)[0]
    return found


def node_process(output: Path, node: int) -> int | None:
    """The process of a node: a child of the engine that writes to that directory."""
    wanted = os.fsencode(output.resolve())
    words: dict[int, list[bytes]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                words[int(folder.name)] = (folder / "cmdline").read_bytes().split(b"\0")
    engines = {str(pid).encode() for pid, line in words.items() if b"--output" in line and wanted in line}
    for pid, line in words.items():
        options = dict(itertools.pairwise(line))
        if options.get(b"--watched-by") in engines and options.get(b"--node") == str(node).encode():
            return pid
    return None


def stop_for(pid: int, seconds: float) -> None:
    """Stops a process for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def judge(output: Path, stops: Sequence[float], seconds: float) -> list[str]:
    """What is not as it should be; `stops` in seconds since the start of the program."""
    wrong = []
    dips = json.loads((output / "dips.json").read_text())["dips"] if (output / "dips.json").is_file() else []
    page = (output.parent / f"{output.name}-report" / "index.html").read_text()
    for at in stops:
        near = [dip for dip in dips if dip["begin_s"] < at + seconds and dip["end_s"] > at - _SLACK_S]
        causes = [line for dip in near for line in dip["meanwhile"]]
        named = [line for line in causes if f"node {_NODE} " in line and ("sign of life" in line or "silent" in line)]
        print(f"stop at {at:.0f} s: {len(near)} dip(s), cause: {'; '.join(named) or 'none named'}")
        if not named:
            wrong.append(f"no dip at {at:.0f} s names node {_NODE} as stopped; what there is: {near}")
        elif not all(line in page for line in named[:1]):
            wrong.append(f"the report does not say: {named[0]}")
    for node, rss in sorted(memory_by_node(output / "samples.jsonl").items()):
        growth = Growth.of(rss)
        if growth is None:
            wrong.append(f"too few samples of the memory of node {node}")
            continue
        state = "flat" if growth.flat else "IT GROWS"
        print(f"memory of node {node}: {growth.early / 1e6:.2f} MB early, {growth.late / 1e6:.2f} MB late: {state}")
        if not growth.flat:
            wrong.append(f"the memory of node {node} grows")
    result = json.loads((output / "result.json").read_text())
    figures = {name: result[name] for name in ("status", "events", "lost_events", "incomplete_events", "verify_errors")}
    print(f"{len(dips)} dips in all; {figures}")
    if result["status"] != "complete" or result["lost_events"] or result["verify_errors"]:
        wrong.append("the run did not end well")
    wrong += [f"node {each['node']} was lost: {each.get('why_lost')}" for each in result["nodes"] if each["losses"]]
    return wrong


def main() -> int:
    """The run of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="result directory; the report lies beside it")
    parser.add_argument("--seconds", type=float, default=3600, help="measured time (default: 3600)")
    parser.add_argument("--stop", type=float, default=5, help="seconds for which the node is stopped (default: 5)")
    parser.add_argument("--rate", default="20kHz", help="of triggers; 0: as fast as it goes (default: 20kHz)")
    parser.add_argument("--fragment-size", default="4KiB")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    arguments = parser.parse_args()
    output: Path = arguments.output
    settings = ["run.sample_interval=2s", *arguments.overrides]
    start_in_terminal(
        command(
            *("run", "--detach", "--transport", "tcp", "--duration", f"{arguments.seconds}s"),
            *("--trigger-rate", arguments.rate, "--fragment-size", arguments.fragment_size, "--output", str(output)),
            *(word for setting in settings for word in ("--set", setting)),
        )
    )
    wait_for(lambda: status_of(output)["phase"] == "measuring", "the measured phase", _START_S)
    running_s = status_of(output)["seconds"]
    begin = time.monotonic() - running_s
    print(f"{output}: the terminal is closed, the run is {status_of(output)['state']}", flush=True)
    stops = []
    for part in (1 / 3, 2 / 3):
        time.sleep(max(0.0, begin + part * arguments.seconds - time.monotonic()))
        pid = node_process(output, _NODE)
        if pid is None:
            raise SystemExit(f"node {_NODE} has no process")
        stops.append(time.monotonic() - begin)
        print(f"at {stops[-1]:.0f} s: stopping process {pid} for {arguments.stop:g} s", flush=True)
        stop_for(pid, arguments.stop)
    left = begin + arguments.seconds - time.monotonic()
    wait_for(lambda: status_of(output)["exit_status"] is not None, "the end of the run", left + _END_S)
    report = output.parent / f"{output.name}-report"
    subprocess.run(command("report", str(output), "--output", str(report)), env=environment(), check=True)
    wrong = judge(output, stops, arguments.stop)
    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
