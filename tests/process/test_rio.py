"""Event building and raw traffic over RapidIO in software: every notice, both layouts, both orders, verified."""

import itertools
import json
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Run, Start, check_accounting, private_network
from transports import RAPIDIO

NOTICES = ["doorbell", "memory", "cm"]
ORDERS = ["strict", "weak"]
LAYOUTS = ["contiguous", "segments"]
SCHEMES = ["push", "pull", "pull-read", "push-pull", "pull-pull"]
EVERYTHING = list(itertools.product(SCHEMES, NOTICES, ORDERS, LAYOUTS))
# Each notice with each order, every scheme and both layouts somewhere; all of it with INCAST_ALL_COMBINATIONS.
CHOSEN = [
    ("push", "doorbell", "strict", "contiguous"),
    ("pull", "doorbell", "weak", "segments"),
    ("pull", "memory", "strict", "segments"),
    ("push", "memory", "weak", "contiguous"),
    ("push", "cm", "strict", "segments"),
    ("pull", "cm", "weak", "contiguous"),
    ("pull-read", "doorbell", "weak", "contiguous"),
    ("push-pull", "memory", "weak", "segments"),
    ("pull-pull", "cm", "strict", "contiguous"),
]


def settings(scheme: str, notice: str, order: str, layout: str) -> dict[str, Any]:
    """Four processes for a moment; segments smaller than what is shown."""
    two_stages = scheme in ("push-pull", "pull-pull")
    segment = 524_288 if scheme == "pull-read" else 131_072  # there sources have windows, too, and there are 8
    return {
        "run.nodes": 4,
        "run.warm_up": "20ms",
        "run.duration": "150ms",
        "transport.name": RAPIDIO,
        f"transport.{RAPIDIO}.notice": notice,
        f"transport.{RAPIDIO}.order": order,
        f"transport.{RAPIDIO}.layout": layout,
        "protocol.scheme": scheme,
        "protocol.mfp_size": "32KiB",
        "protocol.credits": 4,
        "source.prefill_size": "1MiB",
        "sink.kind": "verify",
        **({f"transport.{RAPIDIO}.segment": segment} if layout == "segments" else {}),
        **({"filter.accept": 0.7} if two_stages else {}),
    }


def verified(run: Run) -> dict[str, Any]:
    """The result of a run that has to end well, with every event built and looked at."""
    assert run.finish() == 0, run.story()
    result = run.result()
    assert result["status"] == "complete"
    assert result["events"] > 0
    assert result["verified"] == "full"
    assert result["incomplete_events"] == 0
    check_accounting(result)
    return result


@pytest.mark.parametrize(
    "combination",
    EVERYTHING if os.environ.get("INCAST_ALL_COMBINATIONS") else CHOSEN,
    ids="-".join,
)
def test_builds_and_verifies(start: Start, combination: tuple[str, str, str, str]) -> None:
    run = start(settings(*combination))
    assert verified(run)["copied_bytes"] > 0


@pytest.mark.parametrize(
    "combination",
    EVERYTHING if os.environ.get("INCAST_ALL_COMBINATIONS") else CHOSEN,
    ids="-".join,
)
def test_builds_and_verifies_over_udp(start: Start, combination: tuple[str, str, str, str]) -> None:
    run = start({**settings(*combination), f"transport.{RAPIDIO}.fabric": private_network(), "run.duration": "100ms"})
    verified(run)


def test_thirty_two_endpoints(start: Start) -> None:
    """Each is a process of its own with its windows and its doorbell; with INCAST_ALL_COMBINATIONS twice as many."""
    nodes = 64 if os.environ.get("INCAST_ALL_COMBINATIONS") else 32
    few = {"run.nodes": nodes, "protocol.mfp_size": "4KiB", "protocol.credits": 2, "source.prefill_size": "64KiB"}
    run = start({**settings("push", "doorbell", "strict", "contiguous"), **few})
    assert run.finish(120) == 0, run.story()
    result = run.result()
    assert result["events"] > 0
    assert result["verified"] == "full"
    check_accounting(result)


def until_lost(run: Run) -> None:
    """A loss, and events built after it."""
    run.wait_for(lambda report: report["type"] == "notice" and "lost" in report["text"], "loss")
    first = run.wait_for(lambda report: report["type"] == "sample", "sample")
    run.wait_for(lambda report: report["type"] == "sample" and report["events"] > first["events"], "further events")


