"""What limited a run, with the evidence and a suggestion (docs/scanning.md, "What limited it").

Every rule looks at one resource and says how sure it is that this one was used up. The surest one is named; of two
that are equally sure the first, since what is downstream fills what is upstream (a slow sink keeps the credits busy).
Without a sure sign nothing is named: "not known" is an answer.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from incast.base import units
from incast.base.files import leave_file
from incast.engine.idle import Window, usable_cores
from incast.evidence.cables import full_link, uneven_builder
from incast.evidence.facts import Facts, read_samples
from incast.evidence.findings import CONFIDENCES, NOT_KNOWN, NOTHING_BUILT, Diagnosis, Finding
from incast.evidence.net_diagnosis import net_findings
from incast.evidence.network import congestion, deadlock
from incast.evidence.port_signs import port_signs
from incast.evidence.result import number, setting, setting_number

DIAGNOSIS_NAME = "diagnosis.json"
_FULL = 0.93  # of a link, headers included
_BUSY = 0.85  # of a core, or of all
_READY = 0.7  # of the time, running or waiting for a core: nodes that wait for each other in turn are below it
_SHORT_S = 0.2
_TAKEN = 0.97  # of the triggers


def _percent(share: float) -> str:
    """A share lies in 0 to 1; what is measured at both ends of it may be a little off."""
    return f"{100 * min(max(share, 0.0), 1.0):.0f} %"


# --- open loop


def _source_rate(facts: Facts) -> Finding | None:
    offered, accepted = (number(facts.result, "triggers", key) for key in ("offered_hz", "accepted_hz"))
    dead = number(facts.result, "dead_time_fraction") or 0.0
    if not facts.open_loop or not offered or accepted is None:
        return None
    fullest = number(facts.result, "triggers", "occupancy", "max") or 0.0
    # Events are taken by the packet: that of the end is always on the way.
    packet = (number(facts.result, "sizes", "packing") or 1.0) / (facts.seconds or 1.0)
    if offered - accepted > max((1 - _TAKEN) * offered, 2 * packet) or dead > 0.01:
        return None
    evidence = (
        f"{units.frequency(offered)} triggers were offered, and {_percent(accepted / offered)} of them taken",
        f"dead time {_percent(dead)}; the memory of a readout unit was never fuller than {_percent(fullest)}",
    )
    return Finding("source rate", "high", evidence, "more triggers can be taken: raise source.trigger_rate")


def _bursts(facts: Facts) -> Finding | None:
    """The mean is taken, but at times there is no room: memory, not speed, is short."""
    offered, accepted = (number(facts.result, "triggers", key) for key in ("offered_hz", "accepted_hz"))
    dead = number(facts.result, "dead_time_fraction") or 0.0
    mean, most = (number(facts.result, "triggers", "occupancy", key) for key in ("mean", "max"))
    if not facts.open_loop or not offered or accepted is None or mean is None or most is None:
        return None
    missed = max(0.0, 1 - accepted / offered)
    if max(dead, missed) <= 0.01 or most < 0.99 or mean > 0.5:
        return None
    evidence = (
        f"dead time {_percent(dead)}, {_percent(missed)} of the triggers not taken, though the memory of readout units"
        f" was {_percent(mean)} full on average",
        f"it was {_percent(most)} full at times: bursts, or pauses of what takes events",
    )
    return Finding("buffer memory", "medium", evidence, "raise source.memory, or even out the triggers")


# --- what takes events


_SINK_ADVICE = {
    "command": "a faster command, or more builder units (one command each)",
    "mep": "faster disks, or sink.fsync = interval",
    "consumer": "more or faster consumers, or sink.policy = drop",
}


def _external_sink(facts: Facts) -> Finding | None:
    """Built events are kept for somebody else: a command, disks, other processes."""
    kind = setting(facts.result, "sink", "kind")
    if kind not in _SINK_ADVICE or facts.virtual:
        return None
    advice, flight, slots = _SINK_ADVICE[kind], facts.in_flight, facts.slots
    if flight is not None and slots and flight > 1.2 * slots:
        evidence = [
            f"{flight:.0f} MEPs were on the way, more than the {slots:.0f} slots of builder units:"
            f" built ones wait in the sink ({kind})"
        ]
        keep = facts.memory_meps
        if keep and flight > 0.7 * keep:
            evidence.append(f"readout units keep {keep:.0f} MEPs at most, and wait for these to be taken")
            return Finding("sink", "high", tuple(evidence), advice)
        return Finding("sink", "medium", tuple(evidence), advice)
    slack = _cpu_slack(facts)
    held = number(facts.result, "consumers", "held_meps")
    waiting = number(facts.result, "bu_wait_fraction") or 0.0
    what = None
    if kind == "consumer" and held and waiting < 0.1:
        what = f"processes held {held:.0f} MEPs at the end, and builder units waited {_percent(waiting)}"
    elif flight is not None and slots and flight > 0.9 * slots and not facts.small_windows:
        what = f"all slots are in use while the nodes have time left; events leave through a sink {kind}"
    elif facts.open_loop and (number(facts.result, "dead_time_fraction") or 0.0) > 0.01:
        what = f"triggers are turned away while the nodes have time left; events leave through a sink {kind}"
    return Finding("sink", "medium", (what, slack[1]), advice) if what and slack else None


def _sink_cpu(facts: Facts) -> Finding | None:
    """The sink works in the node's own thread: verification, reading."""
    if facts.virtual or _cpu(facts) is None or facts.sink_share < 0.5:
        return None
    kind = setting(facts.result, "sink", "kind")
    evidence = (f"{_percent(facts.sink_share)} of the CPU time that was work went into the sink ({kind})",)
    surely = "high" if facts.sink_share > 0.7 else "medium"
    cheaper = {"verify": "sink.verify = sampled, or a sink that does less", "touch": "a sink that does less"}
    return Finding(
        "sink", surely, evidence, cheaper.get(str(kind), "a sink that does less for each event, or more cores")
    )


