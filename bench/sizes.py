"""Sizes on the command lines of the comparisons."""

import argparse
import re
from dataclasses import dataclass
from typing import Any

from harness import judged_cache_bytes

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True)
class Size:
    """A number of bytes that remembers how it was written."""

    text: str
    bytes: int

    def __str__(self) -> str:
        return self.text


def parse_size(text: str) -> Size:
    """`64KiB`; bytes, KiB, MiB and GiB."""
    found = re.fullmatch(r"(\d+) ?(B|KiB|MiB|GiB|)", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no size; expected a whole number of B, KiB, MiB or GiB: 64KiB")
    return Size(text.strip(), int(found[1]) * _UNITS[found[2]])


def parse_sizes(text: str) -> list[Size]:
    """Several, separated by commas."""
    return [parse_size(each) for each in text.split(",")]


def cache_option(parser: argparse.ArgumentParser) -> None:
    """Which cache the sources have to exceed by a factor of four."""
    parser.add_argument(
        "--cache",
        default="judged",
        metavar="judged|claimed|SIZE",
        help="last-level cache that the sources exceed four times: what the cores can have (default), what the machine"
        " claims, or a size",
    )


def chosen_cache(arguments: argparse.Namespace, found: dict[str, Any]) -> int:
    """In bytes; notes it among the conditions, with what it makes of the sources."""
    claimed = found["last_level_cache_claimed_bytes"]
    if arguments.cache == "claimed":
        cache = int(claimed)
    elif arguments.cache == "judged":
        cache = judged_cache_bytes(claimed, found["cores"])
    else:
        cache = parse_size(arguments.cache).bytes
    found["last_level_cache_taken_bytes"] = cache
    found["sources_cycle_through_bytes"] = 4 * cache
    return cache
