"""What limited raw traffic (`incast net`): its nodes only send and receive, so fewer things can."""

from collections.abc import Mapping
from typing import Any

from incast.base import units
from incast.evidence.cables import full_link
from incast.evidence.facts import Facts
from incast.evidence.findings import Finding
from incast.evidence.network import congestion, deadlock
from incast.evidence.result import number

_FULL = 0.93
_BUSY = 0.85


def net_findings(result: Mapping[str, Any], facts: Facts) -> list[Finding]:
    """What was used up, and how surely; a ping-pong uses nothing up."""
    if stuck := deadlock(result):
        return [stuck]
    if result.get("measure") == "latency":
        return []
    less = "less in flight: a smaller net.outstanding; or a switch with more memory"
    cables = full_link(result) if facts.virtual else None
    found = [_links(result, facts), congestion(result, less), cables, _cpu(result, facts)]
    if not any(found):
        found.append(_in_flight(result, facts))
    return [each for each in found if each is not None]


def _links(result: Mapping[str, Any], facts: Facts) -> Finding | None:
    known = facts.link_rate() if facts.virtual else None
    if known is None:
        return None
    rate, says = known
    message = number(result, "message_bytes") or 0.0
    overhead = (message + 64) / message if message else 1.0
    use = {}
    for name, key in (("sender link", "senders"), ("receiver link", "receivers")):
        use[name] = max((node["bytes_per_s"] * overhead / rate for node in result.get(key, ())), default=0.0)
    name = max(use, key=lambda which: use[which])
    if use[name] < _FULL:
        return None
    evidence = (
        f"the fullest is {100 * min(use[name], 1.0):.0f} % full of {units.rate(rate)} ({says}), heads included",
    )
    return Finding(name, "high", evidence, "faster links")


def _cpu(result: Mapping[str, Any], facts: Facts) -> Finding | None:
    if facts.virtual:
        return None
    worked = facts.cpu_cores
    if worked is not None and worked > _BUSY * facts.cores:
        evidence = (f"the nodes worked {worked:.2f} of {facts.cores:.0f} cores' time",)
        return Finding("CPU", "high", evidence, "larger messages, or more cores")
    if shares := facts.readiness:
        starved = [share for share in shares if share.ran + share.waited > 0.7 and share.waited > 0.1]
        if starved and 2 * len(starved) >= len(shares):
            waited = sum(share.waited for share in starved) / len(starved)
            evidence = (
                f"{len(starved)} of {len(shares)} processes wanted to run nearly all the time,"
                f" and waited for a core for {100 * min(waited, 1.0):.0f} % of it",
            )
            return Finding("CPU", "high", evidence, "larger messages, or more cores")
        return None
    nodes = [node for node in result.get("nodes", ()) if node.get("cpu_seconds") is not None]
    never_slept = [node for node in nodes if node.get("sleeps") == 0]
    polling = number(result, "cpu", "polling_seconds") or 0.0
    seconds = number(result, "cpu", "seconds") or 0.0
    if nodes and len(never_slept) == len(nodes) and polling < 0.5 * seconds:
        evidence = (f"none of {len(nodes)} processes ever slept, on {facts.cores:.0f} cores",)
        return Finding("CPU", "medium", evidence, "larger messages, or more cores")
    return None


def _in_flight(result: Mapping[str, Any], facts: Facts) -> Finding | None:
    outstanding, queues = number(result, "outstanding"), number(result, "queues")
    if outstanding is None or queues is None:
        return None
    evidence = [f"{outstanding * queues:.0f} messages of a pair may be in flight"]
    if facts.virtual:
        evidence.append("no link was full, and a node's work takes no virtual time")
        return Finding("credits", "high", tuple(evidence), "raise net.outstanding")
    slept = all(node.get("sleeps", 0) > 0 for node in result.get("nodes", ()))
    if outstanding * queues > 2 or not slept or facts.others_share > 0.2:
        return None
    evidence.append("every node slept at times")
    return Finding("credits", "medium", tuple(evidence), "raise net.outstanding")
