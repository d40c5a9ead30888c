"""Checks of what this shell may use of its host: cores, memory, and the way out of its interfaces."""

import posixpath
import re
from collections.abc import Iterator

from incast.doctor.host import ADVICE, FAULT, Finding, Host
from incast.doctor.system import limit

_CPUS = "sys/devices/system/cpu"
_GROUPS = "sys/fs/cgroup"
_MEMORY = 4 << 30
_SHAPING = ("tbf", "netem", "htb", "hfsc", "cbq", "cake", "plug")


def _cores(text: str | None) -> set[int]:
    """Of a list such as 0-3,8."""
    spans = re.findall(r"(\d+)(?:-(\d+))?", text or "")
    return {core for first, last in spans for core in range(int(first), int(last or first) + 1)}


def cores(host: Host) -> Iterator[Finding]:
    """Fewer than the host has: by affinity, a cpuset, or a quota."""
    line = re.search(r"^Cpus_allowed_list:\s*(\S+)", host.text("proc/self/status") or "", re.MULTILINE)
    online = _cores(host.text(f"{_CPUS}/online"))
    allowed = _cores(line[1]) & online if line else online
    # Nobody's by the host's own will.
    lacking = online - allowed - _cores(host.text(f"{_CPUS}/isolated"))
    if allowed and lacking:
        yield Finding(
            "cores", ADVICE, "this shell", f"{len(allowed)} of {len(online)} cores may be used", f"{len(online)}",
            "taskset -cp 0-$(($(nproc --all)-1)) $$; of a service: CPUAffinity=, AllowedCPUs=; of Slurm: --exclusive",
            "nodes share the cores that they may use, and wait for each other",
        )  # fmt: skip
    share = min(_quotas(host), default=None)
    if share is not None and allowed and share[0] < len(allowed):
        number, file = share
        yield Finding(
            "cores", FAULT, f"quota of /{posixpath.dirname(file)}", f"{number:.3g} cores' worth of time",
            f"none, or {len(allowed)}",
            f"echo {'max' if file.endswith('max') else -1} > /{file}; of a service: CPUQuota=; of a container: --cpus",
            "when it is used up, all nodes stand still until the next period: tens of milliseconds",
        )  # fmt: skip


def _quotas(host: Host) -> Iterator[tuple[float, str]]:
    """In cores, and the file that says so: of the own control group and of all above it."""
    for entry in (host.text("proc/self/cgroup") or "").splitlines():
        _, _, rest = entry.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds and "cpu" not in kinds.split(","):
            continue
        path = path.strip("/")
        while True:
            folder = posixpath.join(_GROUPS, kinds, path).rstrip("/")
            if kinds:
                file = f"{folder}/cpu.cfs_quota_us"
                words = [host.text(file) or "", host.text(f"{folder}/cpu.cfs_period_us") or ""]
            else:
                file = f"{folder}/cpu.max"
                words = (host.text(file) or "").split()
            if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
                yield int(words[0]) / int(words[1]), file
            if not path:
                break
            path = posixpath.dirname(path)


def memory(host: Host) -> Iterator[Finding]:
    """Of each process."""
    most = limit(host, "Max address space")
    if most is not None and most < _MEMORY:
        yield Finding(
            "memory", ADVICE, "this shell", f"{most} bytes of address space for each process",
            f"at least {_MEMORY}, or no limit", "ulimit -v unlimited; for good: /etc/security/limits.conf, item as",
            "regions of all peers lie in the address space of a node, used or not",
        )  # fmt: skip


def shaping(host: Host) -> Iterator[Finding]:
    """A queue that slows down, delays or loses what leaves by an interface."""
    for line in (host.said(("tc", "qdisc", "show")) or "").splitlines():
        found = re.match(r"qdisc (\w+) \S+ dev (\S+) root (?:refcnt \d+ )?(.*)", line)
        if found and found[1] in _SHAPING:
            yield Finding(
                "shaping", ADVICE, f"interface {found[2]}", f"{found[1]} {found[3]}".strip(), "no such queue, or fq",
                f"tc qdisc del dev {found[2]} root", "it sets the rate or delay that is measured, and not the network",
            )  # fmt: skip
