"""Many hosts: each looked at as this one, and what lies between them: ports that answer, clocks, packet sizes."""

import base64
import binascii
import json
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from incast.base.patience import Patience
from incast.doctor import probe
from incast.doctor.checks import findings
from incast.doctor.host import ADVICE, FAULT, Finding, Host
from incast.doctor.system import engine_findings
from incast.hosts.commands import Commands, Ended, Job, Said
from incast.hosts.engines import shell

# Of hosts together, in this order; those of each host are in checks.py.
TOGETHER = ("ssh", "engine", "firewall", "clocks", "network MTU")
_ANSWER_S = 60.0
_TRIED = 3  # ports of a range
_CLOCK_S = 0.1
_RUN = 'exec python3 -c "$@"'


@dataclass
class Answer:
    """What a host said; `whole`: as the probe gives it."""

    whole: dict[str, Any] | None = None
    lines: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    ended: bool = False

    def take(self, text: str) -> None:
        """A line."""
        word, _, rest = text.partition(" ")
        if word == "part":
            self.parts.append(rest)
        elif word == "whole":
            try:
                self.whole = json.loads(zlib.decompress(base64.b64decode("".join(self.parts))))
            except (ValueError, binascii.Error, zlib.error) as error:
                self.lines.append(f"an answer that cannot be read: {error}")
        elif text.strip():
            self.lines.append(text.strip())


def _gather(commands: Commands, answers: Mapping[str, Answer]) -> None:
    """Until all have said something whole, or ended."""
    patience = Patience(_ANSWER_S)
    while not commands.closed and not patience.is_over():
        if all(each.whole is not None or each.ended for each in answers.values()):
            return
        for news in commands.news(0.2):
            match news:
                case Said(label, text) if label in answers:
                    answers[label].take(text)
                case Ended(label, _) if label in answers:
                    answers[label].ended = True
                case _:
                    pass


