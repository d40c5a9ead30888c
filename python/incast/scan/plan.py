"""What a scan file asks for: points, each a set of settings, measured so often in such an order (docs/scanning.md).

    kind = "run"                    # or "net"
    seconds = 15                    # measured time of a point; virtual seconds in a simulation
    repeats = 3
    [set]                           # the same for all points
    transport.name = "shm"
    [grid]                          # every combination
    protocol.message_size = ["64KiB", "1MiB"]
    [[points]]                      # or points one by one; with a grid, each of them with every combination
    run.nodes = 4

A key that begins with `fabric.` is a value of the simulated network's file: `fabric.switches.deep.spill`.

What a setting may be is for the engine to say. Here is checked what the engine cannot know: the shape of the file.
"""

import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from incast.base.errors import OneLineError
from incast.engine import fabric_text
from incast.engine.quantity import Scalar, parse, setting_text
from incast.engine.transports import is_simulated, simulated

EXIT_BAD_SCAN = 2
_READINGS_MAX = 100_000
# Keys that a scan says in words of its own.
_OWN_KEYS = {"run.task": "kind", "run.duration": "seconds", "run.warm_up": "warm_up_seconds"}
_KEYS = ("kind", "title", "config", "seconds", "warm_up_seconds", "repeats", "timeout_seconds", "set", "grid", "points")


class ScanError(OneLineError):
    """A scan file that cannot be used: one line that names file, key, value and what is allowed."""

    def __init__(self, file: Path, key: str, value: object, allowed: str) -> None:
        # JSON is TOML here, and on one line.
        shown = "" if value is None else f" = {json.dumps(value, default=str)}"
        super().__init__(f"{file}: {key}{shown}: allowed: {allowed}", EXIT_BAD_SCAN)


@dataclass(frozen=True)
class Point:
    """One combination of settings; `axes` are those in which points differ."""

    number: int
    axes: dict[str, Scalar]
    settings: tuple[str, ...]  # for --set, in order
    simulated: bool
    fabric: str = ""  # the text of the network, where the scan changes values in it

    def words(self) -> str:
        """For a line of progress."""
        return " ".join(f"{key}={setting_text(value)}" for key, value in self.axes.items()) or "the only point"


@dataclass(frozen=True)
class Reading:
    """One measurement: a point, and which of its repeats."""

    point: Point
    repeat: int

    @property
    def key(self) -> tuple[int, int]:
        """Point and repeat, both counted from 1."""
        return self.point.number, self.repeat

    def words(self, repeats: int) -> str:
        """For a line of progress, where each point has so many repeats."""
        return self.point.words() + (f", repeat {self.repeat}" if repeats > 1 else "")

    def settings(self) -> tuple[str, ...]:
        """Those of the point, and a seed of the repeat unless they name one: else a simulation only repeats itself."""
        if any(setting.partition("=")[0] == "run.seed" for setting in self.point.settings):
            return self.point.settings
        return (*self.point.settings, f"run.seed={self.repeat}")


@dataclass(frozen=True)
class Plan:
    """A scan as it was asked for. Two plans with the same digest are the same scan."""

    kind: str
    title: str
    seconds: float
    warm_up_seconds: float
    repeats: int
    timeout_seconds: float
    axes: tuple[str, ...]
    base: str  # the text of the configuration file below all settings, or nothing
    points: tuple[Point, ...]

    def readings(self) -> list[Reading]:
        """In the order in which they are taken: every other repeat goes through the points backwards."""
        order: list[Reading] = []
        for repeat in range(1, self.repeats + 1):
            points = self.points if repeat % 2 else self.points[::-1]
            order += [Reading(point, repeat) for point in points]
        return order

    def digest(self) -> str:
        """Over everything that decides what is measured; not over the title and the time limit."""
        what = {key: value for key, value in asdict(self).items() if key not in {"title", "timeout_seconds"}}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def read_plan(path: Path) -> Plan:
    """The plan of that file; ScanError or OneLineError, one line with exit status 2, if it is no good."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise OneLineError(f"{path}: cannot be read: {why}", EXIT_BAD_SCAN) from error
    return parse_plan(path, text)


def parse_plan(file: Path, text: str) -> Plan:
    """The same of a text; `file` is for messages, and for where the configuration file lies that it may name."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OneLineError(f"{file}: no TOML: {error}", EXIT_BAD_SCAN) from error
    return make_plan(file, content)


