"""`incast net`: what the interconnect does without event building, the denominator of efficiency (docs/net.md).

As in `incast run` nothing is validated here: options become settings of the engine, which says what is wrong with them.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.cli.hosts import RunHostOptions
from incast.cli.options import CheckOption, FabricOption, ForceOption, TraceOption, option, spelled_out
from incast.engine.transports import simulated, simulated_key
from incast.run.execution import check, say_checked
from incast.run.net import like_options, measure
from incast.run.net_basic import basic
from incast.run.net_cases import cases_of
from incast.run.net_compare import DEFAULT_ROUNDS, compare_transports
from incast.run.request import make_request
from incast.scan.table import csv_of_results

_BASIC_ALONE = (
    "--basic measures two nodes, writes and reads of its own sizes; allowed beside it: --transport, --duration, "
    "--warm-up, --queues, --outstanding, --set and where results go"
)
_COMPARE_ALONE = (
    "--compare measures writes, their latency and their cost, of every transport it names; not allowed beside it: "
    "--transport, --fabric, --trace, --measure, --operation, --like and lists of --queues"
)


@spelled_out
def net(
    config: Annotated[
        Path | None, typer.Argument(help="Configuration file (docs/config.md); options override what it says.")
    ] = None,
    *,
    pattern: Annotated[str | None, option("net.pattern")] = None,
    nodes: Annotated[str | None, option("run.nodes")] = None,
    producers: Annotated[str | None, option("net.producers")] = None,
    consumers: Annotated[str | None, option("net.consumers")] = None,
    transport: Annotated[str | None, option("transport.name", "What moves the data.")] = None,
    fabric: FabricOption = None,
    trace: TraceOption = None,
    measure_: Annotated[str | None, option("net.measure", "", "--measure", "--mode", metavar="WHAT")] = None,
    duplex: Annotated[bool, option("net.duplex", "", "--duplex")] = False,
    message_size: Annotated[
        str | None, option("net.message_size", "Body of a message; a list measures each.", metavar="SIZE,...")
    ] = None,
    operation: Annotated[str | None, option("net.operation", "", "--operation", metavar="WHAT")] = None,
    queues: Annotated[
        str | None,
        option("net.queues", "Independent streams of every pair; a list measures each.", metavar="N,..."),
    ] = None,
    outstanding: Annotated[str | None, option("net.outstanding")] = None,
    sends: Annotated[str | None, option("net.sends")] = None,
    ping_size: Annotated[str | None, option("net.ping_size")] = None,
    duration: Annotated[str | None, option("run.duration")] = None,
    messages: Annotated[str | None, option("net.messages")] = None,
    warm_up: Annotated[str | None, option("run.warm_up")] = None,
    buffers: Annotated[str | None, option("net.buffers", metavar="WHAT")] = None,
    working_set: Annotated[str | None, option("net.working_set")] = None,
    verify: Annotated[bool, option("net.verify", "", "--verify")] = False,
    seed: Annotated[str | None, option("run.seed")] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Matrix, message size and transport of that `incast run`; says its efficiency."
        ),
    ] = None,
    basic_: Annotated[
        bool,
        typer.Option(
            "--basic", help="Two nodes: bandwidth and latency of writes and reads beside perftest's and published ones."
        ),
    ] = False,
    perftest: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE[,DEVICE]",
            help="With --basic: RDMA device of perftest's programs, or server's and client's. (default: the first)",
        ),
    ] = None,
    perftest_options: Annotated[
        str,
        typer.Option(metavar="WORDS", help="With --basic: further options of perftest's programs, such as '-x 1'."),
    ] = "",
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...",
            help="The same traffic over each of these transports in turn; one table. Settings of one: tcp:streams=4. "
            "One that is not here is named, and left out.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(metavar="N", help="With --compare: how often each transport is measured.")
    ] = DEFAULT_ROUNDS,
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
    check_only: CheckOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result, and nothing else, on standard output.")
    ] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print a table on standard output: a row per measurement (docs/scanning.md).")
    ] = False,
) -> None:
    """Measure the interconnect without event building: bandwidth, latency, and latency under load; writes or reads.

    Ctrl-C ends the measurement early and still reports; a second one aborts.
    """
    sizes = [] if message_size is None else message_size.split(",")
    numbers = [] if queues is None else queues.split(",")
    inherited, built = like_options(like) if like is not None else ({}, {})
    options = {
        **inherited,
        **_given(
            {
                "net.pattern": pattern if pattern or not (producers or consumers) else "bipartite",
                "run.nodes": nodes,
                "net.producers": producers,
                "net.consumers": consumers,
                **hosts.network_settings(),
                "transport.name": transport or (simulated() if fabric is not None else None),
                simulated_key("fabric"): None if fabric is None else str(fabric),
                simulated_key("trace"): trace,
                "net.measure": measure_,
                "net.duplex": "true" if duplex else None,
                "net.message_size": sizes[0] if len(sizes) == 1 else None,
                "net.operation": operation,
                "net.queues": numbers[0] if len(numbers) == 1 else None,
                "net.outstanding": outstanding,
                "net.sends": sends,
                "net.ping_size": ping_size,
                "run.duration": duration,
                "net.messages": messages,
                "run.warm_up": warm_up,
                "net.buffers": buffers,
                "net.working_set": working_set,
                "net.verify": "true" if verify else None,
                "run.seed": seed,
            }
        ),
    }
    chosen = [*(settings or []), "run.task=net"]
    now = datetime.now(UTC)
    request = replace(make_request(config, options, chosen, output, now, across=hosts.across), force=force)
    if as_csv and (as_json or basic_ or compare is not None):
        raise OneLineError(
            "--csv prints a row per measurement; not beside it: --json, --basic, --compare", EXIT_BAD_CONFIG
        )
    if check_only and (basic_ or compare is not None):
        raise OneLineError("--check checks one traffic; not beside it: --basic, --compare", EXIT_BAD_CONFIG)
    if basic_:
        taken = (pattern, nodes, producers, consumers, fabric, measure_, operation, message_size, like)
        if duplex or hosts.across or any(each is not None for each in taken):
            raise OneLineError(_BASIC_ALONE, EXIT_BAD_CONFIG)
        raise typer.Exit(basic(request, perftest, perftest_options.split(), as_json=as_json))
    request = hosts.over_hosts(request)
    if compare is not None:
        if transport or fabric or trace or measure_ or operation or like or numbers[1:]:
            raise OneLineError(_COMPARE_ALONE, EXIT_BAD_CONFIG)
        raise typer.Exit(compare_transports(request, compare, sizes, rounds, as_json=as_json))
    compared = (built, like) if like is not None else None
    cases = cases_of(sizes, numbers, against_idle=measure_ == "loaded")
    if check_only:
        for number, case in enumerate(cases.cases):
            check(case.request(request, number))
        say_checked(request)
        return
    table = (lambda results: csv_of_results(results, "net")) if as_csv else None
    raise typer.Exit(measure(request, cases, compared, as_json=as_json, table=table))


def _given(options: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in options.items() if value is not None}
