"""`incast run`: turns options into settings of the engine, runs it, shows the run and its result.

Nothing is validated here. Every option is text that goes to the engine as `--set section.key=value`; what the engine
says about it is shown, and its exit status is the command's. So there is one place that knows what is allowed.
"""

import contextlib
import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from incast import units
from incast.console import open_console
from incast.engine import EXIT_PROTOCOL, EngineError, EngineRun, Notice, Outcome, Progress, find_engine
from incast.files import ForceOption, give_up_folder, lengthen_file, new_folder
from incast.lab.diagnosis import Diagnosis, diagnose_directory
from incast.lab.dips import Dip, MachineLog, dips_of_directory
from incast.lab.facts import is_open_loop, number, read_samples
from incast.live import VIRTUAL_TIME, RunView, make_view
from incast.net_summary import print_net_summary
from incast.settings import option
from incast.shipped import FabricOption, TraceOption
from incast.summary import print_summary

if TYPE_CHECKING:
    from incast.lab.live_page import LivePage

# Headings of the help.
_PROTOCOL, _ENDS = "Protocol", "Source and sink"
# Only names the folder of the results and the title; what runs is the engine's decision.
_DEFAULT_TRANSPORT = "shm"
_RESULTS_FOLDER = Path("incast-results")


@dataclass(frozen=True)
class RunRequest:
    """What to run: a configuration file, settings that override it in order, and where the results go."""

    config: Path | None
    settings: tuple[str, ...]
    output: Path
    transport: str
    web: str | None = None  # HOST:PORT of the live page
    force: bool = False  # an old run's files in `output` are removed
    default_name: bool = False  # `output` is ours to choose, and is not made yet
    watched: bool = True  # the engine ends with this process

    def command(self, engine: Path) -> list[str]:
        """The engine's command line."""
        overrides = [word for setting in self.settings for word in ("--set", setting)]
        config = [] if self.config is None else [str(self.config)]
        words = [str(engine), *config, *overrides, "--output", str(self.output), "--progress", "json"]
        if self.force:
            words.append("--force")
        return [*words, "--watched-by", str(os.getpid())] if self.watched else words

    def with_folder(self) -> "RunRequest":
        """Where the name is ours to choose, makes the folder: no other run gets it."""
        return replace(self, output=new_folder(self.output), default_name=False) if self.default_name else self


def source_settings(source: str) -> dict[str, str]:
    """`generator`, or a file or folder of MFPs."""
    return {"source.kind": source} if source == "generator" else {"source.kind": "mfp", "source.path": source}


def sink_settings(sink: str) -> dict[str, str]:
    """The name of a sink, with `:PATH` for files, `:CMD` for a command, `:NAME` for processes that attach."""
    kind, colon, what = sink.partition(":")
    where = {"command": "sink.command", "consumer": "sink.name"}.get(kind, "sink.path")
    return {"sink.kind": kind, where: what} if colon else {"sink.kind": kind}


def filter_settings(decider: str) -> dict[str, str]:
    """A share of all events (`0.3`), `plugin:PATH`, `python:MODULE:FUNCTION` or `command:CMD`."""
    kind, colon, what = decider.partition(":")
    if not colon:
        return {"filter.accept": kind}
    if kind == "python":
        return {"filter.kind": "command", "filter.command": shlex.join([sys.executable, "-m", "incast.filter", what])}
    return {"filter.kind": kind, {"command": "filter.command"}.get(kind, "filter.path"): what}


def size_settings(distribution: str) -> dict[str, str]:
    """The name of a distribution, with `:FILE` where it is a histogram."""
    name, colon, file = distribution.partition(":")
    return {"source.size_distribution": name, **({"source.size_histogram": file} if colon else {})}


def rate_settings(rate: str) -> dict[str, str]:
    """A rate, and behind commas others with the times from which they hold: `80kHz,120kHz@5s`."""
    first, comma, steps = rate.partition(",")
    return {"source.trigger_rate": first, **({"source.trigger_steps": steps} if comma else {})}


def arrival_settings(arrivals: str) -> dict[str, str]:
    """The kind of arrivals, with `:FILE` where they come from a trace."""
    kind, colon, file = arrivals.partition(":")
    return {"source.arrivals": kind, **({"source.arrival_trace": file} if colon else {})}


def hot_settings(hot: str) -> dict[str, str]:
    """`FACTOR` for source 0, or `SOURCE:FACTOR`."""
    source, colon, factor = hot.rpartition(":")
    return {"source.hot_factor": factor, **({"source.hot_source": source} if colon else {})}


def make_request(
    config: Path | None, options: Mapping[str, str | None], settings: list[str], output: Path | None, now: datetime
) -> RunRequest:
    """Options win over the file, `--set` wins over options; `options` maps a key to its value, None if not given."""
    given = (f"{key}={value}" for key, value in options.items() if value is not None)
    ordered = (*given, *settings)
    transport = _transport(config, ordered)
    if output is not None:
        return RunRequest(config, ordered, output, transport)
    name = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{transport}"
    return RunRequest(config, ordered, _RESULTS_FOLDER / name, transport, default_name=True)


