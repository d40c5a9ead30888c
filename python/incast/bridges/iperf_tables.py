"""The tables of `incast bridge iperf`: for a terminal of 80 columns, and for docs/netdev.md."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from incast.bridges.iperf import LIMIT_GBIT, PUBLISHED_CLIENTS, PUBLISHED_PAIRS, fairness
from incast.bridges.iperf_program import MANY_TO_ONE, ONE_TO_ONE
from incast.bridges.zmq_tables import BridgeTable

_COMMON = ["emulated", "lost", "fair", "again", "drops", "ms"]


def tables(result: Mapping[str, Any]) -> list[BridgeTable]:
    """Those for which there is something. Rates are as the adapter would have them: multiplied by the slowdown."""
    titles = {
        ONE_TO_ONE: ("pairs", "one-to-one, Gb/s of a pair: slowest..fastest"),
        MANY_TO_ONE: ("clients", "many-to-one, Gb/s of all clients"),
    }
    found = []
    for pattern, (first, title) in titles.items():
        cases = [case for case in result["cases"] if case["pattern"] == pattern]
        simulated = (result["simulated_gbit"] or {}).get(pattern)
        headings = [first, "published", *(["simulated"] if simulated else []), *_COMMON]
        rows = [_row(case, simulated, result["slowdown"]) for case in cases]
        found.append(BridgeTable(f"iperf-{pattern}", title, headings, rows))
    return [table for table in found if table.rows]


def _row(case: Mapping[str, Any], simulated: Sequence[float] | None, slowdown: int) -> list[str]:
    streams, rounds = case["streams"], case["each_bytes_per_s"]
    gbit = [[8e-9 * slowdown * rate for rate in rates] for rates in rounds]
    limit = LIMIT_GBIT[case["pattern"] if streams > 1 else ONE_TO_ONE]  # one client is limited by what it sends
    if case["pattern"] == ONE_TO_ONE:
        low, high = PUBLISHED_PAIRS[streams - 1]
        published = f"{low:.1f}..{high:.1f}"
        slowest = statistics.median(min(rates) for rates in gbit)
        fastest = statistics.median(max(rates) for rates in gbit)
        emulated = f"{slowest:.2f}..{fastest:.2f}"
        carried = statistics.median(statistics.mean(rates) for rates in gbit)
    else:
        published = f"{PUBLISHED_CLIENTS[streams - 1]:.2f}"
        carried = statistics.median(sum(rates) for rates in gbit)
        emulated = f"{carried:.2f}"
    return [
        str(streams),
        published,
        *([f"{simulated[streams - 1]:.2f}"] if simulated else []),
        emulated,
        f"{100 * (1 - carried / limit):.1f} %",
        f"{statistics.median(map(fairness, rounds)):.3f}",
        f"{statistics.median(case['retransmits']):.0f}",
        f"{statistics.median(case['dropped_frames']):.0f}",
        f"{1e3 * statistics.median(_waits_s(case)):.1f}",
    ]


def _waits_s(case: Mapping[str, Any]) -> Sequence[float]:
    """Of each round: how much longer a round trip takes than on the idle network, in the mean of the connections."""
    both = zip(case["each_mean_rtt_s"], case["idle_rtt_s"], strict=True)
    return [statistics.mean(trips) - idle for trips, idle in both]


def conditions(result: Mapping[str, Any]) -> list[str]:
    """What has to stand beside every figure, a line each."""
    machine, settings, slowdown = result["machine"], result["settings"], result["slowdown"]
    load = machine["load"]
    return [
        f"{machine['cpu_model']}, {machine['cores']} cores, {machine['kernel']}; all hosts are network namespaces of "
        f"this one; {result['started_utc'][:10]}, incast {result['incast']}",
        f"iperf3, MTU {settings['mtu']}; medians of {settings['rounds']} rounds in turn, {settings['seconds']:g} s "
        f"each after {settings['warm_up_seconds']:g} s of warm-up",
        f"load of the machine {min(load):.1f} .. {max(load):.1f}; "
        f"not idle during {result['readings_not_idle']} of {result['readings']} readings",
        f"EMULATED: the link is that of a Tsi721, {slowdown} times slower, so rates are multiplied by {slowdown}; the "
        "link's rate is an input, what is lost of it is not",
        "lost: of what the adapter sends at most, 13.4 Gb/s, or receives from several clients, 14.8 Gb/s, both of "
        "[S1]; fair: Jain's index of the connections, 1 is equal",
        "again: segments that TCP sent again; drops: frames dropped by the devices, the link loses none; ms: how much "
        "longer a round trip takes than on the idle network, in real time",
        *(["simulated: rows 2b and 3 of docs/reproduction.md, in virtual time"] if result["simulated_gbit"] else []),
    ]
