"""The table at the end of a run, made from its result.json (schema/result.schema.json)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from incast.base import units
from incast.base.units import VIRTUAL_TIME
from incast.evidence.cables import load_rows
from incast.evidence.dips import Dip
from incast.evidence.findings import NOT_KNOWN, NOTHING_BUILT, Diagnosis
from incast.evidence.network import network_lines
from incast.evidence.result import at, few_packets, number, setting

# Names and keys of what is said of a latency.
QUANTILES = (("min", "min"), ("p50", "p50"), ("p95", "p95"), ("p99", "p99"), ("p99.9", "p999"), ("max", "max"))
_DIPS_SHOWN = 5
_HOSTS_SHOWN = 8
_FILES_SHOWN = 4


def _goodput(bytes_per_s: float | None) -> Text:
    return Text(f"{units.rate(bytes_per_s)}   ({units.line_rate(bytes_per_s)})")


def _spread(result: Mapping[str, Any], unit: str) -> Text:
    if at(result, ("goodput_bytes_per_s", unit)) is None:
        return Text("too short to say", style="dim")
    low, mean, high = (number(result, "goodput_bytes_per_s", unit, key) for key in ("min", "mean", "max"))
    return Text(f"min {units.rate(low)}   mean {units.rate(mean)}   max {units.rate(high)}")


def _what_ran(result: Mapping[str, Any]) -> Text:
    transport, nodes, scheme = (
        at(
            result,
            (
                "config",
                section,
                key,
            ),
        )
        for section, key in (("transport", "name"), ("run", "nodes"), ("protocol", "scheme"))
    )
    mfp_bytes, n_events = number(result, "sizes", "mfp_bytes"), number(result, "sizes", "packing")
    text = Text(
        f"{transport}, {nodes} nodes, {scheme}, MFPs of {units.count(n_events)} event{'' if n_events == 1 else 's'},"
        f" {units.size(mfp_bytes)}"
    )
    status = result.get("status", "complete")
    if status != "complete":
        reason = result.get("reason")
        text.append(f"\n{status}" + (f": {reason}" if reason else ""), style="bold yellow")
    return text


def _event_rate(result: Mapping[str, Any]) -> str:
    """Of the measured window alone: what was built before and behind it is among the events."""
    seconds, rate = number(result, "window", "seconds"), units.frequency(number(result, "events_per_s"))
    if seconds is None:
        return rate
    return f"{rate} in the {units.duration_ns(1e9 * seconds)} measured" if seconds else "no time was measured"


def _lost(result: Mapping[str, Any]) -> Text:
    """Nobody knows where the event manager's last word is missing; that is not zero."""
    lost = number(result, "lost_events")
    if lost is None:
        return Text("unknown", style="bold red")
    return _alarming(lost)


def _alarming(value: float | None) -> Text:
    return Text(units.count(value), style="bold red" if value else "")


def _flags(result: Mapping[str, Any]) -> list[tuple[str, Text]]:
    """Why events are incomplete: a row for each flag that some source of some event has."""
    flags = at(result, ("flags",))
    return [
        (
            f"  {flag}",
            Text(
                f"{units.count(number(result, 'flags', flag, 'events'))} events,"
                f" {units.count(number(result, 'flags', flag, 'mfps'))} MFPs",
                style="red",
            ),
        )
        for flag in (flags if isinstance(flags, Mapping) else ())
    ]


def _file_name(file: Mapping[str, Any]) -> str:
    return f"{file['host']}: {file['file']}" if "host" in file else str(file["file"])


def _left_out(result: Mapping[str, Any]) -> list[tuple[str, Text]]:
    """What of the input files has no place in the run."""
    files = [file for file in at(result, ("inputs", "uneven")) or () if file["left_out_mfps"]]
    if not files:
        return []
    words = [
        f"{units.count(file['left_out_events'])} events of {_file_name(file)}"
        f" ({units.count(file['left_out_mfps'])} MFPs)"
        for file in files[:_FILES_SHOWN]
    ]
    if len(files) > _FILES_SHOWN:
        words.append(f"and of {len(files) - _FILES_SHOWN} more files")
    return [("left out", Text("\n".join(words), style="bold red"))]


def _verification(result: Mapping[str, Any]) -> Text:
    how = result.get("verified", "none")
    if how == "none":
        return Text("not verified", style="bold yellow")
    errors = number(result, "verify_errors")
    if errors:
        return Text(f"{how}: {units.count(errors)} ERRORS", style="bold red")
    read = number(result, "verified_meps")
    if how == "header":
        return Text("headers alone, no errors", style="green")
    if not read:
        return Text(f"not verified: {how} was asked for, but no packet was read", style="bold red")
    return Text(f"{how}, no errors in {units.count(read)} packets", style="green")


