"""The transports that the engine has, by what tells them from each other; their names stand in its list alone.

They come with the settings (schema/config.schema.json, `x-transports`); `incast info --json` has the same of the engine
that is used.
"""

import functools
from dataclasses import dataclass

from incast.engine.settings import schema


@dataclass(frozen=True)
class Transport:
    """One of the list."""

    name: str
    in_process: bool  # all nodes live in one process
    simulated: bool  # in virtual time
    shares_memory: bool  # processes of one host alone
    rank_here: int  # the highest is what a run takes whose nodes are all on this host
    rank_across: int  # the same, if some may be on other hosts; 0: never
    launch: bool  # a launcher of its own starts its nodes


@functools.cache
def transports() -> tuple[Transport, ...]:
    """All of them, in the order of the list."""
    return tuple(Transport(name, **traits) for name, traits in schema()["x-transports"].items())


def is_simulated(name: str) -> bool:
    """Whether a run with that transport takes place in virtual time."""
    return any(each.simulated for each in transports() if each.name == name)


def simulated() -> str:
    """The name of the one that simulates a network."""
    return next(each.name for each in transports() if each.simulated)


def one_thread() -> str:
    """The name of the one whose nodes share a thread, in real time."""
    return next(each.name for each in transports() if each.in_process and not each.simulated)


def chosen_here() -> str:
    """What `auto` is, if all nodes are on this host."""
    return max(transports(), key=lambda each: each.rank_here).name


def chosen_across() -> str:
    """What `auto` is, if some nodes may be on other hosts."""
    return max(transports(), key=lambda each: each.rank_across).name


def simulated_key(setting: str) -> str:
    """The whole key of a setting of the simulation: its `fabric`, its `trace`."""
    return f"transport.{simulated()}.{setting}"
