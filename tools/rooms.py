"""The rooms of the Python front end (docs/architecture.md): which may import which, and that no module imports itself
by way of others.

An import counts wherever it stands: at the top, in a function, for the type checker alone.
"""

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from clauses import Finding

PACKAGE = "incast"
PLACE = PurePosixPath("python/incast")
# The modules that lie in the package itself, which programs of others import: consumer, filter, formats, source.
INTERFACE = "interface"

# From the bottom upwards: a room may import those named here, all of which stand above its line.
ROOMS: dict[str, tuple[str, ...]] = {
    "base": (),
    INTERFACE: ("base",),
    "data": ("base", INTERFACE),
    "engine": ("base",),
    "evidence": ("base", "engine"),
    "hosts": ("base", "engine"),
    "run": ("base", "engine", "evidence", "hosts"),
    "scan": ("base", "engine", "evidence", "hosts", "run"),
    "fit": ("base", "engine"),
    "bridges": ("base", "engine"),
    "figures": ("base", "engine", "evidence", "scan", "bridges"),
    "reproduce": ("base", "engine", "scan", "bridges"),
    "tune": ("base", "engine", "run", "scan"),
    "doctor": ("base", "engine", "hosts"),
    "cli": (
        "base",
        "data",
        "doctor",
        "engine",
        "hosts",
        "run",
        "scan",
        "fit",
        "bridges",
        "figures",
        "reproduce",
        "tune",
    ),
}
# What only some rooms may import of others' libraries: the words of the command line are said in one place.
LIBRARIES = {"typer": ("cli",)}
# `python -m incast` is the command.
MAIN = f"{PACKAGE}.__main__"


def module_of(path: str) -> str | None:
    """`incast.scan.plan` of python/incast/scan/plan.py; None for other files."""
    file = PurePosixPath(path)
    if file.suffix != ".py" or PLACE not in file.parents:
        return None
    words = file.relative_to(PLACE).with_suffix("").parts
    return ".".join((PACKAGE, *(words[:-1] if words[-1] == "__init__" else words)))


def room_of(module: str) -> str | None:
    """None: it is the package alone, which has its version and nothing else."""
    words = module.split(".")
    if len(words) == 1:
        return None
    return words[1] if words[1] in ROOMS else INTERFACE


def imports_of(text: str, modules: set[str]) -> Iterator[tuple[int, str]]:
    """Line and module of each import."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                full = f"{node.module}.{name.name}"
                yield node.lineno, full if full in modules else str(node.module)


def check_rooms(texts: dict[str, str]) -> Iterator[Finding]:
    """`texts`: the text files of the tree, by path."""
    paths = {module: path for path in sorted(texts) if (module := module_of(path)) is not None}
    arrows: dict[str, dict[str, int]] = {}
    for module, path in paths.items():
        room = room_of(module)
        arrows[module] = {}
        for line, imported in imports_of(texts[path], set(paths)):
            library = imported.partition(".")[0]
            if library in LIBRARIES and room not in LIBRARIES[library]:
                yield Finding(path, line, "room", f"{library} is imported by {' and '.join(LIBRARIES[library])} alone")
            if library != PACKAGE or module == MAIN:
                continue
            arrows[module].setdefault(imported, line)
            other = room_of(imported)
            if room is not None and other is not None and other not in (room, *ROOMS[room]):
                hint = f"{room} may import {', '.join(ROOMS[room]) or 'no other room'}; {imported} is of {other}"
                yield Finding(path, line, "room", f"{hint} (tools/rooms.py)")
    for circle in circles(arrows):
        line = arrows[circle[0]][circle[1]]
        yield Finding(paths[circle[0]], line, "circle", " imports ".join(circle))


def circles(arrows: dict[str, dict[str, int]]) -> Iterator[list[str]]:
    """Each way from a module back to itself that a walk along all arrows comes upon."""
    done: set[str] = set()

    def walk(module: str, way: list[str]) -> Iterator[list[str]]:
        if module in way:
            circle = way[way.index(module) :]
            first = circle.index(min(circle))
            yield [*circle[first:], *circle[:first], circle[first]]
        elif module not in done:
            for imported in arrows.get(module, {}):
                yield from walk(imported, [*way, module])
            done.add(module)

    for module in arrows:
        yield from walk(module, [])
