"""What processes have of each other's memory: a readout unit has none where another's fragments lie (EB-T10)."""

import signal
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from support import Run, Start, wait_until
from transports import SHARED_MEMORY

NODES = 4
SETTINGS = {
    "transport.name": SHARED_MEMORY,
    "run.nodes": NODES,
    "run.warm_up": "0s",
    "run.duration": "120s",  # until it is stopped
    "protocol.mfp_size": "16KiB",
    "source.trigger_rate": "1kHz",
    "sink.kind": "verify",
}


def memory_of(pid: int) -> set[int]:
    """The shared memory that the process can write to, mapped or by a descriptor: inodes."""
    found: set[int] = set()
    try:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            words = line.split()
            if len(words) > 5 and words[5] == "/memfd:incast" and "w" in words[1]:
                found.add(int(words[4]))
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if str(descriptor.readlink()).startswith("/memfd:incast"):
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
    ("layout", "bounds", "of_two", "of_all"),
    [
        # An inbox for messages is everybody's. So are slots in one piece; a source's own are its readout unit's alone.
        ("per-source", "region", NODES * (NODES - 1), NODES),
        ("contiguous", "trusted", 0, 2 * NODES),
    ],
)
def test_eb_t10_memory_is_handed_to_its_writer_alone(
    start: Start, layout: str, bounds: str, of_two: int, of_all: int
) -> None:
    run = start({**SETTINGS, "protocol.layout": layout}, "--spawn", str(NODES))
    watch = Watch(run)

    def is_handed_out() -> bool:
        found = watch.look()
        # A source's own memory never goes further, not even on its way.
        assert len(watch.of_many) <= of_all, found
        return (found[2], found[NODES]) == (of_two, of_all)

    wait_until(is_handed_out, "memory in the hands of all who are to have it", 60)
    run.wait_for_phase("measuring")
    assert is_handed_out(), watch.look()
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.story()
    result = run.result()
    assert (result["status"], result["bounds"], result["incomplete_events"]) == ("interrupted", bounds, 0)