def _transport(config: Path | None, settings: tuple[str, ...]) -> str:
    """The transport's name for titles and the folder's name; a file that cannot be read is for the engine to refuse."""
    name = _DEFAULT_TRANSPORT
    if config is not None:
        try:
            section = tomllib.loads(config.read_text()).get("transport")
        except (OSError, ValueError):
            section = None
        if isinstance(section, dict):
            name = str(section.get("name", name))
    for setting in settings:
        key, _, value = setting.partition("=")
        if key.strip() == "transport.name":
            name = value.strip()
    if name == "auto":
        name = _DEFAULT_TRANSPORT
    return re.sub(r"[^A-Za-z0-9_-]", "", name) or "run"


def execute(request: RunRequest, *, as_json: bool) -> int:
    """Runs the engine and shows what comes of it; the exit status."""
    outcome = watch(request, f"incast run  {request.transport}")
    if outcome.result_path is not None:
        show_result(outcome, read_result(outcome, outcome.result_path), outcome.result_path, as_json=as_json)
    return outcome.exit_status


def watch(request: RunRequest, title: str, unit: str = "events") -> Outcome:
    """Runs the engine to its end, with a view of its progress."""
    engine = find_engine()
    named_by_us = request.default_name
    request = request.with_folder()
    screen = open_console(stderr=True)
    virtual = request.transport == "sim"  # house: allow transport-name: before the engine can say it
    try:
        with contextlib.ExitStack() as stack:
            view = stack.enter_context(make_view(screen, title, virtual=virtual, unit=unit))
            page = stack.enter_context(_open_page(request.web, title, virtual, view)) if request.web else None
            machine = MachineLog(request.output, lambda line: view.on_progress(Notice("warning", line)))
            stack.callback(machine.close)

            def on_progress(progress: Progress) -> None:
                view.on_progress(progress)
                if page is not None:
                    page.feed.on_progress(progress)
                if not virtual:
                    machine.on_progress(progress, engine_run.pid)

            engine_run = EngineRun(request.command(engine), on_progress, view.on_tick)
            outcome = engine_run.watch()
            if page is not None:
                page.feed.end(_last_words(outcome))
            return replace(outcome, incomplete=(*outcome.incomplete, *machine.incomplete()))
    except EngineError as error:
        if not request.output.is_dir():
            raise
        raise EngineError(f"{error}; what there is lies in {request.output}", error.exit_status) from error
    finally:
        if named_by_us:
            give_up_folder(request.output)  # of a run that was refused


def _open_page(address: str, title: str, virtual: bool, view: RunView) -> "LivePage":
    from incast.lab.live_page import LivePage

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
    words = f"ended: {result.get('status')}; goodput without self {units.line_rate(goodput)}{virtual}"
    return f"{words}; {outcome.result_path}"


def read_result(outcome: Outcome, path: Path) -> dict[str, Any]:
    """The result that the engine says it has written."""
    try:
        result = json.loads(path.read_text())
        if not isinstance(result, dict):
            raise ValueError("no JSON object")
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} is no readable result: {error}", outcome.exit_status or EXIT_PROTOCOL) from error
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