def _ports(wanted: tuple[int, int] | None) -> list[int]:
    """Of a range the first, the last and the middle one."""
    return [] if wanted is None else sorted({wanted[0], sum(wanted) // 2, wanted[1]})[:_TRIED]


def look_at(
    hosts: Sequence[str], ssh: str, *, ports: tuple[int, int] | None, places: Sequence[str], version: str
) -> list[Finding]:
    """Of all of them. `ports`: those of the data; `places`: where the engine may be; `version`: what it should be."""
    script = Path(probe.__file__).read_text(encoding="utf-8")
    listening = {host: Answer() for host in hosts}
    jobs = [Job(host, host, shell(_RUN, script, "listen", json.dumps(_ports(ports))), holds=True) for host in hosts]
    listeners = Commands(jobs, ssh)
    looking: dict[str, Answer] = {}
    try:
        _gather(listeners, listening)
        there = {host: each.whole for host, each in listening.items() if each.whole is not None}
        jobs = []
        for host, said in there.items():
            targets = [(other, its["address"], its["ports"]) for other, its in there.items() if other != host]
            words = (script, "look", said["address"], json.dumps(list(places)), json.dumps(targets))
            jobs.append(Job(host, host, shell(_RUN, *words)))
        looking = {host: Answer() for host in there}
        if jobs:
            lookers = Commands(jobs, ssh)
            try:
                _gather(lookers, looking)
            finally:
                lookers.kill()
    finally:
        listeners.kill()
    seen = {host: each.whole for host, each in looking.items() if each.whole is not None}
    silent = {host: looking[host] if host in looking else listening[host] for host in hosts if host not in seen}
    found = list(_silent(silent))
    for host, each in seen.items():
        found += [replace(one, host=host) for one in engine_findings(each["engine"], version)]
        found += [replace(one, host=host) for one in _of_one(each)]
    return [*found, *between(seen, there, ports)]


def _silent(answers: Mapping[str, Answer]) -> Iterator[Finding]:
    for host, answer in answers.items():
        said = answer.lines[-1] if answer.lines else f"no answer within {_ANSWER_S:.0f} s"
        if "python3" in said and "not found" in said:
            right, command = "a python3, to look at that host", "apt-get install python3-minimal"
        else:
            right, command = (
                "a login by ssh that asks for no password",
                f"ssh-copy-id {host}; look with: ssh -v {host} true",
            )
        yield Finding(
            "ssh", FAULT, "login", said, right, command, "nodes are started, and this host looks, through it", host
        )  # fmt: skip


def _of_one(said: Mapping[str, Any]) -> list[Finding]:
    """As if this were that host."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        moments = iter(said["moments"])

        def write(files: Mapping[str, str]) -> None:
            for name, text in files.items():
                path = root / name.lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")

        def next_moment(_: float = 0.0) -> None:
            write(next(moments, {}))

        write(said["files"])
        write(dict.fromkeys(said["names"], ""))
        next_moment()
        return findings(Host(root, pause=next_moment))


def between(
    seen: Mapping[str, Mapping[str, Any]], there: Mapping[str, Mapping[str, Any]], ports: tuple[int, int] | None
) -> Iterator[Finding]:
    """What no host shows alone."""
    yield from _firewalls(seen, there, ports)
    yield from _clocks(seen)
    yield from _mtus(seen)


def _firewalls(
    seen: Mapping[str, Mapping[str, Any]], there: Mapping[str, Mapping[str, Any]], ports: tuple[int, int] | None
) -> Iterator[Finding]:
    for host, said in seen.items():
        shut: dict[tuple[str, str, str], list[int]] = {}
        for other, kind, port, why, _, _ in said["reached"]:
            if why:
                shut.setdefault((other, kind, why), []).append(port)
        for (other, kind, why), numbers in shut.items():
            span = "32768-60999" if ports is None else f"{ports[0]}-{ports[1]}"
            source = there[host]["address"]
            family = "ip6" if ":" in source else "ip"
            yield Finding(
                "firewall", FAULT, f"{kind} from {host}, ports {', '.join(map(str, numbers))}", why, "an answer",
                f"nft insert rule inet filter input {family} saddr {source} {kind} dport {span} accept; "
                f"of firewalld: firewall-cmd --add-port={span}/{kind}",
                "nodes connect to each other on these; the host's rules, or something on the way, keep them off",
                other,
            )  # fmt: skip


def _clocks(seen: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Against the first host: which of two is right nobody can say."""
    first = next(iter(seen), None)
    if first is None:
        return
    best: dict[str, tuple[float, float]] = {}
    for host, said in seen.items():
        for other, _, _, why, ahead_s, sure_s in said["reached"]:
            if why or first not in (host, other):
                continue
            name, ahead = (other, ahead_s) if host == first else (host, -ahead_s)
            if name not in best or sure_s < best[name][1]:
                best[name] = ahead, sure_s
    for host, (ahead_s, sure_s) in best.items():
        if abs(ahead_s) > _CLOCK_S + sure_s:
            where = "ahead of" if ahead_s > 0 else "behind"
            yield Finding(
                "clocks", ADVICE, "clock", f"{abs(ahead_s):.3g} s {where} {first}", f"within {_CLOCK_S:g} s",
                "systemctl enable --now chronyd; at once: chronyc makestep",
                "times in logs and results of two hosts do not fit together", host,
            )  # fmt: skip


def _mtus(seen: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    sizes = {}
    for host, said in seen.items():
        text = said["files"].get(f"/sys/class/net/{said['interface']}/mtu", "")
        if said["interface"] and text.isdecimal():
            sizes[host] = int(text)
    if len(set(sizes.values())) < 2:
        return
    counts = Counter(sizes.values())
    right = max(counts, key=lambda size: (counts[size], size))
    for host, size in sizes.items():
        if size != right:
            name = seen[host]["interface"]
            yield Finding(
                "network MTU", FAULT, f"interface {name}", f"MTU {size}", f"{right}, as on the other hosts",
                f"ip link set {name} mtu {right}",
                "packets that one end sends are too large for the other: they are dropped, and connections stand still",
                host,
            )  # fmt: skip