# --- the host


def _cpu_slack(facts: Facts) -> tuple[str, str] | None:
    """How sure it is that the nodes had time left, and why; None if they had not, or nothing says it."""
    if shares := facts.readiness:
        ready = [share.ran + share.waited for share in shares]
        if max(ready) > _READY:
            return None
        return "high", f"no node wanted to run for more than {_percent(max(ready))} of the time"
    # Where others have the cores, that a node slept once does not say that it had time left.
    if not facts.loads or facts.others_share > 0.2:
        return None
    hottest = max(facts.loads, key=lambda load: load.cpu)
    total = sum(load.cpu for load in facts.loads)
    asleep = [load for load in facts.loads if load.sleeps > 0]
    if hottest.cpu > 0.8 or total > 0.8 * facts.cores or len(asleep) < len(facts.loads):
        return None
    return "medium", f"every node slept at times; the busiest one used {hottest.cpu:.2f} cores"


def _cpu(facts: Facts) -> Finding | None:
    if facts.virtual:
        return None
    advice = "fewer nodes than cores, larger MFPs, a cheaper sink, or more cores"
    waits = "time that waits for memory counts as CPU time"
    worked = facts.cpu_cores
    if worked is not None and worked > _BUSY * facts.cores:
        evidence = (f"the nodes worked {worked:.2f} of {facts.cores:.0f} cores' time", waits)
        return Finding("CPU", "high", evidence, advice)
    if hot := [load for load in facts.loads if load.useful > _BUSY]:
        names = ", ".join(load.name for load in hot[:4])
        evidence = (f"{len(hot)} of {len(facts.loads)} nodes worked all the time (one thread each): {names}", waits)
        return Finding("CPU", "high", evidence, advice)
    return _starved(facts, advice)


def _starved(facts: Facts, advice: str) -> Finding | None:
    """Nodes that were ready to run, and had no core: there are more of them than cores, or others had the cores."""
    polling, seconds = (number(facts.result, "cpu", key) or 0.0 for key in ("polling_seconds", "seconds"))
    if polling > 0.5 * seconds:
        return None  # they looked for work, and found none
    if shares := facts.readiness:
        starved = [share for share in shares if share.ran + share.waited > _READY and share.waited > 0.1]
        if 2 * len(starved) < len(shares):
            return None
        ran, waited = (sum(values) / len(starved) for values in zip(*((s.ran, s.waited) for s in starved), strict=True))
        evidence = [
            f"{len(starved)} of {len(shares)} processes wanted to run nearly all the time:"
            f" {_percent(ran)} of it they ran, {_percent(waited)} they waited for a core"
        ]
        return Finding("CPU", "high", (*evidence, _who_had_the_cores(facts)), advice)
    # Without a look at the machine: who never sleeps wants to run.
    awake = [load for load in facts.loads if load.sleeps == 0 and load.cpu > 0.1]
    if not awake or len(awake) < len(facts.loads) or facts.seconds < _SHORT_S:
        return None
    share = sum(load.cpu for load in awake) / len(awake)
    evidence = [f"none of {len(awake)} nodes ever slept, and each got {share:.2f} cores"]
    return Finding("CPU", "medium", (*evidence, f"{len(awake)} nodes on {facts.cores:.0f} cores"), advice)


