"""The points of a scan as command lines of the engine, and what it says of them before anything is measured."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from incast.base.errors import EXIT_NO_ENGINE, OneLineError
from incast.base.files import replace_file
from incast.engine.fabric_text import fabric_setting
from incast.engine.idle import usable_cores
from incast.engine.program import find_engine
from incast.engine.quantity import setting_text
from incast.engine.settings import present
from incast.scan.hosts import ScanHosts
from incast.scan.plan import EXIT_BAD_SCAN, Plan, Point, Reading

_BASE_NAME = "base.toml"
_CHECK_TIMEOUT_S = 60.0


def refusals(plan: Plan, folder: Path, hosts: ScanHosts | None = None) -> dict[int, str]:
    """The engine's line for each point that it refuses, by number; files that it needs are written to that folder.
    OneLineError: a measured point cannot run on the hosts.
    """
    engine, base = find_engine(), write_base(folder, plan.base)

    networks = [fabric_setting(folder, point.fabric) for point in plan.points]

    def refusal(point: Point, network: tuple[str, ...]) -> str | None:
        command = engine_command(engine, base, (*point.settings, *network))
        if hosts is not None and not point.simulated:
            command = hosts.command(engine, base, Reading(point, 1), folder)[0]
        return _refusal([*command, "--check"])

    with ThreadPoolExecutor(max_workers=usable_cores()) as pool:
        lines = pool.map(refusal, plan.points, networks)
        return {point.number: line for point, line in zip(plan.points, lines, strict=True) if line is not None}


def _refusal(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_S, check=False, input="-\n"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OneLineError(f"the engine {command[0]} cannot be started: {error}", EXIT_NO_ENGINE) from error
    if done.returncode == 0:
        return None
    words = (done.stderr.strip().splitlines() or ["the engine refused the configuration with no message"])[-1]
    return words.removeprefix("incast-node: ")


def engine_command(engine: Path, base: Path | None, settings: Sequence[str]) -> list[str]:
    """Without an output directory."""
    overrides = [word for setting in settings for word in ("--set", setting)]
    return [str(engine), *([] if base is None else [str(base)]), *overrides]


def to_directory(directory: Path) -> list[str]:
    """The engine's words for where it writes, and that it ends with this process."""
    return ["--output", str(directory.resolve()), "--progress", "json", "--watched-by", str(os.getpid())]


def wrong_value(plan: Plan, refused: dict[int, str]) -> str | None:
    """The engine's line for a value that is wrong wherever it stands; None if all values are right somewhere.

    Such a value is a mistake in the scan file. One that is refused only beside some others is a point that fails.
    """
    if plan.points and len(refused) == len(plan.points) and len(set(refused.values())) == 1:
        return next(iter(refused.values()))
    for key in plan.axes:
        by_value: dict[str, list[str | None]] = {}
        for point in plan.points:
            if key in point.axes:
                by_value.setdefault(setting_text(point.axes[key]), []).append(refused.get(point.number))
        for lines in by_value.values():
            # The line may be about another key: then the value is not what is wrong.
            if lines[0] is not None and present(key, "")[0] in _keys_of(lines[0]) and set(lines) == {lines[0]}:
                return lines[0]
    return None


def _keys_of(refusal: str) -> list[str]:
    """What the engine names before the value: `run.nodes = 0: ...`, `net.producers + net.consumers = 3 + 3: ...`."""
    return refusal.partition(" = ")[0].split(" + ")


def write_base(folder: Path, text: str) -> Path | None:
    """The configuration file below the scan's settings, in that folder; None without one."""
    if not text:
        return None
    path = folder.resolve() / _BASE_NAME
    replace_file(path, text)
    return path


def check_points(file: str, plan: Plan, screen: Console, hosts: ScanHosts | None = None) -> None:
    """Refuses a scan with a wrong value; says which points the engine will refuse."""
    with tempfile.TemporaryDirectory() as place:
        refused = refusals(plan, Path(place), hosts)
    if (line := wrong_value(plan, refused)) is not None:
        raise OneLineError(f"{file}: {line}", EXIT_BAD_SCAN)
    if refused:
        number, line = next(iter(refused.items()))
        screen.print(
            f"{len(refused)} of {len(plan.points)} points will fail, the engine refuses them; point {number}: {line}",
            style="yellow",
            markup=False,
            soft_wrap=True,
        )