def make_plan(file: Path, content: Mapping[str, Any]) -> Plan:
    """The same of what such a text holds."""
    for key, value in content.items():
        if key not in _KEYS:
            shown = None if isinstance(value, dict | list) else value
            hint = "; a setting of the engine belongs below [set] or [grid]" if isinstance(value, dict) else ""
            raise ScanError(file, key, shown, ", ".join(_KEYS) + hint)
    kind = content.get("kind", "run")
    if kind not in ("run", "net"):
        raise ScanError(file, "kind", kind, '"run" or "net"')
    title = content.get("title", file.stem)
    if not isinstance(title, str):
        raise ScanError(file, "title", title, "text")
    seconds = _number(file, content, "seconds", None, (1e-6, 7.2e6))
    warm_up = _number(file, content, "warm_up_seconds", 1.0, (0, 3600))
    # Setting up takes as long as filling the sources does; a simulation may take much longer than its own time.
    timeout = _number(file, content, "timeout_seconds", 300 + 3 * (seconds + warm_up), (0.1, 1e7))
    repeats = content.get("repeats", 1)
    if isinstance(repeats, bool) or not isinstance(repeats, int) or not 1 <= repeats <= 1000:
        raise ScanError(file, "repeats", repeats, "a whole number in 1..1000")
    base = _base(file, content.get("config"))
    fixed = _settings(file, "set", content.get("set", {}))
    points = _combined(file, _listed(file, content.get("points", [])), _grid(file, content.get("grid", {})), fixed)
    if len(points) * repeats > _READINGS_MAX:
        raise ScanError(file, "grid", None, f"{_READINGS_MAX} points and repeats; these are {len(points) * repeats}")
    fabrics: dict[Path, str] = {}
    own = (
        f"run.task={'net' if kind == 'net' else 'build'}",
        f"run.duration={_seconds_text(seconds)}",
        f"run.warm_up={_seconds_text(warm_up)}",
    )
    return Plan(
        kind=kind,
        title=title,
        seconds=seconds,
        warm_up_seconds=warm_up,
        repeats=repeats,
        timeout_seconds=timeout,
        axes=tuple(dict.fromkeys(key for point in points for key in point)),
        base=base,
        points=tuple(
            Point(
                number,
                axes,
                (*_texts(fixed), *_texts(axes), *own),
                _simulated(base, {**fixed, **axes}),
                _fabric(file, base, {**fixed, **axes}, fabrics),
            )
            for number, axes in enumerate(points, 1)
        ),
    )


def _seconds_text(seconds: float) -> str:
    """Without an exponent, to the nanosecond."""
    return f"{round(seconds * 1e9)}ns"


def _number(
    file: Path, content: Mapping[str, Any], key: str, default: float | None, limits: tuple[float, float]
) -> float:
    value = content.get(key, default)
    if isinstance(value, str) and (found := parse("duration", value)) is not None:
        value = found
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not limits[0] <= value <= limits[1]:
        needed = " (there is no default)" if default is None else ""
        raise ScanError(
            file, key, value, f"a number of seconds, or a time such as 2m, in {limits[0]:g}..{limits[1]:g}{needed}"
        )
    return float(value)


