"""Whether a machine is idle while something is measured on it: what others took of it, from /proc.

Two readings are taken within the steady phase of a program. They give

- its CPU time: user and system time of its processes and of all they started, from /proc/PID/stat. What the kernel
  does for it in interrupts on its account is in there (unless the kernel is built to keep it apart).
- what others took: the machine's user, nice and system time (/proc/stat), less that of the program's processes and of
  this one. Counting the machine and not the processes that can be seen also finds those of other containers.
- steal: time that the hypervisor gave to other machines.

Nothing beyond the standard library is needed here: benchmarks import it without the package being installed.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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


def tree_cpu(processes: Mapping[int, Process], roots: Sequence[int]) -> float:
    """CPU seconds of the roots and everything below them."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    total, waiting, seen = 0.0, list(roots), set[int]()
    while waiting:
        pid = waiting.pop()
        if pid in processes and pid not in seen:
            seen.add(pid)
            total += processes[pid].cpu
            waiting += children.get(pid, [])
    return total


@dataclass(frozen=True)
class Snapshot:
    """One reading of /proc on account of the processes below `roots`."""

    at: float
    machine: Machine
    program: float
    harness: float

    @staticmethod
    def take(roots: Sequence[int]) -> "Snapshot":
        """Reads the clock and /proc."""
        processes = read_processes()
        machine = Machine.parse(Path("/proc/stat").read_text(encoding="ascii"))
        own = time.process_time()
        return Snapshot(time.monotonic(), machine, tree_cpu(processes, roots), own)


@dataclass(frozen=True)
class Window:
    """What happened between two snapshots, in CPU seconds."""

    seconds: float
    cpu: float
    others: float
    irq: float
    steal: float

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
        )


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
                return f"{name} took {seconds / capacity:.1%} of the CPU time, more than {allowed:.0%}"
        return None


def usable_cores() -> int:
    """Those this process may run on."""
    return len(os.sched_getaffinity(0))