def _who_had_the_cores(facts: Facts) -> str:
    assert facts.window is not None
    capacity = facts.window.seconds * facts.cores
    own, others = facts.window.cpu / capacity, (facts.window.others + facts.window.steal) / capacity
    return f"of {facts.cores:.0f} cores the run had {_percent(own)}, others {_percent(others)}"


# --- the interconnect


def _uneven(facts: Facts) -> Finding | None:
    return uneven_builder(facts.result) if facts.virtual else None


def _cables(facts: Facts) -> Finding | None:
    return full_link(facts.result) if facts.virtual else None


def _links(facts: Facts) -> Finding | None:
    known = facts.link_rate()
    if known is None or not facts.loads:
        return None
    rate, says = known
    full = {name: shares for name, shares in facts.link_use(rate).items() if max(shares) >= _FULL}
    if not full:
        return None
    # Where both ends are full: the one that is full on average.
    name = max(full, key=lambda which: sum(full[which]) / len(full[which]))
    shares = full[name]
    how_many = sum(share >= _FULL for share in shares)
    evidence = [f"{how_many} of {len(shares)} are full, the fullest {_percent(max(shares))}"]
    evidence.append(f"of {units.rate(rate)} ({says}), heads and tables of MFPs included")
    if len(full) == 2:
        evidence.append("links are full at the other end, too")
    mean = sum(shares) / len(shares)
    if mean < 0.8 * max(shares):
        evidence.append(f"on average they are {_percent(mean)} full: the load is uneven")
        return Finding(name, "medium", tuple(evidence), "an assignment or schedule that spreads the load")
    return Finding(name, "high", tuple(evidence), "faster links, or more nodes on that side")


def _deadlock(facts: Facts) -> Finding | None:
    return deadlock(facts.result)


def _switch(facts: Facts) -> Finding | None:
    less = "less in flight: fewer protocol.credits or smaller MFPs, or another schedule; or a switch with more memory"
    return congestion(facts.result, less)


def _gap(facts: Facts) -> Finding | None:
    gap = setting_number(facts.result, "protocol", "inter_send_gap") or 0.0
    key = "protocol.inter_send_gap"
    if setting(facts.result, "protocol", "schedule") == "barrel-time-slot":
        gap, key = setting_number(facts.result, "protocol", "slot_time") or 0.0, "protocol.slot_time"
    rate = facts.meps_per_s
    if gap <= 0 or rate is None or rate * gap < 0.75:
        return None
    evidence = (f"a readout unit begins {units.frequency(rate)} contributions, and {key} allows {1 / gap:.4g}/s",)
    return Finding("schedule", "high" if rate * gap > 0.9 else "medium", evidence, f"a smaller {key}")


# --- the windows of the protocol


def _used_by_elimination(facts: Facts) -> tuple[str, str] | None:
    """How sure it is that nothing but a window of the protocol was used up, and the line that says so."""
    known = facts.link_rate()
    if facts.virtual and facts.fullest_link is not None:
        if facts.fullest_link >= _FULL:
            return None
        return (
            "high" if facts.fullest_link < 0.7 else "medium"
        ), f"no cable was fuller than {_percent(facts.fullest_link)}"
    if facts.virtual:
        if known is None or not facts.loads:
            return None
        fullest = facts.link_use_at_most(known[0])
        return ("high" if fullest < 0.7 else "medium"), f"no link was fuller than {_percent(fullest)}"
    return _cpu_slack(facts)


def _parallel_sends(facts: Facts) -> Finding | None:
    allowed, slots = setting_number(facts.result, "protocol", "parallel_sends"), facts.slots
    free = _used_by_elimination(facts)
    if not allowed or not slots or allowed >= slots or free is None:
        return None
    evidence = [
        f"a readout unit may have {allowed:.0f} contributions under way, and {slots:.0f} slots wait for it",
        free[1],
    ]
    surely = free[0]
    if facts.in_flight is not None:
        part = min(1.0, facts.in_flight / slots)
        evidence.append(f"{_percent(part)} of the credits were in use: what is assigned waits to be sent")
        surely = "high" if part > 0.6 else "low"
    return Finding("parallel sends", surely, tuple(evidence), "raise protocol.parallel_sends")


