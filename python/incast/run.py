"""`incast run`: turns options into settings of the engine, runs it, shows the run and its result.

Nothing is validated here. Every option is text that goes to the engine as `--set section.key=value`; what the engine
says about it is shown, and its exit status is the command's. So there is one place that knows what is allowed.
"""

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from incast.console import open_console
from incast.engine import EXIT_PROTOCOL, EngineError, EngineRun, Outcome, find_engine
from incast.live import make_view
from incast.summary import print_summary

# Only names the folder of the results and the title; what runs is the engine's decision.
_DEFAULT_TRANSPORT = "tcp"
_RESULTS_FOLDER = Path("incast-results")


@dataclass(frozen=True)
class RunRequest:
    """What to run: a configuration file, settings that override it in order, and where the results go."""

    config: Path | None
    settings: tuple[str, ...]
    output: Path
    transport: str

    def command(self, engine: Path) -> list[str]:
        """The engine's command line."""
        overrides = [word for setting in self.settings for word in ("--set", setting)]
        config = [] if self.config is None else [str(self.config)]
        return [str(engine), *config, *overrides, "--output", str(self.output), "--progress", "json"]


def source_settings(source: str) -> dict[str, str]:
    """`generator`, or a file or folder of MFPs."""
    return {"source.kind": source} if source == "generator" else {"source.kind": "mfp", "source.path": source}


def sink_settings(sink: str) -> dict[str, str]:
    """The name of a sink, with `:PATH` where it writes files, and `:NAME` where processes attach to it."""
    kind, colon, rest = sink.partition(":")
    key = "sink.name" if kind == "consumer" else "sink.path"
    return {"sink.kind": kind, key: rest} if colon else {"sink.kind": kind}


def make_request(
    config: Path | None, options: Mapping[str, str | None], settings: list[str], output: Path | None, now: datetime
) -> RunRequest:
    """Options win over the file, `--set` wins over options; `options` maps a key to its value, None if not given."""
    given = (f"{key}={value}" for key, value in options.items() if value is not None)
    ordered = (*given, *settings)
    transport = _transport(config, ordered)
    return RunRequest(config, ordered, output or _default_output(transport, now), transport)


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
    return re.sub(r"[^A-Za-z0-9_-]", "", name) or "run"


def _default_output(transport: str, now: datetime) -> Path:
    base = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{transport}"
    candidate, number = _RESULTS_FOLDER / base, 2
    while candidate.exists():
        candidate, number = _RESULTS_FOLDER / f"{base}-{number}", number + 1
    return candidate


def execute(request: RunRequest, *, as_json: bool) -> int:
    """Runs the engine and shows what comes of it; the exit status."""
    engine = find_engine()
    screen = open_console(stderr=True)
    try:
        with make_view(screen, f"incast run  {request.transport}", virtual=request.transport == "sim") as view:
            outcome = EngineRun(request.command(engine), view.on_progress, view.on_tick).watch()
    except EngineError as error:
        if not request.output.is_dir():
            raise
        raise EngineError(f"{error}; what there is lies in {request.output}", error.exit_status) from error
    if outcome.result_path is not None:
        _show_result(outcome, outcome.result_path, as_json=as_json)
    return outcome.exit_status


def _show_result(outcome: Outcome, path: Path, *, as_json: bool) -> None:
    try:
        text = path.read_text()
        result: Any = json.loads(text)
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} is no readable result: {error}", outcome.exit_status or EXIT_PROTOCOL) from error
    if as_json:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    else:
        print_summary(open_console(), result, path.parent)


def run(
    config: Annotated[
        Path | None, typer.Argument(help="Configuration file (docs/config.md); options override what it says.")
    ] = None,
    *,
    nodes: Annotated[str | None, typer.Option(metavar="N", help="Nodes on this host. (default: 4)")] = None,
    transport: Annotated[
        str | None, typer.Option(metavar="NAME", help="inproc, tcp, sim: what moves the data. (default: tcp)")
    ] = None,
    roles: Annotated[
        str | None, typer.Option(metavar="ROLES", help="folded (RU and BU on every node) or split.")
    ] = None,
    em: Annotated[str | None, typer.Option(metavar="WHERE", help="Event manager: shared or own node.")] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="Length of the measurement. (default: 10s)")
    ] = None,
    events: Annotated[str | None, typer.Option(metavar="N", help="End after this many events.")] = None,
    warm_up: Annotated[str | None, typer.Option(metavar="TIME", help="Left out of the figures, 1s.")] = None,
    seed: Annotated[str | None, typer.Option(metavar="S", help="Seed of everything random.")] = None,
    protocol: Annotated[
        str | None,
        typer.Option(metavar="SCHEME", help="push or pull. (default: push)", rich_help_panel="Protocol"),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="S", help="Order of the sends: linear-shift, sequential, random.", rich_help_panel="Protocol"
        ),
    ] = None,
    mfp_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Mean size of an MFP, 64KiB; sets packing.", rich_help_panel="Protocol"),
    ] = None,
    packing: Annotated[
        str | None, typer.Option(metavar="N", help="Events per MFP.", rich_help_panel="Protocol")
    ] = None,
    credits_: Annotated[
        str | None, typer.Option("--credits", metavar="K", help="MEP slots per BU.", rich_help_panel="Protocol")
    ] = None,
    parallel_requests: Annotated[
        str | None, typer.Option(metavar="N", help="Outstanding requests per BU.", rich_help_panel="Protocol")
    ] = None,
    parallel_sends: Annotated[
        str | None, typer.Option(metavar="N", help="Outstanding sends per RU.", rich_help_panel="Protocol")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="generator|PATH", help="What feeds the RUs.", rich_help_panel="Source and sink"),
    ] = None,
    fragment_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Mean fragment size, 1KiB.", rich_help_panel="Source and sink")
    ] = None,
    size_distribution: Annotated[
        str | None,
        typer.Option(metavar="D", help="fixed, normal, lognormal or exponential.", rich_help_panel="Source and sink"),
    ] = None,
    sources_per_ru: Annotated[
        str | None, typer.Option(metavar="N", help="Sources of each RU.", rich_help_panel="Source and sink")
    ] = None,
    trigger_rate: Annotated[
        str | None,
        typer.Option(metavar="HZ", help="Events at this rate instead of on demand.", rich_help_panel="Source and sink"),
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option(
            metavar="verify|touch|null|mep:DIR|consumer:NAME",
            help="What takes built events. (default: verify)",
            rich_help_panel="Source and sink",
        ),
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(metavar="HOW", help="full, sampled or header.", rich_help_panel="Source and sink"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any setting of docs/config.md; may be repeated."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Result directory. (default: incast-results/<UTC time>-<transport>)"),
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
        "transport.name": transport,
        "run.roles": roles,
        "run.em": em,
        "run.duration": duration,
        "run.events": events,
        "run.warm_up": warm_up,
        "run.seed": seed,
        "protocol.scheme": protocol,
        "protocol.schedule": schedule,
        "protocol.mfp_size": mfp_size,
        "protocol.packing": packing,
        "protocol.credits": credits_,
        "protocol.parallel_requests": parallel_requests,
        "protocol.parallel_sends": parallel_sends,
        **(source_settings(source) if source is not None else {}),
        "source.fragment_size": fragment_size,
        "source.size_distribution": size_distribution,
        "source.sources_per_ru": sources_per_ru,
        "source.trigger_rate": trigger_rate,
        **(sink_settings(sink) if sink is not None else {}),
        "sink.verify": verify,
    }
    request = make_request(config, options, settings or [], output, datetime.now(UTC))
    raise typer.Exit(execute(request, as_json=as_json))
