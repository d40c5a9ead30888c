"""Runs the engine with a view of its progress, and shows what came of it."""

import contextlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incast.base import units
from incast.base.console import open_console
from incast.base.errors import EXIT_NO_ENGINE, EXIT_PROTOCOL, OneLineError
from incast.base.files import give_up_folder, lengthen_file
from incast.base.units import VIRTUAL_TIME
from incast.engine.process import EngineRun, Outcome
from incast.engine.program import find_engine
from incast.engine.progress import Notice, Planned, Progress
from incast.engine.transports import is_simulated
from incast.evidence.diagnosis import diagnose_directory
from incast.evidence.dips import Dip, MachineLog, dips_of_directory
from incast.evidence.facts import read_samples
from incast.evidence.findings import Diagnosis
from incast.evidence.result import is_open_loop, number
from incast.hosts.launch import Launch, run_token
from incast.run.farm_nodes import FarmNodes
from incast.run.live import RunView, make_view
from incast.run.net_summary import print_net_summary
from incast.run.request import RunRequest, said_of
from incast.run.summary import print_summary

if TYPE_CHECKING:
    from incast.run.live_page import LivePage

_CHECK_TIMEOUT_S = 60.0


def execute(request: RunRequest, *, as_json: bool) -> int:
    """Runs the engine and shows what comes of it; the exit status."""
    outcome = watch(request, f"incast run  {request.transport}")
    if outcome.result_path is not None:
        show_result(outcome, read_result(outcome, outcome.result_path), outcome.result_path, as_json=as_json)
    return outcome.exit_status


def check(request: RunRequest) -> None:
    """OneLineError with what the engine says if it refuses that; nothing is run, and nothing is written."""
    command = [*request.command(find_engine()), "--check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OneLineError(f"the engine {command[0]} cannot be started: {error}", EXIT_NO_ENGINE) from error
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["the engine refused the configuration with no message"])[-1]
        raise OneLineError(words.removeprefix("incast-node: "), done.returncode)


def say_checked(request: RunRequest) -> None:
    """Checks it, and says that it is good; OneLineError if it is not."""
    check(request)
    open_console().print(f"the configuration is good, over {request.transport}; nothing was run")


def watch(request: RunRequest, title: str, unit: str = "events") -> Outcome:
    """Runs the engine to its end, with a view of its progress."""
    engine = find_engine()
    named_by_us = request.default_name
    request = request.with_folder()
    screen = open_console(stderr=True)
    virtual = is_simulated(request.transport)
    try:
        with contextlib.ExitStack() as stack:
            view = stack.enter_context(make_view(screen, title, virtual=virtual, unit=unit))
            page = stack.enter_context(_open_page(request.web, title, virtual, view)) if request.web else None
            machine = MachineLog(request.output, lambda line: view.on_progress(Notice("warning", line)))
            stack.callback(machine.close)
            farm = _farm_of(request)
            if farm is not None:
                stack.callback(farm.close)
            token = run_token(request.spread)
            launch = None
            if request.spread is not None:
                launch = Launch(request.spread, request.output, token, view.on_progress)
                stack.callback(launch.close)

            def on_progress(progress: Progress) -> None:
                if isinstance(progress, Planned):
                    if farm is not None:
                        farm.begin()
                    progress = Planned((*progress.rows, ("results", str(request.output))))
                view.on_progress(progress)
                if launch is not None:
                    launch.on_progress(progress)
                if page is not None:
                    page.feed.on_progress(progress)
                if not virtual:
                    machine.on_progress(progress, engine_run.pid)

            def on_tick() -> None:
                view.on_tick()
                if launch is not None:
                    launch.on_tick(engine_run)

            engine_run = EngineRun(request.command(engine), on_progress, on_tick, input_=token.encode() + b"\n")
            outcome = engine_run.watch()
            if farm is not None and outcome.result_path is not None:
                view.on_progress(Notice("info", farm.end()))
            if page is not None:
                page.feed.end(_last_words(outcome))
            return replace(outcome, incomplete=(*outcome.incomplete, *machine.incomplete()))
    except OneLineError as error:
        if not request.output.is_dir():
            raise
        raise OneLineError(f"{error}; what there is lies in {request.output}", error.exit_status) from error
    finally:
        if named_by_us:
            give_up_folder(request.output)  # of a run that was refused


def _farm_of(request: RunRequest) -> FarmNodes | None:
    if request.farm_nodes == 0:
        return None
    return FarmNodes(said_of(request, "sink.name") or "", request.farm_nodes, request.output)


def _open_page(address: str, title: str, virtual: bool, view: RunView) -> "LivePage":
    from incast.run.live_page import LivePage

    page = LivePage(address, title, virtual=virtual)
    view.on_progress(Notice("info", f"live page: {page.url}"))
    return page


def _last_words(outcome: Outcome) -> str:
    """For the live page, which stays as it is when the run is over."""
    if outcome.result_path is None:
        return f"the run has ended with status {outcome.exit_status}, without a result"
    result = read_result(outcome, outcome.result_path)
    goodput = number(result, "goodput_bytes_per_s", "total_without_self")
    virtual = f" {VIRTUAL_TIME}" if result.get("time_domain") == "virtual" else ""
    words = f"ended: {result.get('status')}; goodput without self {units.rate(goodput)}{virtual}"
    return f"{words}; {outcome.result_path}"


def read_result(outcome: Outcome, path: Path) -> dict[str, Any]:
    """The result that the engine says it has written."""
    try:
        result = json.loads(path.read_text())
        if not isinstance(result, dict):
            raise ValueError("no JSON object")
    except (OSError, ValueError) as error:
        raise OneLineError(f"{path} is no readable result: {error}", outcome.exit_status or EXIT_PROTOCOL) from error
    return result


def conclude(outcome: Outcome, result: dict[str, Any], path: Path) -> tuple[Diagnosis, list[Dip]]:
    """Leaves what limited the run, and its dips, beside the result, which gets our files that are not whole."""
    incomplete = list(outcome.incomplete)
    diagnosis = diagnose_directory(path.parent, result, outcome.window, incomplete)
    samples = read_samples(path.parent)
    dips = dips_of_directory(path.parent, samples, open_loop=is_open_loop(result), incomplete=incomplete)
    if incomplete:
        result["incomplete_files"] = [*result.get("incomplete_files", ()), *incomplete]
        with contextlib.suppress(OSError):  # what is missing was said
            lengthen_file(path, json.dumps(result, indent=2) + "\n")
    return diagnosis, dips


def show_result(outcome: Outcome, result: dict[str, Any], path: Path, *, as_json: bool) -> None:
    """On standard output: what the file holds, or its figures for a person. What limited it is left beside the file."""
    diagnosis, dips = conclude(outcome, result, path)
    if as_json:
        text = path.read_text()
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    elif result.get("kind") == "net":
        print_net_summary(open_console(), result, path.parent, diagnosis)
    else:
        print_summary(open_console(), result, path.parent, diagnosis, dips)
