"""What stands in a result, by its path; None where there is nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from incast.engine.quantity import number_of

Result = Mapping[str, Any]
_COARSE = 0.02  # rates that differ by this are worth telling apart


def at(result: Result, path: Sequence[str]) -> Any:
    """What stands at this path; None where there is nothing."""
    value: Any = result
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def number(result: Result, *path: str) -> float | None:
    """The number at this path; None where there is none."""
    value = at(result, path)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def setting(result: Result, *path: str) -> Any:
    """A setting of the configuration in force."""
    return at(result, ("config", *path))


def setting_number(result: Result, *path: str) -> float | None:
    """The same as a number in bytes, seconds, hertz or bytes per second; None for `auto` and other words."""
    value = setting(result, *path)
    return number_of(value) if isinstance(value, int | float | str) else None


def few_packets(result: Result) -> str | None:
    """Why the rates of a run are coarse, in one line; None: enough packets (MEPs) were measured.

    A packet counts when it is whole. At each end of the measured window every builder unit has some under way, so one
    more or less of each is luck.
    """
    meps = number(result, "window", "meps")
    builders = sum("BU" in str(node.get("roles", "")) for node in result.get("nodes") or ())
    if not meps or not builders or builders / meps <= _COARSE:
        return None
    share = f"{100 * builders / meps:.2g} %" if builders < meps else "100 % or more"
    return (
        f"only {meps:.0f} packets were measured: one more or less per builder unit changes the rates by {share}; "
        "measure longer, or take smaller packets"
    )


def is_open_loop(result: Result) -> bool:
    """Whether triggers came at a rate of their own."""
    return bool(at(result, ("triggers", "loop")) == "open")