def _base(file: Path, name: object) -> str:
    if name is None:
        return ""
    if not isinstance(name, str):
        raise ScanError(file, "config", name, "the path of a configuration file")
    try:
        text = (file.parent / name).read_text(encoding="utf-8")
        tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ScanError(file, "config", name, f"a readable configuration file ({error})") from error
    return text


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """`protocol.credits` for a dotted key, a table in a table, and a quoted key alike."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _settings(file: Path, where: str, table: object) -> dict[str, Scalar]:
    if not isinstance(table, dict):
        raise ScanError(file, where, table, "a table of settings")
    found: dict[str, Scalar] = {}
    for key, value in _leaves(table):
        _check_key(file, where, key)
        if isinstance(value, list):
            raise ScanError(file, f"{where}.{key}", value, "one value; lists go below [grid]")
        found[key] = _scalar(file, f"{where}.{key}", value)
    return found


def _check_key(file: Path, where: str, key: str) -> None:
    if key in _OWN_KEYS:
        raise ScanError(file, f"{where}.{key}", None, f"`{_OWN_KEYS[key]}` at the top of the file says it")
    if "." not in key:
        raise ScanError(file, f"{where}.{key}", None, "keys of docs/config.md with their section: protocol.credits")


def _scalar(file: Path, key: str, value: object) -> Scalar:
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ScanError(file, key, value, "text, a number, true or false")


def _listed(file: Path, points: object) -> list[dict[str, Scalar]]:
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise ScanError(file, "points", points, "tables: [[points]]")
    return [_settings(file, f"points[{number}]", point) for number, point in enumerate(points)]


def _grid(file: Path, table: object) -> dict[str, list[Scalar]]:
    if not isinstance(table, dict):
        raise ScanError(file, "grid", table, "a table of lists")
    grid: dict[str, list[Scalar]] = {}
    for key, values in _leaves(table):
        _check_key(file, "grid", key)
        if not isinstance(values, list) or not values:
            raise ScanError(file, f"grid.{key}", values, "a list of at least one value; single values go below [set]")
        scalars = [_scalar(file, f"grid.{key}", value) for value in values]
        texts = [setting_text(value) for value in scalars]
        for text in texts:
            if texts.count(text) > 1:
                raise ScanError(file, f"grid.{key}", values, f"each value once; {text} stands there more than once")
        grid[key] = scalars
    return grid


def _combined(
    file: Path, listed: list[dict[str, Scalar]], grid: dict[str, list[Scalar]], fixed: Mapping[str, Scalar]
) -> list[dict[str, Scalar]]:
    if not listed and not grid:
        raise OneLineError(
            f"{file}: says no points; allowed: [grid] with lists of values, or [[points]]",
            EXIT_BAD_SCAN,
        )
    for where, keys in (("grid", set(grid)), ("points", {key for point in listed for key in point})):
        for key in sorted(keys & set(fixed)):
            raise ScanError(file, f"set.{key}", fixed[key], f"a key is either in [set] or in [{where}]")
    for key in sorted(set(grid) & {key for point in listed for key in point}):
        raise ScanError(file, f"grid.{key}", None, "a key is either in [grid] or in [[points]]")
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    points = [point | combination for point in (listed or [{}]) for combination in combinations]
    seen: set[tuple[tuple[str, str], ...]] = set()
    for point in points:
        text = tuple(sorted((key, setting_text(value)) for key, value in point.items()))
        if text in seen:
            raise ScanError(file, "points", point, "each point once")
        seen.add(text)
    return points


def _texts(settings: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Those that are the engine's."""
    return tuple(
        f"{key}={setting_text(value)}" for key, value in settings.items() if not key.startswith(fabric_text.PREFIX)
    )


def _fabric(file: Path, base: str, settings: Mapping[str, Scalar], known: dict[Path, str]) -> str:
    """The text of the point's network if it changes values in it, else nothing. `known`: texts that were read."""
    changes = {
        key.removeprefix(fabric_text.PREFIX): value
        for key, value in settings.items()
        if key.startswith(fabric_text.PREFIX)
    }
    if not changes:
        return ""
    named = _transport(base, settings, simulated(), "fabric")
    if not isinstance(named, str):
        wanted = f'{fabric_text.file_key()} = "FILE", the network that is to be changed'
        raise ScanError(file, f"{fabric_text.PREFIX}{next(iter(changes))}", None, wanted)
    path = Path(named)
    if path not in known:
        known[path] = fabric_text.read_fabric_text(path)
    return fabric_text.changed(known[path], changes)


def _simulated(base: str, settings: Mapping[str, Scalar]) -> bool:
    """Whether the point runs in virtual time; only decides what runs beside what, the result says what it was."""
    return is_simulated(str(_transport(base, settings, "name")))


def _transport(base: str, settings: Mapping[str, Scalar], *way: str) -> object:
    """What the settings, or else the configuration file below them, say of the transport."""
    named = settings.get(".".join(("transport", *way)))
    if named is not None:
        return named
    found: object = tomllib.loads(base).get("transport")
    for name in way:
        found = found.get(name) if isinstance(found, dict) else None
    return found