def _latency(result: Mapping[str, Any]) -> Text:
    if not number(result, "latency_ns", "count"):
        return Text(units.ABSENT)
    if reason := at(result, ("latency_ns", "reason")):
        return Text(f"not shown: {reason}")
    parts = [
        f"{name} {units.duration_ns(value)}"
        for name, key in QUANTILES
        if (value := number(result, "latency_ns", key)) is not None
    ]
    if error := number(result, "latency_ns", "clock_error"):
        parts.append(f"clock_error {units.duration_ns(error)}")
    return in_lines(parts)


def in_lines(parts: Sequence[str], most: int = 4) -> Text:
    """Figures beside each other, so many on a line: it fits 80 columns."""
    return Text("\n".join("   ".join(parts[at : at + most]) for at in range(0, len(parts), most)))


def _latency_label(result: Mapping[str, Any]) -> str:
    """The kind says what was timed: from the trigger (open loop), or from the assignment (service, closed loop)."""
    kind = at(result, ("latency_ns", "kind"))
    return f"latency ({kind})" if kind else "latency"


def _cpu(result: Mapping[str, Any]) -> Text:
    per_gb = number(result, "cpu_s_per_gb")
    if per_gb is None:
        return Text(units.ABSENT)
    total, polling = number(result, "cpu", "seconds"), number(result, "cpu", "polling_seconds")
    share = ""
    if total and polling is not None and polling <= total:  # an older engine's estimate may exceed what there was
        share = f"   ({units.fraction(polling / total)} of it polling in vain)"
    return Text(f"{per_gb:.3g} s/GB{share}")


def _consumers(result: Mapping[str, Any]) -> list[tuple[str, Text]]:
    """Who took the events of a run for consumers, and what became of those that nobody took."""
    counts = at(result, ("consumers",))
    if not isinstance(counts, Mapping):
        return []
    attached, left, ejected, refused = (counts.get(key, 0) for key in ("attached", "left", "ejected", "refused"))
    text = Text("nobody attached", style="bold red") if not attached else Text(f"{units.count(attached)} attached")
    for words, number_of in (("left", left), ("ejected", ejected), ("refused", refused)):
        if number_of:
            text.append(f", {units.count(number_of)} {words}")
    taken, dropped = counts.get("taken_meps", 0), counts.get("dropped_meps", 0)
    text.append(f"; packets: {units.count(taken)} taken")
    for words, key in (
        ("dropped", "dropped_meps"), ("missed", "missed_meps"), ("taken and not given back", "abandoned_meps"),
        ("still held", "held_meps"), ("handed out again", "repeated_meps"),
    ):  # fmt: skip
        if counts.get(key):
            text.append(f", {units.count(counts[key])} {words}", style="yellow")
    if counts.get("judged_meps"):
        accepted, rejected = counts["accepted_events"], counts["rejected_events"]
        text.append(f"; events: {units.count(accepted)} accepted, {units.count(rejected)} rejected")
    accounting = at(result, ("accounting",)) or {}
    waiting = accounting.get("meps_admitted", 0) - accounting.get("meps_committed", 0)
    if waiting > 0:
        text.append(f", {units.count(waiting)} still wait", style="yellow")
    if dropped and not taken:
        text.append("; no event reached a consumer", style="bold red")
    return [("consumers", text)]


def _triggers(result: Mapping[str, Any]) -> Text:
    """Offered and accepted, and under a policy that loses some, how many went where."""
    offered, accepted = (number(result, "triggers", key) for key in ("offered_hz", "accepted_hz"))
    text = Text(f"offered {units.frequency(offered)}   accepted {units.frequency(accepted)}")
    for name in ("inhibited", "dropped"):
        lost = number(result, "triggers", f"{name}_hz")
        if lost:
            text.append(f"   {name} {units.frequency(lost)}", style="yellow")
    waiting = number(result, "triggers", "waiting_events")
    if waiting:
        text.append(f"   {units.count(waiting)} still wait", style="yellow")
    policy = at(result, ("triggers", "policy"))
    return text.append(f"   ({policy})") if policy else text


