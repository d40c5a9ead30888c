"""What processes have of each other's memory: a readout unit has none where another's fragments lie (EB-T10)."""

import errno
import os
import signal
import socket
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from support import Run, Start, wait_until
from transports import RAPIDIO, SHARED_MEMORY

NODES = 4
TIMES = 4  # that the liar lies in each place
TOKEN = "0123456789abcdef0123456789abcdef"
SETTINGS = {
    "run.nodes": NODES,
    "run.warm_up": "0s",
    "run.duration": "120s",  # until it is stopped
    "protocol.mfp_size": "16KiB",
    "source.trigger_rate": "1kHz",
    "sink.kind": "verify",
}


def memory_of(pid: int) -> set[int]:
    """The shared memory that the process can write to, mapped or by a descriptor: inodes."""
    names = ("/memfd:incast", "/memfd:softrio")
    found: set[int] = set()
    try:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            words = line.split()
            if len(words) > 5 and words[5] in names and "w" in words[1]:
                found.add(int(words[4]))
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if str(descriptor.readlink()).startswith(names):
                    found.add(descriptor.stat().st_ino)
            except FileNotFoundError:
                pass  # closed meanwhile
    except (FileNotFoundError, ProcessLookupError):
        pass  # the process is over; what the test waits for does not come
    return found


class Watch:
    """Looks again and again at who has what; what more than two had is remembered."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.of_many: set[int] = set()

    def look(self) -> Counter[int]:
        """How many pieces of memory have so many holders."""
        holders: dict[int, int] = defaultdict(int)
        for pid in self._run.all_node_pids():
            for inode in memory_of(pid):
                holders[inode] += 1
        self.of_many |= {inode for inode, count in holders.items() if count > 2}
        return Counter(holders.values())


@pytest.mark.parametrize(
    ("transport", "layout", "bounds", "held"),
    [
        # An inbox for messages is everybody's. So are slots in one piece; a source's own are its readout unit's alone.
        (SHARED_MEMORY, "per-source", "region", (NODES * (NODES - 1), NODES)),
        (SHARED_MEMORY, "contiguous", "trusted", (0, 2 * NODES)),
        # Here it is a block of each endpoint, and slots for messages.
        (RAPIDIO, "per-source", "region", (NODES * (NODES - 1), 2 * NODES)),
        (RAPIDIO, "contiguous", "trusted", (0, 3 * NODES)),
    ],
)
def test_eb_t10_memory_is_handed_to_its_writer_alone(
    start: Start, transport: str, layout: str, bounds: str, held: tuple[int, int]
) -> None:
    """`held`: pieces of memory that two processes have, and that all have."""
    run = start({**SETTINGS, "transport.name": transport, "protocol.layout": layout}, "--spawn", str(NODES))
    watch = Watch(run)

    def is_handed_out() -> bool:
        found = watch.look()
        # A source's own memory never goes further, not even on its way.
        assert len(watch.of_many) <= held[1], found
        return (found[2], found[NODES]) == held

    wait_until(is_handed_out, "memory in the hands of all who are to have it", 60)
    run.wait_for_phase("measuring")
    assert is_handed_out(), watch.look()
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.story()
    result = run.result()
    assert (result["status"], result["bounds"], result["incomplete_events"]) == ("interrupted", bounds, 0)


def lies_of(path: Path) -> tuple[Counter[int], Counter[int]]:
    """Outcomes of what the liar wrote where it may, and elsewhere; the last line may be half there."""
    lines = [line.split() for line in path.read_text().split("\n")[:-1]] if path.exists() else []
    truths, lies = ([int(outcome) for what, outcome in lines if what == wanted] for wanted in ("truth", "lie"))
    return Counter(truths), Counter(lies)


@pytest.mark.parametrize("fabric", ["shm", "udp"])
def test_eb_t10_a_lying_readout_unit_over_rapidio_reaches_nothing_of_others(
    start: Start, engine: Path, tmp_path: Path, fabric: str
) -> None:
    """It goes past the transport, with raw operations of SoftRIO of the same endpoint.

    Each of its writes waits for some seventy of them, one after the other: on a busy host that is seconds, in which it
    is neither late nor dead.
    """
    modules = engine.parent.parent / "lib" / "lying"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as keeps_port:
        keeps_port.bind(("127.0.0.1", 0))
        udp = {f"transport.{RAPIDIO}.fabric": f"udp:loopback:{keeps_port.getsockname()[1]}"}
        run = start(
            {
                **SETTINGS,
                "transport.name": RAPIDIO,
                "protocol.layout": "per-source",
                "protocol.detection_deadline": "60s",
                "protocol.late_after": "30s",
                **(udp if fabric == "udp" else {}),
            },
            "--spawn",
            str(NODES - 1),
            token=TOKEN,
        )
        address = run.wait_for(lambda report: report["type"] == "listening", "address")["address"]
        command = [engine, "--join", address, "--node", str(NODES - 1), "--output", tmp_path / "liar"]
        said = tmp_path / "lies"
        environment = {"INCAST_TOKEN": TOKEN, "INCAST_TRANSPORT_MODULES": str(modules), "INCAST_LIES": str(said)}
        with subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL) as liar:
            try:
                # Each of its peers has been lied to.
                wait_until(lambda: lies_of(said)[0].total() >= TIMES * (NODES - 1), "lies", 60)
                run.process.send_signal(signal.SIGINT)
                assert run.finish() == 0, run.story()
                assert liar.wait(30) == 0
            finally:
                liar.kill()
    truths, lies = lies_of(said)
    assert set(truths) == {0}, truths
    assert set(lies) == {errno.EIO}, lies
    result = run.result()
    assert (result["status"], result["bounds"], result["incomplete_events"]) == ("interrupted", "region", 0)
    assert result["events"] > 0
