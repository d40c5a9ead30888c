"""The rooms of src/ and their arrows, from what CMake is told and what the sources include.

A room is an `incast_library(folder ...)` or `incast_transport(name ...)`; the comment above it says what it is for.
Checked: no circles; a source includes what its room depends on, and nothing else; a room depends on nothing that it
does not include; docs/architecture.md holds the table made here (`tools/architecture.py --write`).
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from clauses import Finding

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = "docs/architecture.md"
BEGIN, END = "<!-- rooms: made by tools/architecture.py --write -->", "<!-- end of rooms -->"
DECLARED = re.compile(r"((?:^#.*\n)*)^incast_(library|transport)\((\S+)([^)]*)\)", re.M)
INCLUDE = re.compile(r'^#\s*include\s*"([^"]+)"', re.M)


class Room(NamedTuple):
    name: str
    file: str  # its CMakeLists.txt
    purpose: str
    declared: frozenset[str]  # rooms only
    included: dict[str, str]  # room -> a file that includes something of it


def read_rooms(root: Path = ROOT) -> dict[str, Room]:
    found: dict[str, tuple[str, str, frozenset[str]]] = {}
    for file in sorted(root.glob("src/**/CMakeLists.txt")):
        for comment, kind, word, arguments in DECLARED.findall(file.read_text(encoding="utf-8")):
            name = f"transport/{word}" if kind == "transport" else word
            depends = arguments.partition("DEPENDS")[2].split()
            purpose = " ".join(line.lstrip("# ") for line in comment.splitlines())
            found[name] = (file.relative_to(root).as_posix(), purpose, frozenset(depends))
    rooms = {}
    for name, (path, purpose, depends) in found.items():
        included = includes_of(root, name, set(found))
        rooms[name] = Room(name, path, purpose, depends & set(found), included)
    return rooms


def room_of(path: str, names: set[str]) -> str:
    """The room that holds `path`, which is relative to src/: that of the nearest folder."""
    folder = path.rpartition("/")[0]
    while folder and folder not in names:
        folder = folder.rpartition("/")[0]
    return folder


def includes_of(root: Path, name: str, names: set[str]) -> dict[str, str]:
    included: dict[str, str] = {}
    for source in sorted((root / "src" / name).rglob("*")):
        path = source.relative_to(root / "src").as_posix()
        library = source.suffix in (".h", ".cpp") and not path.endswith(("_test.cpp", "main.cpp", "module.cpp"))
        if not library or room_of(path, names) != name or "/example/" in path:
            continue
        for header in INCLUDE.findall(source.read_text(encoding="utf-8")):
            room = room_of(header, names)
            if room and room != name:
                included.setdefault(room, path)
    return included


def levels(rooms: dict[str, Room]) -> dict[str, int]:
    """0 for a room that uses none, else one more than the highest of those that it uses; of a circle none has any."""
    known: dict[str, int] = {}
    while True:
        ready = [r for r in rooms.values() if r.name not in known and r.declared <= known.keys()]
        if not ready:
            return known
        for room in ready:
            known[room.name] = 1 + max((known[name] for name in room.declared), default=-1)


def table(rooms: dict[str, Room]) -> str:
    level = levels(rooms)
    lines = ["| level | room | what it is for | uses |", "|---|---|---|---|"]
    for room in sorted(rooms.values(), key=lambda room: (level[room.name], room.name)):
        uses = ", ".join(sorted(room.declared, key=lambda name: (-level[name], name))) or "-"
        lines.append(f"| {level[room.name]} | `{room.name}` | {room.purpose} | {uses} |")
    return "\n".join(lines)


def check_architecture(root: Path = ROOT) -> Iterator[Finding]:
    rooms = read_rooms(root)
    level = levels(rooms)
    for room in rooms.values():
        if room.name not in level:
            yield Finding(
                room.file, 1, "circle", f"{room.name} is in, or above, a circle of rooms: look at its DEPENDS"
            )
        if not room.purpose:
            yield Finding(room.file, 1, "room", f"a comment above incast_library({room.name} says what the room is for")
        for name, path in room.included.items():
            if name not in room.declared:
                yield Finding(f"src/{path}", 1, "arrow", f"{room.name} does not depend on {name}, which this includes")
        for name in sorted(room.declared - room.included.keys()):
            yield Finding(room.file, 1, "arrow", f"{room.name} depends on {name} and includes nothing of it")
    if len(level) == len(rooms) and table(rooms) not in (root / DOCUMENT).read_text(encoding="utf-8"):
        yield Finding(DOCUMENT, 1, "rooms", "the table is not that of the tree: tools/architecture.py --write")


def main() -> int:
    if sys.argv[1:] == ["--write"]:
        path = ROOT / DOCUMENT
        before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        path.write_text(f"{before}{BEGIN}\n{table(read_rooms())}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
        return 0
    findings = list(check_architecture())
    for finding in findings:
        print(f"{finding.path}:{finding.line}: {finding.rule}: {finding.hint}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
