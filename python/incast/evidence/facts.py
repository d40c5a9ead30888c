"""What a result directory says about where the time went: the evidence for a diagnosis.

From `result.json`, and where there are samples of the measured phase, from `samples.jsonl`, which has every counter of
every node for that phase alone. What was not measured is None.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from incast.engine.idle import Readiness, Window
from incast.evidence.result import Result, at, is_open_loop, number, setting, setting_number

# docs/formats.md
_HEAD_BYTES = 64  # of every write
_MFP_BYTES = 20  # of an MFP's header
_TABLE_BYTES = 3  # of an MFP, for each event
_ALIGN = 8  # of a fragment


@dataclass(frozen=True)
class NodeLoad:
    """What one node did in the measured phase. Shares are of the time of one core."""

    name: str
    seconds: float
    cpu: float  # share
    polling: float  # share, of it in vain
    sink: float  # share, of it in the sink
    sleeps: int
    sent_bytes_per_s: float  # to others, heads included
    received_bytes_per_s: float

    @property
    def useful(self) -> float:
        """Share of a core that did work."""
        return max(0.0, self.cpu - self.polling)


def node_loads(result: Result, samples: Iterable[Mapping[str, Any]]) -> list[NodeLoad]:
    """By node, from the samples of the measured phase; empty if none lies in it, or if nodes share a process."""
    sums: dict[int, dict[str, float]] = {}
    for sample in samples:
        if sample.get("phase") == "measuring":
            one = sums.setdefault(int(sample["node"]), {"seconds": 0.0})
            one["seconds"] += float(sample["interval_s"])
            for key, value in sample["delta"].items():
                one[key] = one.get(key, 0.0) + value
    overhead = _wire_per_payload(result)
    names = {node["node"]: str(node["roles"]) for node in result.get("nodes", ())}
    loads = []
    for number_, one in sorted(sums.items()):
        if one["seconds"] > 0:
            per_ns = 1e-9 / one["seconds"]
            cpu = one.get("cpu_ns", 0.0) * per_ns
            loads.append(
                NodeLoad(
                    name=names.get(number_, str(number_)),
                    seconds=one["seconds"],
                    cpu=cpu,
                    # Both are estimates.
                    polling=min(one.get("polling_cpu_ns", 0.0) * per_ns, cpu),
                    sink=min(one.get("sink_cpu_ns", 0.0) * per_ns, cpu),
                    sleeps=int(one.get("sleeps", 0)),
                    sent_bytes_per_s=_to_others(one, "sent") * overhead,
                    received_bytes_per_s=_to_others(one, "built") * overhead,
                )
            )
    return loads


def _to_others(sums: Mapping[str, float], key: str) -> float:
    """Fragment bytes per second without those of the node for itself."""
    return (sums.get(f"{key}_goodput_bytes", 0.0) - sums.get(f"{key}_self_bytes", 0.0)) / sums["seconds"]


def _wire_per_payload(result: Result) -> float:
    """Bytes on the way for each byte of fragments: head, tables and padding of the MFPs that there were."""
    totals = [node["totals"] for node in result.get("nodes", ()) if isinstance(node.get("totals"), Mapping)]
    payload, mfps, events, meps = (
        sum(one.get(key, 0) for one in totals)
        for key in ("sent_goodput_bytes", "mfps_sent", "events_built", "meps_built")
    )
    if not payload or not mfps or not meps:
        return 1.0
    each = events / meps
    fragment = setting_number(result, "source", "fragment_size")
    fixed = setting(result, "source", "size_distribution") in (None, "fixed") and fragment is not None
    padding = -(fragment or 0.0) % _ALIGN if fixed else (_ALIGN - 1) / 2
    return float(1 + (_HEAD_BYTES + _MFP_BYTES + (_TABLE_BYTES + padding) * each) * mfps / payload)


@dataclass(frozen=True)
class Facts:
    """What the rules of the diagnosis look at."""

    result: Result
    loads: tuple[NodeLoad, ...]
    virtual: bool
    seconds: float
    cores: float
    mean_latency_s: float | None  # of a MEP in the measured phase: service in closed loop, from the trigger in open
    readout_units: int
    builder_units: int
    window: Window | None  # what was seen of the machine in the measured phase

    @staticmethod
    def of(result: Result, samples: Iterable[Mapping[str, Any]] = (), window: Window | None = None) -> "Facts":
        """From the result, the lines of its samples, and what was seen of the machine meanwhile."""
        lines = list(samples)
        roles = [str(node.get("roles", "")) for node in result.get("nodes", ())]
        return Facts(
            result=result,
            loads=tuple(node_loads(result, lines)),
            virtual=result.get("time_domain") == "virtual",
            seconds=number(result, "window", "seconds") or 0.0,
            cores=number(result, "machine", "cores") or 1.0,
            mean_latency_s=_mean_latency(result, lines),
            readout_units=sum("RU" in role for role in roles),
            builder_units=sum("BU" in role for role in roles),
            window=None if window is None or not window.is_known else window,
        )

    @property
    def open_loop(self) -> bool:
        """Whether triggers came at a rate of their own."""
        return is_open_loop(self.result)

    @property
    def slots(self) -> float | None:
        """Slots of all builder units together."""
        each = number(self.result, "sizes", "credits")
        return None if each is None else each * self.builder_units

    @property
    def meps_per_s(self) -> float | None:
        """MEPs built by all."""
        meps = number(self.result, "window", "meps")
        return None if meps is None or self.seconds <= 0 else meps / self.seconds

    @property
    def in_flight(self) -> float | None:
        """MEPs on the way at a time, from assignment to commit: rate times mean time (Little). Closed loop alone."""
        if self.open_loop or self.meps_per_s is None or self.mean_latency_s is None:
            return None
        return self.meps_per_s * self.mean_latency_s

    @property
    def memory_meps(self) -> float | None:
        """MEPs that a readout unit keeps until they are built: as many can be on the way."""
        return number(self.result, "sizes", "memory_meps") or number(self.result, "sizes", "retention_meps")

    @property
    def small_windows(self) -> bool:
        """Whether parallel sends or requests are limited: then credits are in use because of that."""
        keys = ("parallel_sends", "parallel_requests", "outstanding_writes")
        return any(setting_number(self.result, "protocol", key) for key in keys)

    @property
    def readiness(self) -> list[Readiness]:
        """Shares of the measured time, of as many processes as have nodes, the readiest first; empty if not known.

        Of a process that had ended when the second look was taken nothing is known; CPU time shows that it is missing.
        """
        if self.window is None or sum(one.ran for one in self.window.processes) < 0.8 * self.window.cpu:
            return []
        shares = [_readiness(one, self.window.seconds) for one in self.window.processes]
        shares.sort(key=lambda share: share.ran + share.waited, reverse=True)
        return shares[: max(1, len(self.result.get("nodes", ())))]

    @property
    def others_share(self) -> float:
        """Of all cores, what others and the hypervisor took meanwhile; 0 where nobody looked."""
        if self.window is None:
            return 0.0
        return min(1.0, (self.window.others + self.window.steal) / (self.window.seconds * self.cores))

    @property
    def cpu_cores(self) -> float | None:
        """Cores that all nodes used for work in the mean; None where that is not known."""
        seconds, polling, used = (number(self.result, "cpu", key) for key in ("seconds", "polling_seconds", "cores"))
        if seconds and used is None and "cores" not in at(self.result, ("cpu",)) and self.seconds > 0:
            used = seconds / self.seconds  # of an older engine, which may have counted for longer than it measured
        if not seconds or used is None or used > self.cores:
            return None
        return used * max(0.0, 1 - (polling or 0.0) / seconds)

    @property
    def sink_share(self) -> float:
        """Of the CPU time that was work: that in the sink."""
        seconds, polling = (number(self.result, "cpu", key) or 0.0 for key in ("seconds", "polling_seconds"))
        sink = number(self.result, "cpu", "sink_seconds") or 0.0
        return min(1.0, sink / (seconds - polling)) if seconds > polling else 0.0

    @property
    def fullest_link(self) -> float | None:
        """Simulated networks: the share of its rate that the busiest direction of a cable carried."""
        return number(self.result, "network", "links", "utilisation_max")

    @property
    def under_way_bytes(self) -> float:
        """What may be on its way from or to a node: counted as sent, and not as received."""
        each, slot = number(self.result, "sizes", "credits"), number(self.result, "sizes", "slot_bytes")
        return (each or 0.0) * (slot or 0.0)

    def link_use(self, rate: float) -> dict[str, list[float]]:
        """Of the links of all nodes that moved something: the share of their rate that they carried.

        Nothing is known of those of a run that moved little more than may be under way at its ends.
        """
        use = {
            "sender link": [(load.sent_bytes_per_s, load.seconds) for load in self.loads],
            "receiver link": [(load.received_bytes_per_s, load.seconds) for load in self.loads],
        }
        return {
            name: [min(1.0, moved / rate) for moved, _ in loads if moved > 0]
            for name, loads in use.items()
            if max((moved * seconds for moved, seconds in loads), default=0.0) > 2 * self.under_way_bytes
        }

    def link_use_at_most(self, rate: float) -> float:
        """No link carried more than this share of its rate."""
        bounds = (
            (max(load.sent_bytes_per_s, load.received_bytes_per_s) + self.under_way_bytes / load.seconds) / rate
            for load in self.loads
        )
        return min(1.0, max(bounds, default=1.0))

    def link_rate(self) -> tuple[float, str] | None:
        """Bytes per second that a node can send, and receive, and who says so; None where nothing says it."""
        name = str(setting(self.result, "transport", "name"))
        if self.virtual:
            if setting(self.result, "transport", name, "fabric"):
                return None  # each host has its own; what the cables carried is in `network`
            rate = setting_number(self.result, "transport", name, "rate")
            says = f"transport.{name}.rate"
            return (rate, says) if rate else (100e9 / 8, f"{says}, its default")
        each = setting_number(self.result, "transport", name, "max_rate")
        if not each:
            return None
        streams = setting_number(self.result, "transport", name, "streams") or 1
        peers = max(1, max(self.readout_units, self.builder_units) - 1)
        return each * streams * peers, f"transport.{name}.max_rate of all connections of a node"


def _readiness(process: Readiness, seconds: float) -> Readiness:
    """Shares of the time between two looks, which were taken at several processes one after the other."""
    ran = min(1.0, process.ran / seconds)
    return Readiness(ran, min(1.0 - ran, process.waited / seconds))


def _mean_latency(result: Result, samples: Iterable[Mapping[str, Any]]) -> float | None:
    latency = result.get("latency_ns")
    if isinstance(latency, Mapping) and latency.get("reason"):
        return None  # clocks of hosts are too far apart
    delay = meps = 0.0
    for sample in samples:
        if sample.get("phase") == "measuring":
            delay += sample["delta"].get("delay_ns", 0)
            meps += sample["delta"].get("timed_meps", 0)
    if meps > 0:
        return delay * 1e-9 / meps
    if not number(result, "latency_ns", "count"):
        return None
    median = number(result, "latency_ns", "p50")
    return None if median is None else median * 1e-9


def read_samples(directory: Path) -> list[dict[str, Any]]:
    """The lines of `samples.jsonl`; those that a crash left torn are left out."""
    lines: list[dict[str, Any]] = []
    with suppress(OSError):
        for line in (directory / "samples.jsonl").read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                sample = json.loads(line)
                if isinstance(sample, dict) and isinstance(sample.get("delta"), dict):
                    lines.append(sample)
    return lines