def _parallel_requests(facts: Facts) -> Finding | None:
    allowed, each = (
        setting_number(facts.result, "protocol", "parallel_requests"),
        number(facts.result, "sizes", "credits"),
    )
    scheme = str(setting(facts.result, "protocol", "scheme"))
    free = _used_by_elimination(facts)
    if not allowed or not each or not scheme.startswith("pull") or free is None:
        return None
    wanted = each * facts.readout_units
    if allowed >= wanted:
        return None
    evidence = (f"a builder unit may have {allowed:.0f} requests out, and has {wanted:.0f} to ask for", free[1])
    return Finding("parallel requests", free[0], evidence, "raise protocol.parallel_requests")


def _credits(facts: Facts) -> Finding | None:
    each, flight, free = number(facts.result, "sizes", "credits"), facts.in_flight, _used_by_elimination(facts)
    if not each or not facts.slots or flight is None or free is None:
        return None
    flight = min(flight, facts.slots)  # rate times mean time, where the one is not quite that of the other
    part, waited = flight / facts.slots, number(facts.result, "bu_wait_fraction") or 0.0
    # A credit is in use for at least two of three ways through the network (announcement, write; grant). Where it is
    # less, and builder units do not wait either, something else holds the run up, or it has not settled yet.
    if part + waited < 0.55:
        return None
    evidence = (
        f"{flight:.2g} of {facts.slots:.0f} credits were in use at a time, the others on their way back",
        free[1],
        f"builder units waited {_percent(waited)} of the time",
    )
    surely = free[0]
    if each > 2:
        surely = "medium" if surely == "high" else "low"
    return Finding("credits", surely, evidence, f"raise protocol.credits (now {each:.0f} per builder unit)")


# Downstream first; a deadlock lets nothing else count.
_RULES: tuple[Callable[[Facts], Finding | None], ...] = (
    _deadlock,
    _source_rate,
    _bursts,
    _external_sink,
    _sink_cpu,
    _cpu,
    _uneven,
    _switch,
    _links,
    _cables,
    _gap,
    _parallel_sends,
    _parallel_requests,
    _credits,
)


def diagnose(
    result: Mapping[str, Any], samples: Iterable[Mapping[str, Any]] = (), window: Window | None = None
) -> Diagnosis:
    """What limited the run of that result; `window` is what was seen of the machine while it was measured."""
    if result.get("kind") == "net":
        findings = net_findings(result, Facts.of(result, samples, window))
    else:
        facts = Facts.of(result, samples, window)
        built = number(result, "window", "meps")
        rules = _RULES if built != 0 else (_deadlock,)
        findings = [found for rule in rules if (found := rule(facts)) is not None]
    ports = port_signs(result)
    if not findings:
        nothing = result.get("kind") != "net" and number(result, "window", "meps") == 0
        return Diagnosis(NOT_KNOWN, "none", (NOTHING_BUILT,) if nothing else (), "", ports=ports)
    best = min(findings, key=lambda found: CONFIDENCES.index(found.confidence))
    others = tuple(dict.fromkeys(each.cause for each in findings if each.cause != best.cause))
    if best.confidence == "low":
        return Diagnosis(NOT_KNOWN, "none", best.evidence, best.suggestion, (best.cause, *others), ports)
    return Diagnosis(best.cause, best.confidence, best.evidence, best.suggestion, others, ports)


def diagnose_directory(
    directory: Path,
    result: Mapping[str, Any],
    window: Window | None = None,
    incomplete: list[dict[str, Any]] | None = None,
) -> Diagnosis:
    """The same for a result directory; also leaves it there as `diagnosis.json`, with the machine's shares.

    `incomplete` takes that file if it cannot be written.
    """
    found = diagnose(result, read_samples(directory), window)
    machine = None if window is None else {"seconds": window.seconds, **window.shares(usable_cores())}
    text = json.dumps({"schema": 1, **found.to_json(), "machine": machine}, indent=2) + "\n"
    not_written = leave_file(directory / DIAGNOSIS_NAME, text)
    if incomplete is not None:
        incomplete += not_written
    return found
