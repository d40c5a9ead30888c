"""Whether a machine is idle while something is measured on it: what others took of it, from /proc.

Two readings are taken within the steady phase of a program. They give

- its CPU time: user and system time of its processes and of all they started, from /proc/PID/stat. What the kernel
  does for it in interrupts on its account is in there (unless the kernel is built to keep it apart).
- what others took: the machine's user, nice and system time (/proc/stat), less that of the program's processes and of
  this one. Counting the machine and not the processes that can be seen also finds those of other containers.
- steal: time that the hypervisor gave to other machines.
- of each of its processes, the time it ran, and the time it was ready to run and waited for a core
  (/proc/PID/schedstat, first thread).

Nothing beyond the standard library is needed here: benchmarks import it without the package being installed.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TICKS_KNOWN = 10  # a window of fewer has no shares
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Machine:
    """CPU seconds of the whole machine since it was started."""

    busy: float  # user, nice, system: in some process
    irq: float  # interrupts, hard and soft, that no process is charged for
    steal: float

    @staticmethod
    def parse(stat: str) -> "Machine":
        """From the text of /proc/stat; guest time is part of user time there."""
        user, nice, system, _idle, _iowait, irq, softirq, steal = (
            int(word) for word in stat.split("\n", maxsplit=1)[0].split()[1:9]
        )
        return Machine((user + nice + system) / _TICKS_PER_S, (irq + softirq) / _TICKS_PER_S, steal / _TICKS_PER_S)


@dataclass(frozen=True)
class Process:
    """One line of /proc/PID/stat: `cpu` is its own time and that of its children that ended and were waited for."""

    parent: int
    cpu: float

    @staticmethod
    def parse(stat: str) -> "Process":
        """The name, in parentheses, may contain anything: the fields begin behind the last one."""
        fields = stat[stat.rindex(")") + 1 :].split()
        return Process(int(fields[1]), sum(int(word) for word in fields[11:15]) / _TICKS_PER_S)


def read_processes() -> dict[int, Process]:
    """All processes there are, by pid."""
    found: dict[int, Process] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found[int(folder.name)] = Process.parse((folder / "stat").read_text(encoding="utf-8", errors="replace"))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
    return found


def tree_of(processes: Mapping[int, Process], roots: Sequence[int]) -> set[int]:
    """The roots that are there, and everything below them."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    waiting, seen = list(roots), set[int]()
    while waiting:
        pid = waiting.pop()
        if pid in processes and pid not in seen:
            seen.add(pid)
            waiting += children.get(pid, [])
    return seen


def tree_cpu(processes: Mapping[int, Process], roots: Sequence[int]) -> float:
    """CPU seconds of the roots and everything below them."""
    return sum(processes[pid].cpu for pid in tree_of(processes, roots))


@dataclass(frozen=True)
class Readiness:
    """Seconds that a process ran, and that it was ready to run and had no core."""

    ran: float
    waited: float

    @staticmethod
    def read(pid: int) -> "Readiness | None":
        """None if it has ended, or if the kernel does not say it."""
        try:
            ran, waited, *_ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
            return Readiness(int(ran) * 1e-9, int(waited) * 1e-9)
        except (OSError, ValueError):
            return None


@dataclass(frozen=True)
class Snapshot:
    """One reading of /proc on account of the processes below `roots`."""

    at: float
    machine: Machine
    program: float
    harness: float
    processes: Mapping[int, Readiness] = field(default_factory=dict)

    @staticmethod
    def clock() -> float:
        """Of `at`, in seconds."""
        return time.monotonic()

    @staticmethod
    def take(roots: Sequence[int]) -> "Snapshot":
        """Reads the clock and /proc."""
        processes = read_processes()
        machine = Machine.parse(Path("/proc/stat").read_text(encoding="ascii"))
        own = time.process_time()
        readiness = {pid: read for pid in tree_of(processes, roots) if (read := Readiness.read(pid)) is not None}
        return Snapshot(Snapshot.clock(), machine, tree_cpu(processes, roots), own, readiness)


@dataclass(frozen=True)
class Window:
    """What happened between two snapshots, in CPU seconds."""

    seconds: float
    cpu: float
    others: float
    irq: float
    steal: float
    processes: tuple[Readiness, ...] = ()  # those that were there all the time

    @staticmethod
    def between(first: Snapshot, second: Snapshot) -> "Window":
        """`others` may come out a little below zero: the machine's time is counted in ticks."""
        cpu = second.program - first.program
        own = second.harness - first.harness
        return Window(
            seconds=second.at - first.at,
            cpu=cpu,
            others=max(0.0, second.machine.busy - first.machine.busy - cpu - own),
            irq=second.machine.irq - first.machine.irq,
            steal=second.machine.steal - first.machine.steal,
            processes=tuple(
                Readiness(after.ran - before.ran, after.waited - before.waited)
                for pid, after in sorted(second.processes.items())
                if (before := first.processes.get(pid)) is not None
            ),
        )

    @property
    def is_known(self) -> bool:
        """Whether it is long enough to say shares of it: the machine's time is counted in ticks."""
        return self.seconds >= _TICKS_KNOWN / _TICKS_PER_S

    def shares(self, cores: int) -> dict[str, float | None]:
        """Of all cores: what the run had, what others had, what was stolen; None where it was too short to say."""
        capacity = self.seconds * cores
        return {
            f"{name}_cpu_fraction": round(min(seconds / capacity, 1.0), 4) if self.is_known else None
            for name, seconds in (("run", self.cpu), ("others", self.others), ("stolen", self.steal))
        }


class MeasuredPhase:
    """What the machine did during the measured phase of an engine, which reports its phases."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before: Snapshot | None = None
        self.window: Window | None = None  # once the phase is over

    def on_phase(self, name: str) -> None:
        """Looks at /proc where the measured phase begins and where it ends."""
        if name == "measuring":
            self._before = Snapshot.take([self._pid])
        elif self._before is not None and self.window is None:
            self.window = Window.between(self._before, Snapshot.take([self._pid]))


@dataclass(frozen=True)
class IdleRule:
    """What others may take of all cores for a measurement to count."""

    others: float = 0.05
    steal: float = 0.02

    def broken_by(self, window: Window, cores: int) -> str | None:
        """Why that window does not count; None if it does."""
        capacity = window.seconds * cores
        for name, seconds, allowed in (("others", window.others, self.others), ("steal", window.steal, self.steal)):
            if seconds > allowed * capacity:
                return f"{name} took {min(seconds / capacity, 1.0):.1%} of the CPU time, more than {allowed:.0%}"
        return None


def usable_cores() -> int:
    """Those this process may run on."""
    return len(os.sched_getaffinity(0))
