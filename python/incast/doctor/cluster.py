"""Many hosts: each looked at as this one, and what lies between them: ports that answer, clocks, packet sizes."""

import base64
import binascii
import json
import secrets
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from incast.base.patience import Patience
from incast.doctor import probe, ways
from incast.doctor.checks import findings
from incast.doctor.host import ADVICE, FAULT, Finding, Host
from incast.doctor.system import engine_findings
from incast.hosts.commands import Commands, Ended, Job, Said
from incast.hosts.engines import shell

# Of hosts together, in this order; those of each host are in checks.py.
TOGETHER = ("ssh", "ports", "addresses", "firewall", "clocks", "network MTU", "large packets", "loss")
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
    word = secrets.token_hex(8)
    listening = {host: Answer() for host in hosts}
    told = shell(_RUN, script, "listen", word, json.dumps(_ports(ports)))
    jobs = [Job(host, host, told, holds=True) for host in hosts]
    listeners = Commands(jobs, ssh)
    looking: dict[str, Answer] = {}
    try:
        _gather(listeners, listening)
        there = {host: each.whole for host, each in listening.items() if each.whole is not None}
        jobs = []
        for host, said in there.items():
            at = list(there).index(host)  # those that come next first
            targets = [
                (other, there[other]["address"], there[other]["ports"])
                for other in [*list(there)[at + 1 :], *list(there)[:at]]
            ]
            words = (script, "look", word, said["address"], json.dumps(list(places)), json.dumps(targets))
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
    found += _taken(there, _ports(ports))
    for host, each in seen.items():
        for one in engine_findings(each["engine"], version):
            found.append(replace(one, host=host, command=one.command.replace("HOST", host)))
        found += [replace(one, host=host) for one in _of_one(each)]
    return [*found, *between(seen, there, ports)]


# What ssh says, what would be right, and what helps.
_SSH = (
    ("python3", "a python3, to look at that host", "apt-get install python3-minimal"),
    ("resolve hostname", "a name that this host knows",
     "getent hosts {host} shows whether; a line of /etc/hosts: ADDRESS {host}"),
    ("Host key verification", "the host key of ~/.ssh/known_hosts",
     "if the host was set up again: ssh-keygen -R {host}; ssh {host} true"),
    ("Permission denied", "a login by ssh that asks for no password",
     "ssh-copy-id {host}; look with: ssh -v {host} true"),
    ("refused", "an sshd that listens", "there: systemctl enable --now ssh"),
    ("timed out", "an sshd that answers", "ping {host} shows whether the host does; there: systemctl status ssh"),
    ("No route", "a way to that host", "ip route get {host}; ping {host}"),
)  # fmt: skip
_SSH_ELSE = "", "a login by ssh that asks for no password", "look with: ssh -v {host} true"


def _silent(answers: Mapping[str, Answer]) -> Iterator[Finding]:
    for host, answer in answers.items():
        said = answer.lines[-1] if answer.lines else f"no answer within {_ANSWER_S:.0f} s"
        _, right, command = next((each for each in _SSH if each[0] in said), _SSH_ELSE)
        yield Finding(
            "ssh", FAULT, "login", said, right, command.format(host=host),
            "nodes are started, and this host looks, through it", host,
        )  # fmt: skip


def _taken(there: Mapping[str, Mapping[str, Any]], wanted: Sequence[int]) -> Iterator[Finding]:
    """Ports that the host itself could not listen at."""
    for host, said in there.items():
        opened = {(kind, port) for kind, port in said["ports"]}
        for kind in probe.KINDS:
            if numbers := [str(port) for port in wanted if (kind, port) not in opened]:
                yield Finding(
                    "ports", FAULT, f"{kind}, ports {', '.join(numbers)}", "others have them, or they may not be used",
                    "free ports", f"ss -ln{kind[0]}p 'sport = :{numbers[0]}' shows by whom; or other --ports",
                    "each node listens at one of these", host,
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
    twice = list(ways.addresses(seen, there))
    yield from twice
    if not twice:
        yield from _firewalls(seen, there, ports)
    yield from _clocks(seen)
    sizes = list(_mtus(seen))
    yield from sizes
    if not twice:
        yield from ways.large_packets(seen, there, {each.host for each in sizes})


def _firewalls(
    seen: Mapping[str, Mapping[str, Any]], there: Mapping[str, Mapping[str, Any]], ports: tuple[int, int] | None
) -> Iterator[Finding]:
    span = "32768-60999" if ports is None else f"{ports[0]}-{ports[1]}"
    whole = {}
    for kind in probe.KINDS:
        asked = [
            ((host, each[0]), each[3]) for host, said in seen.items() for each in said["reached"] if each[1] == kind
        ]
        tried = {pair for pair, _ in asked}
        answered = {pair for pair, why in asked if not why}
        if one := ways.culprit(tried - answered, tried):
            whole[kind] = one
            yield Finding(
                "firewall", FAULT, f"{kind} to and from all others",
                ", ".join(sorted({why for pair, why in asked if one in pair and why})), "an answer",
                f"nft insert rule inet filter input {kind} dport {span} accept; "
                f"of firewalld: firewall-cmd --add-port={span}/{kind}; also what it sends: nft list ruleset",
                "nodes connect to each other on these; the host's rules, or something before it, keep them off", one,
            )  # fmt: skip
    for host, said in seen.items():
        shut: dict[tuple[str, str, str], list[int]] = {}
        for other, kind, port, why, _, _ in said["reached"]:
            if why and whole.get(kind) not in (host, other):
                shut.setdefault((other, kind, why), []).append(port)
        for (other, kind, why), numbers in shut.items():
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
