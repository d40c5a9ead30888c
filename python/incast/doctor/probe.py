"""Runs on another host as `python3 -c THIS WORDS`, with nothing but that host's own Python (3.7 or later).

`listen WORD PORTS`: tells the time on those ports (empty: two free ones), over tcp and udp, until standard input ends:
at the address by which ssh reached this host, to who says the word.
`look WORD ADDRESS ENGINES TARGETS`: what files say, what the engine says of itself, and which targets answer.
What is found is JSON, compressed, in lines that are short enough to pass.
"""

# ruff: noqa: B905, PTH118, PTH120, PTH123, PTH207

import base64
import fcntl
import glob
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

PATIENCE_S = 3.0
TRIES = 3
LIFETIME_S = 120.0
KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}
SIOCGIFADDR = 0x8915
# What socket has no names for; numbers of IPv4 and IPv6.
MTU_DISCOVER, MTU = {False: 10, True: 23}, {False: 14, True: 24}
ALWAYS_WHOLE = 3  # IP_PMTUDISC_PROBE: never in fragments, whatever is known of the way
HEADERS = {False: 28, True: 48}  # with that of UDP
LARGEST = 9216
LARGE_HOSTS = 8  # of many hosts, those that come next
LARGE_TRIES, LARGE_AT_ONCE, GROUP_S = 60, 4, 0.3
STEADY = [
    "/proc/self/limits", "/proc/self/status", "/proc/self/cgroup", "/proc/net/fib_trie", "/proc/net/if_inet6",
    "/sys/devices/system/cpu/online", "/sys/devices/system/cpu/isolated",
    "/proc/sys/net/core/*mem_max", "/proc/sys/net/ipv4/tcp_[rw]mem",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/class/net/*/mtu", "/sys/class/net/*/flags", "/sys/class/net/*/ecn/*/enable/*",
    "/sys/class/infiniband/*/node_type", "/sys/class/infiniband/*/parent", "/sys/class/infiniband/*/ports/*/state",
    "/sys/class/infiniband/*/ports/*/phys_state", "/sys/class/infiniband/*/ports/*/link_layer",
    "/sys/class/infiniband/*/ports/*/rate", "/sys/class/infiniband/*/ports/*/gids/*",
    "/sys/class/infiniband/*/ports/*/gid_attrs/*/*", "/sys/class/infiniband_verbs/*/ibdev",
    "/sys/bus/pci/devices/*/class", "/sys/bus/pci/devices/*/vendor",
    "/sys/kernel/config/rdma_cm/*/ports/*/default_roce_mode",
]  # fmt: skip
MOVING = [
    "/proc/stat", "/proc/[0-9]*/stat", "/sys/class/net/*/statistics/*", "/sys/class/infiniband/*/ports/*/counters/*",
    "/sys/class/infiniband/*/ports/*/hw_counters/*",
]  # fmt: skip
# Whether they are there is all.
NAMES = ["/dev/infiniband/*", "/sys/class/infiniband/*/device/net/*", "/sys/bus/pci/devices/*/infiniband/*"]


def say(found: object) -> None:
    """In lines."""
    packed = base64.b64encode(zlib.compress(json.dumps(found).encode())).decode()
    for at in range(0, len(packed), 1500):
        print("part " + packed[at : at + 1500])
    print("whole", flush=True)


def read(patterns: "list[str]") -> "dict[str, str]":
    """Files by name."""
    found = {}
    for pattern in patterns:
        for path in glob.glob(pattern):
            try:
                with open(path, "rb") as file:
                    found[path] = file.read(65536).decode("utf-8", "replace").strip()
            except OSError:
                pass
    return found


def own_address() -> str:
    """By which ssh reached this host."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    return words[2] if len(words) == 4 else "127.0.0.1"


def interface_of(address: str) -> str:
    """Its name; empty: none has it."""
    try:
        if ":" in address:
            wanted = socket.inet_pton(socket.AF_INET6, address.partition("%")[0]).hex()
            with open("/proc/net/if_inet6") as file:
                return next((line.split()[5] for line in file if line.startswith(wanted)), "")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            for _, name in socket.if_nameindex():
                try:
                    said = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                except OSError:
                    continue
                if socket.inet_ntoa(said[20:24]) == address:
                    return name
    except OSError:
        pass
    return ""


def bound(kind: int, address: str, port: int) -> "socket.socket | None":
    """A socket at that address alone."""
    try:
        family, _, _, _, where = socket.getaddrinfo(address, port, type=kind, flags=socket.AI_NUMERICHOST)[0]
        made = socket.socket(family, kind)
    except OSError:
        return None
    try:
        if kind == socket.SOCK_STREAM:  # the last look's connections may not be forgotten yet
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        if kind == socket.SOCK_STREAM:
            made.listen(64)
        return made
    except OSError:
        made.close()
    return None


def answer(here: socket.socket, kind: str, word: bytes) -> None:
    """Who says the word is told the time, others nothing."""
    try:
        if KINDS[kind] == socket.SOCK_STREAM:
            peer, _ = here.accept()
            with peer:
                peer.settimeout(1.0)
                if peer.recv(len(word)) == word:
                    peer.sendall(repr(time.time()).encode())
        else:
            asked, address = here.recvfrom(65536)
            if asked.startswith(word):
                # What is longer comes back as it is.
                here.sendto(repr(time.time()).encode() if len(asked) <= 64 else asked, address)
    except OSError:
        pass


def listen(word: bytes, ports: "list[int]") -> None:
    """Until nobody holds on."""
    opened = {}  # type: dict[socket.socket, str]
    own = own_address()
    for name, kind in KINDS.items():
        for port in ports or (0, 0):
            made = bound(kind, own, port)
            if made is not None:
                opened[made] = name
    say({"address": own, "ports": [[name, made.getsockname()[1]] for made, name in opened.items()]})
    end = time.monotonic() + LIFETIME_S
    while time.monotonic() < end:
        ready = select.select([0, *(each.fileno() for each in opened)], [], [], 1.0)[0]
        if 0 in ready and not os.read(0, 4096):
            return
        for each, name in opened.items():
            if each.fileno() in ready:
                answer(each, name, word)


def ask(word: bytes, kind: str, address: str, port: int) -> "tuple[str, float | None, float | None]":
    """What comes of it: an error in words, or nothing; by how much the other clock is ahead; how sure that is."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, KINDS[kind]) as made:
        made.settimeout(PATIENCE_S)
        try:
            made.connect((address, port))
        except socket.timeout:  # noqa: UP041
            return f"no answer within {PATIENCE_S:g} s", None, None
        except OSError as error:
            return error.strerror or str(error), None, None
        for _ in range(TRIES):
            try:
                began = time.time()
                made.send(word)
                said = made.recv(64)
                ended = time.time()
                return "", float(said) - (began + ended) / 2, (ended - began) / 2
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or f"no answer within {TRIES * PATIENCE_S:g} s"
    # A connection is made by the kernel: a slow answer is none of a firewall.
    return ("" if KINDS[kind] == socket.SOCK_STREAM else why), None, None


def ask_large(word: bytes, address: str, port: int) -> "tuple[int, int, int] | None":
    """The MTU that this host knows of the way there; how many packets of that size were sent; how many came back."""
    six = ":" in address
    level = socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP
    with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as made:
        try:
            made.connect((address, port))
            mtu = made.getsockopt(level, MTU[six])
            made.setsockopt(level, MTU_DISCOVER[six], ALWAYS_WHOLE)
        except OSError:
            return None
        size = min(mtu, LARGEST) - HEADERS[six]
        came = set()  # type: set[bytes]

        def collect(wanted: int, patience_s: float) -> None:
            end = time.monotonic() + patience_s
            while len(came) < wanted and select.select([made], [], [], max(0.0, end - time.monotonic()))[0]:
                try:
                    came.add(made.recv(65536)[: len(word) + 8])
                except OSError:
                    return

        sent = 0
        while sent < LARGE_TRIES and (came or sent < 2 * LARGE_AT_ONCE):
            before = len(came)
            for _ in range(LARGE_AT_ONCE):
                try:
                    made.send((word + struct.pack("!Q", sent)).ljust(size, b"-"))
                except OSError:
                    return mtu, 0, 0
                sent += 1
            collect(before + LARGE_AT_ONCE, GROUP_S)
        collect(sent, PATIENCE_S)
        return mtu, sent, len(came)


def control_groups() -> "list[str]":
    """Files that say what this process may use of cores, of its own group and of those above it."""
    found = []
    try:
        with open("/proc/self/cgroup") as file:
            lines = [line.strip().split(":", 2) for line in file]
    except OSError:
        return []
    for _, kinds, own in (line for line in lines if len(line) == 3):
        names = ["cpu.max"] if not kinds else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        if kinds and "cpu" not in kinds.split(","):
            continue
        path = own
        while True:
            found += [os.path.join("/sys/fs/cgroup", kinds, path.strip("/"), name) for name in names]
            if path.strip("/") == "":
                break
            path = os.path.dirname(path)
    return [glob.escape(name) for name in found]


def queues() -> "dict[str, str]":
    """What waits before each interface, as tc says it."""
    tc = shutil.which("tc", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    try:
        said = subprocess.run([tc or "tc", "qdisc", "show"], stdout=subprocess.PIPE, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"/said/tc-qdisc-show": said.stdout.decode("utf-8", "replace").strip()}


def engine_says(places: "list[str]") -> "dict[str, object]":
    """Where it is, its version, and why transports are not there."""
    for place in places:
        path = shutil.which(place)
        if path is None:
            continue
        words = ""
        try:
            done = subprocess.run([path, "--info", "json"], capture_output=True, timeout=20, check=False)
            words = done.stderr.decode("utf-8", "replace").strip()
            info = json.loads(done.stdout.decode())
        except ValueError:
            said = (words.splitlines() or ["its answer to --info json cannot be read, so it is of another version"])[-1]
            return {"path": path, "error": said}
        except (OSError, subprocess.SubprocessError) as error:
            return {"path": path, "error": (words.splitlines() or [str(error)])[-1]}
        return {"path": path, "version": info["versions"]["incast"], "transports": info.get("transports", [])}
    return {"path": "", "error": "not found"}


def look(
    word: bytes, address: str, places: "list[str]", targets: "list[tuple[str, str, list[tuple[str, int]]]]"
) -> None:
    """All of this host."""
    steady = {**read(STEADY + control_groups()), **queues()}
    names = [path for pattern in NAMES for path in glob.glob(pattern)]
    moments = [read(MOVING)]
    for _ in range(2):
        time.sleep(1.0)
        moments.append(read(MOVING))
    asked = [(host, kind, port, where) for host, where, ports in targets for kind, port in ports]
    with ThreadPoolExecutor(max_workers=64) as pool:
        reached = list(pool.map(lambda each: [*each[:3], *ask(word, each[1], each[3], each[2])], asked))
        # Where small ones get through; of each host one port says it.
        ways = {
            each[0]: (each[2], where) for each, (_, _, _, where) in zip(reached, asked) if each[1:4:2] == ["udp", ""]
        }
        ways = {host: ways[host] for host in [each[0] for each in targets][:LARGE_HOSTS] if host in ways}
        large = dict(zip(ways, pool.map(lambda way: ask_large(word, way[1], way[0]), ways.values())))
    say({
        "interface": interface_of(address), "files": steady, "names": names, "moments": moments,
        "engine": engine_says(places), "reached": reached, "large": large,
    })  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "listen":
        listen(sys.argv[2].encode(), json.loads(sys.argv[3]))
    else:
        look(sys.argv[2].encode(), sys.argv[3], json.loads(sys.argv[4]), json.loads(sys.argv[5]))