def _troubles(result: Mapping[str, Any]) -> list[tuple[str, Text]]:
    """What single nodes have to say: a loss, a failure, the first event that did not verify."""
    nodes = result.get("nodes")
    rows = []
    for node in nodes if isinstance(nodes, list) else ():
        name = f"node {node.get('roles', '?')}"
        for key, style in (("why_lost", "red"), ("failure", "bold red"), ("note", "red")):
            if node.get(key):
                rows.append((name, Text(str(node[key]), style=style)))
    return rows


def print_summary(
    console: Console,
    result: Mapping[str, Any],
    directory: Path,
    diagnosis: Diagnosis | None = None,
    dips: Sequence[Dip] = (),
) -> None:
    """The figures of a run for a person, what limited it, its dips, and the directory with everything else of it."""
    console.print(
        _figures(
            result, [*network_rows(result, diagnosis), *limit_rows(diagnosis), *dip_rows(dips), *file_rows(result)]
        )
    )
    # On one line whatever its length, so that it can be copied.
    console.print(f"results in {directory}", soft_wrap=True, markup=False, highlight=False)


def limit_rows(diagnosis: Diagnosis | None) -> list[tuple[str, Text]]:
    """What limited it, with the evidence; nothing without a diagnosis."""
    if diagnosis is None:
        return []
    if diagnosis.limited_by == NOT_KNOWN and NOTHING_BUILT in diagnosis.evidence:
        return [("limited by", Text(f"not said: {NOTHING_BUILT}"))]
    text = Text(diagnosis.limited_by, style="bold" if diagnosis.confidence == "high" else "")
    if diagnosis.confidence != "none":
        text.append(f"   (confidence: {diagnosis.confidence})", style="dim")
    for line in diagnosis.evidence:
        text.append(f"\n{line}", style="dim")
    rows = [("limited by", text)]
    if diagnosis.suggestion and diagnosis.confidence != "none":
        rows.append(("to try", Text(diagnosis.suggestion)))
    if diagnosis.ports:
        rows.append(("ports", Text("\n".join(diagnosis.ports), style="yellow")))
    return rows


def network_rows(result: Mapping[str, Any], diagnosis: Diagnosis | None) -> list[tuple[str, Text]]:
    """What a simulated network carried, dropped, paused, or holds for ever, unless the diagnosis says it."""
    said = diagnosis.evidence if diagnosis is not None else ()
    rows = [(label, Text(words)) for label, words in load_rows(result) if words not in said]
    lines = [line for line in network_lines(result) if line not in said]
    return [*rows, ("network", Text("\n".join(lines), style="yellow"))] if lines else rows


def file_rows(result: Mapping[str, Any]) -> list[tuple[str, Text]]:
    """What could not be written, and why."""
    rows = []
    for file in result.get("incomplete_files") or ():
        missing = file["missing"]
        words = "is not there" if missing is None else f"lacks {units.count(missing)} records"
        rows.append(("not written", Text(f"{file['file']} {words}: {file['reason']}", style="yellow")))
    return rows


def elsewhere_rows(result: Mapping[str, Any]) -> list[tuple[str, Text]]:
    """Files of the run that lie on other hosts."""
    rows = []
    if error := at(result, ("accounting", "ledger_error")):
        rows.append(("ledger", Text(str(error), style="yellow")))
    builders = [node for node in result.get("nodes", ()) if "BU" in node.get("roles", "")]
    hosts = list(dict.fromkeys(host for node in builders if (host := at(node, ("place", "host")))))
    if setting(result, "sink", "kind") == "mep" and hosts and hosts != [at(result, ("machine", "host"))]:
        more = f" and {len(hosts) - _HOSTS_SHOWN} more" if len(hosts) > _HOSTS_SHOWN else ""
        where = ", ".join(hosts[:_HOSTS_SHOWN])
        rows.append(("MEP files", Text(f"{setting(result, 'sink', 'path')} on {where}{more}")))
    return rows


def dip_rows(dips: Sequence[Dip]) -> list[tuple[str, Text]]:
    """When goodput fell below half of its median, and what else happened then; the longest first."""
    rows: list[tuple[str, Text]] = []
    for dip in sorted(dips, key=lambda dip: dip.begin_s - dip.end_s)[:_DIPS_SHOWN]:
        text = Text(dip.words(), style="yellow")
        for line in dip.meanwhile or ("nothing else is known of that time",):
            text.append(f"\n{line}", style="dim")
        rows.append((f"dip {len(rows) + 1} of {len(dips)}", text))
    return rows