@pytest.mark.parametrize("notice", ["doorbell", "cm"])
def test_a_killed_builder_unit_costs_nothing(start: Start, notice: str) -> None:
    """In the middle of its peers' transfers; more of this kind: test_losses.py with INCAST_KILL_TIMES."""
    roles = {"run.nodes": 4, "run.readout_units": 2, "run.builder_units": 2, "run.roles": "split", "run.em": "own"}
    endless = {"run.duration": "1h", "run.sample_interval": "50ms", "run.drain_deadline": "20s"}
    run = start({**settings("push", notice, "weak", "contiguous"), **roles, **endless})
    run.wait_for_phase("measuring")
    os.kill(run.node_pid(3), signal.SIGKILL)
    until_lost(run)
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.story()
    result = run.result()
    assert result["status"] == "interrupted"
    assert result["incomplete_events"] == 0
    check_accounting(result)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("fabric", "shm:", "the name must be 1..40"),
        ("notice", "pigeon", f"transport.{RAPIDIO}.notice = pigeon: no such choice; allowed: doorbell | memory | cm"),
        ("segment", "70000", "a multiple of 4 KiB"),
        ("ring", "20000", "a power of two"),
    ],
)
def test_a_bad_parameter_is_one_line(start: Start, key: str, value: str, why: str) -> None:
    run = start({"transport.name": RAPIDIO, "run.nodes": 2, f"transport.{RAPIDIO}.{key}": value})
    assert run.finish() != 0
    assert why in run.story()


class Tools:
    """`softrio` in a fabric of its own, with an endpoint 5 that serves."""

    def __init__(self, engine: Path) -> None:
        self.command = [str(engine.with_name("softrio"))]
        self.environment = {**os.environ, "RIO_FABRIC": f"shm:tools-{uuid.uuid4().hex[:20]}"}
        self.environment.pop("RIO_DESTID", None)
        self.server = subprocess.Popen(
            [*self.command, "--destid", "5", "serve"], stdout=subprocess.PIPE, text=True, env=self.environment
        )
        assert self.server.stdout is not None
        self.said = self.server.stdout.readline()

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments], capture_output=True, text=True, timeout=60, env=self.environment, check=False
        )

    def end(self) -> int:
        """By an interrupt; its status."""
        assert self.server.stdout is not None
        self.server.send_signal(signal.SIGINT)
        self.server.stdout.close()
        return self.server.wait(20)


@pytest.fixture
def tools(engine: Path) -> Iterator[Tools]:
    """They end with the test."""
    made = Tools(engine)
    yield made
    made.end()


def test_tools_do_what_the_document_shows(tools: Tools) -> None:
    text = (ROOT / "docs" / "rapidio.md").read_text()
    shown = re.search(r"```console\n(.*?)```", text, re.DOTALL)
    assert shown is not None
    steps = [step.split("\n", 1) for step in shown[1].split("$ ")[1:]]
    commands = {command: output for command, output in steps if command.startswith("incast rio")}
    assert len(commands) == 8
    for command, output in commands.items():
        if command.endswith("serve &"):
            assert tools.said == output
            continue
        done = subprocess.run(
            ["bash", "-c", command.replace("incast rio", " ".join(tools.command))],
            capture_output=True,
            text=True,
            timeout=60,
            env=tools.environment,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        if "ping" in command:
            assert re.fullmatch(r"endpoint 5: device 0x5f01ffff, [0-9.]+ us\n", done.stdout)
        elif "perf" not in command:
            assert done.stdout == output, command
    assert tools.end() == 0


def test_perf_measures_everything(tools: Tools) -> None:
    done = tools("perf", "5", "--up-to", "16384", "--seconds", "0.005", "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ways = ("CM", "memory", "doorbell")
    assert {line["test"] for line in lines} == {
        "write",
        "read",
        "messages by CM",
        "messages, acknowledged by CM",
        *(f"round trip by {way}" for way in ways),
        *(f"write, acknowledged by {way}" for way in ways),
    }
    for line in lines:
        assert line["count"] > 0
        assert line.get("bytes_per_s", line.get("p50_us", 0)) > 0
    assert {line["bytes"] for line in lines if line["test"] == "write"} == {64, 256, 1024, 4096, 16384}


def test_perf_measures_only_what_it_is_asked_for(tools: Tools) -> None:
    done = tools("perf", "5", "--up-to", "16384", "--seconds", "0.005", "--json", "--only", "by CM")
    assert done.returncode == 0, done.stderr
    assert {json.loads(line)["test"] for line in done.stdout.splitlines()} == {
        "messages by CM",
        "messages, acknowledged by CM",
        "write, acknowledged by CM",
        "round trip by CM",
    }


def test_tools_say_what_is_wrong(tools: Tools) -> None:
    for arguments, status, why in [
        (("ping", "9"), 1, "endpoint 9: No such device"),
        (("write", "5", "text", "--at", "4096"), 1, "writing 4 bytes at 0x1000 of endpoint 5: Input/output error"),
        (("doorbell", "9", "1"), 1, "No such device"),
        (("doorbell", "5", "70000"), 2, "payload"),
        (("--fabric", "pigeons", "list"), 1, "unknown kind of fabric"),
        (("sing",), 2, "sub"),
    ]:
        done = tools(*arguments)
        assert done.returncode == status, arguments
        assert why in done.stderr
        assert done.stdout == ""
