"""What a simulated network did to the traffic: deadlocks, drops and pauses (docs/simulation.md)."""

from collections.abc import Mapping
from typing import Any

from incast.base import units
from incast.evidence.findings import Finding
from incast.evidence.result import at, number

_LOST = 0.001  # of all packets, dropped for want of memory
_QUIET = 0.05  # of the time, over all cables
_PORTS_SHOWN = 4


def deadlock(result: Mapping[str, Any]) -> Finding | None:
    """Ports that wait for each other in a circle: what goes through them never arrives."""
    listed = at(result, ("network", "deadlocks"))
    found = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    if not found:
        return None
    evidence = [f"{len(found)} circles of ports wait for each other and never move again"] if len(found) > 1 else []
    evidence.append(f"class {found[0].get('class')}: {_circle(found[0].get('ports'))} wait for each other for ever")
    advice = "routes without a circle (up and down a tree), or a class of its own for each turn"
    return Finding("deadlock of the network", "high", tuple(evidence), advice)


def congestion(result: Mapping[str, Any], less: str) -> Finding | None:
    """Packets that found no room, or senders that were told to be quiet; `less` says how to send less at a time."""
    lost, quiet = _dropped_share(result), _quiet_share(result)
    if lost is None or quiet is None or (lost < _LOST and quiet < _QUIET):
        return None
    surely = "high" if lost >= 10 * _LOST or quiet >= 4 * _QUIET else "medium"
    return Finding("switch buffer or pauses", surely, tuple(_lines(result)), less)


def network_lines(result: Mapping[str, Any]) -> list[str]:
    """A line for each of these that happened at all, whatever limited the run."""
    found = deadlock(result)
    return [*([] if found is None else found.evidence), *_lines(result)]


def _lines(result: Mapping[str, Any]) -> list[str]:
    dropped, repeated, lost = (
        number(result, "network", "totals", key) or 0.0 for key in ("dropped", "repeated", "lost")
    )
    again = f", {repeated:.0f} were sent again"
    lines = []
    if dropped:
        lines.append(f"{dropped:.0f} packets found no room in a switch{again}")
    if lost:
        lines.append(f"{lost:.0f} packets were lost on cables{'' if dropped else again}")
    if quiet := _quiet_share(result):
        lines.append(f"cables were paused {100 * quiet:.2g} % of the time, on average over all that were used")
    elif paused := number(result, "network", "totals", "paused_s"):
        lines.append(f"ports were paused for {units.duration_ns(1e9 * paused)} in all, and no cable carried anything")
    return lines


def _dropped_share(result: Mapping[str, Any]) -> float | None:
    dropped, packets = (number(result, "network", "totals", key) for key in ("dropped", "packets"))
    return dropped / packets if dropped is not None and packets else None


def _quiet_share(result: Mapping[str, Any]) -> float | None:
    """Of the time of the window, over all cables that carried anything."""
    paused, used = number(result, "network", "totals", "paused_s"), number(result, "network", "links", "used")
    begin, end = (number(result, "network", "window", key) for key in ("begin_s", "end_s"))
    if paused is None or not used or begin is None or end is None or end <= begin:
        return None
    return paused / (used * (end - begin))


def _circle(listed: Any) -> str:
    ports = [str(port) for port in listed] if isinstance(listed, list) else []
    more = f" and {len(ports) - _PORTS_SHOWN} more" if len(ports) > _PORTS_SHOWN else ""
    return ", ".join(ports[:_PORTS_SHOWN]) + more
