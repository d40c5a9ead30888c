"""`incast run`: turns options into settings of the engine, runs it, shows the run and its result."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.cli.hosts import RunHostOptions
from incast.cli.options import CheckOption, FabricOption, ForceOption, TraceOption, option, spelled_out
from incast.engine.transports import is_simulated, simulated, simulated_key
from incast.run.execution import execute, say_checked
from incast.run.farm_nodes import consumer_settings
from incast.run.request import (
    RunRequest,
    arrival_settings,
    check_filter,
    filter_settings,
    hot_settings,
    make_request,
    rate_settings,
    sink_settings,
    size_settings,
    source_settings,
)

# Headings of the help.
_PROTOCOL, _ENDS = "Protocol", "Source and sink"


@spelled_out
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
    assignment: Annotated[
        str | None, option("protocol.assignment", "How builder units are chosen.", panel=_PROTOCOL)
    ] = None,
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
        str | None,
        option(
            "source.kind",
            "What feeds the readout units.",
            metavar="generator|udp:PORT|tcp:PORT|program:NAME|PATH",
            panel=_ENDS,
        ),
    ] = None,
    fragment_size: Annotated[str | None, option("source.fragment_size", panel=_ENDS)] = None,
    size_distribution: Annotated[
        str | None, option("source.size_distribution", "Sizes of generated fragments; histogram:FILE.", panel=_ENDS)
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
    consumers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="N farm nodes on this host take the events over the network, and drop them; in a simulated network "
            "they are its last hosts.",
            rich_help_panel=_ENDS,
        ),
    ] = None,
    verify: Annotated[str | None, option("sink.verify", panel=_ENDS)] = None,
    hosts: RunHostOptions,
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
    check_only: CheckOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result, and nothing else, on standard output.")
    ] = False,
) -> None:
    """Build events on this host or on many, verify them, and report what it cost.

    Ctrl-C ends the run early and still reports; a second one aborts.
    """
    options = {
        **hosts.network_settings(),
        "run.nodes": nodes,
        "transport.name": transport or (simulated() if fabric is not None else None),
        simulated_key("fabric"): None if fabric is None else str(fabric),
        simulated_key("trace"): trace,
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
    now = datetime.now(UTC)
    if filter_ is not None and not hosts.across:
        check_filter(filter_)
    request = replace(make_request(config, options, settings or [], output, now, across=hosts.across), force=force)
    request = hosts.over_hosts(request)
    if consumers is not None:
        request = _with_farm(request, consumers, sink, elsewhere=detach or hosts.across)
    if check_only:
        say_checked(request)
        return
    if web or web_listen is not None:
        from incast.run.live_page import DEFAULT_ADDRESS, parse_address

        request = replace(request, web=web_listen or DEFAULT_ADDRESS)
        parse_address(request.web or "")  # before anything is written
    if detach:
        from incast.run.detached import start

        raise typer.Exit(start(request, as_json=as_json))
    raise typer.Exit(execute(request, as_json=as_json))


def _with_farm(request: RunRequest, count: int, sink: str | None, *, elsewhere: bool) -> RunRequest:
    """For `--consumers`: what else was said of the sink wins."""
    if sink is not None and sink.partition(":")[0] != "consumer":
        raise OneLineError(
            f"--consumers {count} --sink {sink}: farm nodes are the sink; leave one out", EXIT_BAD_CONFIG
        )
    if elsewhere:
        raise OneLineError(
            f"--consumers {count}: runs in this terminal and on this host only; else use incast dispatch and "
            "incast consume (docs/farm.md)",
            EXIT_BAD_CONFIG,
        )
    in_simulation = is_simulated(request.transport)
    farm = consumer_settings(count, is_simulated=in_simulation, name=f"run-{os.getpid()}")
    settings = (*(f"{key}={value}" for key, value in farm.items()), *request.settings)
    return replace(request, settings=settings, farm_nodes=0 if in_simulation else count)
