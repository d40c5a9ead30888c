"""The kernel's RapidIO over master ports of software (kernel/): every ioctl of its devices, packets of the network,
loading and unloading, and the transport `rio` over them.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from guest.steps import Step
from in_guest import BIN, EVENTS, NODES, ROOT, TROUBLE, GuestRun, build, check_all, check_built, out_folder, result_of
from transports import RAPIDIO

HERE = Path(__file__).parent
SENDER = "/sys/bus/platform/devices/rio_soft.0/portwrite"
INTERFACES = ("rio_mport_cdev.h", "rio_cm_cdev.h")
# SoftRIO's library over the same ports: one process has port 1, the others take port 0 in turn.
SOFTRIO = """
set -e
RIO_FABRIC=linux:1 {softrio} serve --window 1048576 >/run/serve 2>&1 &
until grep -q endpoint /run/serve; do kill -0 $!; sleep 0.05; done
export RIO_FABRIC=linux:0
{softrio} list
{softrio} write 0 'hello, kernel'
{softrio} read 0 16
{softrio} doorbell 0 7
{softrio} cm 0 'are you there?'
! RIO_FABRIC=linux:1 {softrio} list || exit 1
kill $!
wait $! || true
"""
# Loaded again, ports are new ones: 2 to 5, of which 2 is made the host. They are joined by a switch.
RELOAD = """
set -e
refused() {{ if "$@" 2>/run/refused; then exit 1; fi; cat /run/refused; }}
cat /sys/bus/platform/devices/rio_soft.?/counters
exec 5</dev/rio_mport0
refused rmmod rio_soft
refused rmmod rio_mport_cdev
exec 5<&-
rmmod rionet rio_cm rio_mport_cdev
rmmod rio_soft
refused ls /dev/rio_mport0
refused insmod {modules}/rio_soft.ko ports=9
insmod {modules}/rio_soft.ko ports=4 large=1
for driver in rio_mport_cdev rio_cm rionet; do insmod {modules}/$driver.ko; done
python3 -c 'import fcntl; fcntl.ioctl(open("/dev/rio_mport2"), {hdid_set}, b"\\1\\0")'
for port in 2 3 4 5; do echo $port >/sys/bus/rapidio/scan; done
ls /sys/bus/rapidio/devices
"""
HDID_SET = 0x40026D01  # RIO_MPORT_MAINT_HDID_SET
# Each port's interface in a network namespace of its own, or the kernel would not use them.
PING = """
set -e
for port in 2 3; do
    name="$(ls /sys/class/rapidio_port/rapidio$port/net)"
    ip netns add port$port
    ip link set "$name" netns port$port
    ip -n port$port address add 10.9.0.$port/24 dev "$name"
    ip -n port$port link set "$name" up
done
# The first may go before the peers have told each other that they are there.
until ip netns exec port2 ping -q -c 1 -W 1 10.9.0.3; do :; done
ip netns exec port2 ping -q -c 20 -i 0.05 -s 3000 10.9.0.3
cat /sys/bus/platform/devices/rio_soft.?/counters
"""
# Each node takes a master port of its own.
BUILDING: dict[str, Any] = {
    "transport.name": RAPIDIO,
    f"transport.{RAPIDIO}.fabric": "linux:any",
    f"transport.{RAPIDIO}.layout": "segments",
    f"transport.{RAPIDIO}.connect_timeout": "60s",
    "run.nodes": NODES,
    "run.events": EVENTS,
    "protocol.packing": 20,
    "protocol.mfp_size": "16KiB",
    "sink.kind": "verify",
    # An emulated processor may stand still for seconds while the host is busy.
    "protocol.detection_deadline": "60s",
    "protocol.late_after": "60s",
}
SCHEMES: dict[str, dict[str, Any]] = {
    "push": {},
    "pull": {},
    # A readout unit shows 17 MB there.
    "pull-read": {f"transport.{RAPIDIO}.segment": "4MiB"},
    "push-pull": {"filter.accept": 0.7},
}


@pytest.fixture(scope="session")
def ioctls() -> set[str]:
    """All that the kernel's headers define."""
    texts = [(Path("/usr/include/linux") / name).read_text() for name in INTERFACES]
    return {name for text in texts for name in re.findall(r"#define\s+(RIO_\w+)\s*\\?\s*_IO[RW]", text)}


