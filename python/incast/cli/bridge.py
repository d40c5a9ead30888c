"""`incast bridge`: what other programs reach over these transports (docs/zeromq.md, docs/root.md, docs/netdev.md)."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from incast.base import extras
from incast.base.console import open_console
from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.base.files import FILES_OF_A_RUN, leave_file, remove_files, writing_output
from incast.bridges.iperf import MOST_STREAMS, PATTERNS, cases_of
from incast.bridges.iperf import measure as measure_iperf
from incast.bridges.iperf_program import HOSTS, MANY_TO_ONE, ONE_TO_ONE, devices, need_tools
from incast.bridges.iperf_tables import conditions as conditions_of_iperf
from incast.bridges.iperf_tables import tables as tables_of_iperf
from incast.bridges.namespaces import hosts_around_a_switch
from incast.bridges.root import (
    CLIENTS,
    EXPERIMENTS,
    LEAST_BUFFER_BYTES,
    MOST_BUFFER_BYTES,
    MOST_CLIENTS,
)
from incast.bridges.root import measure as measure_root
from incast.bridges.root_program import VERSIONS, WAYS, parse_names
from incast.bridges.root_program import Measuring as MeasuringRoot
from incast.bridges.root_program import find_bridge as find_root_bridge
from incast.bridges.root_tables import conditions as conditions_of_root
from incast.bridges.root_tables import fitting
from incast.bridges.root_tables import tables as tables_of_root
from incast.bridges.zmq import DEFAULT_BYTES, LARGE_BYTES, SMALL_BYTES, Wanted, measure
from incast.bridges.zmq_program import Measuring, find_bridge, parse_ways
from incast.bridges.zmq_tables import BridgeTable, conditions, tables
from incast.cli.options import ForceOption
from incast.cli.reproduce import RESULTS_FOLDER, fabrics_folder
from incast.engine.idle import usable_cores
from incast.engine.quantity import parse
from incast.figures.iperf_document import around_measured as around_measured_of_iperf
from incast.figures.iperf_document import write_document as write_document_of_iperf
from incast.figures.root_document import around_measured as around_measured_of_root
from incast.figures.root_document import write_document as write_document_of_root
from incast.figures.zmq_document import around_measured, write_document
from incast.reproduce.laboratory import Laboratory
from incast.reproduce.rapidio import IPERF_ROWS, iperf_gbit
from incast.reproduce.rows import ROWS

bridge_app = typer.Typer(help="What programs of others reach over these transports.", no_args_is_help=True)
_RESULT = "result.json"
_EXIT_UNFINISHED = 1


@bridge_app.callback()
def _bridges() -> None:
    """A command for each bridge."""


@bridge_app.command("zmq")
def zmq(
    *,
    over: Annotated[
        str, typer.Option(metavar="WAY,...", help="tcp | ipc | shm | rio | rio-tsi721 | rio-udp.")
    ] = "tcp,ipc,shm,rio",
    message_size: Annotated[
        str | None, typer.Option(metavar="SIZE,...", help="Messages. (default: 8, 1KiB, 64KiB, 1MiB)")
    ] = None,
    scan: Annotated[bool, typer.Option("--scan", help="Sizes of buffers and lengths of rings instead.")] = False,
    breakdown: Annotated[
        bool, typer.Option("--breakdown", help="Sending and receiving by stage instead: where the time goes.")
    ] = False,
    evaluation: Annotated[
        bool, typer.Option("--evaluation", help="All of it: more sizes, both scans, the breakdowns.")
    ] = False,
    seconds: Annotated[float, typer.Option(metavar="S", min=0.05, help="Time of one reading.")] = 0.5,
    warm_up: Annotated[float, typer.Option(metavar="S", min=0.0, help="Before it.")] = 0.1,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="How often everything is measured.")] = 3,
    spin: Annotated[
        int, typer.Option(metavar="US", min=0, help="How long I/O threads look before they sleep, in us.")
    ] = 0,
    bridge: Annotated[
        Path | None, typer.Option(metavar="DIR", help="What bridges/zmq/build.sh made. (default: build/zmq)")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Result directory. (default: incast-results/<UTC time>-zmq)")
    ] = None,
    force: ForceOption = False,
    document: Annotated[
        Path | None,
        typer.Option("--write-docs", metavar="FILE", help="Write tables and figures into docs/zeromq.md, too."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result, and nothing else.")] = False,
) -> None:
    """Measure ZeroMQ: round trips, throughput and message rate, over tcp, ipc and the transports of Incast in turn.

    Both processes run on this host. Only the address differs, and each way is measured by the same program.
    """
    usual = (*SMALL_BYTES, *LARGE_BYTES) if evaluation else DEFAULT_BYTES
    wanted = Wanted(
        parse_ways(over),
        usual if message_size is None else _sizes(message_size),
        speed=evaluation or not (scan or breakdown),
        scan=scan or evaluation,
        breakdown=breakdown or evaluation,
    )
    if not wanted.cases():
        raise OneLineError(f"--over {over}: only channels have rings and stages; allowed: shm, rio", EXIT_BAD_CONFIG)
    measuring = Measuring(find_bridge(bridge), seconds, warm_up, spin)
    folder = _made_folder(output, "zmq", force=force)
    if document is not None:
        extras.need("matplotlib", "--write-docs")
        around_measured(document)  # before what takes long
    settings = {"seconds": seconds, "warm_up_seconds": warm_up, "spin_us": spin}
    result = measure(measuring, wanted, rounds, settings=settings, say=_say())
    leave_file(folder / _RESULT, _text_of(result))
    if document is not None:
        write_document(document, result)
    if as_json:
        sys.stdout.write(_text_of(result))
    else:
        print_zmq(open_console(), result, folder)
    raise typer.Exit(_EXIT_UNFINISHED if result["unfinished"] else 0)


@bridge_app.command("root")
def root(
    *,
    experiment: Annotated[str, typer.Option(metavar="NAME", help="clients | duplex | versions.")] = CLIENTS,
    over: Annotated[
        str | None,
        typer.Option(metavar="WAY,...", help="tcp | shm | rio | rio-tsi721 | tcp-hosts | rio-udp."),
    ] = None,
    version: Annotated[
        str | None, typer.Option(metavar="NAME,...", help=f"{' | '.join(VERSIONS)}: how channels work.")
    ] = None,
    buffer_size: Annotated[
        str | None, typer.Option(metavar="SIZE,...", help="What one SendRaw sends. (default: the experiment's)")
    ] = None,
    clients: Annotated[
        int, typer.Option(metavar="N", min=1, max=MOST_CLIENTS, help="Clients of experiment clients, at most.")
    ] = MOST_CLIENTS,
    seconds: Annotated[float, typer.Option(metavar="S", min=0.05, help="Time of one reading.")] = 0.25,
    warm_up: Annotated[float, typer.Option(metavar="S", min=0.0, help="Before it.")] = 0.1,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="How often everything is measured.")] = 2,
    bridge: Annotated[
        Path | None, typer.Option(metavar="DIR", help="What bridges/root/build.sh made. (default: build/root)")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Result directory. (default: incast-results/<UTC time>-root)")
    ] = None,
    force: ForceOption = False,
    document: Annotated[
        Path | None,
        typer.Option("--write-docs", metavar="FILE", help="Write tables and a figure into docs/root.md, too."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result, and nothing else.")] = False,
) -> None:
    """Measure ROOT: the experiments of the papers that brought it to RapidIO, over channels and beside TCP, in turn.

    clients: 1 to 15 programs send to one. duplex: two programs send, one way and both ways at once, over sizes of
    buffers. versions: what carries and acknowledges the data. All processes run on this host; ways between hosts take
    network namespaces, which the run makes and removes, as root.
    """
    if experiment not in EXPERIMENTS:
        allowed = ", ".join(EXPERIMENTS)
        raise OneLineError(f"--experiment {experiment}: there is none; allowed: {allowed}", EXIT_BAD_CONFIG)
    wanted = EXPERIMENTS[experiment]
    ways = parse_names("--over", over or wanted.ways, WAYS)
    versions = parse_names("--version", version or wanted.versions, VERSIONS)
    sizes = wanted.sizes if buffer_size is None else _sizes(buffer_size, "--buffer-size", least=LEAST_BUFFER_BYTES)
    if sizes[-1] > MOST_BUFFER_BYTES:
        raise OneLineError(f"--buffer-size {buffer_size}: allowed: at most 256MiB", EXIT_BAD_CONFIG)
    cases = wanted.cases(ways, versions, sizes, clients)
    if not cases:
        raise OneLineError(f"--over {over} --version {version}: only rio has messages of CM", EXIT_BAD_CONFIG)
    place = find_root_bridge(bridge)
    folder = _made_folder(output, "root", force=force)
    if document is not None:
        extras.need("matplotlib", "--write-docs")
        around_measured_of_root(document, experiment)
    settings = {"seconds": seconds, "warm_up_seconds": warm_up}
    with ExitStack() as stack:
        hosts = []
        if any(WAYS[way].has_hosts for way in ways):
            hosts = stack.enter_context(hosts_around_a_switch(1 + max(case.clients for case in cases)))
        measuring = MeasuringRoot(place, seconds, warm_up, hosts)
        result = measure_root(measuring, wanted, cases, rounds, settings=settings, say=_say())
    leave_file(folder / _RESULT, _text_of(result))
    if document is not None:
        write_document_of_root(document, result)
    if as_json:
        sys.stdout.write(_text_of(result))
    else:
        print_root(open_console(), result, folder)
    raise typer.Exit(_EXIT_UNFINISHED if result["unfinished"] else 0)


@bridge_app.command("iperf")
def iperf(
    *,
    pattern: Annotated[
        str, typer.Option(metavar="NAME,...", help="one-to-one: 1 to 8 pairs. many-to-one: 1 to 15 clients.")
    ] = ",".join(PATTERNS),
    streams: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=max(MOST_STREAMS.values()), help="Up to so many.")
    ] = None,
    slowdown: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="The emulated link is so many times slower.")
    ] = 20,
    mtu: Annotated[int, typer.Option(metavar="BYTES", min=1280, max=65520, help="MTU of the devices.")] = 65500,
    seconds: Annotated[int, typer.Option(metavar="S", min=1, help="Time of one reading.")] = 5,
    warm_up: Annotated[int, typer.Option(metavar="S", min=0, help="Before it.")] = 2,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="How often everything is measured.")] = 3,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Simulated figures beside; they are kept as `incast reproduce` does.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Result directory. (default: incast-results/<UTC time>-iperf)")
    ] = None,
    force: ForceOption = False,
    document: Annotated[
        Path | None, typer.Option("--write-docs", metavar="FILE", help="Write the tables into docs/netdev.md, too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result, and nothing else.")] = False,
) -> None:
    """Measure iperf3 over network devices: the tables of the paper that measured RIOsockets, beside its figures.

    The link is an emulated Tsi721, slower by a factor, so that this host is not the limit. All 16 hosts are network
    namespaces, which the run makes and removes, as root.
    """
    cases = cases_of(parse_names("--pattern", pattern, dict.fromkeys(PATTERNS)), streams)
    need_tools()
    folder = _made_folder(output, "iperf", force=force)
    if document is not None:
        around_measured_of_iperf(document)
    settings = {"seconds": seconds, "warm_up_seconds": warm_up, "mtu": mtu}
    beside = _simulated_iperf() if simulated else None
    with hosts_around_a_switch(HOSTS) as hosts, devices(hosts, slowdown, mtu) as made:
        result = measure_iperf(
            made, cases, rounds, slowdown=slowdown, settings=settings, simulated_gbit=beside, say=_say()
        )
    leave_file(folder / _RESULT, _text_of(result))
    if document is not None:
        write_document_of_iperf(document, result)
    if as_json:
        sys.stdout.write(_text_of(result))
    else:
        print_iperf(open_console(), result, folder)
    raise typer.Exit(_EXIT_UNFINISHED if result["unfinished"] else 0)


def _simulated_iperf() -> dict[str, list[float]]:
    """Before anything is measured."""
    laboratory = Laboratory(RESULTS_FOLDER, fabrics_folder(None), usable_cores())
    pairs, clients = iperf_gbit(laboratory.figures([row for row in ROWS if row.id in IPERF_ROWS], _say()))
    return {ONE_TO_ONE: pairs, MANY_TO_ONE: clients}


def _made_folder(output: Path | None, kind: str, *, force: bool) -> Path:
    """As given or by the time; OneLineError if it holds a result."""
    folder = output or Path("incast-results", f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{kind}")
    if (folder / _RESULT).exists() and not force:
        raise OneLineError(
            f"--output {folder}: holds {_RESULT} of an earlier run; allowed: another folder, or --force",
            EXIT_BAD_CONFIG,
        )
    with writing_output(folder):
        if force and folder.is_dir():
            remove_files(folder, FILES_OF_A_RUN)
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _say() -> Callable[[str], None]:
    """What is measured now, on a terminal, each line over the one before."""
    screen = open_console(stderr=True)

    def say(line: str) -> None:
        if screen.is_terminal:
            screen.print(line, style="dim", end="\r", overflow="crop", no_wrap=True)

    return say


def _text_of(result: Mapping[str, Any]) -> str:
    return json.dumps(result, indent=2) + "\n"


def _sizes(text: str, option: str = "--message-size", least: int = 1) -> list[int]:
    found = []
    for word in text.split(","):
        value = parse("bytes", word.strip())
        if value is None or value != int(value) or not least <= value <= 1 << 30:
            raise OneLineError(f"{option} {text}: allowed: sizes from {least} B to 1 GiB, as 64KiB", EXIT_BAD_CONFIG)
        found.append(int(value))
    return sorted(set(found))


def print_zmq(console: Console, result: Mapping[str, Any], folder: Path) -> None:
    """Tables of medians, then the conditions."""
    _print(console, result, tables(result), conditions(result), folder)


def print_root(console: Console, result: Mapping[str, Any], folder: Path) -> None:
    """The same. A table that is too wide for a terminal is printed in parts."""
    _print(console, result, fitting(tables_of_root(result), console.width), conditions_of_root(result), folder)


def print_iperf(console: Console, result: Mapping[str, Any], folder: Path) -> None:
    """The same."""
    _print(console, result, tables_of_iperf(result), conditions_of_iperf(result), folder)


def _print(
    console: Console, result: Mapping[str, Any], found: Sequence[BridgeTable], said: Sequence[str], folder: Path
) -> None:
    for each in found:
        console.print(Text(each.title, style="bold"))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for number, heading in enumerate(each.headings):
            table.add_column(heading, justify="right" if number else "left")
        for row in each.rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
        console.print()
    for line in said:
        console.print(Text(line, style="dim"), soft_wrap=True)
    if result["readings_not_idle"]:
        console.print(Text("NOT IDLE: others used the machine; a trial, no measurement", style="yellow"))
    for line in result["unfinished"]:
        console.print(Text(line, style="bold yellow"), soft_wrap=True)
    console.print(f"results in {folder}", soft_wrap=True, markup=False, highlight=False)