def _figures(result: Mapping[str, Any], more: Sequence[tuple[str, Text]]) -> RenderableType:
    virtual = result.get("time_domain") == "virtual"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    nothing_ran = result.get("status") == "not joined"
    rows = [("run", _what_ran(result))] if nothing_ran else [*_rows(result), *elsewhere_rows(result), *more]
    for label, text in (*rows, *_troubles(result)):
        table.add_row(label, text)
    if not virtual:
        return table
    warning = Text(
        f"{VIRTUAL_TIME}: every rate and time below is simulated, not measured on this machine", style="bold magenta"
    )
    return Group(warning, table)


def _event_rows(result: Mapping[str, Any]) -> list[tuple[str, Text]]:
    """What was built; with a filter, what it saw, what it accepted and what not; the rate is of accepted ones."""
    events, rejected = number(result, "events"), number(result, "rejected_events") or 0.0
    two_stages = setting(result, "protocol", "scheme") in ("push-pull", "pull-pull")
    if not (two_stages or rejected) or events is None:
        return [("events", Text(f"{units.count(events)}   ({_event_rate(result)})"))]
    share = f"   ({units.fraction(rejected / events)})" if events else ""
    return [
        ("events, filtered", Text(units.count(events))),
        ("  accepted", Text(f"{units.count(events - rejected)}   ({_event_rate(result)})")),
        ("  rejected", Text(f"{units.count(rejected)}{share}")),
    ]


def _lost_row(result: Mapping[str, Any]) -> tuple[str, Text]:
    """Events that nobody took are not lost on the way: no consumer was there."""
    lost, consumers = number(result, "lost_events"), at(result, ("consumers",))
    nobody = isinstance(consumers, Mapping) and not consumers.get("attached") and not consumers.get("taken_meps")
    if lost and nobody:
        return "not delivered", Text(f"{units.count(lost)} events: no consumer was attached", style="bold red")
    return "lost", _lost(result)


def _undecided(result: Mapping[str, Any]) -> list[tuple[str, Text]]:
    """Packets that the filter was to decide on, and did not: they were accepted."""
    nodes = result.get("nodes", [])
    count = sum(number(node, "totals", "undecided_meps") or 0 for node in nodes)
    if not count:
        return []
    text = f"{units.count(count)} packets accepted, as the filter had ended or took too long"
    return [("not decided", Text(text, style="bold yellow"))]


def _rows(result: Mapping[str, Any]) -> list[tuple[str, Text]]:
    without_self = _goodput(number(result, "goodput_bytes_per_s", "total_without_self"))
    without_self.stylize("bold")
    redelivered = number(result, "redelivered_events")
    rows = [
        ("run", _what_ran(result)),
        ("goodput, without self", without_self),
        ("goodput, total", _goodput(number(result, "goodput_bytes_per_s", "total"))),
        ("per readout unit", _spread(result, "per_ru")),
        ("per builder unit", _spread(result, "per_bu")),
        ("over time", _spread(result, "over_time")),
        *([("coarse", Text(few, style="yellow"))] if (few := few_packets(result)) else []),
        *_event_rows(result),
        ("incomplete", _alarming(number(result, "incomplete_events"))),
        *_flags(result),
        *_left_out(result),
        _lost_row(result),
        *_undecided(result),
        ("redelivered", Text(units.count(redelivered), style="yellow" if redelivered else "")),
        ("verification", _verification(result)),
        (_latency_label(result), _latency(result)),
    ]
    if is_open := at(result, ("triggers", "loop")) == "open":
        rows.append(("triggers", _triggers(result)))
        mean, most = (number(result, "triggers", "occupancy", key) for key in ("mean", "max"))
        rows.append(("readout memory", Text(f"mean {units.fraction(mean)}   max {units.fraction(most)} in use")))
    rows += _consumers(result)
    undelivered = number(result, "sink", "undelivered_meps")
    if undelivered:
        rows.append(("not delivered", Text(f"{units.count(undelivered)} packets, without a command", style="bold red")))
    rows += [
        *(
            [("dead time", Text(units.fraction(dead)))]
            if (dead := number(result, "dead_time_fraction")) or is_open
            else []
        ),
        ("builders waiting", Text(units.fraction(number(result, "bu_wait_fraction")))),
        ("CPU", _cpu(result)),
        ("set-up", Text(units.duration_ns(number(result, "set_up_ns")))),
        ("peak memory", Text(f"{units.size(number(result, 'peak_rss_bytes'))}   (largest process)")),
    ]
    return rows
