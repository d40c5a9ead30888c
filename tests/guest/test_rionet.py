"""Two guests whose kernels have a RapidIO port each on one fabric over UDP: the kernel's Ethernet over RapidIO (rionet)
carries TCP/IP between them.
"""

import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from guest.steps import Result, Step
from in_guest import BIN, TROUBLE, GuestRun

SOFTRIO = BIN / "softrio"
COPY = Path(__file__).with_name("copy_file.py")
COPIED_BYTES = 1 << 20
UP = """
set -e
me=$INCAST_GUEST_SIDE
other=$((3 - me))
net-host.sh
rio-link.sh {modules} {softrio} 'udp:1=10.0.1.1:7000,2=10.0.1.2:7000?deadline_ms=30000' $me $other
card="$(ls /sys/class/rapidio_port/rapidio0/net)"
ip address add 10.9.0.$me/24 dev "$card"
ip link set "$card" up
ip link show "$card"
# The first packets may go before the peers have told each other that they are there.
until ping -q -c 1 -W 1 10.9.0.$other; do [ $SECONDS -lt 200 ] || exit 1; done
"""
# Both at the same time. Neither goes before the copy is done.
PING = "exec timeout 100 ping -q -c 20 -i 0.2 -s 3000 10.9.0.$((3 - INCAST_GUEST_SIDE))"
IPERF = """
if [ $INCAST_GUEST_SIDE = 2 ]; then exec timeout 140 iperf3 -s -1 >/dev/null; fi
# With -J its status is 0 even if nobody was there.
until timeout 60 iperf3 -c 10.9.0.2 --connect-timeout 5000 -t5 -J {more} >/run/said && ! grep -q '"error"' /run/said; do
    [ $SECONDS -lt 100 ] || {{ cat /run/said; exit 1; }}
    sleep 0.2
done
cat /run/said
"""
COPYING = """
if [ $INCAST_GUEST_SIDE = 2 ]; then exec timeout 200 python3 {copy} serve 10.9.0.2 7000; fi
exec timeout 200 python3 {copy} ask 10.9.0.2 7000 {bytes}
"""


def goodput_mbps(said: Result) -> float:
    """As the receiver has it."""
    report = json.loads(said.output[said.output.index("{") :])
    return float(report["end"]["sum_received"]["bits_per_second"]) / 1e6


@pytest.mark.usefixtures("everything")
def test_the_kernels_ethernet_carries_tcp_between_guests(guest: GuestRun, tmp_path: Path, modules: Path) -> None:
    """Packets of 3000 bytes, iperf3 both ways, a file there and back."""
    words = {"modules": modules, "softrio": SOFTRIO, "copy": COPY, "bytes": COPIED_BYTES}
    if not shutil.which("iperf3"):
        pytest.skip("no iperf3 on this host")
    steps = [
        Step("up", UP.format(**words), 240),
        Step("ping", PING, 120),
        Step("there", IPERF.format(more=""), 150),
        Step("back", IPERF.format(more="-R"), 150),
        Step("copy", COPYING.format(**words), 210),
        Step("counters", "cat /sys/bus/platform/devices/rio_soft.0/counters"),
        Step("carrier", "tail -n 20 /run/rio-link"),
        Step("log", "dmesg"),
    ]
    peer = f"{tmp_path.name[-20:]}-{os.getpid()}"
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda _: guest(steps, peer=peer), range(2)))
    for results in both:
        for name in ("up", "ping", "there", "back", "copy"):
            print(f"{name}: {results[name].seconds:.1f} s")
            assert results[name].status == 0, (results[name], results["carrier"], results["log"])
        assert "mtu 4082" in results["up"].output, results["up"]
        assert "20 received, 0% packet loss" in results["ping"].output, results["ping"]
        assert not TROUBLE.search(results["log"].output), results["log"]
    asking = next(results for results in both if "sent" in results["copy"].output)
    digests = {each for results in both for each in re.findall(r"^[0-9a-f]{64}", results["copy"].output, re.M)}
    assert len(digests) == 1, both
    for name in ("there", "back"):
        print(f"iperf3 {name}: {goodput_mbps(asking[name]):.1f} Mb/s")
        assert goodput_mbps(asking[name]) > 0
    print(asking["ping"].output, asking["copy"].output, asking["counters"].output)
