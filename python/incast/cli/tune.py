"""`incast tune`: the best settings for a goal, on any transport, within a time."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from incast.base.console import open_console
from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.base.extras import need
from incast.base.files import writing_output
from incast.cli.hosts import HostOptions
from incast.cli.options import FabricOption, ForceOption, option, spelled_out
from incast.engine.fabric_text import file_key
from incast.engine.idle import usable_cores
from incast.engine.quantity import Scalar, parse
from incast.engine.transports import simulated
from incast.scan.plan import Plan
from incast.scan.scan import empty_folder, given_up_if_empty
from incast.scan.sweep import settings_of
from incast.tune.asked import Asked
from incast.tune.files import write_results
from incast.tune.goal import GOALS, GOODPUT, Goal
from incast.tune.outcome import Outcome, as_json, outcome_of
from incast.tune.proposals import LIBRARY, PURPOSE
from incast.tune.show import TuneView, show
from incast.tune.space import USUAL
from incast.tune.tuning import Tuning, carry_out, load_all

_EXIT_NOTHING = 1
_EXIT_INTERRUPTED = 130
_BUDGET_S = 300.0


@spelled_out
def tune(
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG.toml", help="Configuration file below all settings.")
    ] = None,
    *,
    goal: Annotated[str, typer.Option(metavar="GOAL", help=f"{' | '.join(GOALS)}.")] = GOODPUT,
    budget: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Time for all of it, also as 10m. (default: 300)")
    ] = None,
    transport: Annotated[str | None, option("transport.name", "What moves the data.")] = None,
    fabric: FabricOption = None,
    nodes: Annotated[str | None, option("run.nodes")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting of all points, which is not varied; may be repeated."
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,...",
            help=f"Values of a setting, or of the network (fabric.KEY); '{USUAL}': what is varied without this option.",
        ),
    ] = None,
    latency_below: Annotated[
        str | None, typer.Option(metavar="TIME", help="Bound: 99 % of the events are built within it.")
    ] = None,
    goodput_above: Annotated[str | None, typer.Option(metavar="RATE", help="Bound: as 10GB/s or 80Gbps.")] = None,
    seconds: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Measured time of a whole reading. (default: budget / 100; simulated 5ms)"),
    ] = None,
    warm_up: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Before it. (default: a tenth of it; simulated 1ms, with triggers 7ms)"),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the search.")] = 1,
    jobs: Annotated[int, typer.Option(metavar="N", min=0, help="Simulated points at a time; 0: one per core.")] = 0,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Continue in that folder; a larger --budget goes on with it.")
    ] = None,
    hosts: HostOptions,
    check: Annotated[bool, typer.Option("--check", help="Only say what would be varied.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the results go. (default: incast-results/tune-<UTC time>-<transport>)"),
    ] = None,
    force: ForceOption = False,
    as_json_: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON on standard output.")] = False,
) -> None:
    """Find the best settings for a goal by measuring, within a time (docs/tuning.md).

    Ctrl-C ends it with the best so far; `incast tune --resume DIR` goes on.
    """
    need(LIBRARY, PURPOSE)
    screen = open_console(stderr=True)
    places = hosts.places()
    budget_s = None if budget is None else _time("--budget", budget)
    if resume is not None:
        new = (config, transport, fabric, nodes, settings, vary, latency_below, goodput_above, seconds, warm_up, output)
        if any(each is not None for each in new):
            raise OneLineError(
                "--resume: takes what was asked for; allowed beside it: --budget, --jobs, --json", EXIT_BAD_CONFIG
            )
        tuning, plan, asked_s = load_all(resume)
        folder, budget_s = resume, budget_s or asked_s
    else:
        budget_s = budget_s or _BUDGET_S
        asked = Asked(
            config,
            _fixed(transport, fabric, nodes, settings or []),
            Goal(
                _one_of("--goal", goal),
                None if latency_below is None else _time("--latency-below", latency_below),
                None if goodput_above is None else _rate("--goodput-above", goodput_above),
            ),
            vary or [],
            budget_s,
            None if seconds is None else _time("--seconds", seconds),
            None if warm_up is None else _time("--warm-up", warm_up),
            seed,
        )
        tuning, plan = asked.tuning(places)
        if check:
            _say_what(tuning, plan, budget_s)
            return
        folder = empty_folder(output, asked.transport(across=places is not None), force=force, kind="tune")
    with given_up_if_empty(folder, ours=output is None and resume is None):
        screen.print(
            f"tuning for {tuning.goal.words}: {len(tuning.axes)} settings, {budget_s:g} s; results in {folder}",
            soft_wrap=True,
        )
        view = TuneView(screen, tuning.goal, tuning.seconds, budget_s)
        seen, finished = carry_out(
            tuning, plan, folder, budget_s=budget_s, jobs=jobs or usable_cores(), on_seen=view.on_seen, hosts=places
        )
    if not seen:
        raise typer.Exit(_EXIT_INTERRUPTED)
    outcome = outcome_of(tuning.goal, tuning.axes, seen, budget_s)
    status = _conclude(tuning, plan, folder, outcome, finished=finished, json_=as_json_)
    if status:
        raise typer.Exit(status)


def _conclude(tuning: Tuning, plan: Plan, folder: Path, outcome: Outcome, *, finished: bool, json_: bool) -> int:
    """Writes and shows what came of it; the exit status."""
    found = as_json(outcome) | {"directory": str(folder), "finished": finished}
    with writing_output(folder):
        file = write_results(folder, tuning, plan, outcome, found)
    if json_:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        more = [] if finished else [f"stopped; to go on: incast tune --resume {folder}"]
        show(open_console(), outcome, None if file is None else str(file), more)
    return _EXIT_INTERRUPTED if not finished else _EXIT_NOTHING if outcome.best is None else 0


def _fixed(transport: str | None, fabric: Path | None, nodes: str | None, settings: Sequence[str]) -> dict[str, Scalar]:
    options = []
    if transport is not None or fabric is not None:
        options.append(f"transport.name={transport or simulated()}")
    if fabric is not None:
        options.append(f"{file_key()}={fabric.absolute()}")
    if nodes is not None:
        options.append(f"run.nodes={nodes}")
    return settings_of([*options, *settings])


def _time(option_: str, text: str) -> float:
    found = parse("duration", text)
    if found is None or found <= 0:
        raise OneLineError(f"{option_} {text}: allowed: a time, such as 300 (seconds), 5ms or 10m", EXIT_BAD_CONFIG)
    return found


def _rate(option_: str, text: str) -> float:
    found = parse("rate", text)
    if found is None or found <= 0:
        raise OneLineError(f"{option_} {text}: allowed: a rate, such as 10GB/s or 80Gbps", EXIT_BAD_CONFIG)
    return found


def _one_of(option_: str, text: str) -> str:
    if text not in GOALS:
        raise OneLineError(f"{option_} {text}: allowed: {', '.join(GOALS)}", EXIT_BAD_CONFIG)
    return text


def _say_what(tuning: Tuning, plan: Plan, budget_s: float) -> None:
    console = open_console()
    console.print(
        f"tuning for {tuning.goal.words}: {budget_s:g} s, whole readings of {tuning.seconds:g} s"
        + (" of virtual time" if plan.points[0].simulated else ""),
        soft_wrap=True,
    )
    for axis in tuning.axes:
        values = ", ".join(map(str, axis.values))
        console.print(f"{axis.key}: {values}   (default: {axis.default})", soft_wrap=True)
