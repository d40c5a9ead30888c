"""Checks of what any measurement needs of a host: steady clocks, cores that are free, room for sockets."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from incast.base import extras
from incast.base.errors import OneLineError
from incast.doctor.host import ADVICE, FAULT, Finding, Host
from incast.engine.program import engine_info

_NET_ADMIN = 12  # include/uapi/linux/capability.h
_LOOK_S = 1.0
_BUSY = 0.05  # of all cores, as in docs/measuring.md
_FILES = 1024
_DATAGRAM_BUFFER = 8 << 20  # transport.udp.socket_buffer
_STREAM_BUFFER = 4 << 20
_CPUS = "sys/devices/system/cpu"
_SYSCTL_CONF = "/etc/sysctl.d/90-incast.conf"
_BIG_PAGES = "sys/kernel/mm/transparent_hugepage"


def has_capability(host: Host, number: int) -> bool:
    """Whether this process may do that."""
    line = re.search(r"^CapEff:\s*([0-9a-f]+)", host.text("proc/self/status") or "", re.MULTILINE)
    return line is not None and bool(int(line[1], 16) >> number & 1)


def limit(host: Host, name: str, *, hard: bool = False) -> int | None:
    """One of the limits of this shell; None: there is none."""
    line = re.search(rf"^{name}\s+(\S+)\s+(\S+)", host.text("proc/self/limits") or "", re.MULTILINE)
    return int(line[2 if hard else 1]) if line and line[2 if hard else 1].isdecimal() else None


def governors(host: Host) -> Iterator[Finding]:
    """Cores whose clock follows the load are slow for a while after each pause."""
    found: dict[str, int] = {}
    for cpu in host.names(_CPUS):
        name = host.text(f"{_CPUS}/{cpu}/cpufreq/scaling_governor")
        if name not in (None, "performance"):
            found[str(name)] = found.get(str(name), 0) + 1
    for name, count in sorted(found.items()):
        yield Finding(
            "governor", ADVICE, f"{count} cores", name, "performance", "cpupower frequency-set -g performance",
            "the clock of a core follows its load, late: rates and latencies depend on what was before",
        )  # fmt: skip


def busy_cores(host: Host) -> Iterator[Finding]:
    """What others take of the cores while one looks."""
    before, processes = _ticks(host), _process_ticks(host)
    if before is None:
        return
    host.pause(_LOOK_S)
    after = _ticks(host)
    if after is None or after[1] <= before[1]:
        return
    busy, whole = after[0] - before[0], after[1] - before[1]
    if busy <= _BUSY * whole:
        return
    now = _process_ticks(host)
    used = {pid: ticks - processes.get(pid, ("", ticks))[1] for pid, (_, ticks) in now.items()}
    most = max(used, key=lambda pid: used[pid], default="")
    named = f", most of it by {now[most][0]} (process {most})" if used.get(most) else ""
    yield Finding(
        "busy cores", ADVICE, "all cores", f"others take {100 * busy / whole:.0f} %{named}",
        f"below {100 * _BUSY:.0f} %", "ps -eo pcpu,pid,user,comm --sort=-pcpu | head shows them; end what need not run",
        "nodes wait for cores, and what is measured is the mixture",
    )  # fmt: skip


def _ticks(host: Host) -> tuple[int, int] | None:
    """Of all cores since the start: at work, and in all. Those of this process do not come to much."""
    line = re.search(r"^cpu +(.*)$", host.text("proc/stat") or "", re.MULTILINE)
    values = [int(word) for word in line[1].split()[:8]] if line else []
    if len(values) < 8:
        return None
    return sum(values) - values[3] - values[4], sum(values)


def _process_ticks(host: Host) -> dict[str, tuple[str, int]]:
    found = {}
    for pid in host.names("proc"):
        if pid.isdecimal() and (text := host.text(f"proc/{pid}/stat")):
            name, _, rest = text.partition("(")[2].rpartition(")")
            words = rest.split()
            if len(words) > 12:
                found[pid] = name, int(words[11]) + int(words[12])
    return found


def big_pages(host: Host) -> Iterator[Finding]:
    """Memory in pages of 2 MiB, where programs ask for it."""
    if "[never]" in (host.text(f"{_BIG_PAGES}/enabled") or ""):
        yield Finding(
            "huge pages", ADVICE, f"/{_BIG_PAGES}/enabled", "never", "madvise, or always",
            f"echo madvise > /{_BIG_PAGES}/enabled",
            "slots and packets lie in memory that is asked for in large pages; small ones cost time to find",
        )  # fmt: skip


def open_files(host: Host) -> Iterator[Finding]:
    """Each connection is one; the engine raises its own limit to the hard one."""
    most = limit(host, "Max open files", hard=True)
    if most is not None and most < _FILES:
        yield Finding(
            "nofile", FAULT, "this shell", f"at most {most} open files", f"at least {_FILES}",
            "echo '* - nofile 65536' > /etc/security/limits.d/incast.conf, then log in again; "
            "of a service: LimitNOFILE=65536",
            "each connection to a peer is an open file, and a run with too few ends before it begins",
        )  # fmt: skip


def socket_buffers(host: Host) -> Iterator[Finding]:
    """How much a socket may hold."""
    for side, which in (("rmem", "receive"), ("wmem", "send")):
        most = host.number(f"proc/sys/net/core/{side}_max")
        # Who administers the network may go beyond it, and does.
        if most is not None and most < _DATAGRAM_BUFFER and not has_capability(host, _NET_ADMIN):
            yield _buffer(
                f"net.core.{side}_max", most, _DATAGRAM_BUFFER,
                f"the {which} buffer of udp wants so much: bursts that do not fit are lost, and sent again",
            )  # fmt: skip
        words = (host.text(f"proc/sys/net/ipv4/tcp_{side}") or "").split()
        if len(words) == 3 and words[2].isdecimal() and int(words[2]) < _STREAM_BUFFER:
            yield _buffer(
                f"net.ipv4.tcp_{side}", int(words[2]), _STREAM_BUFFER,
                f"the {which} buffer of a connection grows to it: rate x round trip, on a fast network, is more",
                before=" ".join(words[:2]) + " ",
            )  # fmt: skip


def _buffer(name: str, value: int, wanted: int, reason: str, before: str = "") -> Finding:
    return Finding(
        "socket buffers", ADVICE, name, f"{value} bytes", f"at least {wanted}",
        f"sysctl -w {name}='{before}{wanted}'; for good: echo '{name} = {before}{wanted}' >> {_SYSCTL_CONF}", reason,
    )  # fmt: skip


def engine(host: Host) -> Iterator[Finding]:
    """Of this host; another one is asked (cluster.py)."""
    if not host.is_this:
        return
    try:
        info = engine_info()
    except OneLineError as error:
        yield from engine_findings({"error": str(error)}, "")
        return
    yield from engine_findings({"version": info["versions"]["incast"], **info}, str(info["versions"]["incast"]))


def engine_findings(said: Mapping[str, Any], version: str) -> Iterator[Finding]:
    """Of what an engine said of itself: `error`, or `version` and `transports`."""
    if "error" in said:
        yield Finding(
            "engine", FAULT, str(said.get("path") or "incast-node"), str(said["error"]), "an engine that starts",
            "incast run --deploy --hosts HOST copies it; libraries: apt-get install libfmt-dev libspdlog-dev libisal2",
            "every node is one",
        )  # fmt: skip
        return
    if said["version"] != version:
        yield Finding(
            "engine", FAULT, str(said.get("path")), f"version {said['version']}", f"version {version}, as here",
            "incast run --deploy --hosts HOST copies it", "nodes of two versions refuse each other",
        )  # fmt: skip
    for transport in said.get("transports", ()):
        reason = str(transport.get("reason") or "")
        if not transport.get("available") and (lacking := re.search(r"lib[\w+.-]+?\.so[.\d]*", reason)):
            yield Finding(
                "engine", ADVICE, f"transport {transport['name']}", f"no {lacking[0]}", "there",
                f"apt-file search {lacking[0]}; of verbs: apt-get install libibverbs1 librdmacm1, of ofi: libfabric1, "
                "of ucx: libucx0",
                "that transport needs it",
            )  # fmt: skip


def libraries(host: Host) -> Iterator[Finding]:
    """Extras of this Python: of another host nobody can say."""
    if not host.is_this:
        return
    lacking: dict[str, list[str]] = {}
    for library, extra in extras.EXTRA_OF.items():
        if not extras.is_here(library):
            lacking.setdefault(extra, []).append(library)
    for extra, names in lacking.items():
        yield Finding(
            "libraries", ADVICE, "this Python", f"no {', no '.join(names)}", f"the extra {extra}",
            f"pip install 'incast[{extra}]'", f"needed for {extras.USED_FOR[extra]}",
        )  # fmt: skip