# The tests of SoftRIO's API over the ports of `rio-ports.sh MODULES 4 large=1`.
API_TEST = BIN.parent / "test-bin" / "softrio_test"
API_SUITES = ("Cm", "Dma", "Events", "Faults", "Mgmt")
API = """
cd {root}
exec env SOFTRIO_TEST_FABRIC=linux {test} --gtest_brief=1 --gtest_filter={filter}
"""


def api_tests(*names: str) -> Step:
    return Step("api", API.format(root=ROOT, test=API_TEST, filter=shlex.quote(":".join(names))), 300)


def scheme(name: str, **more: Any) -> Step:
    return build(name, {**BUILDING, "protocol.scheme": name, **SCHEMES[name], **more})


def test_programs_use_every_ioctl_the_network_runs_and_events_are_built(
    guest: GuestRun, tmp_path: Path, modules: Path, programs: Path, ioctls: set[str]
) -> None:
    """One boot: two ports back to back, then four behind a switch."""
    results = guest(
        [
            Step("ports", f"rio-ports.sh '{modules}' 2"),
            Step("devices", f"exec '{programs}/rio_devices' {SENDER}"),
            Step("softrio", SOFTRIO.format(softrio=BIN / "softrio")),
            Step("reload", RELOAD.format(modules=modules, hdid_set=HDID_SET)),
            Step("multicast", f"exec '{programs}/rio_multicast' 2"),
            scheme("push"),
            scheme("pull"),
            Step("ping", PING),
            Step("log", "dmesg"),
        ]
    )
    for name in ("ports", "devices", "softrio", "reload", "multicast", "push", "pull", "ping"):
        print(f"{name}: {results[name].seconds:.1f} s")
        assert results[name].status == 0, (results[name], results["log"])
    seen = set(re.findall(r"^(RIO_\w+): ", results["devices"].output, re.M))
    assert seen == ioctls
    for said in (
        "68 65 6c 6c 6f",
        "hello, kernel",
        "endpoint 0 answers: are you there?",
        "is taken by another process",
    ):
        assert said in results["softrio"].output, results["softrio"]
    found = re.findall(r"^0([2345]):([es]):", results["reload"].output, re.M)
    assert sorted(found) == sorted((port, kind) for port in "2345" for kind in "eees"), results["reload"]
    assert "20 received, 0% packet loss" in results["ping"].output, results["ping"]
    for name in ("reload", "ping"):
        assert re.findall(r"^lost_messages (\d+)$", results[name].output, re.M) in (["0"] * 2, ["0"] * 4), results[name]
    assert not TROUBLE.search(results["log"].output), results["log"]
    for name in ("push", "pull"):
        check_built(out_folder(tmp_path) / name, results[name])
        assert result_of(out_folder(tmp_path) / name)["bounds"] == "trusted", "no window is guarded there"


@pytest.mark.usefixtures("everything")
def test_the_api_does_the_same_on_ports_of_the_kernel(guest: GuestRun, modules: Path) -> None:
    """All that the other fabrics are tested with; programs as others write them, that make no demands on a fabric."""
    programs = (f"*/{name}" for name in ("devices", "errors", "files", "names", "strides", "waits"))
    names = (*(f"{suite}.*" for suite in API_SUITES), "Guard.TheKernel*", "Programs.Cpp*", *programs)
    results = guest([Step("ports", f"rio-ports.sh '{modules}' 4 large=1"), api_tests(*names), Step("log", "dmesg")])
    print(results["api"])
    for name in ("ports", "api"):
        assert results[name].status == 0, results[name]
    assert not TROUBLE.search(results["log"].output), results["log"]


@pytest.mark.usefixtures("everything")
def test_events_are_built_over_master_ports_of_the_kernel(guest: GuestRun, tmp_path: Path, modules: Path) -> None:
    """Each scheme, and notices in memory; those by CM need a kernel for each node."""
    steps = [Step("nodes", f"rio-ports.sh '{modules}' {NODES}"), *(scheme(name) for name in SCHEMES)]
    settings = {**BUILDING, "protocol.scheme": "push", f"transport.{RAPIDIO}.notice": "memory"}
    steps += [build("memory", settings), Step("log", "dmesg")]
    results = guest(steps)
    check_all(results, out_folder(tmp_path), [*SCHEMES, "memory"])
    assert not TROUBLE.search(results["log"].output), results["log"]
