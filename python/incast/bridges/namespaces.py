"""Hosts on this host: network namespaces around a switch, which are gone when a run ends. They need root."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError

SUBNET = "10.87.0"
# A program of RapidIO over UDP has two endpoints, one for messages and one for data, each with its own address.
_ADDRESSES = 2
_NEEDS = "hosts of their own are network namespaces, which need root and iproute2"


@contextmanager
def hosts_around_a_switch(count: int) -> Iterator[list[str]]:
    """The names of so many namespaces; number i, from 0 on, has `address_of(i)`. OneLineError: why not."""
    if os.geteuid() != 0:
        raise OneLineError(f"{_NEEDS}: this user is not root", EXIT_BAD_CONFIG)
    names = [f"incast-root-{os.getpid()}-{index}" for index in range(count)]
    switch = f"incast-root-{os.getpid()}-switch"
    made: list[str] = []
    try:
        _ip("netns", "add", switch)
        made.append(switch)
        _ip("-n", switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", switch, "link", "set", "switch", "up")
        for index, name in enumerate(names):
            _ip("netns", "add", name)
            made.append(name)
            cable = ("type", "veth", "peer", "name", "cable", "netns", name)
            _ip("link", "add", f"port{index}", "netns", switch, *cable)
            _ip("-n", switch, "link", "set", f"port{index}", "master", "switch", "up")
            for number in range(_ADDRESSES):
                _ip("-n", name, "address", "add", f"{address_of(index, number)}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def address_of(index: int, number: int = 0) -> str:
    """Of the namespace with that number, its first or its second one."""
    return f"{SUBNET}.{_ADDRESSES * index + number + 1}"


def _ip(*words: str) -> None:
    try:
        done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
    except OSError as error:
        raise OneLineError(f"{_NEEDS}: ip: {error.strerror}", EXIT_BAD_CONFIG) from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise OneLineError(f"{_NEEDS}: ip {' '.join(words)}: {said[-1]}", EXIT_BAD_CONFIG)