def run(
    config: Annotated[
        Path | None, typer.Argument(help="Configuration file (docs/config.md); options override what it says.")
    ] = None,
    *,
    nodes: Annotated[str | None, option("run.nodes")] = None,
    transport: Annotated[str | None, option("transport.name", "What moves the data.")] = None,
    fabric: FabricOption = None,
    trace: TraceOption = None,
    roles: Annotated[str | None, option("run.roles")] = None,
    em: Annotated[str | None, option("run.em")] = None,
    duration: Annotated[str | None, option("run.duration")] = None,
    events: Annotated[str | None, option("run.events")] = None,
    warm_up: Annotated[str | None, option("run.warm_up")] = None,
    seed: Annotated[str | None, option("run.seed")] = None,
    protocol: Annotated[str | None, option("protocol.scheme", metavar="SCHEME", panel=_PROTOCOL)] = None,
    schedule: Annotated[str | None, option("protocol.schedule", panel=_PROTOCOL)] = None,
    assignment: Annotated[str | None, option("protocol.assignment", "Who builds what.", panel=_PROTOCOL)] = None,
    layout: Annotated[str | None, option("protocol.layout", panel=_PROTOCOL)] = None,
    filter_: Annotated[
        str | None,
        option(
            "filter.kind",
            "push-pull, pull-pull: what accepts the first stage; a share of all, or as it says.",
            "--filter",
            metavar="SHARE|plugin:PATH|python:MODULE:FUNCTION|command:CMD",
            panel=_PROTOCOL,
        ),
    ] = None,
    mfp_size: Annotated[
        str | None, option("protocol.mfp_size", "Mean size of an MFP; sets packing.", panel=_PROTOCOL)
    ] = None,
    packing: Annotated[str | None, option("protocol.packing", panel=_PROTOCOL)] = None,
    credits_: Annotated[
        str | None,
        option("protocol.credits", "MEPs that a builder unit may have in flight.", "--credits", panel=_PROTOCOL),
    ] = None,
    parallel_requests: Annotated[str | None, option("protocol.parallel_requests", panel=_PROTOCOL)] = None,
    parallel_sends: Annotated[str | None, option("protocol.parallel_sends", panel=_PROTOCOL)] = None,
    message_size: Annotated[str | None, option("protocol.message_size", panel=_PROTOCOL)] = None,
    source: Annotated[
        str | None, option("source.kind", "What feeds the readout units.", metavar="generator|PATH", panel=_ENDS)
    ] = None,
    fragment_size: Annotated[str | None, option("source.fragment_size", panel=_ENDS)] = None,
    size_distribution: Annotated[
        str | None, option("source.size_distribution", "Of generated fragments; histogram:FILE.", panel=_ENDS)
    ] = None,
    size_correlation: Annotated[str | None, option("source.size_correlation", panel=_ENDS)] = None,
    mean_ratio: Annotated[str | None, option("source.mean_ratio", panel=_ENDS)] = None,
    hot_source: Annotated[str | None, option("source.hot_factor", metavar="[N:]FACTOR", panel=_ENDS)] = None,
    sources_per_ru: Annotated[str | None, option("source.sources_per_ru", panel=_ENDS)] = None,
    trigger_rate: Annotated[
        str | None,
        option(
            "source.trigger_rate",
            "Events at this rate, and others from given times on; 0: as fast as they are built.",
            metavar="HZ[,HZ@TIME...]",
            panel=_ENDS,
        ),
    ] = None,
    arrivals: Annotated[
        str | None, option("source.arrivals", "Open loop: when events come; trace:FILE.", panel=_ENDS)
    ] = None,
    policy: Annotated[str | None, option("source.policy", panel=_ENDS)] = None,
    sink: Annotated[
        str | None,
        option(
            "sink.kind",
            "What takes built events; mep:DIR, command:CMD, consumer:NAME.",
            metavar="KIND[:WHERE]",
            panel=_ENDS,
        ),
    ] = None,
    verify: Annotated[str | None, option("sink.verify", panel=_ENDS)] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any setting of docs/config.md; may be repeated."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Result directory. (default: incast-results/<UTC time>-<transport>)"),
    ] = None,
    force: ForceOption = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run on without this terminal; see incast status, incast stop.")
    ] = False,
    web: Annotated[bool, typer.Option("--web", help="Live plots for a browser of this host.")] = False,
    web_listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where they are served; means --web. (default: 127.0.0.1:0)")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result, and nothing else, on standard output.")
    ] = False,
) -> None:
    """Build events on this host, verify them, and report what it cost.

    Ctrl-C ends the run early and still reports; a second one aborts.
    """
    options = {
        "run.nodes": nodes,
        "transport.name": transport or ("sim" if fabric is not None else None),
        "transport.sim.fabric": None if fabric is None else str(fabric),
        "transport.sim.trace": trace,
        "run.roles": roles,
        "run.em": em,
        "run.duration": duration,
        "run.events": events,
        "run.warm_up": warm_up,
        "run.seed": seed,
        "protocol.scheme": protocol,
        "protocol.schedule": schedule,
        "protocol.assignment": assignment,
        "protocol.layout": layout,
        "protocol.mfp_size": mfp_size,
        "protocol.packing": packing,
        "protocol.credits": credits_,
        "protocol.parallel_requests": parallel_requests,
        "protocol.parallel_sends": parallel_sends,
        "protocol.message_size": message_size,
        **(filter_settings(filter_) if filter_ is not None else {}),
        **(source_settings(source) if source is not None else {}),
        "source.fragment_size": fragment_size,
        **(size_settings(size_distribution) if size_distribution is not None else {}),
        "source.size_correlation": size_correlation,
        "source.mean_ratio": mean_ratio,
        **(hot_settings(hot_source) if hot_source is not None else {}),
        "source.sources_per_ru": sources_per_ru,
        **(rate_settings(trigger_rate) if trigger_rate is not None else {}),
        **(arrival_settings(arrivals) if arrivals is not None else {}),
        "source.policy": policy,
        **(sink_settings(sink) if sink is not None else {}),
        "sink.verify": verify,
    }
    request = replace(make_request(config, options, settings or [], output, datetime.now(UTC)), force=force)
    if web or web_listen is not None:
        from incast.lab.live_page import DEFAULT_ADDRESS, parse_address

        request = replace(request, web=web_listen or DEFAULT_ADDRESS)
        parse_address(request.web or "")  # before anything is written
    if detach:
        from incast.lab.detached import start

        raise typer.Exit(start(request, as_json=as_json))
    raise typer.Exit(execute(request, as_json=as_json))
