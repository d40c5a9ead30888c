"""RDMA devices, their ports and their addresses (GIDs), from /sys/class/infiniband."""

from dataclasses import dataclass

from incast.doctor.host import Host

DEVICES = "sys/class/infiniband"
ROCE_V2 = "RoCE v2"
_EMPTY_GID = {"", "0000:0000:0000:0000:0000:0000:0000:0000", "fe80:0000:0000:0000:0000:0000:0000:0000"}


@dataclass(frozen=True)
class Gid:
    """One address of a port."""

    index: int
    kind: str  # IB/RoCE v1, RoCE v2
    gid: str

    @property
    def ipv4(self) -> str | None:
        """Where the address is one of IPv4, mapped."""
        words = self.gid.split(":")
        if len(words) != 8 or any(int(word, 16) for word in words[:5]) or words[5] != "ffff":
            return None
        high, low = int(words[6], 16), int(words[7], 16)
        return f"{high >> 8}.{high & 255}.{low >> 8}.{low & 255}"

    @property
    def local(self) -> bool:
        """Of the link alone: made of the hardware's address."""
        return self.gid.startswith("fe80:")


@dataclass(frozen=True)
class Port:
    """One port of a device."""

    device: str
    number: int
    link: str  # Ethernet, InfiniBand
    state: str  # DOWN, INIT, ARMED, ACTIVE
    physical: str  # Polling, Disabled, LinkUp ...
    rate: str
    netdev: str | None
    gids: tuple[Gid, ...]
    software: bool  # soft-RoCE or soft-iWARP: no adapter of its own
    iwarp: bool

    @property
    def name(self) -> str:
        """As people write it."""
        return f"{self.device} port {self.number}"

    @property
    def roce(self) -> bool:
        """Packets of InfiniBand over Ethernet."""
        return self.link == "Ethernet" and not self.iwarp

    @property
    def routable(self) -> Gid | None:
        """The RoCE v2 address to use: of IPv4 first, then any that is not of the link alone."""
        usable = [gid for gid in self.gids if gid.kind == ROCE_V2 and not gid.local]
        usable.sort(key=lambda gid: (gid.ipv4 is None, gid.index))
        return usable[0] if usable else None


def ports(host: Host) -> list[Port]:
    """Of all devices."""
    return [
        _port(host, device, number)
        for device in host.names(DEVICES)
        for number in sorted(int(name) for name in host.names(f"{DEVICES}/{device}/ports") if name.isdecimal())
    ]


def _port(host: Host, device: str, number: int) -> Port:
    folder = f"{DEVICES}/{device}/ports/{number}"

    def word(name: str) -> str:
        return (host.text(f"{folder}/{name}") or "").rpartition(":")[2].strip()

    gids = []
    for name in host.names(f"{folder}/gids"):
        gid = host.text(f"{folder}/gids/{name}") or ""
        if name.isdecimal() and gid not in _EMPTY_GID:
            gids.append(Gid(int(name), host.text(f"{folder}/gid_attrs/types/{name}") or "", gid))
    gids.sort(key=lambda gid: gid.index)
    under = host.names(f"{DEVICES}/{device}/device/net")
    netdev = host.text(f"{folder}/gid_attrs/ndevs/0") or host.text(f"{DEVICES}/{device}/parent")
    return Port(
        device,
        number,
        host.text(f"{folder}/link_layer") or "InfiniBand",
        word("state"),
        word("phys_state"),
        host.text(f"{folder}/rate") or "",
        netdev or (under[number - 1] if 0 < number <= len(under) else None),
        tuple(gids),
        host.exists(f"{DEVICES}/{device}/parent") or not host.exists(f"{DEVICES}/{device}/device"),
        "RNIC" in (host.text(f"{DEVICES}/{device}/node_type") or ""),
    )
