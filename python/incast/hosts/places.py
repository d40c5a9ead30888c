"""Which hosts have which nodes: lists such as `node[01-16]:4,big`, files of hosts, equal shares.

ClusterShell's NodeSet reads the names, so ranges, steps and groups (`@rack1`) are those of the site.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from incast.base import extras
from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.base.files import reason_of

LIBRARY = "ClusterShell"
PURPOSE = "a run over hosts"
_SLOTS_WORD = re.compile(r"(?:slots\s*=\s*)?([0-9]+)")


@dataclass(frozen=True)
class Slots:
    """A host, and how many nodes it takes; None: its share."""

    host: str
    nodes: int | None


@dataclass(frozen=True)
class Place:
    """The nodes of one host: from `first` on, `nodes` of them."""

    host: str
    first: int
    nodes: int


def _wrong(where: str, why: str) -> OneLineError:
    return OneLineError(
        f"{where}: {why}; allowed: names such as a,b or node[01-16], and behind each :N for so many nodes",
        EXIT_BAD_CONFIG,
    )


def _names(text: str, where: str) -> list[str]:
    node_set = extras.need(LIBRARY + ".NodeSet", PURPOSE)
    try:
        names = list(node_set.NodeSet(text))
    except node_set.NodeSetException as error:
        raise _wrong(where, f"'{text}': {error}") from error
    # A name goes to ssh as a word of its command line.
    if bad := [name for name in names if name.startswith("-") or not re.fullmatch(r"[\w.@:%-]+", name)]:
        raise _wrong(where, f"'{bad[0]}' is no name of a host")
    return names


def parse_hosts(text: str, where: str = "--hosts") -> list[Slots]:
    """In the order of the list."""
    found: list[Slots] = []
    for item in re.split(r",(?![^\[]*\])", text):
        name, colon, count = item.strip().rpartition(":")
        if not colon:
            name, count = item.strip(), ""
        if not name or (colon and not (count.isdecimal() and 0 < int(count) <= 4096)):
            raise _wrong(where, f"'{item.strip()}' is no host" + (f" with 1..4096 nodes, but {count}" if colon else ""))
        found += [Slots(host, int(count) if colon else None) for host in _names(name, where)]
    return _once_each(found, where)


def read_hostfile(path: Path) -> list[Slots]:
    """A host or range per line, with `:N`, `slots=N` or nothing behind it; `#` begins a remark."""
    where = f"--hostfile {path}"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        why = reason_of(error) if isinstance(error, OSError) else "no text in UTF-8"
        raise OneLineError(f"{where}: {why}; allowed: a file with a host per line", EXIT_BAD_CONFIG) from error
    found: list[Slots] = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split(maxsplit=1)
        if not words:
            continue
        at = f"{where}, line {number}"
        hosts = parse_hosts(words[0], at)
        if len(words) > 1:
            slots = _SLOTS_WORD.match(words[1])
            if slots is None or not 0 < int(slots[1]) <= 4096:
                raise _wrong(at, f"'{words[1].strip()}' is no number of nodes")
            hosts = [Slots(each.host, int(slots[1])) for each in hosts]
        found += hosts
    if not found:
        raise _wrong(where, "no host in it")
    return _once_each(found, where)


def _once_each(found: list[Slots], where: str) -> list[Slots]:
    seen: set[str] = set()
    for each in found:
        if each.host in seen:
            raise _wrong(where, f"'{each.host}' is there twice")
        seen.add(each.host)
    return found


def spread(slots: Sequence[Slots], nodes: int | None, extra: int = 0) -> tuple[Place, ...]:
    """Equal shares, the first hosts one more; or as many as each is given. `nodes` of the run; None: nobody said.
    `extra` ones behind these, of the event manager, go to the last host.
    """
    given = sum(each.nodes or 0 for each in slots)
    free = [each for each in slots if each.nodes is None]
    total = given + len(free) if nodes is None else nodes
    rest = total - given
    if rest < len(free) or (not free and rest != 0):
        asked = f"{given} nodes" + (f" and {len(free)} hosts with a share" if free else "")
        raise OneLineError(
            f"the hosts take {asked}, the run has {total}; allowed: as many nodes as the hosts take, one each at least",
            EXIT_BAD_CONFIG,
        )
    places: list[Place] = []
    first = shared = 0
    for each in slots:
        count = each.nodes
        if count is None:
            count = rest // len(free) + (shared < rest % len(free))
            shared += 1
        places.append(Place(each.host, first, count))
        first += count
    places[-1] = replace(places[-1], nodes=places[-1].nodes + extra)
    return tuple(places)
