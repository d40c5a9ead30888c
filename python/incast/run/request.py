"""What to run: options become settings of the engine.

Nothing is validated here. Every option is text that goes to the engine as `--set section.key=value`; what the engine
says about it is shown, and its exit status is the command's. So there is one place that knows what is allowed.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.base.files import new_folder
from incast.engine.settings import settings as all_settings
from incast.engine.transports import chosen_across, chosen_here
from incast.hosts.spread import Spread

if TYPE_CHECKING:
    pass
_AUTO = "auto"
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
    spread: Spread | None = None  # over other hosts
    farm_nodes: int = 0  # on this host, that take the events over the network (farm_nodes.py)

    def command(self, engine: Path) -> list[str]:
        """The engine's command line."""
        overrides = [word for setting in self.settings for word in ("--set", setting)]
        config = [] if self.config is None else [str(self.config)]
        words = [str(engine), *config, *overrides, "--output", str(self.output), "--progress", "json"]
        if self.spread is not None:
            words += ["--set", f"run.nodes={self.spread.nodes}", *self.spread.coordinator_words()]
        if self.force:
            words.append("--force")
        return [*words, "--watched-by", str(os.getpid())] if self.watched else words

    def with_folder(self) -> "RunRequest":
        """Where the name is ours to choose, makes the folder: no other run gets it."""
        return replace(self, output=new_folder(self.output), default_name=False) if self.default_name else self


def source_settings(source: str) -> dict[str, str]:
    """`generator`, `udp:PORT`, `tcp:PORT`, `program:NAME`, a folder of MFPs, or a file or folder of MEPs."""
    kind, colon, what = source.partition(":")
    if kind in ("udp", "tcp") and colon and what.isdecimal():
        return {"source.kind": kind, "source.port": what}
    if kind == "program" and colon:
        return {"source.kind": "program", "source.name": what}
    if source.endswith(".root"):
        raise OneLineError(
            f"--source {source}: a ROOT file; incast import-root {source} makes MFP files of it", EXIT_BAD_CONFIG
        )
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


def check_filter(decider: str) -> None:
    """OneLineError: a Python function that is not there. A process of its own looks for it, as the run will."""
    kind, _, what = decider.partition(":")
    if kind != "python":
        return
    words = [sys.executable, "-c", "import sys; from incast.filter import find; find(sys.argv[1])", what]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it printed no reason"])[-1]
        raise OneLineError(f"--filter {decider}: {last.removeprefix('incast.filter: ')}", EXIT_BAD_CONFIG)


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
    config: Path | None,
    options: Mapping[str, str | None],
    settings: list[str],
    output: Path | None,
    now: datetime,
    *,
    across: bool = False,
) -> RunRequest:
    """Options win over the file, `--set` wins over options; `options` maps a key to its value, None if not given.
    `across`: some nodes may be on other hosts.
    """
    given = (f"{key}={value}" for key, value in options.items() if value is not None)
    ordered = (*given, *settings)
    transport = transport_of(config, ordered, across=across)
    if output is not None:
        return RunRequest(config, ordered, output, transport)
    name = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{transport}"
    return RunRequest(config, ordered, _RESULTS_FOLDER / name, transport, default_name=True)


def _given(config: Path | None, settings: tuple[str, ...], key: str) -> str | None:
    """What file and settings say of a key; what they may say is for the engine to judge."""
    value = None
    section, _, name = key.rpartition(".")
    if config is not None:
        try:
            content = tomllib.loads(config.read_text()).get(section)
        except (OSError, ValueError):
            content = None
        if isinstance(content, dict) and name in content:
            value = str(content[name])
    for setting in settings:
        given, equals, text = setting.partition("=")
        if equals and given.strip() == key:
            value = text.strip()
    return value


def said_of(request: RunRequest, key: str) -> str | None:
    """What file and settings say of a key; None: nothing."""
    return _given(request.config, request.settings, key)


def nodes_of(request: RunRequest) -> int | None:
    """How many nodes the run is to have; None: nobody said, or no number."""
    text = _given(request.config, request.settings, "run.nodes") or ""
    return int(text) if text.isdecimal() else None


def extra_nodes_of(request: RunRequest) -> int:
    """Those behind them: 1 if the event manager has a node of its own."""
    return int(_given(request.config, request.settings, "run.em") == "own")


def default_nodes() -> int:
    """Of a run where nobody said."""
    return int(all_settings()["run.nodes"].default)


def transport_of(config: Path | None, settings: tuple[str, ...], *, across: bool) -> str:
    """The transport's name for titles and the folder's name; what runs, and what cannot be, is the engine's to say."""
    name = _given(config, settings, "transport.name") or _AUTO
    if name == _AUTO:
        name = chosen_across() if across else chosen_here()
    return re.sub(r"[^A-Za-z0-9_-]", "", name) or "run"
