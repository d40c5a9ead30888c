"""What the cables of a simulated network carried, and whether the builder units share the work evenly."""

from collections.abc import Mapping
from typing import Any

from incast.base import units
from incast.evidence.findings import Finding
from incast.evidence.result import Result, at, number, setting

_FULL = 0.93  # of a cable
_BUSY = 0.85
_UNEVEN = 1.25  # times the mean
_FEW = 3  # builder units: with two of them there is no mean to speak of


def busiest_link_words(result: Result) -> str | None:
    """The busiest direction of a cable, with its share; None where no network was simulated."""
    links = at(result, ("network", "links"))
    most = number(result, "network", "links", "utilisation_max")
    if not isinstance(links, Mapping) or most is None or not links.get("busiest"):
        return None
    mean = number(result, "network", "links", "utilisation_mean")
    among = "" if mean is None else f"; all links in use: {units.fraction(mean)} on average"
    return f"{links['busiest']}: {units.fraction(min(1.0, most))} busy{among}"


def busiest_builder(result: Result) -> tuple[str, float] | None:
    """The builder unit that builds most, and how many times the mean that is; None where that cannot be said."""
    rates = [
        (number(node, "built_goodput_bytes_per_s") or 0.0, node)
        for node in _nodes(result)
        if "BU" in str(node.get("roles", "")) and not node.get("lost")
    ]
    total = sum(rate for rate, _ in rates)
    if len(rates) < _FEW or total <= 0:
        return None
    most, node = max(rates, key=lambda each: each[0])
    return str(node.get("roles")), most * len(rates) / total


def uneven_words(result: Result) -> str | None:
    """That one builder unit builds much more than the mean; None where it does not."""
    found = busiest_builder(result)
    if found is None or found[1] < _UNEVEN:
        return None
    return f"node {found[0]} builds {found[1]:.2f} times the mean of the builder units"


def uneven_builder(result: Result) -> Finding | None:
    """One builder unit gets so many of the MEPs that its link is full, while the links of the others are not."""
    words, link = uneven_words(result), busiest_link_words(result)
    most = number(result, "network", "links", "utilisation_max")
    mean = number(result, "network", "links", "utilisation_mean")
    found = busiest_builder(result)
    if words is None or link is None or found is None or most is None or most < _BUSY or (mean or 0.0) > 0.85 * most:
        return None
    evidence = [words, link]
    evens = []
    if setting(result, "protocol", "assignment") in (None, "em"):
        evens.append("protocol.assignment = static")
        if "EM" in found[0] and setting(result, "run", "em") != "own":
            evidence.insert(1, "the event manager runs there, so credits of this unit come back before all others")
            evens.append("run.em = own (takes one more host)")
    advice = ", or ".join(evens) or "fewer protocol.credits, or an assignment that spreads the load"
    # Where the full link is one between switches, more than this unit may be behind it.
    surely = "high" if most >= _FULL and f" to host{found[0].partition(' ')[0]} " in link else "medium"
    return Finding("one builder unit", surely, tuple(evidence), advice)


def full_link(result: Result) -> Finding | None:
    """A cable of a simulated network that carried as much as it can."""
    most, link = number(result, "network", "links", "utilisation_max"), busiest_link_words(result)
    if link is None or most is None or most < _FULL:
        return None
    mean = number(result, "network", "links", "utilisation_mean") or 0.0
    if mean >= 0.8 * most:
        return Finding("network links", "high", (link,), "faster links, or more nodes")
    advice = "a faster link there, or routes, a schedule or an assignment that spread the load"
    return Finding("network link", "medium", (link,), advice)


def load_rows(result: Result) -> list[tuple[str, str]]:
    """For the summary: a label and words for each; nothing where no network was simulated."""
    link, uneven = busiest_link_words(result), uneven_words(result)
    rows = [] if link is None else [("busiest link", link)]
    if link is not None and uneven is not None:
        rows.append(("busiest builder", uneven))
    return rows


def _nodes(result: Result) -> list[Mapping[str, Any]]:
    nodes = result.get("nodes")
    return [node for node in nodes if isinstance(node, Mapping)] if isinstance(nodes, list) else []
