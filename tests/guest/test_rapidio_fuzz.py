"""What comes from user space by chance does the kernel no harm: ioctls of RapidIO's devices and of links that lead out
of the kernel, and datagrams for a port on UDP. INCAST_GUEST_SECONDS: how long each.
"""

import os
import re
import socket
from pathlib import Path

import pytest
from guest.steps import Step
from in_guest import BIN, TROUBLE, GuestRun, free_ports

SOFTRIO = BIN / "softrio"
SECONDS = float(os.environ.get("INCAST_GUEST_SECONDS", "60"))
# 20 users that are killed anywhere, each of which would not let go of the module; nothing of them is left. Then it is
# unloaded, and loaded again. Without rionet, which breaks the kernel when devices come and go.
KILLS = """
set -e
rmmod rionet
for round in $(seq 20); do
    {fuzz} 1000 $round >/dev/null &
    victim=$!
    read -r -t 0.$((RANDOM % 9 + 1)) <>/dev/ptmx || true
    for module in rio_soft rio_mport_cdev; do ! rmmod $module 2>/dev/null || exit 1; done
    kill -9 $victim
    wait $victim || true
done
while grep -q 'memory_blocks [1-9]' /sys/bus/platform/devices/rio_soft.?/counters; do
    read -r -t 0.1 <>/dev/ptmx || true
done
cat /sys/bus/platform/devices/rio_soft.?/counters
rmmod rio_cm rio_mport_cdev rio_soft
insmod {modules}/rio_soft.ko ports=4
insmod {modules}/rio_mport_cdev.ko
"""
# Links that nobody carries anywhere: what ports ask for is answered by chance. Nothing is unloaded afterwards: Linux
# 6.1 faults once its rio_mport_cdev, which has made device objects, has gone before the port (kernel/README.md).
LINKS = """
set -e
insmod {modules}/rapidio.ko hdid=1,2
insmod {modules}/rio_soft.ko ports=2 linked=1
insmod {modules}/rio_mport_cdev.ko
insmod {modules}/rio_cm.ko
{fuzz} {seconds} 1 >/run/ports &
ports=$!
{link_fuzz} {seconds} 2
wait $ports
cat /run/ports
cat /sys/bus/platform/devices/rio_soft.?/counters
"""
# In the guest alone. Endpoint 8 is the kernel's port; 6 comes through the program that changes its datagrams, and 7
# comes after it.
PORT_ID = 8
FABRIC = "udp:6=127.0.0.1:{own},7=127.0.0.1:{later},8=127.0.0.1:{kernel}?deadline_ms=10000"
SERVE = """
RIO_FABRIC=linux:0 {softrio} serve --window 1048576 >/run/serve 2>&1 &
until grep -q channel /run/serve; do kill -0 $! || exit 1; sleep 0.2; done
"""
PACKETS = """
{packets} {seconds} 1 {front} {real} {own} {kernel} >/run/packets &
changing=$!
export RIO_FABRIC='udp:6=127.0.0.1:{real},8=127.0.0.1:{front}?deadline_ms=3000' RIO_DESTID=6
while kill -0 $changing 2>/dev/null; do
    for words in 'ping 8 --count 3' 'write 8 text' 'read 8 64' 'doorbell 8 7' 'cm 8 text'; do
        timeout 20 {softrio} $words >/dev/null 2>&1
    done
done
wait $changing || exit 1
cat /run/packets
"""
AFTER = """
set -e
export RIO_FABRIC='{fabric}' RIO_DESTID=7
# The kernel still hands out the requests of clients that were killed; the server finds out one by one.
for try in $(seq 20); do
    if {softrio} cm 8 'still there?'; then break; fi
done
echo "channel open at try $try"
{softrio} ping 8 --count 3
{softrio} write 8 'hello, kernel'
{softrio} read 8 16
{softrio} doorbell 8 9
cat /sys/bus/platform/devices/rio_soft.0/counters
"""


def log_steps() -> list[Step]:
    return [Step("log", "dmesg | tail -n 200"), Step("trouble", f"dmesg | grep -E '{TROUBLE.pattern}'")]


@pytest.mark.usefixtures("everything")
def test_ioctls_by_chance_and_kills_do_no_harm(guest: GuestRun, modules: Path, programs: Path) -> None:
    fuzz = programs / "rio_fuzz"
    results = guest(
        [
            Step("ports", f"rio-ports.sh '{modules}' 4"),
            Step("fuzz", f"rmmod rionet && {fuzz} {SECONDS} 1 && insmod {modules}/rionet.ko", SECONDS + 60),
            Step("kills", KILLS.format(fuzz=fuzz, modules=modules), 240),
            *log_steps(),
        ]
    )
    print(results["fuzz"], results["kills"])
    for name in ("ports", "fuzz", "kills"):
        assert results[name].status == 0, (results[name], results["log"])
    assert re.findall(r"memory_blocks (\d+)", results["kills"].output) == ["0"] * 4
    assert results["trouble"].status == 1, (results["trouble"], results["log"])


@pytest.mark.usefixtures("everything")
def test_links_of_the_kernel_bear_ioctls_by_chance(guest: GuestRun, modules: Path, programs: Path) -> None:
    """While the ports at their near ends are used by chance, too."""
    words = {"fuzz": programs / "rio_fuzz", "link_fuzz": programs / "rio_link_fuzz", "modules": modules}
    results = guest([Step("links", LINKS.format(seconds=SECONDS, **words), SECONDS + 120), *log_steps()])
    print(results["links"])
    assert results["links"].status == 0, (results["links"], results["log"])
    for call in ("NEXT", "ANSWER", "DOORBELL", "MESSAGE", "REGISTER", "WINDOW"):
        taken = re.search(rf"^RS_LINK_IOCTL_{call}: \d+ made, (\d+) taken$", results["links"].output, re.M)
        assert taken and int(taken[1]) > 0, (call, results["links"])
    assert results["trouble"].status == 1, (results["trouble"], results["log"])


@pytest.mark.usefixtures("everything")
def test_a_port_on_udp_bears_datagrams_by_chance(guest: GuestRun, modules: Path, programs: Path) -> None:
    """From the address of a peer, with the numbers of its session. Afterwards the port does all that it did before."""
    names = ("real", "front", "own", "later", "kernel")
    ports = dict(zip(names, free_ports(socket.SOCK_DGRAM, len(names)), strict=True))
    fabric = FABRIC.format(**ports)
    words = {"softrio": SOFTRIO, "packets": programs / "rio_packets", "fabric": fabric, **ports}
    results = guest(
        [
            Step("link", f"rio-link.sh {modules} {SOFTRIO} '{fabric}' {PORT_ID}", 240),
            Step("serve", SERVE.format(**words), 240),
            Step("packets", PACKETS.format(seconds=SECONDS, **words), SECONDS + 180),
            Step("after", AFTER.format(**words), 240),
            Step("carrier", "tail -n 20 /run/rio-link /run/serve"),
            *log_steps(),
        ]
    )
    print(results["packets"], results["after"])
    for name in ("link", "serve", "packets", "after"):
        assert results[name].status == 0, (results[name], results["carrier"], results["log"])
    assert "68 65 6c 6c 6f" in results["after"].output
    assert f"endpoint {PORT_ID} answers: still there?" in results["after"].output
    assert results["trouble"].status == 1, (results["trouble"], results["log"])
