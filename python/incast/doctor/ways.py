"""Ways between hosts, from what each host saw of the others: addresses that two have, packets that get lost."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from incast.doctor.host import ADVICE, FAULT, Finding

_LOST = 2  # of 60: one may be chance
Said = Mapping[str, Any]


def culprit(bad: Collection[tuple[str, str]], tried: Collection[tuple[str, str]]) -> str | None:
    """The one host that all of these ways begin or end at, if it is so with all of its ways, to two others at least."""
    common = set.intersection(*map(set, bad)) if bad else set()
    others = {host for pair in bad for host in pair} - common
    if len(common) != 1 or len(others) < 2:
        return None
    (host,) = common
    return host if all(pair in bad for pair in tried if host in pair) else None


def own_addresses(files: Mapping[str, str]) -> set[str]:
    """All of a host, but for those of no other host's concern."""
    four = re.findall(r"\|-- (\S+)\s+/32 host LOCAL", files.get("/proc/net/fib_trie", ""))
    six = {line.split()[0] for line in files.get("/proc/net/if_inet6", "").splitlines() if line.strip()}
    return {each for each in four if not each.startswith("127.")} | {
        ":".join(each[at : at + 4] for at in range(0, 32, 4)) for each in six if int(each, 16) != 1
    }


def addresses(seen: Mapping[str, Said], there: Mapping[str, Said]) -> Iterator[Finding]:
    """Addresses at which a host is reached, and that another one has, too."""
    own = {host: own_addresses(said["files"]) for host, said in seen.items()}
    for host in seen:
        address = there.get(host, {}).get("address")
        for other, its in own.items():
            # One host under two names has the same addresses altogether.
            if other != host and address in its and its != own[host]:
                yield Finding(
                    "addresses", FAULT, address, f"{host} has it as well", "an address of one host",
                    f"ip address del {address}/BITS dev DEVICE (ip -br address shows both)",
                    "packets go to either of the two, as neighbours have learnt it", other,
                )  # fmt: skip


def large_packets(seen: Mapping[str, Said], there: Mapping[str, Said], known: Collection[str]) -> Iterator[Finding]:
    """Small ones get through. `known`: hosts whose own MTU was found to be another one."""
    pairs = {
        (host, other): tried
        for host, said in seen.items()
        for other, tried in said.get("large", {}).items()
        if tried is not None and not {host, other} & set(known)
    }
    silent = {pair: tried for pair, tried in pairs.items() if tried[1] and not tried[2]}
    lossy = {pair: tried for pair, tried in pairs.items() if tried[2] and tried[1] - tried[2] >= _LOST}
    yield from _small_routes(seen, there, pairs)
    for (host, other, where), (mtu, _, _) in _of_one(silent, pairs):
        address = there[other]["address"]
        yield Finding(
            "large packets", FAULT, where, f"packets of {mtu} B get lost, small ones do not", f"{mtu} B there and back",
            f"MTU of switches between, and firewalls by size: tracepath -n {address}; "
            f"until then: ip route replace {address} dev {seen[host]['interface']} mtu 1280",
            "connections are made, and stand still at the first large packet", host,
        )  # fmt: skip
    for (host, other, where), (mtu, sent, came) in _of_one(lossy, pairs):
        yield Finding(
            "loss", ADVICE, where, f"{sent - came} of {sent} packets of {mtu} B did not come back", "none, or one",
            f"on {host} and {other}: ip -s link; nstat -az '*Drop*' '*Err*'; nft list ruleset; of cables: ethtool -S",
            "each is sent again after a wait: that is measured, and not the network", host,
        )  # fmt: skip


def _of_one(
    bad: Mapping[tuple[str, str], Sequence[int]], tried: Collection[tuple[str, str]]
) -> Iterator[tuple[tuple[str, str, str], Sequence[int]]]:
    """Host, another one, and in words which way it is: all ways of one host are one."""
    if (one := culprit(bad, tried)) is not None:
        (host, other), said = max(bad.items(), key=lambda each: each[1][1] - each[1][2])
        yield (one, other if host == one else host, "udp to and from all others"), said
        return
    for (host, other), said in bad.items():
        yield (host, other, f"udp to {other}"), said


def _small_routes(
    seen: Mapping[str, Said], there: Mapping[str, Said], pairs: Mapping[tuple[str, str], Sequence[int]]
) -> Iterator[Finding]:
    for (host, other), (mtu, _, _) in pairs.items():
        own = seen[host]["files"].get(f"/sys/class/net/{seen[host]['interface']}/mtu", "")
        if own.isdecimal() and mtu < int(own):
            address = there[other]["address"]
            yield Finding(
                "large packets", ADVICE, f"way to {other}", f"MTU {mtu}", f"{own}, as of {seen[host]['interface']}",
                f"ip route get {address} shows the route: ip route replace it without its mtu; "
                "if a router said so: ip route flush cache, and that router's MTU",
                "smaller packets cost more of the cores, and large datagrams are cut", host,
            )  # fmt: skip
