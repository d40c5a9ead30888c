"""What is varied: settings, each with a list of values, and the point where everything is as it is by default."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.engine import fabric_text
from incast.engine.quantity import Scalar, quantity, setting_text
from incast.engine.settings import settings
from incast.engine.transports import transports

Axes = dict[str, Scalar]
USUAL = "usual"  # the word for the settings below
_NO_LIMIT = 0

# In the order in which they are shown. Values stand from little to much; 0 is "no limit" where it stands last.
_ANYWHERE: dict[str, tuple[Scalar, ...]] = {
    "protocol.scheme": ("push", "pull"),
    "protocol.mfp_size": ("16KiB", "32KiB", "64KiB", "128KiB", "256KiB", "512KiB", "1MiB"),
    "protocol.credits": (1, 2, 4, 8, 16, 32, 64),
    "protocol.parallel_sends": (1, 2, 4, 8, 16, _NO_LIMIT),
}
_OVER_NETWORKS: dict[str, tuple[Scalar, ...]] = {
    "protocol.schedule": ("linear-shift", "random", "sequential"),
    "protocol.message_size": ("32KiB", "128KiB", _NO_LIMIT),
}
_BETWEEN_PROCESSES: dict[str, tuple[Scalar, ...]] = {"run.yields": (0, 10, 100, 1000)}
# A transport's own, by key: those of the others do not count.
_OF_TRANSPORTS: dict[str, tuple[Scalar, ...]] = {
    "transport.shm.stores": ("auto", "plain", "streaming"),
    "transport.tcp.streams": (1, 2, 4),
    "transport.tcp.socket_buffer": ("256KiB", "1MiB", "4MiB", _NO_LIMIT),
    "transport.tcp.send_buffer": ("64KiB", "256KiB", "1MiB"),
    "transport.udp.window": ("256KiB", "512KiB", "1MiB", "2MiB", "4MiB"),
    "transport.udp.send_buffer": ("64KiB", "256KiB", "1MiB"),
    "transport.rio.stores": ("auto", "plain", "streaming"),
    "transport.rio.dma_channels": (1, 2, 4, 8),
    "transport.verbs.send_queue": (64, 256, 1024),
    "transport.verbs.piece": ("256KiB", "1MiB", "8MiB"),
}


@dataclass(frozen=True)
class Axis:
    """A setting that is varied. `default`: what it is if nobody says anything; not always one of the values."""

    key: str
    values: tuple[Scalar, ...]
    default: Scalar

    @property
    def ordered(self) -> bool:
        """Whether values that stand beside each other are alike: all are numbers."""
        return all(quantity(value) is not None for value in self.values)

    def index(self, value: Scalar) -> int | None:
        """Where that value stands; None: it is another one."""
        texts = [setting_text(each) for each in self.values]
        return texts.index(setting_text(value)) if setting_text(value) in texts else None

    def steps_from(self, value: Scalar, most: int) -> list[Scalar]:
        """The values up to `most` steps away, nearest first; of words, all others."""
        here = self.index(value)
        others = [each for each in range(len(self.values)) if each != here]
        if self.ordered and here is not None:
            others = sorted((each for each in others if abs(each - here) <= most), key=lambda each: abs(each - here))
        return [self.values[each] for each in others]


def usual_axes(transport: str, fixed: Iterable[str]) -> dict[str, tuple[Scalar, ...]]:
    """What is varied on that transport unless somebody says otherwise; not what is `fixed`."""
    traits = next((each for each in transports() if each.name == transport), None)
    if traits is None:
        names = ", ".join(each.name for each in transports())
        raise OneLineError(f"transport.name = {transport}: allowed: {names}", EXIT_BAD_CONFIG)
    found = dict(_ANYWHERE)
    if not traits.shares_memory and (traits.simulated or not traits.in_process):
        found |= _OVER_NETWORKS
    if not traits.in_process:
        found |= _BETWEEN_PROCESSES
    found |= {key: values for key, values in _OF_TRANSPORTS.items() if key.startswith(f"transport.{transport}.")}
    without = set(fixed)
    if "protocol.packing" in without:
        without.add("protocol.mfp_size")
    return {key: values for key, values in found.items() if key not in without}


def with_defaults(varied: Mapping[str, Sequence[Scalar]], base: str, network: Path | None) -> tuple[Axis, ...]:
    """The axes, each with its default: of the configuration file `base` (its text), of the simulated network's file,
    or of the engine. OneLineError: there is no such setting.
    """
    content = tomllib.loads(base)
    fabric = tomllib.loads(fabric_text.read_fabric_text(network)) if network is not None else {}
    axes = []
    for key, values in varied.items():
        if key.startswith(fabric_text.PREFIX):
            default = _at(fabric, key.removeprefix(fabric_text.PREFIX))
            if default is None:
                raise OneLineError(
                    f"--vary {key}: the network's file does not set it; allowed: a value that stands there",
                    EXIT_BAD_CONFIG,
                )
        elif key not in settings():
            raise OneLineError(f"--vary {key}: allowed: keys of docs/config.md, or fabric.KEY", EXIT_BAD_CONFIG)
        else:
            found = _at(content, key)
            default = settings()[key].default if found is None else found
        axes.append(Axis(key, tuple(values), default))
    return tuple(axes)


def _at(content: Mapping[str, object], key: str) -> Scalar | None:
    found: object = content
    for word in key.split("."):
        found = found.get(word) if isinstance(found, Mapping) else None
    return found if isinstance(found, bool | int | float | str) else None


def defaults(axes: Sequence[Axis]) -> Axes:
    """The point where nothing is tuned."""
    return {axis.key: axis.default for axis in axes}


def same(one: Mapping[str, Scalar], other: Mapping[str, Scalar]) -> bool:
    """Whether two points have the same settings, however they are written."""
    return identity(one) == identity(other)


def identity(axes: Mapping[str, Scalar]) -> tuple[tuple[str, str], ...]:
    """By which a point is known."""
    return tuple(sorted((key, setting_text(value)) for key, value in axes.items()))


def differing(one: Mapping[str, Scalar], other: Mapping[str, Scalar]) -> list[str]:
    """The settings in which two points differ."""
    return [key for key, value in one.items() if setting_text(value) != setting_text(other[key])]


def words(axes: Mapping[str, Scalar]) -> str:
    """For a line: the last part of each key with its value."""
    return " ".join(f"{key.rpartition('.')[2]}={setting_text(value)}" for key, value in axes.items())
